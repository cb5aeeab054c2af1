from __future__ import annotations

from typing import Any

from tests.config.loading import LoadingTestCase
from twisted_gateway.config.dump import dump
from twisted_gateway.config.sandbox import SessionsAdapter, amount
from twisted_gateway.config.schema import Secret

AT = "adapters: {sessions: {namespace: n, image: i, requireAuth: false%s}}\n"


class SandboxTests(LoadingTestCase):
    """`adapters.sessions`."""

    def adapter(self, more: str = "", **environ: str) -> SessionsAdapter:
        text = AT % (f", {more}" if more else "")
        adapter = self.load(text, environ).adapters["sessions"]
        assert isinstance(adapter, SessionsAdapter)
        return adapter

    def test_defaults(self) -> None:
        """An image and a namespace are enough."""
        self.assertEqual(
            self.adapter(),
            SessionsAdapter(name="sessions", namespace="n", image="i", require_auth=False),
        )

    def test_keys(self) -> None:
        """Every key has its place."""
        self.files["/t"] = "secret\n"
        adapter = self.adapter(
            "imagePullSecret: p, port: 9, storage: {class: c, size: 2Gi}, "
            "clusterDomain: c.example, "
            "resources: {requests: {cpu: 1}, limits: {cpu: 1.5, nvidia.com/gpu: '1'}}, "
            "fleet: 'http://f:1/', fleetSeconds: 1, memoryEntity: 'http://m/e/{session_id}?x=1', "
            "kubernetes: {server: 'https://k', token: {file: /t}, ca: /ca, serviceAccount: /sa}, "
            "gateway: {namespace: g, labels: {a/b: c}, port: 1}, reaperIntervalMinutes: 7, "
            "frontend: {namespace: f, labels: {d: ''}}, timeoutSeconds: 40"
        )
        self.assertEqual(
            adapter,
            SessionsAdapter(
                name="sessions",
                namespace="n",
                image="i",
                require_auth=False,
                image_pull_secret="p",
                port=9,
                storage_class="c",
                storage_size="2Gi",
                cluster_domain="c.example",
                requests={"cpu": "1"},
                limits={"cpu": "1.5", "nvidia.com/gpu": "1"},
                fleet="http://f:1",
                fleet_seconds=1,
                memory_entity="http://m/e/{session_id}?x=1",
                server="https://k",
                token=Secret("secret"),
                ca="/ca",
                service_account="/sa",
                gateway_namespace="g",
                gateway_labels={"a/b": "c"},
                gateway_port=1,
                frontend_namespace="f",
                frontend_labels={"d": ""},
                reaper_interval_minutes=7,
                timeout_seconds=40,
            ),
        )

    def test_dump(self) -> None:
        """The effective configuration loads again, and shows no token."""
        text = (
            AT % ", kubernetes: {server: 'https://k', token: hidden}, resources: {limits: {cpu: 1}}"
        )
        shown = dump(self.load(text))
        self.assertNotIn("hidden", shown)
        self.assertEqual(dump(self.load(shown)), shown)

    def test_in_a_cluster(self) -> None:
        """In a pod the API is where its environment says, unless the file does."""
        environ: dict[str, Any] = {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "KUBERNETES_SERVICE_PORT": "6443",
        }
        self.assertEqual(self.adapter(**environ).server, "https://10.0.0.1:6443")
        environ["KUBERNETES_SERVICE_HOST"] = "fd00::1"
        self.assertEqual(self.adapter(**environ).server, "https://[fd00::1]:6443")
        server = "kubernetes: {server: 'http://k:1'}"
        self.assertEqual(self.adapter(server, **environ).server, "http://k:1")

    def test_interval(self) -> None:
        """SANDBOX_REAPER_INTERVAL_MINUTES wins over the file."""
        minutes = {"SANDBOX_REAPER_INTERVAL_MINUTES": "2.5"}
        self.assertEqual(self.adapter(**minutes).reaper_interval_minutes, 2.5)
        both = self.adapter("reaperIntervalMinutes: 9", **minutes)
        self.assertEqual(both.reaper_interval_minutes, 2.5)

    def test_wrong(self) -> None:
        """What Kubernetes would refuse, or would lead elsewhere, is refused here."""
        id_in_path = "expected {session_id} in the path of the URL only"
        quantity = "expected a quantity such as 500m, 2 or 512Mi"
        for more, fault in (
            ("memoryEntity: 'http://{session_id}.x/'", f"memoryEntity: {id_in_path}"),
            ("memoryEntity: 'http://x/?s={session_id}'", f"memoryEntity: {id_in_path}"),
            (
                "memoryEntity: 'http://x/e'",
                "memoryEntity: expected a URL with {session_id} in its path",
            ),
            ("storage: {size: 1GB}", f"storage.size: {quantity}"),
            ("storage: {size: 0}", f"storage.size: {quantity}"),
            ("resources: {limits: {cpu: -1}}", f"resources.limits.cpu: {quantity}"),
            (
                "resources: {requests: {memory: 2Gi}}",
                'resources: expected requests within the limits: that of "memory" is above',
            ),
            (
                "clusterDomain: a_b",
                "clusterDomain: expected a DNS name: lower-case letters, digits, '-' and '.'",
            ),
            (
                "gateway: {labels: {}}",
                "gateway.labels: expected a mapping from the keys of labels to their values with "
                "at least 1 entry",
            ),
            (
                "frontend: {labels: {a: 'b c'}}",
                "frontend.labels.a: expected the value of a label: letters, digits, '-', '_', "
                "'.', at most 63",
            ),
        ):
            self.assertFaults(AT % f", {more}", f"f.yaml: line 1: adapters.sessions.{fault}")

    def test_needed(self) -> None:
        """Without an image and a namespace there is nothing to make, and nowhere."""
        self.assertFaults(
            "adapters: {sessions: {requireAuth: false}}\n",
            "f.yaml: line 1: adapters.sessions.image: expected a value: it is what a sandbox runs",
            "f.yaml: line 1: adapters.sessions.namespace: expected a value: it is where the "
            "sandboxes are",
        )

    def test_amount(self) -> None:
        """Quantities of all units compare."""
        ordered = ("1m", "0.5", "1", "1k", "1Ki", "1M", "1Mi", "1G", "1Gi", "1T", "1Ti", "1P", "1E")
        self.assertEqual(sorted(ordered, key=amount), list(ordered))

from __future__ import annotations

from tests.config.loading import LoadingTestCase
from tests.config.test_services import AUTH
from twisted_gateway.config import extras
from twisted_gateway.config.adapters import (
    IamAdapter,
    NotificationAdapter,
    RegistryAdapter,
    SqsAdapter,
    WorkflowAdapter,
)
from twisted_gateway.config.dump import dump
from twisted_gateway.config.schema import Secret

ALL = (
    AUTH
    + """
maxBodyBytes: 9
adapters:
  sqs: {upstream: "http://q:9324/", accessKey: k1, secretKey: s1}
  iam: {upstream: "http://a:9000", token: {file: /t}}
  notification: {upstream: "http://n", token: s3, maxBodyBytes: 5}
  registry: {upstream: "${REGISTRY_BASE:-http://forgejo-gitea-http.cicd:3000}"}
  workflow: {upstream: "Temporal-Frontend.temporal:7233"}
  cloud: {kind: workflow, upstream: "[FD00::1]:7233", tls: true, requireAuth: false}
"""
)


class AdapterTests(LoadingTestCase):
    """The adapters beside memory, s3 and sessions."""

    def setUp(self) -> None:
        super().setUp()
        self.files["/t"] = "s2\n"
        # Whether the extra is installed where the tests run is nobody's business.
        self.patch(extras, "WORKFLOW", ())

    def test_keys(self) -> None:
        """Every key has its place, and its default."""
        adapters = self.load(ALL).adapters
        self.assertEqual(
            list(adapters.values()),
            [
                SqsAdapter(
                    name="sqs",
                    upstream="http://q:9324",
                    access_key=Secret("k1"),
                    secret_key=Secret("s1"),
                    max_body_bytes=9,
                ),
                IamAdapter(
                    name="iam", upstream="http://a:9000", token=Secret("s2"), max_body_bytes=9
                ),
                NotificationAdapter(
                    name="notification", upstream="http://n", token=Secret("s3"), max_body_bytes=5
                ),
                RegistryAdapter(
                    name="registry",
                    upstream="http://forgejo-gitea-http.cicd:3000",
                    max_body_bytes=9,
                ),
                WorkflowAdapter(
                    name="workflow", upstream="temporal-frontend.temporal:7233", max_body_bytes=9
                ),
                WorkflowAdapter(
                    name="cloud",
                    upstream="[fd00::1]:7233",
                    tls=True,
                    require_auth=False,
                    max_body_bytes=9,
                ),
            ],
        )

    def test_registry_base(self) -> None:
        """REGISTRY_BASE says where packages and repositories are."""
        config = self.load(ALL, {"REGISTRY_BASE": "https://git.example/"})
        registry = config.adapters["registry"]
        assert isinstance(registry, RegistryAdapter)
        self.assertEqual(registry.upstream, "https://git.example")

    def test_dump(self) -> None:
        """What is shown loads again, and has no secret in it."""
        config = self.load(ALL)
        shown = dump(config)
        for secret in ("k1", "s1", "s2", "s3"):
            self.assertNotIn(secret, shown)
            self.assertNotIn(secret, repr(config))
        self.assertEqual(dump(self.load(shown)), shown)

    def test_what_they_need(self) -> None:
        """What an adapter cannot do without is named, with the reason."""
        self.assertFaults(
            AUTH + "adapters:\n  sqs: {upstream: http://q, accessKey: a}\n"
            "  iam: {upstream: http://a}\n  notification: {upstream: http://n, token: ''}\n"
            "  registry: {}\n",
            "f.yaml: line 3: adapters.sqs.secretKey: expected a value: every request to it is "
            "signed",
            "f.yaml: line 4: adapters.iam.token: expected a value: authentik lists its users to "
            "nobody without one",
            "f.yaml: line 5: adapters.notification.token: expected a value: Gotify takes messages "
            "from applications alone",
            "f.yaml: line 6: adapters.registry.upstream: expected a value: registry has no other",
        )

    def test_queues_without_token(self) -> None:
        """Nobody gets at queues without a token, whatever the file says, and it says why."""
        queues = "upstream: http://q, accessKey: a, secretKey: b"
        self.assertFaults(
            f"adapters:\n  sqs: {{{queues}, requireAuth: false}}\n",
            "f.yaml: line 2: adapters.sqs.requireAuth: expected true: whoever asks for queues "
            "needs a token",
        )
        self.load(AUTH + f"adapters: {{sqs: {{{queues}, requireAuth: true}}}}\n")

    def test_no_host_and_port(self) -> None:
        """Temporal is a host and a port, and no URL."""
        for upstream in ("t", "t:", "t:0", "t:99999", "http://t:7233", "t:7233/x", "[::x]:1", ":1"):
            error = self.refused(
                f"adapters: {{workflow: {{upstream: '{upstream}', requireAuth: false}}}}\n"
            )
            self.assertIn("expected HOST:PORT such as temporal-frontend:7233", str(error))

    def test_no_extra(self) -> None:
        """Where the extra is not installed the configuration says so, if it needs it."""
        self.patch(extras, "WORKFLOW", ("json", "grpc_that_is_not_there", "temporal_neither"))
        self.assertFaults(
            "adapters:\n  workflow: {upstream: 't:7233', requireAuth: false}\n",
            "f.yaml: line 2: adapters.workflow: expected grpc_that_is_not_there and "
            "temporal_neither to be installed: pip install 'twisted-gateway[workflow]'",
        )
        self.load("adapters: {registry: {upstream: http://r, requireAuth: false}}\n")

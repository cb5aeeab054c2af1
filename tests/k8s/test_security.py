"""What pods may do: each way to give them more is noticed."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.k8s.breaking import BreakingTestCase, container, part, put
from tests.k8s.objects import Objects, base
from tests.k8s.security import restricted


def pod(objects: Objects) -> Any:
    """The pod's spec, to be changed."""
    return objects.pod["spec"]


def context(objects: Objects) -> Any:
    """Its security context, to be changed."""
    return pod(objects)["securityContext"]


def own(objects: Objects) -> Any:
    """The container's, to be changed."""
    return container(objects)["securityContext"]


class RestrictedTests(BreakingTestCase):
    """`restricted`, and what a gateway has no use for."""

    def test_missing(self) -> None:
        """What has to be said is not."""
        for change, said in (
            (lambda o: own(o).pop("allowPrivilegeEscalation"), "may gain privileges"),
            (lambda o: own(o).pop("readOnlyRootFilesystem"), "root file system"),
            (lambda o: own(o).pop("capabilities"), "keeps capabilities"),
            (lambda o: container(o).pop("securityContext"), "keeps capabilities"),
            (lambda o: context(o).pop("runAsUser"), "as root"),
            (lambda o: context(o).pop("runAsNonRoot"), "as root"),
            (lambda o: context(o).pop("seccompProfile"), "seccomp"),
            (lambda o: context(o).pop("fsGroup"), "it can not read the volume secrets"),
        ):
            self.assertFault(restricted, change, said)

    def test_more(self) -> None:
        """A pod or a container has what the Standard does not allow, or nobody knows."""
        of_either: dict[str, list[object]] = {
            "appArmorProfile": [{"type": "Unconfined"}],
            "runAsNonRoot": [False],
            "runAsUser": [0],
            "seLinuxOptions": [{"type": "spc_t"}, {"user": "root"}, {"role": "system_r"}],
            "seccompProfile": [{"type": "Unconfined"}],
            "windowsOptions": [{"hostProcess": True}],
            "nobodyKnows": [True],
        }
        of_a_pod: dict[str, list[object]] = {
            **of_either,
            "sysctls": [[{"name": "kernel.msgmax", "value": "1"}]],
        }
        of_a_container: dict[str, list[object]] = {
            **of_either,
            "allowPrivilegeEscalation": [True],
            "capabilities": [{"drop": ["ALL"], "add": ["NET_ADMIN"]}],
            "privileged": [True],
            "procMount": ["Unmasked"],
            "readOnlyRootFilesystem": [False],
        }
        for where, whose, ways in (
            (context, "the pod", of_a_pod),
            (own, "gateway", of_a_container),
        ):
            for key, values in ways.items():
                for value in values:
                    with self.subTest(whose=whose, key=key, value=value):
                        said = f"{whose} has {key}: {value}"
                        self.assertFault(restricted, put(where, **{key: value}), said)
        drops = put(own, capabilities={"drop": ["NET_RAW"]})
        self.assertFault(restricted, drops, "gateway keeps capabilities")

    def test_host(self) -> None:
        """The host's network, processes, files and ports."""
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            self.assertFault(restricted, put(pod, **{name: True}), "its host")
        files = {"name": "etc", "hostPath": {"path": "/etc"}}
        self.assertFault(restricted, lambda o: pod(o)["volumes"].append(files), "the volume etc")
        self.assertFault(
            restricted,
            put(lambda o: container(o)["ports"][1], hostPort=8081),
            "gateway takes the port 8081 of its host",
        )

    def test_probes(self) -> None:
        """What kubelet is sent to ask elsewhere (a part of the Standard since 1.34)."""
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            http = {"path": "/health/live", "port": "admin", "host": "192.0.2.1"}
            elsewhere = put(partial(part, name=probe), httpGet=http)
            self.assertFault(restricted, elsewhere, f"gateway: {probe} asks 192.0.2.1")
        by_tcp = {"tcpSocket": {"host": "192.0.2.1", "port": 80}}
        self.assertFault(restricted, put(container, livenessProbe=by_tcp), "livenessProbe asks")
        for hook in ("postStart", "preStop"):
            handler = {"httpGet": {"host": "192.0.2.1", "port": 80}}
            hooked = put(lambda o: container(o)["lifecycle"], **{hook: handler})
            self.assertFault(restricted, hooked, f"{hook} asks 192.0.2.1")

    def test_first(self) -> None:
        """A container that comes first is one, too."""
        for given, said in (
            ({"securityContext": {"privileged": True}}, "first has privileged: True"),
            ({"ports": [{"hostPort": 80}]}, "first takes the port 80 of its host"),
        ):
            first = {"name": "first", "image": "example/first:1", **given}
            self.assertFault(restricted, put(pod, initContainers=[first]), said)

    def test_allowed(self) -> None:
        """What the Standard allows is an overlay's to choose."""
        for where, key, value in (
            (context, "runAsUser", 1000660000),
            (context, "fsGroup", 1000660000),
            (context, "supplementalGroups", [0]),
            (context, "seccompProfile", {"type": "Localhost", "localhostProfile": "gateway"}),
            (context, "seLinuxOptions", {"type": "container_t", "level": "s0:c1,c2"}),
            (context, "sysctls", [{"name": "net.ipv4.tcp_rmem", "value": "4096"}]),
            (own, "appArmorProfile", {"type": "RuntimeDefault"}),
            (own, "capabilities", {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
            (own, "privileged", False),
            (own, "procMount", "Default"),
        ):
            with self.subTest(key=key):
                changed = base().changed(put(where, **{key: value}))
                self.assertEqual(list(restricted(changed)), [])

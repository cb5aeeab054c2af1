"""What .ci/cluster.py makes of an overlay; kubectl's part is in the integration suite."""

from __future__ import annotations

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from tests.k8s.objects import Objects, base, check_labels, matches
from tests.support import TestCase
from tests.test_pipeline import COMMIT, DIGEST, program


class CandidateTests(TestCase):
    """.ci/cluster.py."""

    image = f"registry.example/gateway:{COMMIT}@{DIGEST}"
    name = "llm-gateway-check-1"

    def setUp(self) -> None:
        """Have the base for an overlay."""
        super().setUp()
        self.cluster, self.reader = program("cluster"), program("candidate")
        self.job = yaml.safe_load(self.cluster.MANIFEST.read_text())
        self.objects = base()
        self.live: dict[str, Any] = self.objects.pod["spec"]

    def candidate(self, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The Job and its ConfigMaps."""
        made: tuple[dict[str, Any], list[dict[str, Any]]] = self.cluster.candidate(
            *(self.job, list(self.objects.all), self.image, self.name),
            ["--models=reasoning", *options],
        )
        return made

    def made(self, *options: str) -> dict[str, Any]:
        """The pod's specification."""
        job, _ = self.candidate(*options)
        self.assertEqual(job["metadata"]["name"], self.name)
        pod: dict[str, Any] = job["spec"]["template"]["spec"]
        return pod

    def refused(self, why: str, *options: str) -> None:
        """It is, and says why."""
        given = (self.job, list(self.objects.all), self.image, self.name, list(options))
        fault = self.assertRaises(ValueError, self.cluster.candidate, *given)
        self.assertIn(why, str(fault))

    def test_both_are_the_new_image(self) -> None:
        """Gateway and check are of the image that is tried, by its digest."""
        pod = self.made()
        (gateway,) = pod["initContainers"]
        (check,) = pod["containers"]
        self.assertEqual((gateway["image"], check["image"]), (self.image, self.image))

    def test_as_it_will_run(self) -> None:
        """The gateway has all that the overlay gives it, but what would end or restart it."""
        (gateway,) = self.made()["initContainers"]
        (live,) = self.live["containers"]
        dropped = {"livenessProbe", "readinessProbe", "lifecycle"}
        kept = {name: value for name, value in live.items() if name not in dropped | {"image"}}
        self.assertEqual({**gateway, **kept}, gateway)
        self.assertFalse(dropped & gateway.keys())
        # Else the check would never begin.
        self.assertEqual(gateway["restartPolicy"], "Always")

    def test_the_whole_pod(self) -> None:
        """So has its pod: where it may run, how names are looked up, and what starts before it."""
        first = {"name": "first", "image": "registry.example/first:1"}
        self.live.update(
            nodeSelector={"pool": "gateways"},
            tolerations=[{"key": "gateways", "operator": "Exists"}],
            dnsConfig={"options": [{"name": "ndots", "value": "1"}]},
            hostAliases=[{"ip": "10.0.0.1", "hostnames": ["engine"]}],
            priorityClassName="high",
            runtimeClassName="kata",
            imagePullSecrets=[{"name": "registry"}],
            automountServiceAccountToken=True,
            initContainers=[first],
        )
        self.live["containers"].append({"name": "beside", "image": "registry.example/beside:1"})
        job, _ = self.candidate()
        kubernetes_validate.validate(job, "1.30", strict=True)
        pod = job["spec"]["template"]["spec"]
        others = {"containers", "initContainers", "volumes", "terminationGracePeriodSeconds"}
        for key in self.live.keys() - others:
            self.assertEqual(pod[key], self.live[key], key)
        names = [one["name"] for one in pod["initContainers"]]
        self.assertEqual(names, ["first", "gateway", "beside"])
        self.assertEqual(pod["initContainers"][0], first)
        self.assertEqual([one["name"] for one in pod["containers"]], ["check"])
        # As a Job's pod it ends, and as nobody streams through it, soon.
        own = self.job["spec"]["template"]["spec"]
        for key in ("restartPolicy", "terminationGracePeriodSeconds"):
            self.assertEqual(pod[key], own[key])

    def test_configuration(self) -> None:
        """It is that of the same commit, by a name that is the candidate's alone."""
        self.live["containers"][0]["envFrom"] = [{"configMapRef": {"name": "others"}}]
        job, (config,) = self.candidate()
        name = config["metadata"]["name"]
        self.assertTrue(name.startswith(f"{self.name}-"))
        self.assertEqual(config["data"]["config.yaml"], self.objects.config_text)
        kubernetes_validate.validate(config, "1.30", strict=True)
        pod = job["spec"]["template"]["spec"]
        mounted = [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
        self.assertEqual(mounted, [name])
        # What the overlay does not make is the cluster's own.
        self.assertEqual(
            pod["initContainers"][0]["envFrom"], [{"configMapRef": {"name": "others"}}]
        )

    def test_mounts(self) -> None:
        """Every volume that is mounted is there, once; none of one pod stands for the other's."""
        pod = self.made()
        names = [volume["name"] for volume in pod["volumes"]]
        self.assertEqual(len(names), len(set(names)))
        for container in (*pod["initContainers"], *pod["containers"]):
            for mount in container.get("volumeMounts", []):
                self.assertIn(mount["name"], names)
        self.job["spec"]["template"]["spec"]["volumes"] = [{"name": "secrets", "emptyDir": {}}]
        self.refused("volume", "--models=reasoning")

    def test_loopback(self) -> None:
        """The check asks the new gateway, and not the one that is in force."""
        (check,) = self.made("--accept", "400,404")["containers"]
        addresses = [one for one in check["args"] if one.startswith("http://")]
        self.assertEqual(
            addresses, ["http://127.0.0.1:8080", "http://127.0.0.1:9090"], check["args"]
        )
        self.assertEqual(check["args"][-2:], ["--accept", "400,404"])
        self.assertLessEqual({8080, 9090}, set(self.objects.ports.values()))

    def test_what_must_be_there_is_named(self) -> None:
        """Whatever is listed, which may be nothing, is not enough to be promoted."""
        for options in (
            *((), ("--accept", "400"), ("--skip", "models"), ("--skip=--models",)),
            # As a variable that nobody has set leaves them.
            *(("--models=",), ("--models", ""), ("--services=", "--accept=400"), ("--models",)),
            ("--models=,", "--services= "),
            ("--models", "--verbose"),
            ("--services", "-v", "--models", "--services"),
        ):
            self.refused("--models", *options)
        (check,) = self.job["spec"]["template"]["spec"]["containers"]
        given = check.pop("args")
        self.refused("--models")
        args = check["args"] = given
        for given in (["--models=a"], ["--services=s3"], ["--services", "s3"]):
            args += given
            self.cluster.candidate(self.job, list(self.objects.all), self.image, self.name, [])
            del args[-len(given) :]

    def test_report_is_in_the_log(self) -> None:
        """The Job's check writes its report where the log has it."""
        (check,) = self.made()["containers"]
        position = check["args"].index("--junit")
        self.assertEqual(check["args"][position + 1], "-")

    def test_valid(self) -> None:
        """Kubernetes takes it, to the last field."""
        job, _ = self.candidate()
        kubernetes_validate.validate(job, "1.30", strict=True)

    def test_untouched(self) -> None:
        """What was given is as it was: a second try begins with the same."""
        before = yaml.safe_dump((self.job, self.objects.all))
        self.made("--accept", "400")
        self.assertEqual(yaml.safe_dump((self.job, self.objects.all)), before)

    def test_no_such_container(self) -> None:
        """An overlay of something else is refused."""
        self.live["containers"][0]["name"] = "other"
        self.refused("no container gateway", "--models=a")
        self.objects = Objects(tuple(self.objects.of("ConfigMap")))
        self.refused("0 Deployments", "--models=a")

    def test_bound(self) -> None:
        """It bears the check's labels alone, by which NetworkPolicies bind it both ways."""
        labels = self.objects.pod["metadata"]["labels"]
        labels["team"] = "models"
        job, _ = self.candidate()
        self.assertEqual(job["spec"]["template"]["metadata"]["labels"], check_labels())
        bound = {"Ingress": 0, "Egress": 0}
        for policy in self.objects.of("NetworkPolicy"):
            if matches(policy["spec"]["podSelector"], check_labels()):
                for way in policy["spec"]["policyTypes"]:
                    bound[way] += 1
        self.assertTrue(all(bound.values()), bound)

    def test_half_a_pod(self) -> None:
        """What half an overlay has where Kubernetes wants something else is refused by name."""
        (gateway,) = self.live["containers"]
        for key, value, why in (
            ("containers", None, "no container gateway"),
            ("containers", {"gateway": gateway}, "containers of the Deployment llm-gateway is no"),
            ("containers", [None, gateway], "no list of items with a name"),
            ("containers", [{"image": "a:1"}, gateway], "no list of items with a name"),
            ("initContainers", "first", "initContainers of the Deployment llm-gateway"),
            ("volumes", [{"emptyDir": {}}], "volumes of the Deployment llm-gateway is no list"),
            ("volumes", [{"name": 5}], "volumes of the Deployment llm-gateway is no list"),
        ):
            before = self.live.get(key, [])
            self.live[key] = value
            self.refused(why, "--models=a")
            self.live[key] = before
        # What is written and left empty is not there.
        self.live["initContainers"] = None
        self.assertEqual(len(self.made()["initContainers"]), 1)

    def test_half_a_deployment(self) -> None:
        """A Deployment, or a Job, that ends too early."""
        deployment = self.objects.one("Deployment")
        for spec, why in (
            (None, "no container gateway"),
            ({"template": None}, "no container gateway"),
            ({"template": "pod"}, "template of the Deployment llm-gateway is no mapping"),
            ([], "spec of the Deployment llm-gateway is no mapping"),
        ):
            deployment["spec"] = spec
            self.refused(why, "--models=a")
        deployment["metadata"] = {}
        self.refused("0 Deployments llm-gateway", "--models=a")
        self.objects = base()
        pod = self.job["spec"]["template"]["spec"]
        (check,) = pod["containers"]
        check["args"] = ["http://llm-gateway:8080", "--wait", 300]
        self.refused("args of the Job is no list of texts", "--models=a")
        pod["containers"] = [check, check]
        self.refused("the Job has 2 containers", "--models=a")
        self.job["spec"] = None
        self.refused("the Job has 0 containers", "--models=a")
        self.job["metadata"] = "llm-gateway-check"
        self.refused("metadata of the Job is no mapping", "--models=a")

    def test_nameless_config_map(self) -> None:
        """A reference to a ConfigMap without a name is refused, wherever it stands."""
        (gateway,) = self.live["containers"]
        every: list[Any] = [None, {}, {"name": None}, {"name": ""}, {"name": 5}, [], "", "a"]
        for nameless in every:
            for key, tree, said in (
                ("envFrom", {"configMapRef": nameless}, "a configMapRef"),
                ("env", {"valueFrom": {"configMapKeyRef": nameless}}, "a configMapKeyRef"),
            ):
                before = gateway.get(key, [])
                gateway[key] = [{"name": "A", **tree}]
                self.refused(f"{said} names no ConfigMap", "--models=a")
                gateway[key] = before
            one: dict[str, Any] = {"configMap": nameless}
            for volume in (one, {"projected": {"sources": [one]}}):
                self.live["volumes"].append({"name": "a", **volume})
                self.refused("a configMap names no ConfigMap", "--models=a")
                self.live["volumes"].pop()

    def test_a_word_of_somebody_s_own(self) -> None:
        """A label or an attribute of a driver may have any name."""
        self.live["nodeSelector"] = {"configMap": "yes"}
        csi = {"driver": "d", "volumeAttributes": {"configMap": "a"}}
        self.live["volumes"].append({"name": "csi", "csi": csi})
        pod = self.made()
        self.assertEqual(pod["nodeSelector"], {"configMap": "yes"})
        self.assertIn({"name": "csi", "csi": csi}, pod["volumes"])

    def test_printed(self) -> None:
        """What kustomize prints without quotes is read as it is meant; half a file is refused."""
        texts = "data: {a: =, b: <<, c: 2001-12-14 21:59:43.10 -5}\n"
        text = f"kind: ConfigMap\n{texts}---\n---\na: 0440\n"
        first, second = self.reader.read(text)
        self.assertEqual(first["data"], {"a": "=", "b": "<<", "c": "2001-12-14 21:59:43.10 -5"})
        self.assertEqual(second, {"a": 0o440})
        for half, why in (
            ("a: [", "no YAML"),
            ("- a\n", "no object"),
            ("5\n", "no object"),
            ("''\n", "no object"),
        ):
            fault = self.assertRaises(ValueError, self.reader.read, half)
            self.assertIn(why, str(fault))
        fault = self.assertRaises(ValueError, self.reader.namespace, [{"kind": None}, {}])
        self.assertIn("0 Deployments", str(fault))

    def test_ended(self) -> None:
        """A Job has ended when a condition says so, and it is true."""
        for conditions, expected in (
            ([], None),
            ([{"type": "Suspended", "status": "True"}], None),
            ([{"type": "Complete", "status": "False"}], None),
            ([{"type": "FailureTarget", "status": "True"}], None),
            ([{"type": "Complete", "status": "True"}], "Complete"),
            ([{"type": "Failed", "status": "True"}], "Failed"),
        ):
            job = {"status": {"conditions": conditions}}
            self.assertEqual(self.cluster.ended(job), expected)
        self.assertIsNone(self.cluster.ended({}))

    def test_junit(self) -> None:
        """The report is found in the log, from its declaration to its end."""
        report = '<?xml version="1.0"?>\n<testsuites>\n<testsuite/>\n</testsuites>\n'
        self.assertEqual(self.cluster.junit(f"table\n{report}bye\n"), report)
        self.assertIsNone(self.cluster.junit("table\n"))
        self.assertIsNone(self.cluster.junit('table\n<?xml version="1.0"?>\n<testsuites>\n'))

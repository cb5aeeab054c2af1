"""How many there are, and how they come and go: each way to break it is noticed."""

from __future__ import annotations

from typing import Any

from tests.k8s import availability, ours
from tests.k8s.breaking import BreakingTestCase, configure, container, put
from tests.k8s.objects import K8S, Objects, base, read


def deployment(objects: Objects) -> Any:
    """The Deployment's spec, to be changed."""
    return objects.one("Deployment")["spec"]


def budget(objects: Objects) -> Any:
    """The PodDisruptionBudget's spec, to be changed."""
    return objects.one("PodDisruptionBudget")["spec"]


class BrokenTests(BreakingTestCase):
    """Each policy notices what it is for."""

    def test_replicas(self) -> None:
        """Too few, and a node's drain that takes all of them, or waits for ever."""
        policy = availability.replicas
        for few in (1, 2):
            self.assertFault(
                policy,
                put(deployment, replicas=few),
                f"{few} gateways are too few",
            )
        self.assertFault(policy, lambda o: o.one("Deployment")["spec"].pop("replicas"), "1 gate")
        for most in (0, 3):
            self.assertFault(
                policy,
                put(budget, maxUnavailable=most),
                f"take {most} of 3",
            )

    def test_drain(self) -> None:
        """Too little time, and no preStop."""
        policy = availability.drain
        self.assertFault(
            policy, lambda o: o.pod["spec"].update(terminationGracePeriodSeconds=617), "needs 618"
        )
        self.assertFault(policy, configure("drainSeconds: 600", "drainSeconds: 1200"), "needs 1218")
        self.assertFault(policy, lambda o: container(o).pop("lifecycle"), "no preStop")

    def test_rollout(self) -> None:
        """One that begins by taking away, and one that is faster than DNS."""
        policy = availability.rollout
        self.assertFault(
            policy,
            lambda o: o.one("Deployment")["spec"]["strategy"]["rollingUpdate"].update(
                maxUnavailable=1
            ),
            "takes gateways away",
        )
        for seconds in (0, 34):
            self.assertFault(
                policy,
                put(deployment, minReadySeconds=seconds),
                f"begins after {seconds}",
            )
        self.assertFault(
            policy, put(deployment, strategy={"type": "Recreate"}), "takes gateways away"
        )
        recreated = put(lambda o: deployment(o)["strategy"], type="Recreate")
        self.assertFault(policy, recreated, "takes gateways away")

    def test_refused(self) -> None:
        """What a kube-apiserver refuses: no step is allowed, or none would be in time."""
        policy = availability.rollout
        for none in (0, "0%"):
            surge = put(lambda o: deployment(o)["strategy"]["rollingUpdate"], maxSurge=none)
            self.assertFault(policy, surge, "may add no gateway")
        for seconds in (600, 700):
            self.assertFault(
                policy,
                put(deployment, minReadySeconds=seconds),
                f"failed after 600 s, and a new one counts after {seconds}",
            )
        slow = put(deployment, minReadySeconds=700, progressDeadlineSeconds=900)
        self.assertEqual(list(policy(base().changed(slow))), [])

    def test_patience(self) -> None:
        """No time to start, to be busy, or to answer."""
        policy = availability.patience

        def probe(name: str, objects: Objects, **given: int) -> None:
            container(objects)[f"{name}Probe"].update(given)

        self.assertFault(
            policy, lambda o: probe("startup", o, failureThreshold=2), "after 4 s, and may take 30"
        )
        self.assertFault(
            policy,
            lambda o: probe("liveness", o, periodSeconds=1, failureThreshold=1),
            "after 1 s, and may take 30",
        )
        self.assertFault(policy, lambda o: probe("liveness", o, timeoutSeconds=1), "a second")


class AutoscalerTests(BreakingTestCase):
    """The component of that name."""

    def test_autoscaler(self) -> None:
        """The component goes by a series that gateways export, and takes the number over."""
        self.assertEqual(list(availability.autoscaling(self._scaled())), [])
        broken = self._scaled()
        metric = broken.of("HorizontalPodAutoscaler")[0]["spec"]["metrics"][0]["pods"]
        metric["metric"]["name"] = "parked"
        metric["target"]["averageValue"] = "256"
        broken.one("Deployment")["spec"]["replicas"] = 3
        self.assertEqual(
            list(availability.autoscaling(broken)),
            [
                "each apply would set the number of replicas back",
                "no gateway exports parked",
                "a gateway refuses from 256 on, before another is started",
            ],
        )
        few = self._scaled()
        few.of("HorizontalPodAutoscaler")[0]["spec"]["maxReplicas"] = 2
        self.assertEqual(list(availability.autoscaling(few)), ["it makes 2 at most"])

    def test_ours(self) -> None:
        """The repository's makes a few more, and takes away one after the other."""
        self.assertEqual(list(ours.autoscaler(self._scaled())), [])

        def spec(objects: Objects) -> Any:
            return objects.of("HorizontalPodAutoscaler")[0]["spec"]

        def down(objects: Objects) -> Any:
            return spec(objects)["behavior"]["scaleDown"]

        for change, said in (
            (put(spec, maxReplicas=60), "60 gateways"),
            (put(down, stabilizationWindowSeconds=0), "goes 0 s after a burst"),
            (put(lambda o: down(o)["policies"][0], value=2), "2 Pods may go within 900 s"),
            (put(lambda o: down(o)["policies"][0], periodSeconds=60), "1 Pods may go within 60 s"),
            (lambda o: down(o).pop("policies"), "100 Percent may go within 15 s"),
            (lambda o: spec(o).pop("behavior"), "goes 300 s after a burst"),
        ):
            faults = ours.autoscaler(self._scaled().changed(change))
            self.assertIn(said, "\n".join(faults))

    def _scaled(self) -> Objects:
        path = K8S / "components" / "autoscaling" / "horizontalpodautoscaler.yaml"
        scaled = Objects((*base().all, *read(path.read_text(encoding="utf-8")).all))
        del scaled.one("Deployment")["spec"]["replicas"]
        return scaled

"""What Argo CD is told: each way to tell it something else is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import yaml

from tests.k8s import argo
from tests.k8s.breaking import BreakingTestCase, put
from tests.k8s.objects import OVERLAYS, Objects, Tree, base
from tests.k8s.overlays import overlay, overlays

WAVE = "argocd.argoproj.io/sync-wave"


def late(kind: str) -> Callable[[Objects], None]:
    """A change that puts the object of that kind behind those without a wave."""
    return put(lambda o: o.one(kind)["metadata"], annotations={WAVE: "1"})


class WavesTests(BreakingTestCase):
    """In which order objects are made."""

    def test_sound(self) -> None:
        """Secrets come before the pods, in every overlay."""
        for each in overlays():
            self.assertEqual(list(argo.waves(each.objects)), [], each.name)

    def test_too_late(self) -> None:
        """What the pods wait for comes when they are there; or they are made to come before."""

        def with_secret(change: Callable[[Objects], Any]) -> str:
            made = overlay("homelab").objects.one("SopsSecret")
            changed = Objects((*base().all, made)).changed(change)
            return "\n".join(argo.waves(changed))

        self.assertIn("SopsSecret llm-gateway comes when", with_secret(late("SopsSecret")))
        for kind in ("ServiceAccount", "ConfigMap"):
            self.assertFault(argo.waves, late(kind), f"{kind} llm-gateway comes when")
        early = put(lambda o: o.one("Deployment")["metadata"], annotations={WAVE: "-1"})
        self.assertFault(argo.waves, early, "ServiceAccount llm-gateway comes when")
        # Nobody waits for these.
        for kind in ("Ingress", "PodDisruptionBudget", "ServiceMonitor"):
            self.assertEqual(list(argo.waves(base().changed(late(kind)))), [], kind)


class ApplicationTests(BreakingTestCase):
    """application.yaml, wherever there is one in the repository."""

    def setUp(self) -> None:
        super().setUp()
        text = (OVERLAYS / "homelab" / "application.yaml").read_text(encoding="utf-8")
        self.application: Tree = yaml.safe_load(text)
        self.options: list[str] = self.application["spec"]["syncPolicy"]["syncOptions"]

    def test_sound(self) -> None:
        """It makes what runs what the repository has."""
        self.assertEqual(list(argo.synced(self.application)), [])

    def test_broken(self) -> None:
        """Something is left, or is taken over, or is made anew."""
        for change, said in (
            (lambda policy: policy["automated"].update(prune=False), "prune is off"),
            (lambda policy: policy["automated"].pop("selfHeal"), "selfHeal is off"),
            (lambda policy: policy.pop("automated"), "prune is off"),
            (lambda policy: policy.pop("syncOptions"), "no ServerSideApply=true"),
            (lambda policy: policy["syncOptions"].append("Replace=true"), "Replace: objects"),
            (lambda policy: policy["syncOptions"].append("Force=true"), "Force: objects"),
            (
                lambda policy: policy["syncOptions"].append("ServerSideApply=false"),
                "no ServerSideApply=true",
            ),
        ):
            self.assertIn(said, self._faults(change))
        for option in ("ServerSideApply=true", "PruneLast=true", "FailOnSharedResource=true"):
            without = [f"{one[:-4]}=false" if one == option else one for one in self.options]
            faults = self._faults(methodcaller("update", syncOptions=without))
            self.assertEqual(faults, f"it has no {option}")

    def _faults(self, change: Callable[[Any], object]) -> str:
        changed = copy.deepcopy(self.application)
        change(changed["spec"]["syncPolicy"])
        return "\n".join(argo.synced(changed))

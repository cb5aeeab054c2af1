"""What must hold so that Argo CD can apply the objects, in its own order."""

from __future__ import annotations

from collections.abc import Iterator

from tests.k8s.objects import Objects, Tree

_WAVE = "argocd.argoproj.io/sync-wave"
# What must be set, and to what.
_WANTED = {"ServerSideApply": "true", "PruneLast": "true", "FailOnSharedResource": "true"}
# What takes objects away to make them anew: the Service and its address, the pods at once.
_NEVER = ("Replace", "Force")


def waves(objects: Objects) -> Iterator[str]:
    """What the pods need does not come after them: Argo CD waits for a wave before the next.

    https://argo-cd.readthedocs.io/en/stable/user-guide/sync-waves/
    """
    pods = _wave(objects.one("Deployment"))
    named = {
        ("ServiceAccount", objects.pod["spec"].get("serviceAccountName")),
        ("ConfigMap", objects.volume("config")["configMap"]["name"]),
    }
    for one in objects.all:
        kind, name = one["kind"], one["metadata"]["name"]
        # Secret, SopsSecret, ExternalSecret, SealedSecret.
        needed = kind.endswith("Secret") or (kind, name) in named
        if needed and _wave(one) > pods:
            yield f"{kind} {name} comes when the pods that wait for it are there, and so never"


def _wave(tree: Tree) -> int:
    return int(tree["metadata"].get("annotations", {}).get(_WAVE, 0))


def synced(application: Tree) -> Iterator[str]:
    """What the repository has is what runs: nothing more, nothing else, and nothing of others.

    https://argo-cd.readthedocs.io/en/stable/user-guide/sync-options/
    """
    policy = application["spec"]["syncPolicy"]
    for key in ("prune", "selfHeal"):
        if policy.get("automated", {}).get(key) is not True:
            yield f"{key} is off: what the repository no longer has, or has otherwise, stays"
    options = [one.partition("=")[::2] for one in policy.get("syncOptions", [])]
    for name, value in _WANTED.items():
        if [given for key, given in options if key == name] != [value]:
            yield f"it has no {name}={value}"
    for name, value in options:
        if name in _NEVER and value == "true":
            yield f"{name}: objects are taken away, and made anew"

"""Ways to break the base's objects, and the base class of tests that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.k8s.objects import NAME, Objects, base
from tests.k8s.policies import Policy
from tests.support import TestCase


def container(objects: Objects) -> Any:
    """The gateway's container, to be changed."""
    return objects.container


def part(objects: Objects, name: str) -> Any:
    """A part of the container, such as a probe, to be changed."""
    return objects.container[name]


def service(objects: Objects, name: str = NAME) -> Any:
    """The spec of a Service, to be changed."""
    return objects.one("Service", name)["spec"]


def variable(objects: Objects, name: str) -> Any:
    """A variable of the environment, to be changed."""
    (found,) = [one for one in objects.container["env"] if one["name"] == name]
    return found


def put(where: Callable[[Objects], Any], **given: Any) -> Callable[[Objects], None]:
    """A change of some keys of what is found there."""

    def change(objects: Objects) -> None:
        where(objects).update(given)

    return change


def configure(old: str, new: str) -> Callable[[Objects], None]:
    """A change of config.yaml."""

    def change(objects: Objects) -> None:
        data = objects.one("ConfigMap")["data"]
        if old not in data["config.yaml"]:
            raise AssertionError(f"config.yaml has no {old!r}")
        data["config.yaml"] = data["config.yaml"].replace(old, new)

    return change


def built_of(image: str) -> Callable[[Objects], None]:
    """Another image."""
    return lambda objects: container(objects).update(image=image)


def annotate(name: str, value: str) -> Callable[[Objects], None]:
    """A change of an annotation of the Ingress."""
    return lambda objects: objects.one("Ingress")["metadata"]["annotations"].update(
        {f"nginx.ingress.kubernetes.io/{name}": value}
    )


class BreakingTestCase(TestCase):
    """A test that breaks something."""

    def assertFault(self, policy: Policy, change: Callable[[Objects], object], said: str) -> None:
        """The policy says so of the base that was changed."""
        self.assertIn(said, "\n".join(policy(base().changed(change))))

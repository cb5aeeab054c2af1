"""The adapters in force: what a request, a webhook or a legacy route may ask of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from twisted_gateway.config.schema import Adapter, Config
from twisted_gateway.services.adapter import Active, Operation, Retiring, Service
from twisted_gateway.services.build import Parts, build
from twisted_gateway.web import service_problems as problems


@dataclass(frozen=True, slots=True)
class Configured:
    """An adapter in force, and its configuration."""

    adapter: Adapter
    service: Service


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked for: one operation of one adapter.

    Attributes:
        method: by which it is asked for.
    """

    adapter: Adapter
    resource: str
    method: str
    operation: Operation

    @property
    def route(self) -> str:
        """Its name in metrics, log and traces."""
        return f"{self.adapter.name}/{self.resource}"


Configurations = Mapping[str, Configured]
"""Adapters and what was built of each, by name."""


class Catalogue:
    """Builds the adapters of a configuration, and finds operations among them.

    Attributes:
        services: the adapters in force, by name.

    Args:
        parts: what adapters are built of.
    """

    def __init__(self, parts: Callable[[Config], Parts]) -> None:
        """Take what the class documents; there is no service before `adopt`."""
        self._parts = parts
        self.services: Mapping[str, Configured] = {}

    def build(self, config: Config) -> Configurations:
        """Build the adapters of `config`; nothing of it is in force before `adopt`."""
        parts = self._parts(config)
        return {
            name: Configured(adapter, build(adapter, parts))
            for name, adapter in config.adapters.items()
        }

    def adopt(self, services: Configurations) -> None:
        """Put adapters in force; requests under way keep theirs."""
        self.retire()
        self.services = services
        for configured in services.values():
            if isinstance(configured.service, Active):
                configured.service.start()

    def retire(self) -> None:
        """Let the adapters go: what they hold open closes once nobody uses it any more."""
        services, self.services = self.services, {}
        for configured in services.values():
            if isinstance(configured.service, Retiring):
                configured.service.retire()

    def stop(self) -> list[Deferred[Any]]:
        """Give up what adapters do of their own accord: the process ends.

        Returns:
            Each fires when one of them has.
        """
        services = [configured.service for configured in self.services.values()]
        return [service.stop() for service in services if isinstance(service, Active)]

    def find(self, name: str | None, resource: str | None, method: str) -> Target:
        """Find an operation.

        Args:
            name: the adapter's; None: the request does not name one.
            resource: as for `name`.
            method: `HEAD` means what `GET` does.

        Raises:
            Problem: 404, 405.
        """
        adapter, resource, methods = self._resource(name, resource)
        operation = methods.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise problems.wrong_method(f"{adapter.name}/{resource}", method, methods)
        return Target(adapter, resource, method, operation)

    def methods(self, name: str | None, resource: str | None) -> list[str]:
        """Say which methods a resource takes.

        Raises:
            Problem: 404.
        """
        return problems.every_method(self._resource(name, resource)[2])

    def _resource(
        self, name: str | None, resource: str | None
    ) -> tuple[Adapter, str, Mapping[str, Operation]]:
        configured = self.services.get(name or "")
        if configured is None:
            raise problems.unknown_service(name, self.services)
        operations = configured.service.operations
        methods = operations.get(resource or "")
        if methods is None or resource is None:
            raise problems.unknown_resource(configured.adapter.name, resource, operations)
        return configured.adapter, resource, methods

    def find_any(self, name: str, resource: str) -> Target:
        """Find the operation of a resource that has one method, or its POST.

        Raises:
            Problem: 404, 405.
        """
        configured = self.services.get(name)
        methods = configured.service.operations.get(resource) if configured is not None else None
        method = next(iter(methods)) if methods is not None and len(methods) == 1 else "POST"
        return self.find(name, resource, method)

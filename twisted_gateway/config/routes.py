"""Legacy routes and webhooks in force, and what is wrong with them beyond single values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from twisted_gateway.config.adapters import SqsAdapter
from twisted_gateway.config.faults import join, quoted
from twisted_gateway.config.inbound import LegacyRoute, Webhook, WebhookTarget
from twisted_gateway.config.inbound_keys import FORGEJO, ROUTE, TARGET
from twisted_gateway.config.models import gather
from twisted_gateway.config.reading import Found, Given, Reading
from twisted_gateway.config.schema import Adapter

OWN_PATHS = (
    *("/health", "/metrics", "/status", "/status.json"),
    *("/v1/models", "/v1/services", "/v1/auth", "/v1/webhooks"),
    *("/v1/chat", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/responses"),
    *("/v1/messages", "/v1/audio", "/v1/images", "/v1/moderations"),
    *("/v1/tokenize", "/v1/detokenize", "/v1/classify", "/v1/pooling"),
)
"""The gateway's own paths, which no legacy route may take, nor what is above or below them."""

_OF_UPSTREAM = ("stripPrefix", "maxBodyBytes", "timeoutSeconds")


class Inbound:
    """Makes the legacy routes and the webhooks.

    Where the reading has faults what is made is worth nothing.

    Args:
        reading: takes faults and warnings.
        sources: takes the origins of values.
        adapters: those in force, by name.
        max_body_bytes: the global limit.
    """

    def __init__(
        self,
        reading: Reading,
        sources: dict[str, str],
        adapters: Mapping[str, Adapter],
        max_body_bytes: int,
    ) -> None:
        """Take what the class documents."""
        self._reading = reading
        self._sources = sources
        self._adapters = adapters
        self._max_body_bytes = max_body_bytes

    def forgejo(self, found: Found) -> Webhook:
        """Give Forgejo's webhook."""
        section = found.section("webhooks").section("forgejo")
        chosen = gather(FORGEJO, section, self._reading, self._sources)
        targets = tuple(self._target(given) for given in _items(section, "targets"))
        if targets and chosen.get("secret") is None:
            self._reading.warnings.append(
                "webhooks.forgejo has targets and no secret: every delivery is answered 503"
            )
        return Webhook(targets=targets, **{"max_body_bytes": self._max_body_bytes, **chosen})

    def routes(self, found: Found) -> tuple[LegacyRoute, ...]:
        """Give the legacy routes, in the file's order."""
        items = _items(found, "routes")
        routes = tuple(self._route(given) for given in items)
        first: dict[str, Given] = {}
        for route, given in zip(routes, items, strict=True):
            if first.setdefault(route.path, given) is not given:
                self._reading.fault(
                    given.line,
                    join(given.path, "path"),
                    f"expected each only once, and {first[route.path].path} has the same",
                )
        return routes

    def _target(self, given: Given) -> WebhookTarget:
        found: Found = given.value
        chosen: dict[str, Any] = dict.fromkeys(("event", "service", "resource"), "")
        for key in chosen:
            if not found.has(key):
                self._reading.fault(given.line, join(given.path, key), "expected a value")
        chosen |= gather(TARGET, found, self._reading, self._sources)
        chosen["parameters"] = MappingProxyType(chosen.get("parameters", {}))
        target = WebhookTarget(**chosen)
        adapter = self._adapter(found, "service")
        if adapter is None:
            return target
        self._check_resource(found, adapter)
        if adapter.kind == SqsAdapter.kind:
            self._reading.fault(
                found.lines["service"],
                join(found.path, "service"),
                f"expected another adapter: {adapter.name} always takes a token, and a webhook "
                "has none",
            )
        return target

    def _route(self, given: Given) -> LegacyRoute:
        found: Found = given.value
        chosen = gather(ROUTE, found, self._reading, self._sources)
        route = LegacyRoute(**{"path": "", "max_body_bytes": self._max_body_bytes, **chosen})
        self._check_path(route, found, given)
        self._check_destination(found, given)
        if route.deprecation and route.sunset and route.sunset < route.deprecation:
            self._reading.fault(
                found.lines["sunset"],
                join(found.path, "sunset"),
                "expected a date that is not before deprecation",
            )
        return route

    def _check_path(self, route: LegacyRoute, found: Found, given: Given) -> None:
        if not found.has("path"):
            self._reading.fault(given.line, join(given.path, "path"), "expected a path")
        for own in OWN_PATHS if route.path else ():
            # A route below `/v1` that is none of these is some older gateway's.
            if own == route.path or _below(own, route.path) or _below(route.path, own):
                self._reading.fault(
                    found.lines["path"],
                    join(found.path, "path"),
                    f"expected a path apart from the gateway's own {own}",
                )
                return

    def _check_destination(self, found: Found, given: Given) -> None:
        """A route leads to an upstream or to an adapter, and has the keys of that."""
        if found.has("upstream") == found.has("adapter"):
            self._reading.fault(
                given.line, join(given.path, "upstream"), "expected either upstream or adapter"
            )
            return
        wrong = _OF_UPSTREAM if found.has("adapter") else ("resource",)
        for key in wrong:
            if key in found.lines:
                other = "upstream" if key in _OF_UPSTREAM else "adapter"
                self._reading.fault(
                    found.lines[key],
                    join(found.path, key),
                    f"expected nothing: that is for a route with {other}",
                )
        adapter = self._adapter(found, "adapter")
        if adapter is not None:
            self._check_resource(found, adapter)

    def _adapter(self, found: Found, key: str) -> Adapter | None:
        """Find the adapter that a key names; None, with the fault noted, for none."""
        given = found.values.get(key)
        if given is None:
            return None
        adapter = self._adapters.get(given.value)
        if adapter is None and not self._reading.faulty(join("adapters", given.value)):
            known = ", ".join(sorted(self._adapters)) or "there is none"
            self._reading.fault(
                given.line, given.path, f"expected an adapter ({known}), not {quoted(given.value)}"
            )
        return adapter

    def _check_resource(self, found: Found, adapter: Adapter) -> None:
        given = found.values.get("resource")
        if given is not None and given.value not in adapter.resources:
            known = ", ".join(adapter.resources)
            self._reading.fault(
                given.line, given.path, f"expected a resource of {adapter.name}: {known}"
            )


def _items(found: Found, key: str) -> Sequence[Given]:
    given = found.values.get(key)
    items: Sequence[Given] = () if given is None else given.value
    return items


def _below(path: str, prefix: str) -> bool:
    return prefix == "/" or path.startswith(f"{prefix}/")

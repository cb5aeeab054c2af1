"""The adapters and `auth` in force, and what is wrong with them beyond single values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from twisted_gateway.config import extras
from twisted_gateway.config.adapters import (
    IamAdapter,
    NotificationAdapter,
    SqsAdapter,
    WorkflowAdapter,
)
from twisted_gateway.config.faults import join, quoted
from twisted_gateway.config.inbound import LegacyRoute
from twisted_gateway.config.models import gather
from twisted_gateway.config.reading import Found, Given, Reading
from twisted_gateway.config.sandbox import SessionsAdapter, over_limit
from twisted_gateway.config.schema import (
    Adapter,
    Auth,
    ClientCredentials,
    MemoryAdapter,
    Model,
    S3Adapter,
)
from twisted_gateway.config.service_keys import ADAPTERS, AUTH, CLIENT, KINDS

_SIGNED = "every request to it is signed"
_NEEDED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        S3Adapter.kind: {"accessKey": _SIGNED, "secretKey": _SIGNED},
        SqsAdapter.kind: {"accessKey": _SIGNED, "secretKey": _SIGNED},
        IamAdapter.kind: {"token": "authentik lists its users to nobody without one"},
        NotificationAdapter.kind: {"token": "Gotify takes messages from applications alone"},
    }
)
"""Kind -> the keys that it cannot do without, beside `upstream`, and why."""

_NEEDED_FOR_AUTH = ("issuer", "audience", "jwksUrl")


class Services:
    """Makes the adapters and `auth`.

    Where the reading has faults what is made is worth nothing.
    """

    def __init__(self, reading: Reading, sources: dict[str, str], max_body_bytes: int) -> None:
        """Take what they need.

        Args:
            reading: takes faults and warnings.
            sources: takes the origins of values.
            max_body_bytes: the global limit.
        """
        self._reading = reading
        self._sources = sources
        self._max_body_bytes = max_body_bytes

    def adapters(self, found: Found) -> dict[str, Adapter]:
        """Give the adapters by name, in the file's order."""
        made = (self._adapter(name, given) for name, given in _entries(found).items())
        return {adapter.name: adapter for adapter in made}

    def auth(
        self,
        found: Found,
        adapters: Mapping[str, Adapter],
        models: Mapping[str, Model],
        routes: Sequence[LegacyRoute],
    ) -> Auth | None:
        """Give `auth`; None where the file has none, or an empty one."""
        section = found.section("auth")
        self._check_clients(found, section)
        if not section.lines and self._reading.faulty("auth"):
            return None
        if not section.lines:
            self._check_nobody_needs_it(found, adapters, models, routes)
            return None
        for key in _NEEDED_FOR_AUTH:
            self._need(section, found.lines["auth"], key, "auth accepts no token without it")
        self._check_scopes(section, adapters)
        chosen: dict[str, Any] = dict.fromkeys(("issuer", "audience", "jwks_url"), "")
        chosen |= gather(AUTH, section, self._reading, self._sources)
        return Auth(**chosen)

    def _adapter(self, name: str, given: Given) -> Adapter:
        kind = ADAPTERS.kind_of(name, given)
        found: Found = given.value
        chosen = gather(KINDS[kind], found, self._reading, self._sources)
        chosen.pop("kind", None)
        if kind == SessionsAdapter.kind:
            return self._sessions(name, given, chosen)
        self._need(found, given.line, "upstream", f"{kind} has no other")
        chosen.setdefault("upstream", "")
        for key, why in _NEEDED.get(kind, {}).items():
            self._need(found, given.line, key, why)
        if kind == MemoryAdapter.kind:
            chosen["paths"] = self._paths(found, chosen.pop("paths", {}))
            chosen["client"] = self._client(found)
        elif kind == SqsAdapter.kind:
            self._always_needs_token(found)
        elif kind == WorkflowAdapter.kind:
            self._needs_extra(given, "workflow", extras.WORKFLOW)
        target = KINDS[kind].target
        if target is not S3Adapter:
            chosen.setdefault("max_body_bytes", self._max_body_bytes)
        adapter: Adapter = target(name=name, **chosen)
        return adapter

    def _always_needs_token(self, found: Found) -> None:
        given = found.values.get("requireAuth")
        if given is not None and not given.value:
            self._reading.fault(
                given.line, given.path, "expected true: whoever asks for queues needs a token"
            )

    def _needs_extra(self, given: Given, extra: str, packages: tuple[str, ...]) -> None:
        missing = extras.missing(packages)
        if missing:
            self._reading.fault(
                given.line,
                given.path,
                f"expected {' and '.join(missing)} to be installed: "
                f"pip install 'twisted-gateway[{extra}]'",
            )

    def _sessions(self, name: str, given: Given, chosen: dict[str, Any]) -> SessionsAdapter:
        found: Found = given.value
        self._need(found, given.line, "image", "it is what a sandbox runs")
        self._need(found, given.line, "namespace", "it is where the sandboxes are")
        server = _server_of_the_cluster(self._reading.environ)
        needed = {"image": "", "namespace": "", "server": server}
        limit = {"max_body_bytes": self._max_body_bytes}
        adapter = SessionsAdapter(name=name, **{**limit, **needed, **chosen})
        for resource in over_limit(adapter):
            self._reading.fault(
                found.lines.get("resources", given.line),
                join(found.path, "resources"),
                f"expected requests within the limits: that of {quoted(resource)} is above",
            )
        return adapter

    def _paths(self, found: Found, chosen: Mapping[str, str]) -> Mapping[str, str]:
        given = found.values.get("resources")
        for name, one in {} if given is None else dict(given.value).items():
            if name not in MemoryAdapter.resources:
                known = ", ".join(MemoryAdapter.resources)
                self._reading.fault(one.line, one.path, f"unknown resource, expected {known}")
        default = MemoryAdapter(name="", upstream="").paths
        return MappingProxyType({**default, **chosen})

    def _client(self, found: Found) -> ClientCredentials | None:
        section = found.section("client")
        if "client" not in found.values:
            return None
        for key in ("id", "secret"):
            self._need(section, found.lines["client"], key, "the provider asks for it")
        chosen: dict[str, Any] = {"client_id": "", "client_secret": None}
        return ClientCredentials(**(chosen | gather(CLIENT, section, self._reading, self._sources)))

    def _need(self, found: Found, line: int, key: str, why: str) -> None:
        """See to it that a key is there, and that a secret is not empty."""
        given = found.values.get(key)
        if not found.has(key) or (given is not None and given.value is None):
            at = found.lines.get(key, line)
            self._reading.fault(at, join(found.path, key), f"expected a value: {why}")

    def _check_nobody_needs_it(
        self,
        found: Found,
        adapters: Mapping[str, Adapter],
        models: Mapping[str, Model],
        routes: Sequence[LegacyRoute],
    ) -> None:
        """Nothing can require a token where none is accepted."""
        listed = found.values.get("routes")
        places: Sequence[Given] = () if listed is None else listed.value
        wanting: list[tuple[Given, bool]] = [
            *((_entries(found)[name], one.require_auth) for name, one in adapters.items()),
            *((_entries(found, "models")[name], one.require_auth) for name, one in models.items()),
            *((place, one.require_auth) for place, one in zip(places, routes, strict=True)),
        ]
        for one in (given for given, wants in wanting if wants):
            self._reading.fault(
                one.value.lines.get("requireAuth", one.line),
                join(one.path, "requireAuth"),
                "expected auth with issuer, audience and jwksUrl, for a token is required "
                "here; requireAuth: false lets anybody in",
            )

    def _check_clients(self, found: Found, auth: Found) -> None:
        if auth.has("tokenUrl") or self._reading.faulty("auth"):
            return
        for given in _entries(found).values():
            if "client" in given.value.lines:
                self._reading.fault(
                    given.value.lines["client"],
                    join(given.path, "client"),
                    "expected auth.tokenUrl, where the gateway's own token comes from",
                )

    def _check_scopes(self, auth: Found, adapters: Mapping[str, Adapter]) -> None:
        """A scope that is required of nothing would be required of nobody."""
        given = auth.values.get("requireScopes")
        for name, one in {} if given is None else dict(given.value).items():
            service, slash, resource = name.partition("/")
            adapter = adapters.get(service)
            if adapter is None and self._reading.faulty(join("adapters", service)):
                continue
            if adapter is None:
                known = ", ".join(sorted(adapters)) or "there is none"
                self._reading.fault(
                    one.line, one.path, f"expected an adapter ({known}), not {quoted(service)}"
                )
            elif slash and resource not in adapter.resources:
                known = ", ".join(adapter.resources)
                self._reading.fault(
                    one.line, one.path, f"expected a resource of {service}: {known}"
                )
            elif not adapter.require_auth:
                self._reading.fault(
                    one.line, one.path, f"expected nothing: {service} has requireAuth: false"
                )


def _server_of_the_cluster(environ: Mapping[str, str]) -> str | None:
    """Give the Kubernetes API's URL, as a pod's environment has it; None outside of a cluster."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    bracketed = f"[{host}]" if ":" in host else host
    return f"https://{bracketed}:{port}" if host else None


def _entries(found: Found, key: str = "adapters") -> Mapping[str, Given]:
    given = found.values.get(key)
    entries: Mapping[str, Given] = {} if given is None else given.value
    return entries

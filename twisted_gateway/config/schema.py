"""The configuration as frozen values (contract, section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from types import MappingProxyType

from twisted_gateway.core.policy import Policy


class EngineKind(Enum):
    """The kinds of engine that the gateway knows how to observe."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    TGI = "tgi"
    TEI = "tei"
    OLLAMA = "ollama"
    NONE = "none"

    @property
    def publishes_gauges(self) -> bool:
        """Whether there is anything to poll."""
        return self not in (EngineKind.OLLAMA, EngineKind.NONE)

    @property
    def publishes_running(self) -> bool:
        """Whether `maxInflight: auto` can be learned: running and waiting are both published."""
        return self.publishes_gauges and self is not EngineKind.TEI


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A credential that no repr, log or dump shows."""

    value: str

    def __repr__(self) -> str:
        """Hide the value."""
        return "Secret('***')"


class TenantSource(Enum):
    """What a request may show that says whom it counts for, for fairness."""

    SUBJECT = "subject"
    """The subject of a token that the gateway itself checked."""
    API_KEY = "apiKey"
    """A key that the gateway itself checked."""
    HEADER = "header"
    """`X-Tenant`, from a trusted proxy only."""
    ADDRESS = "address"
    """Where the client is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The exchange between the replicas.

    Attributes:
        listen: a Twisted server endpoint string, opened only where `Config.exchanges`.
        token: what the replicas share; never None where `Config.exchanges`.
    """

    listen: str = "tcp:8081"
    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The time bounds of one request, in seconds. There is no total one."""

    connect_seconds: float = 5.0
    body_seconds: float = 60.0
    first_content_seconds: float = 900.0
    idle_seconds: float = 300.0
    client_stall_seconds: float = 60.0


DEFAULT_PATHS: Mapping[str, str] = MappingProxyType({"/v1/rerank": "/rerank"})
"""Where requests go whose path the engines do not all know; a model's `paths` come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One name that clients may put in `model`, and where its requests go.

    Attributes:
        upstreams: base URLs (`http://host:port[/prefix]`, no trailing slash), at least one.
        observed: whether the engine's /metrics is polled.
        gated: whether admission applies (an S is configured, or learned from the gauges).
        upstream_model: what the engine is to read as `model`; None: the client's value, or the
            model's own name when the client used an alias.
        paths: request path -> upstream path, the default for `/v1/rerank` among them.
        policy: the `admission` keys; also carries `keep_alive_seconds` for ungated models.
    """

    name: str
    upstreams: tuple[str, ...]
    engine: EngineKind = EngineKind.NONE
    observed: bool = False
    gated: bool = False
    aliases: tuple[str, ...] = ()
    upstream_model: str | None = None
    api_key: Secret | None = None
    max_body_bytes: int = 1_048_576
    timeouts: Timeouts = Timeouts()
    paths: Mapping[str, str] = field(default_factory=lambda: DEFAULT_PATHS)
    policy: Policy = Policy()

    @property
    def exchanges(self) -> bool:
        """Whether the replicas before its engines ask each other what they hold."""
        return self.gated and self.policy.replicas.exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration in force.

    Attributes:
        tenants_from: what says whom a request counts for; the first that applies.
        sources: key path -> where the value came from, for every value that is not simply a
            built-in default: `config.yaml line 12`, `ADMISSION_MAX_INFLIGHT`, ...
        warnings: what is odd but no error, for the log at start.
    """

    listen: tuple[str, ...] = ("tcp:8080",)
    admin_listen: tuple[str, ...] = ()
    max_body_bytes: int = 1_048_576
    max_held_bytes: int = 268_435_456
    max_connections: int = 10_000
    drain_seconds: float = 600.0
    reload: str = "none"
    cors_origins: tuple[str, ...] = ()
    tenants_from: tuple[TenantSource, ...] = (
        TenantSource.SUBJECT,
        TenantSource.HEADER,
        TenantSource.ADDRESS,
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    models: Mapping[str, Model] = field(default_factory=lambda: MappingProxyType({}))
    peers: Peers = Peers()
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()

    @property
    def exchanges(self) -> bool:
        """Whether any model's replicas ask each other, so that `peers.listen` is opened."""
        return any(model.exchanges for model in self.models.values())

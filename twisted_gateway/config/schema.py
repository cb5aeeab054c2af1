"""The configuration as frozen values (contract, section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from types import MappingProxyType
from typing import ClassVar

from twisted_gateway.config.inbound import LegacyRoute, Webhook
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
        require_auth: whether requests need a token that `auth` accepts.
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
    require_auth: bool = False
    max_body_bytes: int = 1_048_576
    timeouts: Timeouts = Timeouts()
    paths: Mapping[str, str] = field(default_factory=lambda: DEFAULT_PATHS)
    policy: Policy = Policy()

    @property
    def exchanges(self) -> bool:
        """Whether the replicas before its engines ask each other what they hold."""
        return self.gated and self.policy.replicas.exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Whose tokens are accepted (contract, section 7).

    Attributes:
        issuer: what a token's `iss` must be, to the letter.
        audience: what must be among its `aud`.
        jwks_url: where the issuer publishes its keys (RFC 7517).
        token_url: the issuer's token endpoint (RFC 6749, section 3.2); None: none is known.
        algorithms: the signature algorithms that are accepted (RFC 7518 names); all asymmetric.
        leeway_seconds: how far apart the clocks may be.
        require_scopes: service, or `service/resource`, -> the scopes that a token must bear.
        jwks_cooldown_seconds: the least time between two fetches for the sake of unknown keys.
        jwks_refresh_seconds: the time between two fetches in the background.
    """

    issuer: str
    audience: str
    jwks_url: str
    token_url: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_seconds: float = 60.0
    require_scopes: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    jwks_cooldown_seconds: float = 30.0
    jwks_refresh_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """With what the gateway asks `auth.tokenUrl` for a token of its own (RFC 6749, section 4.4)."""

    client_id: str
    client_secret: Secret
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One service behind `X-Service` (contract, section 6); each kind has a class of its own.

    Attributes:
        kind: what the file calls the kind.
        resources: what `X-Resource` may name there.
        name: what `X-Service` calls it.
        require_auth: whether requests need a token that `auth` accepts.
        max_body_bytes: the largest request body.
        timeout_seconds: how long the service, or a client that sends it a body, may be silent.
    """

    kind: ClassVar[str]
    resources: ClassVar[tuple[str, ...]]

    name: str
    require_auth: bool = True
    max_body_bytes: int = 1_048_576
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAdapter(Adapter):
    """A memory service that takes JSON.

    Attributes:
        upstream: its base URL.
        paths: resource -> the path that it is posted to.
        client: with what the gateway gets a token of its own towards it; None: it sends none.
    """

    kind: ClassVar[str] = "memory"
    resources: ClassVar[tuple[str, ...]] = ("ingest", "query")

    upstream: str
    paths: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"ingest": "/ingest", "query": "/query"})
    )
    client: ClientCredentials | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Adapter(Adapter):
    """A store that speaks S3.

    Attributes:
        upstream: its base URL; buckets are path segments below it.
        region: the region that signatures name.
        access_key: the gateway's key; None only in a configuration that is refused.
        secret_key: its secret; None only in a configuration that is refused.
    """

    kind: ClassVar[str] = "s3"
    resources: ClassVar[tuple[str, ...]] = ("list", "get", "put", "delete")

    upstream: str
    region: str = "us-east-1"
    access_key: Secret | None = None
    secret_key: Secret | None = None
    # S3's own bound of a single PUT. Bodies pass as they come, so that none is held.
    max_body_bytes: int = 5 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration in force.

    Attributes:
        tenants_from: what says whom a request counts for; the first that applies.
        gen_ai_metrics: whether /metrics also bears OpenTelemetry's names for model servers.
        identify_clients: whether log lines and spans say who the client is.
        auth: whose tokens are accepted; never None where a model, adapter or route requires them.
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
    gen_ai_metrics: bool = True
    identify_clients: bool = False
    models: Mapping[str, Model] = field(default_factory=lambda: MappingProxyType({}))
    peers: Peers = Peers()
    adapters: Mapping[str, Adapter] = field(default_factory=lambda: MappingProxyType({}))
    auth: Auth | None = None
    forgejo_webhook: Webhook = field(default_factory=Webhook)
    routes: tuple[LegacyRoute, ...] = ()
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()

    @property
    def exchanges(self) -> bool:
        """Whether any model's replicas ask each other, so that `peers.listen` is opened."""
        return any(model.exchanges for model in self.models.values())

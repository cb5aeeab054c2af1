"""Every key of the configuration: what it takes, where it goes, what it is for.

These tables are all there is: reading, defaults (those of the values that the keys go into), the
JSON Schema and `dump` come from them.
"""

from __future__ import annotations

from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.admission_keys import ADMISSION, admission_keys
from twisted_gateway.config.inbound_keys import FORGEJO, ROUTES
from twisted_gateway.config.kinds import (
    BYTES,
    SECONDS,
    Choice,
    Flag,
    Text,
    Whole,
    words,
)
from twisted_gateway.config.schema import (
    Config,
    EngineKind,
    Model,
    Peers,
    TenantSource,
    Timeouts,
)
from twisted_gateway.config.secret import SecretText
from twisted_gateway.config.sections import Key, ListOf, MapOf, Section
from twisted_gateway.config.service_keys import ADAPTERS, AUTH

_ENDPOINTS = Text(forms.endpoint, "a Twisted server endpoint such as tcp:8080")
_NAME = Text(forms.printable, "a name", max_characters=256)
_URL = Text(forms.base_url, "a URL such as http://host:8000", r"^[Hh][Tt][Tt][Pp][Ss]?://")

TIMEOUTS = Section(
    target=Timeouts,
    keys=(
        Key(name="connectSeconds", kind=SECONDS, about="To connect to the engine."),
        Key(name="bodySeconds", kind=SECONDS, about="For the whole request body to arrive."),
        Key(
            name="firstContentSeconds",
            kind=SECONDS,
            about="Until the first content event of a stream, or the first byte of another answer.",
        ),
        Key(name="idleSeconds", kind=SECONDS, about="Between two reads after the first content."),
        Key(
            name="clientStallSeconds",
            kind=SECONDS,
            about="How long a client may take no byte while data waits for it.",
        ),
    ),
)


def _admission(model: Model) -> dict[str, Any]:
    keys = admission_keys(model.observed, model.gated)
    shown = {key.name: key.plain(model.policy) for key in keys}
    return {name: value for name, value in shown.items() if value is not None}


def _one_upstream(model: Model) -> str | None:
    return _URL.plain(model.upstreams[0]) if len(model.upstreams) == 1 else None


def _several_upstreams(model: Model) -> list[str] | None:
    return [_URL.plain(url) for url in model.upstreams] if len(model.upstreams) > 1 else None


MODEL = Section(
    target=Model,
    extra={"oneOf": [{"required": ["upstream"]}, {"required": ["upstreams"]}]},
    keys=(
        Key(
            name="upstream",
            kind=_URL,
            attribute="upstreams",
            show=_one_upstream,
            about="The engine's base URL.",
        ),
        Key(
            name="upstreams",
            kind=ListOf(_URL, "URLs", minimum=1, identity=forms.engine_address),
            show=_several_upstreams,
            about="The base URLs of several engines that serve this model, in place of upstream.",
        ),
        Key(
            name="engine",
            kind=Choice(words(EngineKind)),
            about="What the engine is, hence which gauges it publishes; none: nothing is "
            "observed, no gate. ollama and tei have a gate only with maxInflight.",
        ),
        Key(
            name="aliases",
            kind=ListOf(_NAME, "names"),
            about="Other names for the model; the engine reads the model's own.",
        ),
        Key(
            name="upstreamModel",
            kind=Text(forms.printable, max_characters=1024),
            about="What the engine reads as model. Default: what the client wrote.",
        ),
        Key(
            name="apiKey",
            kind=SecretText(),
            about="Sent to the engine as Bearer. Default: the client's Authorization passes.",
        ),
        Key(
            name="requireAuth",
            kind=Flag(),
            about="Whether requests need a token that `auth` accepts; it is not sent on.",
        ),
        Key(
            name="maxBodyBytes",
            kind=BYTES,
            derived=True,
            about="The largest request body. Default: the global one.",
        ),
        Key(
            name="paths",
            kind=MapOf(
                Text(forms.request_path, "a path", "^/"),
                Text(forms.url_path, "a path", "^/"),
                "a mapping from request paths to upstream paths",
            ),
            about="Request path -> upstream path, beside the default.",
        ),
        Key(name="timeouts", kind=TIMEOUTS, about="Time bounds of one request."),
        Key(
            name="admission",
            kind=ADMISSION,
            attribute="policy",
            show=_admission,
            about="The gate before the engine, and how it is observed. Models that share an "
            "engine's address share its gate: only maxParkSeconds, patienceSeconds, "
            "keepAliveSeconds and retryAfterSeconds may differ among them.",
        ),
    ),
)

_MODELS = MapOf(_NAME, MODEL, "a mapping from names to models")

PEERS = Section(
    target=Peers,
    keys=(
        Key(
            name="listen",
            kind=_ENDPOINTS,
            about="Where the other replicas connect: a Twisted server endpoint string. Opened "
            "only where a model's replicas gives addresses.",
        ),
        Key(
            name="token",
            kind=SecretText(min_characters=16),
            about="What the replicas share, the same for all, of at least 16 characters. Required "
            "where a model's replicas gives addresses.",
        ),
    ),
)

ROOT = Section(
    target=Config,
    extra={
        "anyOf": [
            {"required": [name], "properties": {name: {least: 1}}}
            for name, least in (
                *(("models", "minProperties"), ("adapters", "minProperties")),
                ("routes", "minItems"),
            )
        ]
    },
    keys=(
        Key(
            name="listen",
            kind=ListOf(_ENDPOINTS, "Twisted server endpoints", minimum=1),
            environment=("GATEWAY_LISTEN",),
            option="--listen",
            about="Where clients connect: Twisted server endpoint strings.",
        ),
        Key(
            name="adminListen",
            kind=ListOf(_ENDPOINTS, "Twisted server endpoints"),
            about="When set, /metrics, /status and /health* are served there and nowhere else.",
        ),
        Key(
            name="maxBodyBytes",
            kind=BYTES,
            environment=("MAX_BODY_BYTES",),
            about="The largest request body.",
        ),
        Key(
            name="maxHeldBytes",
            kind=BYTES,
            about="All that is held at once of request bodies, of adapters' long documents and of "
            "what services send for these; past it 503 queue_full.",
        ),
        Key(name="maxConnections", kind=Whole(1, 1_000_000), about="Clients connected at once."),
        Key(
            name="drainSeconds",
            kind=SECONDS,
            about="How long running answers may go on after SIGTERM.",
        ),
        Key(
            name="reload",
            kind=Choice({"none": "none", "watch": "watch"}),
            about="watch: re-read this file when it changes; SIGHUP re-reads it always.",
        ),
        Key(
            name="cors",
            about="Browsers' cross-origin requests.",
            kind=Section(
                target=Config,
                inline=True,
                keys=(
                    Key(
                        name="origins",
                        kind=ListOf(Text(forms.origin, "* or an origin"), "origins"),
                        attribute="cors_origins",
                        about="The origins that may call the gateway; * is any.",
                    ),
                ),
            ),
        ),
        Key(
            name="tenants",
            about="Who counts as one for fairness, and whom the gateway believes about clients.",
            kind=Section(
                target=Config,
                inline=True,
                keys=(
                    Key(
                        name="from",
                        kind=ListOf(Choice(words(TenantSource)), "sources", minimum=1),
                        attribute="tenants_from",
                        about="What says whom a request counts for, the first that applies: "
                        "header (X-Tenant, from trustedProxies only), address (the client's); "
                        "subject and apiKey apply only where the gateway itself checks tokens "
                        "or keys.",
                    ),
                    Key(
                        name="trustedProxies",
                        kind=ListOf(
                            Text(forms.network, "an address or a network"),
                            "addresses and networks",
                        ),
                        about="Addresses and networks whose X-Forwarded-* and X-Tenant are "
                        "believed.",
                    ),
                ),
            ),
        ),
        Key(
            name="telemetry",
            about="What the gateway tells of its requests. Where traces go is said by OTEL_*.",
            kind=Section(
                target=Config,
                inline=True,
                keys=(
                    Key(
                        name="genAiMetrics",
                        kind=Flag(),
                        about="/metrics also bears OpenTelemetry's gen_ai_* names.",
                    ),
                    Key(
                        name="identifyClients",
                        kind=Flag(),
                        about="The log line of a request says the client's address, and its span "
                        "that and its User-Agent. Else clients are told apart by tenant, which "
                        "does not say who they are.",
                    ),
                ),
            ),
        ),
        Key(
            name="models",
            kind=_MODELS,
            derived=True,
            show=lambda config: _MODELS.plain(config.models) or None,
            about='What clients may put in "model", and where it goes.',
        ),
        Key(name="peers", kind=PEERS, about="The exchange between the replicas of the gateway."),
        Key(
            name="adapters",
            kind=ADAPTERS,
            derived=True,
            show=lambda config: ADAPTERS.plain(config.adapters) or None,
            about="The services behind X-Service, by the name that the header gives.",
        ),
        Key(
            name="webhooks",
            about="Events that others send.",
            kind=Section(
                target=Config,
                inline=True,
                keys=(
                    Key(
                        name="forgejo",
                        kind=FORGEJO,
                        attribute="forgejo_webhook",
                        about="POST /v1/webhooks/forgejo: Forgejo's, or Gitea's.",
                    ),
                ),
            ),
        ),
        Key(
            name="routes",
            kind=ROUTES,
            about="Legacy path prefixes, kept working for those who still use them.",
        ),
        Key(
            name="auth",
            kind=AUTH,
            show=lambda config: None if config.auth is None else AUTH.plain(config.auth),
            about="Whose tokens are accepted; needed where anything has requireAuth.",
        ),
    ),
)

"""Every key of the configuration: what it takes, where it goes, what it is for.

These tables are all there is: reading, defaults (those of the values that the keys go into), the
JSON Schema and `dump` come from them.
"""

from __future__ import annotations

from typing import Any

from twisted_gateway.config import forms
from twisted_gateway.config.kinds import Choice, Either, Number, Text, Whole, words
from twisted_gateway.config.replicas import ReplicasKind
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
from twisted_gateway.core.policy import Ordering, Policy, WhenStale
from twisted_gateway.core.rates import DECODE_TOKENS_PER_SECOND, PREFILL_TOKENS_PER_SECOND

_SECONDS = Number(0, 604_800)
_BYTES = Whole(1, 2**40)
_RATE = Number(0.1, 10_000_000)
_PREFILL = f"{PREFILL_TOKENS_PER_SECOND:g} until learned"
_DECODE = f"{DECODE_TOKENS_PER_SECOND:g} until learned"
_ENDPOINTS = Text(forms.endpoint, "a Twisted server endpoint such as tcp:8080")
_NAME = Text(forms.printable, "a name", max_characters=256)
_URL = Text(forms.base_url, "a URL such as http://host:8000", r"^[Hh][Tt][Tt][Pp][Ss]?://")

TIMEOUTS = Section(
    target=Timeouts,
    keys=(
        Key(name="connectSeconds", kind=_SECONDS, about="To connect to the engine."),
        Key(name="bodySeconds", kind=_SECONDS, about="For the whole request body to arrive."),
        Key(
            name="firstContentSeconds",
            kind=_SECONDS,
            about="Until the first content event of a stream, or the first byte of another answer.",
        ),
        Key(name="idleSeconds", kind=_SECONDS, about="Between two reads after the first content."),
        Key(
            name="clientStallSeconds",
            kind=_SECONDS,
            about="How long a client may take no byte while data waits for it.",
        ),
    ),
)

ADMISSION = Section(
    target=Policy,
    keys=(
        Key(
            name="maxInflight",
            kind=Either(Choice({"auto": None}), Whole(1, 100_000)),
            environment=("ADMISSION_MAX_INFLIGHT", "VLLM_MAX_NUM_SEQS"),
            about="Sequences that the engine runs at once; auto: learned from its gauges.",
        ),
        Key(
            name="kvThreshold",
            kind=Number(0, 1),
            about="The share of the KV cache at which nothing more is admitted.",
        ),
        Key(
            name="maxParkSeconds",
            kind=_SECONDS,
            environment=("ADMISSION_MAX_PARK_SECONDS",),
            own=True,
            about="How long a request may park before it is refused.",
        ),
        Key(
            name="maxQueueDepth",
            kind=Whole(1, 1_000_000),
            environment=("VLLM_MAX_QUEUE_DEPTH",),
            about="Parked requests per replica of the gateway.",
        ),
        Key(
            name="keepAliveSeconds",
            kind=_SECONDS,
            own=True,
            about="The silence after which a stream gets a comment, gated or not.",
        ),
        Key(name="pollSeconds", kind=Number(0.01, 3600), about="Between polls of the gauges."),
        Key(
            name="pollTimeoutSeconds",
            kind=Number(0.01, 7200),
            derived=True,
            about="How long one poll may take. Default: the larger of 5 and 2 x pollSeconds.",
        ),
        Key(
            name="staleAfterPolls",
            kind=Whole(1, 1000),
            about="Failed polls after which the gauges count as unknown.",
        ),
        Key(
            name="whenStale",
            kind=Choice(words(WhenStale)),
            about="What the gate does then: open (own requests alone count), closed (all park), "
            "hold (the last sample counts for holdSeconds, then as open).",
        ),
        Key(name="holdSeconds", kind=_SECONDS, about="How long the last sample is held."),
        Key(
            name="retryAfterSeconds",
            kind=Number(0, 60),
            own=True,
            about="The least that a refusal's Retry-After says.",
        ),
        Key(name="parkedBytes", kind=_BYTES, about="Bodies of parked requests, together."),
        Key(
            name="patienceSeconds",
            kind=_SECONDS,
            own=True,
            about="How long clients wait for a whole answer; what cannot be served by then is "
            "refused at once.",
        ),
        Key(
            name="ordering",
            kind=Choice(words(Ordering)),
            about="Who of a class is served first: cost (light tenants, then who has waited long "
            "for what costs the engine little), fifo (who came first).",
        ),
        Key(
            name="longPrefillSeconds",
            kind=_SECONDS,
            about="A prompt that takes the engine longer is long; one such is in it at a time.",
        ),
        Key(
            name="prefillTokensPerSecond",
            kind=_RATE,
            absent=_PREFILL,
            about=f"What the engine reads of one prompt alone. Default: {_PREFILL}, with nothing "
            "long or refused for its deadline till then. Naming this or decodeTokensPerSecond "
            "makes both count as learned.",
        ),
        Key(
            name="decodeTokensPerSecond",
            kind=_RATE,
            absent=_DECODE,
            about=f"What the engine writes of one answer. Default: {_DECODE}. Naming this or "
            "prefillTokensPerSecond makes both count as learned.",
        ),
        Key(
            name="parkedWorkSeconds",
            kind=_SECONDS,
            about="The engine's time that parked requests may cost, together and over all "
            "replicas; past it 503 queue_full.",
        ),
        Key(
            name="replicas",
            kind=ReplicasKind(),
            about="The gateways before the engine: their number (each keeps to its share), or "
            "where they ask each other what they hold, which takes peers.token: a list with the "
            "peers.listen of each, or dns:HOST:PORT, a name of all of them (a headless Service).",
        ),
    ),
)

_KEEP_ALIVE = tuple(key for key in ADMISSION.keys if key.name == "keepAliveSeconds")
_LEARNED = tuple(key for key in ADMISSION.keys if key.name != "maxInflight")


def admission_keys(observed: bool, gated: bool) -> tuple[Key, ...]:
    """Give the keys of `admission` that mean anything for such a model."""
    if gated:
        return tuple(ADMISSION.keys)
    return _LEARNED if observed else _KEEP_ALIVE


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
            name="maxBodyBytes",
            kind=_BYTES,
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
    extra={"required": ["models"]},
    keys=(
        Key(
            name="listen",
            kind=ListOf(_ENDPOINTS, "Twisted server endpoints", minimum=1),
            environment=("GATEWAY_LISTEN",),
            about="Where clients connect: Twisted server endpoint strings.",
        ),
        Key(
            name="adminListen",
            kind=ListOf(_ENDPOINTS, "Twisted server endpoints"),
            about="When set, /metrics, /status and /health* are served there and nowhere else.",
        ),
        Key(
            name="maxBodyBytes",
            kind=_BYTES,
            environment=("MAX_BODY_BYTES",),
            about="The largest request body.",
        ),
        Key(
            name="maxHeldBytes",
            kind=_BYTES,
            about="All request bodies held at once; past it 503 queue_full.",
        ),
        Key(name="maxConnections", kind=Whole(1, 1_000_000), about="Clients connected at once."),
        Key(
            name="drainSeconds",
            kind=_SECONDS,
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
            name="models",
            kind=MapOf(_NAME, MODEL, "a mapping from names to models", minimum=1),
            derived=True,
            about='What clients may put in "model", and where it goes.',
        ),
        Key(name="peers", kind=PEERS, about="The exchange between the replicas of the gateway."),
    ),
)

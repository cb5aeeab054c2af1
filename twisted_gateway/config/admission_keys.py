"""The keys of `admission`; keys.py puts them to the rest."""

from __future__ import annotations

from twisted_gateway.config.kinds import BYTES, SECONDS, Choice, Either, Number, Whole, words
from twisted_gateway.config.replicas import ReplicasKind
from twisted_gateway.config.sections import Key, Section
from twisted_gateway.core.policy import Ordering, Policy, WhenStale
from twisted_gateway.core.rates import DECODE_TOKENS_PER_SECOND, PREFILL_TOKENS_PER_SECOND

_RATE = Number(0.1, 10_000_000)
_PREFILL = f"{PREFILL_TOKENS_PER_SECOND:g} until learned"
_DECODE = f"{DECODE_TOKENS_PER_SECOND:g} until learned"

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
            kind=SECONDS,
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
            kind=SECONDS,
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
        Key(name="holdSeconds", kind=SECONDS, about="How long the last sample is held."),
        Key(
            name="retryAfterSeconds",
            kind=Number(0, 60),
            own=True,
            about="The least that a refusal's Retry-After says.",
        ),
        Key(name="parkedBytes", kind=BYTES, about="Bodies of parked requests, together."),
        Key(
            name="patienceSeconds",
            kind=SECONDS,
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
            kind=SECONDS,
            about="A prompt that takes the engine longer is long; one such is in it at a time.",
        ),
        Key(
            name="prefillTokensPerSecond",
            kind=_RATE,
            absent=_PREFILL,
            about=f"What the engine reads of one prompt alone. Default: {_PREFILL}, with nothing "
            "long or refused for its deadline till then. Naming this or decodeTokensPerSecond "
            "makes both count as learned. Until five answers have told their prompts' tokens "
            "(usage), prompts estimated by their bytes teach at most 4 times this, at least a "
            "quarter.",
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
            kind=SECONDS,
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

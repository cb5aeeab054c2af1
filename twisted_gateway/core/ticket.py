"""A request at the gate: what it asks for, and what the gate has made of it so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from twisted_gateway.core.estimate import kv_tokens_needed
from twisted_gateway.core.policy import Policy


class IllegalCall(Exception):
    """The driver reported something that cannot have happened; the gate has not changed."""


class Priority(IntEnum):
    """The classes of service; the lower serves first."""

    INTERACTIVE = 0
    BATCH = 1
    WARMUP = 2


class TicketState(Enum):
    """Where a ticket stands. Only the gate changes it."""

    NEW = "new"
    PARKED = "parked"
    SENT = "sent"
    DONE = "done"


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """One request at the gate. A ticket is itself: two of the same values are two.

    What a client says is clamped, not trusted: `n` is at least 1, tokens at least 0.

    Attributes:
        model: the configured model's name.
        policy: the model's own policy; `max_park_seconds` is taken from it at `submit`.
        priority: class of service.
        stream: whether first content is told apart from the end of the answer.
        n: sequences that the request runs in the engine at once.
        prompt_tokens: an estimate, see `core.estimate`.
        max_tokens: the most tokens asked for; 0 where nothing is generated.
        body_bytes: what the parked body occupies.
        tenant: who counts as one for fairness: an opaque name, never what a client sent.
        blocks: see `core.prefix`: what the prompt begins with, one hash for every 4 KiB.
        wait_seconds: the client's own bound on parking (`Prefer: wait=N`), None for none.
        head_sent: set by the driver when a 200 has been spent on keep-alives.
        generated_tokens: counted by the driver as content flows.
        told_tokens: of the prompt, as the engine's answer says; set by the driver before it tells
            of the end, None where nothing was said.
        cached_tokens: how many of these the engine had in its cache and did not read; as above.
        state: set by the gate, as is everything below.
        sequence: the place in the order of arrival, kept for life.
        parked_at: when the ticket was submitted, in seconds; a re-parked one keeps it.
        park_until: when parking ends, in seconds.
        crowded_since: when the ticket, at the head and of several sequences, first found an engine
            with nothing of ours in it and yet, for what peers say, no room.
        kv_blocked_since: since when the ticket, at the head, has lacked nothing but KV.
        sent_at: when it was last sent to an engine, in seconds.
        first_content_at: when its first content came, in seconds.
        read_seconds: how long the engine read its prompt, where it read no other of ours
            meanwhile and the end of that was to be seen; else None.
        engine: index of the engine that it was last sent to.
        refusals: how often an engine that took the connection refused it.
        reparked: whether it has come back to the queue from an engine.
        kv_need_tokens: tokens of KV cache to keep for it before it starts.
        shared_tokens: how much of its prompt was read lately, when it was last priced.
        prefill_seconds: how long the engine will read its prompt, by that.
        cost_seconds: engine time that it costs, by that.
        long: whether its prefill is a long one.
        deadline_at: from when it can no longer be served in its client's patience.
        held_since: since when, being long and at the head, it has held others back.
    """

    model: str
    policy: Policy
    priority: Priority = Priority.INTERACTIVE
    stream: bool = False
    n: int = 1
    prompt_tokens: int = 0
    max_tokens: int = 0
    body_bytes: int = 0
    tenant: str = ""
    blocks: tuple[int, ...] = ()
    wait_seconds: float | None = None
    head_sent: bool = field(default=False, init=False)
    generated_tokens: int = field(default=0, init=False)
    told_tokens: int | None = field(default=None, init=False)
    cached_tokens: int | None = field(default=None, init=False)
    state: TicketState = field(default=TicketState.NEW, init=False)
    sequence: int = field(default=-1, init=False)
    parked_at: float = field(default=0.0, init=False)
    park_until: float = field(default=0.0, init=False)
    crowded_since: float | None = field(default=None, init=False)
    kv_blocked_since: float | None = field(default=None, init=False)
    sent_at: float = field(default=0.0, init=False)
    first_content_at: float | None = field(default=None, init=False)
    read_seconds: float | None = field(default=None, init=False)
    engine: int | None = field(default=None, init=False)
    refusals: int = field(default=0, init=False)
    reparked: bool = field(default=False, init=False)
    kv_need_tokens: int = field(default=0, init=False)
    shared_tokens: int = field(default=0, init=False)
    prefill_seconds: float = field(default=0.0, init=False)
    cost_seconds: float = field(default=1.0, init=False)
    long: bool = field(default=False, init=False)
    deadline_at: float = field(default=math.inf, init=False)
    held_since: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Clamp what the client said."""
        self.n = max(1, self.n)
        self.prompt_tokens = max(0, self.prompt_tokens)
        self.max_tokens = max(0, self.max_tokens)
        self.kv_need_tokens = kv_tokens_needed(self.prompt_tokens, self.max_tokens)

    def arrive(self, sequence: int, now: float) -> None:
        """It is submitted, as the `sequence`-th of all; its client's bound shortens its parking."""
        self.sequence = sequence
        self.parked_at = now
        wait = self.policy.max_park_seconds
        if self.wait_seconds is not None:
            wait = min(wait, max(0.0, self.wait_seconds))
        self.park_until = now + wait

    def send(self, engine: int, now: float) -> None:
        """It goes to this engine."""
        self.state = TicketState.SENT
        self.sent_at = now
        self.crowded_since = self.kv_blocked_since = self.held_since = None
        self.engine = engine

    @property
    def awaits_content(self) -> bool:
        """Whether a sent ticket awaits first content; one that is no stream does to its end."""
        return not (self.stream and self.first_content_at is not None)

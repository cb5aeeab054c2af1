"""What a run found, and the JSON file that keeps it.

All times are model seconds: those of the workload, from its start. A run at `speed` X takes a
model second in 1/X seconds of the clock on the wall.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

SCHEMA = "llm-gateway-load/1"
"""What the file's member `schema` says: a reader that knows another number must not guess."""
MAX_FILE_BYTES = 512 * 1024 * 1024
"""The largest file that is read."""


class Ending(Enum):
    """How a try, and the request that it belongs to, ended."""

    COMPLETED = "completed"
    REFUSED = "refused"
    """Not served for want of room: 503 or 429, or the gate's error in a stream."""
    FAILED = "failed"
    """Everything else that went wrong."""
    GAVE_UP = "gave up"
    """The client's patience ran out."""
    INTERRUPTED = "interrupted"
    """The run was ended before the request was."""


class Try(Struct, omit_defaults=True, kw_only=True):
    """One request on the wire.

    Attributes:
        at: when it was sent.
        end: when it was over.
        ending: how.
        head: when the answer's head was there.
        content: when the first event that bears content came; streams only.
        status: of the answer's head.
        reason: the gateway's `reason`, or a phrase that says why it failed.
        kept: how long the gateway kept it waiting, as far as a client can see; None: it cannot.
        position: the first position in the queue that a keep-alive comment told.
        eta: the seconds that the same comment promised, as told.
        retry_after: the seconds that a refusal asked to wait, as told.
        tokens: of the answer, as counted by the engine, else the events that bore content.
    """

    at: float
    end: float = 0.0
    ending: Ending = Ending.INTERRUPTED
    head: float | None = None
    content: float | None = None
    status: int | None = None
    reason: str = ""
    kept: float | None = None
    position: int | None = None
    eta: float | None = None
    retry_after: float | None = None
    tokens: int = 0


class Request(Struct, kw_only=True):
    """One client of the workload and what became of it.

    Attributes:
        number: its place in the workload, from 0.
        at: when the workload has it ask first.
        end: when it was over.
    """

    number: int
    kind: str
    tenant: str
    at: float
    prompt_tokens: int
    answer_tokens: int
    patience: float
    stream: bool = True
    direct: bool = False
    priority: str | None = None
    end: float = 0.0
    ending: Ending = Ending.INTERRUPTED
    tries: list[Try] = field(default_factory=list)

    @property
    def ttft(self) -> float | None:
        """Seconds from the first asking to the first content; streams that completed only."""
        if self.ending is not Ending.COMPLETED or self.tries[-1].content is None:
            return None
        return self.tries[-1].content - self.at

    @property
    def whole(self) -> float | None:
        """Seconds from the first asking to the whole answer; None if it never came."""
        return self.end - self.at if self.ending is Ending.COMPLETED else None

    @property
    def reason(self) -> str:
        """Why the last try failed."""
        return self.tries[-1].reason if self.tries else ""

    @property
    def waited(self) -> float | None:
        """Seconds from the first try until the last was let in, as far as a client can see."""
        if not self.tries or self.tries[-1].kept is None:
            return None
        return self.tries[-1].at - self.tries[0].at + self.tries[-1].kept


class Sample(Struct, omit_defaults=True, kw_only=True):
    """What was seen at one moment.

    Attributes:
        at: when.
        open: requests on the wire.
        held: those of them whose last news was a place in the queue.
        completed: requests, so far.
        refused: tries, so far.
        parked: by the gateways' own account, all of them together.
        deepest: the most that one gateway has parked.
        in_engine: the gateways' account of what is in the engine.
        running: the engine's gauge, as the gateway has read it.
        waiting: the engine's gauge, as the gateway has read it.
        longest_wait: seconds that the longest parked request has waited.
        truth: what is in a simulated engine, by its own account.
    """

    at: float
    open: int = 0
    held: int = 0
    completed: int = 0
    refused: int = 0
    parked: int | None = None
    deepest: int | None = None
    in_engine: int | None = None
    running: int | None = None
    waiting: int | None = None
    longest_wait: float | None = None
    truth: int | None = None


class Place(Struct, array_like=True):
    """A place in the queue that a keep-alive comment told."""

    at: float
    number: int
    position: int
    eta: float | None = None


class Gate(Struct, kw_only=True, omit_defaults=True):
    """What the gateway says of the model's gate.

    Attributes:
        max_park_seconds: in seconds of the gateway's own clock.
    """

    max_inflight: int | None = None
    max_park_seconds: float | None = None
    max_queue_depth: int | None = None


class Settings(Struct, kw_only=True):
    """How the run was made. No credential is ever in it."""

    workload: str
    model: str
    to: list[str]
    version: str
    started: str
    options: dict[str, float] = field(default_factory=dict)
    direct_to: str | None = None
    speed: float = 1.0
    seed: int = 1
    exact_answers: bool = True
    retry_after: str = "model"
    limit: int | None = None
    duration: float | None = None


class Result(Struct, kw_only=True, tag_field="schema", tag=SCHEMA):
    """A whole run.

    Attributes:
        took: model seconds.
        late: the most seconds of the wall's clock by which the tool itself was late in sending.
        gate: None where no `/status.json` was to be had.
        interrupted: whether it was ended before its time.
    """

    settings: Settings
    requests: list[Request]
    took: float
    samples: list[Sample] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    gate: Gate | None = None
    late: float = 0.0
    interrupted: bool = False


class Unreadable(Exception):
    """A file that is no result; the text says which and why."""


def read(path: Path) -> Result:
    """Read a result.

    Raises:
        Unreadable: the file cannot be read, is none of this tool's, or of another schema.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or "it cannot be read"
        raise Unreadable(f"{path}: expected a readable file ({why})") from None
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable(f"{path}: expected a file of at most {MAX_FILE_BYTES} bytes")
    try:
        result = msgspec.json.decode(data, type=Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise Unreadable(f"{path}: expected a file of schema {SCHEMA}: {fault}") from None
    fault_of_it = _contradiction(result)
    if fault_of_it is not None:
        raise Unreadable(f"{path}: expected a file of schema {SCHEMA}: {fault_of_it}")
    return result


def _contradiction(result: Result) -> str | None:
    """Say in what a file of the right form is none that a run has written; None for nothing."""
    for index, request in enumerate(result.requests):
        if request.number != index:
            return f"request {request.number} is in the place of {index}"
        if request.ending is Ending.COMPLETED and not request.tries:
            return f"request {index} completed without a try"
    for place in result.places:
        if not 0 <= place.number < len(result.requests) or not result.requests[place.number].tries:
            return f"a place in the queue was told to request {place.number}, which never asked"
    if result.took < 0 or result.settings.speed <= 0:
        return "time goes backwards"
    return None


def as_json(result: Result, **more: Any) -> bytes:
    """Give the file's bytes.

    Args:
        result: the run; `read` gives it back.
        **more: members beside it, for other readers; `read` leaves them out.
    """
    tree: dict[str, Any] = msgspec.to_builtins(result)
    first = {name: tree.pop(name) for name in ("schema", "settings")}
    return msgspec.json.encode({**first, **msgspec.to_builtins(more), **_rounded(tree)}) + b"\n"


def _rounded(value: Any) -> Any:
    """Give a tree whose numbers go no further than a tenth of a millisecond."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value

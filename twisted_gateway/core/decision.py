"""What the gate decides: the driver turns each of these into a Deferred's end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from twisted_gateway.core.outlook import Standing
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.core.view import EngineView


class Reason(Enum):
    """Why a ticket is refused. `value` is the member `reason` of the answer."""

    PARK_TIMEOUT = "park_timeout"
    QUEUE_FULL = "queue_full"
    DEADLINE = "deadline"
    DRAINING = "draining"


@dataclass(slots=True)
class Admitted:
    """The ticket goes to the engine of this index, now."""

    ticket: Ticket
    engine: int


@dataclass(slots=True)
class Parked:
    """The ticket must wait; another decision about it follows, unless its client leaves."""

    ticket: Ticket


@dataclass(slots=True)
class Refused:
    """The gate answers the ticket with a 503.

    Attributes:
        seen: what was known of the engine with most room.
        waited_seconds: time since the ticket was submitted.
        standing: where it stood in line, or would have stood.
        place_seconds: how long it takes on average until a place is free; None for unknown.
    """

    ticket: Ticket
    reason: Reason
    seen: EngineView
    waited_seconds: float
    standing: Standing
    place_seconds: float | None


@dataclass(slots=True)
class Passed:
    """The engine's own refusal (or a 502 where it took no connection) goes to the client."""

    ticket: Ticket


Decision = Admitted | Parked | Refused | Passed

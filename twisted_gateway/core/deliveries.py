"""Which events of a webhook have been acted on, so that none is twice. Pure.

What a sender signs is the body alone. Whoever has seen a delivery could send its body again under
another id, or as another event, so an event is known by its body too, and a body by the event that
it first came as. A sender that delivers an event again gives it a new id (Forgejo does): that is
the same event, and what had failed of it is tried again.

what comes                            what it is
----------------------------------    ------------------------------------------------------------
neither id nor body is known          an event
the id is, and all of it was done     the same event, whatever else it bears
the body is, as the same event        the same event
anything else                         `Conflict`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice


class Conflict(Exception):
    """What comes is not what has come under the same id, or with the same body, before."""


@dataclass(slots=True, eq=False)
class Delivery:
    """One event, however often it is delivered.

    Attributes:
        name: the id by which it came first.
        event: what it came as.
        digest: its body's.
        under_way: whether it is being acted on now.
        done: what has been done for it.
        complete: whether that is all that there was to do.
    """

    name: str
    event: str
    digest: bytes
    under_way: bool = False
    done: set[str] = field(default_factory=set)
    complete: bool = False

    def begin(self) -> None:
        """It is being acted on."""
        self.under_way = True

    def end(self, done: frozenset[str], *, complete: bool) -> None:
        """What was begun for it is over.

        Args:
            done: what has been done of it this time.
            complete: whether that is all that there was to do.
        """
        self.under_way = False
        self.done |= done
        self.complete = complete


class Deliveries:
    """Remembers deliveries by their ids and their bodies.

    Args:
        most: how many are remembered, beside those that are being acted on. The one that came
            longest ago is forgotten first.
    """

    def __init__(self, most: int) -> None:
        """Remember none."""
        self._most = most
        # In the order of their latest coming.
        self._by_body: dict[bytes, Delivery] = {}
        self._by_name: dict[str, Delivery] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._by_body)

    def find(self, name: str, event: str, digest: bytes) -> Delivery:
        """Give the delivery that comes: a known one, or a new one, which is remembered.

        Args:
            name: its id, which anybody may have written.
            event: what it comes as; likewise.
            digest: its body's, which the sender has signed.

        Raises:
            Conflict: it is none that can be acted on.
        """
        named, known = self._by_name.get(name), self._by_body.get(digest)
        if named is not None and named.complete:
            return self._came_again(named)
        if known is None and named is None:
            return self._remembered(Delivery(name, event, digest))
        if known is None or known.event != event or named not in (None, known):
            raise Conflict
        return self._came_again(known)

    def _remembered(self, new: Delivery) -> Delivery:
        over = len(self._by_body) + 1 - self._most
        if over > 0:
            idle = (one for one in self._by_body.values() if not one.under_way)
            for oldest in list(islice(idle, over)):
                del self._by_body[oldest.digest], self._by_name[oldest.name]
        self._by_body[new.digest] = self._by_name[new.name] = new
        return new

    def _came_again(self, known: Delivery) -> Delivery:
        self._by_body[known.digest] = self._by_body.pop(known.digest)
        return known

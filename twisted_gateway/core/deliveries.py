"""Which deliveries of a webhook have been acted on, so that none is twice. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Delivery:
    under_way: bool = True
    done: set[str] = field(default_factory=set)
    complete: bool = False


class Deliveries:
    """Remembers deliveries by their ids.

    A delivery of which something failed may come again, for that alone.

    Args:
        most: how many are remembered; the one that came longest ago is forgotten first.
    """

    def __init__(self, most: int) -> None:
        """Remember none."""
        self._most = most
        self._deliveries: OrderedDict[str, _Delivery] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._deliveries)

    def begin(self, name: str) -> frozenset[str] | None:
        """A delivery has come.

        Returns:
            What has been done for it already; None where nothing is to be done: all has been, or
            is under way.
        """
        known = self._deliveries.get(name)
        if known is None:
            known = self._deliveries[name] = _Delivery()
            if len(self._deliveries) > self._most:
                self._deliveries.popitem(last=False)
            return frozenset()
        self._deliveries.move_to_end(name)
        if known.under_way or known.complete:
            return None
        known.under_way = True
        return frozenset(known.done)

    def end(self, name: str, done: frozenset[str], *, complete: bool) -> None:
        """What was begun for a delivery is over.

        Args:
            name: its id.
            done: what has been done of it this time.
            complete: whether that is all that there was to do.
        """
        known = self._deliveries.get(name)
        if known is not None:
            known.under_way = False
            known.done |= done
            known.complete = complete

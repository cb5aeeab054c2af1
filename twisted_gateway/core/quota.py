"""How several replicas share an engine's places without asking each other for each.

    replicas     a replica may take, of S places
    1            room
    N            ceil((S + 2) / N) of its own; what is foreign counts as far as the other replicas
                 cannot be it, had each its share
    addresses    what a round of asking has given it, see below; one place always, unless others
                 than replicas fill the engine; and a place that its own ticket frees, if there is
                 room yet and no peer has a better head

    A round of asking ends, with so many replicas as answer or lately did:
        0 < room <= 2 N    ceil(room / N), less the places that better heads want: to be taken at
                           once; the best head gets as many as it has sequences
        room > 2 N         room // (4 N), at least 1: until the next round, at most for 0.3 s
        else               nothing, as when the round took too long to be believed

    What was taken since the round before ended counts as room of this one, and as taken of what it
    gives, but for places filled again: peers may act by pictures that are older than that.

So N replicas that take at the same moment, each by the same picture, put at most N - 1 sequences
over S into an engine, where each ticket runs one; two heads of several that each hold themselves
for the best may put in more. Whoever sees too much in it takes nothing but its one place, and it is
over when these end. A head of several that finds one place and no more, 60 s long, takes what it
asks for (`core.selection`): what peers say may be wrong for ever.

A reload may leave several gates in front of an engine: one in force, and those it has retired until
they are empty. They share one quota: what a round gives, it gives to all of them together.
Without any answers each keeps to S of its own: N * S at the very most.
"""

from __future__ import annotations

from twisted_gateway.core.policy import Replicas

STANDING_SECONDS = 0.3
_MARGIN = 2
"""What an engine may have over S for bare N, where nobody knows what the others hold."""


class Quota:
    """What this replica may take of an engine's room.

    Attributes:
        replicas: how many there are, this one included, where they ask each other.
        asked: whether a round of asking has ended yet.
    """

    def __init__(self) -> None:
        """Nothing is known of other replicas."""
        self.replicas = 1
        self.asked = False
        self._now = 0
        self._refilled = 0
        self._standing = 0
        self._standing_until = 0.0
        self._taken = 0
        self._taken_before = 0
        self._given_to: set[object] = set()

    def grant(
        self,
        room: int,
        better: int,
        wanted: int,
        now: float,
        *,
        own: int,
        current: bool,
        to: object = None,
    ) -> None:
        """A round of asking has ended.

        Args:
            room: places that are free by it.
            better: places that peers may be about to take for heads that go before ours.
            wanted: sequences of our own head: it gets that many where there are so many.
            now: the time.
            own: sequences of ours in the engine.
            current: whether the round is to be believed.
            to: which gate takes it. One that has not been given anything since another was has a
                part in what that was given.
        """
        count = self.replicas
        if to in self._given_to:
            self._given_to.clear()
        if not self._given_to:
            self._taken_before, self._taken = self._taken, 0
        self._given_to.add(to)
        # What was taken and has ended since is nobody's any more.
        taken = min(self._taken_before + self._taken, own)
        self._now = self._standing = 0
        if not current or room < 1:
            return
        before = room + taken
        if before > 2 * count:
            share = max(1, before // (4 * count))
            self._standing = max(0, share - taken)
            self._standing_until = now + STANDING_SECONDS
            self._now = max(0, min(wanted, room) - max(share, taken))
        else:
            share = -(-before // count)
            if not better:
                # A head of several sequences goes when it is the first of all, not in parts.
                share = max(share, min(wanted, before))
            self._now = max(0, min(share - taken, room - better))

    def refill(self, sequences: int) -> None:
        """So many places of our own are free, and are ours again if taken at once."""
        self._refilled += sequences

    def take(self, sequences: int) -> None:
        """So many are taken."""
        again = min(sequences, self._refilled)
        self._refilled -= again
        self._taken += sequences - again
        used = min(sequences - again, self._now)
        self._now -= used
        self._standing = max(0, self._standing - (sequences - again - used))

    def lapse(self) -> None:
        """What was to be taken at once was not."""
        self._now = self._refilled = 0

    def room(
        self, replicas: Replicas, *, limit: int, own: int, peers: int, others: int, now: float
    ) -> int:
        """How many sequences this replica may put into an engine.

        Args:
            replicas: what the configuration says of them.
            limit: S.
            own: sequences of ours in it.
            peers: sequences of other replicas in it, as far as they tell.
            others: all that the gauges show beside these.
            now: the time.
        """
        room = limit - own - peers - others
        if not replicas.exchanged:
            if replicas.count == 1:
                return room
            share = own_share(replicas, limit)
            return share - own - max(0, others - share * (replicas.count - 1))
        if self.asked and self.replicas == 1:
            return room
        standing = self._standing if now < self._standing_until else 0
        room = min(room, self._now + self._refilled + standing)
        return 1 if own == 0 and room < 1 and others < limit else room


def own_share(replicas: Replicas, limit: int) -> int:
    """What each of bare N replicas keeps to, of S = `limit`; all of it where there is one."""
    return limit if replicas.count == 1 else -(-(limit + _MARGIN) // replicas.count)

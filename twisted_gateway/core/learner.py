"""`auto`: how S, the sequences that an engine runs at once, is learned from its gauges.

    so far      page                                   S
    not shown   waiting > 0, and it counts             largest `running` seen, at least 1: shown
                waiting > 0, and it does not count     raised to the largest `running` seen
                waiting = 0, running >= S, parked      doubled
    shown       waiting > 0, `running` has been > S    as where it was not shown
                waiting = 0, running > S, parked       doubled: not shown
                waiting = 0, running = S, parked,      one more: tried
                  SHOWN_SECONDS after it was shown
                waiting > 0, running < S, counts,      largest `running` of these pages and those
                  the CONTESTED_PAGES-th such page       between them, at least 1: shown
                  since one with running >= S
    tried       waiting > 0, and it counts             largest `running` since the try began: shown
                waiting > 0, TRY_SECONDS after that    the same
                waiting > 0, else                      raised to the largest `running` since then
                waiting = 0, running >= S              as it is, doubled if parked: not shown

`parked` is for requests parked at the gate. Any other page changes nothing.

A page counts unless it may mislead: while more own tickets await their first content than the
engine says wait (the gauges lag, or a prefill keeps others out), or while the KV cache is over
0.85 (KV, not S, may be what keeps them waiting).

What was shown stays for a while, else S would double and fall for ever. It does not stay for good:
others' requests behind one long prefill can show 1, and nobody ever goes above an S that all keep
to. An engine that comes back with fewer sequences is known by never running as many as it did
while requests wait for it.
"""

from __future__ import annotations

from twisted_gateway.core.sample import Sample

START = 2
KV_MISLEADS_OVER = 0.85
SHOWN_SECONDS = 600.0
"""How long what was shown is not put to the test."""
TRY_SECONDS = 60.0
"""How long one more is tried while no page counts."""
CONTESTED_PAGES = 300
"""How many pages that count outweigh what was shown: ten minutes of polls every 2 s."""


def counts(sample: Sample, awaiting: int) -> bool:
    """Whether a page may lower S or contradict a configured one.

    Args:
        sample: the page.
        awaiting: own sequences that awaited their first content while it was fetched, at most.
    """
    kv_usage = sample.kv_usage
    return awaiting <= sample.waiting and (kv_usage is None or kv_usage <= KV_MISLEADS_OVER)


def contradicts(sample: Sample, max_inflight: int) -> bool:
    """Whether a page that counts shows that the engine runs more, or fewer, than configured."""
    running = sample.running
    if running is None:
        return False
    return running > max_inflight or (sample.waiting > 0 and running < max_inflight)


class Learner:
    """S of one engine, as its pages show it.

    Attributes:
        limit: S.
        learned: whether any page has taught anything yet.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.limit = START
        self.learned = False
        self._shown_at: float | None = None
        self._tried_at: float | None = None
        self._most_running = 0
        self._contested = 0
        self._most_contested = 0

    def learn(self, sample: Sample, *, awaiting: int, parked: bool) -> None:
        """Learn from a page.

        Args:
            sample: the page; one without `running` teaches nothing. What was shown ages by its
                `taken_at`.
            awaiting: as for `counts`.
            parked: whether requests were parked when it came.
        """
        running = sample.running
        if running is None:
            return
        self._most_running = max(self._most_running, running)
        if running >= self.limit:
            self._contested = 0
        elif self._contested:
            self._most_contested = max(self._most_contested, running)
        if sample.waiting > 0:
            self._some_wait(running, sample.taken_at, counting=counts(sample, awaiting))
        elif running >= self.limit:
            self._none_wait(running, sample.taken_at, parked=parked)

    def _some_wait(self, running: int, taken_at: float, *, counting: bool) -> None:
        """The engine runs all that it can, unless the page misleads."""
        most = self._most_running
        if not counting:
            if self._tried_at is not None and taken_at >= self._tried_at + TRY_SECONDS:
                self._show(most, taken_at)
            elif most > self.limit:
                self._set(most)
        elif self._shown_at is None or most > self.limit:
            self._show(most, taken_at)
        elif running < self.limit:
            self._contest(running, taken_at)

    def _contest(self, running: int, taken_at: float) -> None:
        """A page that counts says that S is less than what was shown."""
        if not self._contested:
            self._most_contested = running
        self._contested += 1
        if self._contested >= CONTESTED_PAGES:
            self._show(self._most_contested, taken_at)

    def _none_wait(self, running: int, taken_at: float, *, parked: bool) -> None:
        """The engine runs S or more, and may be able to run more yet."""
        if self._shown_at is None:
            self._tried_at = None
        if not parked:
            return
        if self._shown_at is None or running > self.limit:
            self._shown_at = None
            self._set(self.limit * 2)
        elif taken_at >= self._shown_at + SHOWN_SECONDS:
            self._shown_at = None
            self._tried_at = taken_at
            self._most_running = running
            self._set(self.limit + 1)

    def _show(self, limit: int, taken_at: float) -> None:
        self._set(max(1, limit))
        self._shown_at = taken_at
        self._tried_at = None
        self._most_running = self.limit
        self._contested = 0

    def _set(self, limit: int) -> None:
        self.limit = limit
        self.learned = True

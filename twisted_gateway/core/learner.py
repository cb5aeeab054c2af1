"""`auto`: how S, the sequences that an engine runs at once, is learned from its gauges.

    page                                            learned
    waiting > 0, and it counts                      S = largest `running` seen, at least 1: shown
    waiting > 0, and it does not count              S is raised to the largest `running` seen
    waiting = 0, running >= S, requests are parked  S doubles; a shown S only when running > S

A page counts unless it may mislead: while more own tickets await their first content than the
engine says wait (the gauges lag, or a prefill keeps others out), or while the KV cache is over
0.85 (KV, not S, may be what keeps them waiting). What was shown stays until `running` goes above
it, else S would double and fall for ever.
"""

from __future__ import annotations

from twisted_gateway.core.sample import Sample

START = 2
KV_MISLEADS_OVER = 0.85


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
        self._shown = False
        self._most_running = 0

    def learn(self, sample: Sample, *, awaiting: int, parked: bool) -> None:
        """Learn from a page.

        Args:
            sample: the page; one without `running` teaches nothing.
            awaiting: as for `counts`.
            parked: whether requests were parked when it came.
        """
        running = sample.running
        if running is None:
            return
        self._most_running = max(self._most_running, running)
        if sample.waiting > 0:
            if counts(sample, awaiting):
                self._shown = True
                self._set(max(1, self._most_running))
            elif self._most_running > self.limit:
                self._set(self._most_running)
        elif parked and running >= self.limit and (running > self.limit or not self._shown):
            self._shown = False
            self._set(self.limit * 2)

    def _set(self, limit: int) -> None:
        self.limit = limit
        self.learned = True

"""How fast an engine reads and writes: learned from what it has served, and from its start values.

    rate      learned from                                                       until learned
    prefill   own streams of 1,000 tokens or more to read, that were alone in    prefillTokens-
              prefill: sent to first content                                     PerSecond, else 525
    decode    own streams of one sequence and 32 content events or more:         decodeTokens-
              first content to end                                               PerSecond, else 25

Each is the upper tercile of its last 15 samples, once five are in: what else the engine does
meanwhile, for us or others, only slows a sample down, and what a prompt or an answer takes by
itself is wanted. Both count as learned when both are, or when the configuration names either: as
bare defaults they serve the order, and nobody is refused or held back for them.

A sample counts from first content on, by an estimate; at the answer's end it may be put right.
How much of a prompt there was to read is *confirmed* where the answer's own `usage` says it, and
else an estimate by the bytes of the body. A client can make an estimate as wrong as it likes, by a
long member that the engine ignores or by a short name for a large picture; and whoever asks for
streams without `usage` is believed by the estimate alone. So what estimates may teach is bounded:
each sample of theirs counts as at most 4 times, and at least a quarter of,

    the confirmed rate       the upper tercile of the last 15 confirmed samples, once five are in
    the configured rate      before, where the configuration names it
    nothing                  else: an engine whose rate nobody knows is known by estimates alone

Only confirmed samples move the first of these, so that estimates cannot shift their own bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from twisted_gateway.core.policy import Policy

PREFILL_TOKENS_PER_SECOND = 525.0
DECODE_TOKENS_PER_SECOND = 25.0
LEAST_PROMPT_TOKENS = 1000
LEAST_ANSWER_TOKENS = 32
LEAST_SAMPLES = 5
MOST_SAMPLES = 15
MOST_ESTIMATE_RATIO = 4.0
"""By how much a sample of an estimated prompt may differ from what is known better."""
LEAST_RATE = 0.01
_LEAST_SECONDS = 1e-3


class Rates:
    """The two rates of the engines behind one gate, in tokens a second.

    Attributes:
        prefill: tokens a second of a prompt that is read alone.
        decode: tokens a second of one answer.
        learned: whether anybody may be refused or held back by them.
    """

    def __init__(self, policy: Policy) -> None:
        """Start with what the configuration names, else with the defaults."""
        self.prefill = PREFILL_TOKENS_PER_SECOND
        self.decode = DECODE_TOKENS_PER_SECOND
        self.learned = False
        self._prefills: deque[tuple[float, bool, object]] = deque(maxlen=MOST_SAMPLES)
        self._confirmed: deque[float] = deque(maxlen=MOST_SAMPLES)
        self._decodes: deque[float] = deque(maxlen=MOST_SAMPLES)
        self.adopt(policy)

    def adopt(self, policy: Policy) -> None:
        """Take the start values of another policy; what was learned stays."""
        self._start_prefill = policy.prefill_tokens_per_second
        self._start_decode = policy.decode_tokens_per_second
        self._settle()

    def prefill_took(
        self, tokens: int, seconds: float, *, confirmed: bool, of: object = None
    ) -> bool:
        """A prompt was read alone.

        Args:
            tokens: how many of it there were to read.
            seconds: how long that took.
            confirmed: whether the engine has said so, and not an estimate.
            of: the request. What is known of it later stands in the place of what it taught first.

        Returns:
            Whether a rate has changed.
        """
        rate = tokens / max(seconds, _LEAST_SECONDS)
        sample = (rate, confirmed, of) if tokens >= LEAST_PROMPT_TOKENS else None
        if not self._corrected(sample, of):
            if sample is None:
                return False
            self._prefills.append(sample)
        if confirmed and sample is not None:
            self._confirmed.append(rate)
        return self._settle()

    def _corrected(self, sample: tuple[float, bool, object] | None, of: object) -> bool:
        """Put this in the place of what the same request taught before, if it did."""
        for place, (_, _, taught_by) in enumerate(self._prefills):
            if of is not None and taught_by is of:
                if sample is None:
                    del self._prefills[place]
                else:
                    self._prefills[place] = sample
                return True
        return False

    def decode_took(self, tokens: int, seconds: float) -> bool:
        """An answer had so many tokens behind its first. Say whether a rate has changed."""
        if tokens < LEAST_ANSWER_TOKENS:
            return False
        self._decodes.append(tokens / max(seconds, _LEAST_SECONDS))
        return self._settle()

    def _settle(self) -> bool:
        before = self.prefill, self.decode, self.learned
        read, written = _learned(self._bounded_prefills()), _learned(self._decodes)
        self.prefill = read or self._start_prefill or PREFILL_TOKENS_PER_SECOND
        self.decode = written or self._start_decode or DECODE_TOKENS_PER_SECOND
        named = self._start_prefill is not None or self._start_decode is not None
        self.learned = named or (read is not None and written is not None)
        return before != (self.prefill, self.decode, self.learned)

    def _bounded_prefills(self) -> list[float]:
        known = _learned(self._confirmed) or self._start_prefill
        if known is None:
            return [rate for rate, _, _ in self._prefills]
        least, most = known / MOST_ESTIMATE_RATIO, known * MOST_ESTIMATE_RATIO
        return [
            rate if confirmed else min(most, max(least, rate))
            for rate, confirmed, _ in self._prefills
        ]


def _learned(samples: Collection[float]) -> float | None:
    if len(samples) < LEAST_SAMPLES:
        return None
    return max(LEAST_RATE, sorted(samples)[2 * len(samples) // 3])

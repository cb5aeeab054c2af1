"""How the clients of W1 to W6 are drawn, one by one, and within which bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator

from twisted_gateway.load.arrivals import MAX_ARRIVALS, MAX_SECONDS, MAX_TOKENS, Arrival

ESTIMATE_SIGMA = 0.2
"""How far estimates of prompts are off: the deviation of their logarithm."""
_TRIES = ((1, 3, 6), (0.2, 0.5, 0.3))
_MAX_TOKENS = (512, 1024, 4096)


class Drawing:
    """Draws clients one by one, each with the same numbers in the same order."""

    def __init__(self, rng: random.Random) -> None:
        """Draw from `rng`."""
        self.rng = rng
        self.drawn: list[tuple[Arrival, int]] = []

    def client(
        self,
        at: float,
        tenant: str,
        prompt_tokens: float,
        answer_tokens: float,
        *,
        kind: str,
        patience_seconds: float,
        direct: float,
        nonstream: float = 0.0,
        group: str | None = None,
        prefix_tokens: int = 0,
    ) -> None:
        """Draw what is left to chance of a client; `direct` and `nonstream` are probabilities.

        Raises:
            ValueError: it is one too many, too late, or its prompt or answer too long.
        """
        rng = self.rng
        prompt, answer = max(1, int(prompt_tokens)), max(2, int(answer_tokens))
        if len(self.drawn) == MAX_ARRIVALS:
            raise ValueError(f"expected at most {MAX_ARRIVALS:,} clients in all")
        if at > MAX_SECONDS:
            raise ValueError(f"expected everybody within {MAX_SECONDS:,.0f} s")
        if max(prompt, answer) > MAX_TOKENS:
            raise ValueError(f"expected prompts and answers of at most {MAX_TOKENS:,} tokens")
        tries = rng.choices(*_TRIES)[0]
        max_tokens = max(answer, rng.choice((answer, *_MAX_TOKENS)))
        stream = rng.random() >= nonstream
        is_direct = rng.random() < direct
        estimate = max(1, int(prompt * rng.lognormvariate(0, ESTIMATE_SIGMA)))
        arrival = Arrival(
            at=at,
            tenant=tenant,
            prompt_tokens=prompt,
            answer_tokens=answer,
            max_tokens=max_tokens,
            group=group,
            prefix_tokens=prefix_tokens,
            stream=stream,
            direct=is_direct,
            tries=tries,
            patience_seconds=patience_seconds,
            kind=kind,
        )
        self.drawn.append((arrival, estimate))

    def times(self, per_second: float, until: float) -> Iterator[float]:
        """Arrivals at random from 10 s on, each drawn when it is asked for; none at a rate of 0."""
        if per_second <= 0:
            return
        at = 10.0 + self.rng.expovariate(per_second)
        while at <= until:
            yield at
            at += self.rng.expovariate(per_second)

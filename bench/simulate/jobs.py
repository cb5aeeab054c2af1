"""What is in an engine: tries of requests, and who is told of them."""

from __future__ import annotations

from typing import Protocol

from twisted_gateway.load.arrivals import Arrival


class Owner(Protocol):
    """Who has sent a job; it may submit and abort jobs while it is told."""

    def job_first(self, job: Job) -> None:
        """The first token has come."""

    def job_done(self, job: Job) -> None:
        """The answer is complete."""

    def job_refused(self, job: Job) -> None:
        """The engine takes no connections."""

    def job_broken(self, job: Job) -> None:
        """The engine has died, and the answer breaks off."""


class Job:
    """One try of a request inside the engine.

    Attributes:
        arrival: what is asked for.
        owner: who is told.
        sent_at: when it was sent.
        first_at: when its first token came.
        decoded: tokens generated.
        computed: tokens whose KV exists.
        need: tokens to compute before it decodes: the prompt, and what it had decoded before it
            had to start over.
        private: tokens of KV that are its own.
        shares: whether it uses its group's prefix.
        prefilling: whether it has not begun to decode.
        over: whether it counts no more: done, aborted or broken.
    """

    __slots__ = (
        *("arrival", "computed", "decoded", "first_at", "need", "over"),
        *("owner", "prefilling", "private", "sent_at", "shares"),
    )

    def __init__(self, arrival: Arrival, owner: Owner, sent_at: float) -> None:
        self.arrival = arrival
        self.owner = owner
        self.sent_at = sent_at
        self.first_at: float | None = None
        self.decoded = self.computed = self.private = 0
        self.need = arrival.prompt_tokens
        self.shares = self.over = False
        self.prefilling = True

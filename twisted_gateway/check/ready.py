"""Waiting until the gateway is ready: its admin side says so, and its public side answers."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_gateway.check.client import Answer, listed
from twisted_gateway.check.gateway import members, words
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.results import Failed, NotReady

EVERY_SECONDS = 1.0
"""How often the gateway is asked."""
LOOK_SECONDS = 5.0
"""The bound on one answer."""
PUBLIC_ONLY = (
    "only the public side is seen: nothing serves /health here, so adminListen is set; "
    "--admin URL names where"
)


class Readiness:
    """Waits for the gateway.

    Attributes:
        public_only: whether the operations endpoints are elsewhere, and nobody said where.

    Args:
        clock: for the time.
        seconds: how long to wait.
        admin_named: whether the user said where the admin side is.
        told: called with why it is not ready yet, whenever that changes.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        *,
        admin_named: bool,
        told: Callable[[str], object],
    ) -> None:
        """Take what the class documents."""
        self.public_only = False
        self._clock = clock
        self._seconds = seconds
        self._admin_named = admin_named
        self._told = told

    async def wait(self, probe: Probe) -> str:
        """Wait until the gateway is ready.

        Returns:
            What is to be said of it. Cancelling it stops the waiting.

        Raises:
            NotReady: it is not in time.
        """
        until = probe.now() + self._seconds
        before = ""
        while True:
            why = await self._look(probe)
            if not why:
                return PUBLIC_ONLY if self.public_only else ""
            if probe.now() + EVERY_SECONDS > until:
                raise NotReady(f"not ready after {self._seconds:g} s: {why}")
            if why != before:
                self._told(why)
                before = why
            await deferLater(self._clock, EVERY_SECONDS)

    async def _look(self, probe: Probe) -> str:
        """Look once; gives why it is not ready, "" where it is."""
        public, why_public = await _ask(probe, "/v1/models", admin=False)
        ready, why = await _ask(probe, "/health/ready", admin=True)
        if ready is not None and ready.status == 200:
            if public is None or not (public.status < 300 or 400 <= public.status < 500):
                return f"the admin side is, the public side is not: /v1/models: {why_public}"
            return ""
        if public is None or public.status != 200:
            return f"/health/ready: {why}"
        if not self._admin_named:
            self.public_only = ready is not None and ready.status == 404
            return "" if self.public_only else f"/health/ready: {why}"
        if ready is not None and ready.status == 503:
            return f"/health/ready: {why}"
        return (
            f"the public side answers, the admin side that --admin names does not: "
            f"/health/ready: {why}"
        )


async def _ask(probe: Probe, path: str, *, admin: bool) -> tuple[Answer | None, str]:
    """Ask; gives the answer, None where there is none, and what it says."""
    try:
        answer = await probe.ask("GET", path, admin=admin, seconds=LOOK_SECONDS)
    except Failed as fault:
        return None, str(fault)
    reasons = words(members(answer.tree).get("reasons"))
    if reasons:
        return answer, f"status {answer.status}: {listed(reasons)}"
    return answer, answer.words

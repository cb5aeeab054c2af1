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
    "only the public side is seen: nothing serves /health here, as where adminListen is set; "
    "--admin URL names where that is"
)
OLDER = "/health/ready is none of its paths, as with older releases: it lists its models"
STRANGER = (
    "this does not look like the gateway: what was asked for with X-Request-ID came without it; "
    "is it an engine's address? (--skip request-id if it is not)"
)


class Readiness:
    """Waits for the gateway.

    Attributes:
        public_only: whether the operations endpoints are elsewhere, and nobody said where.
        by_models: whether it is ready for want of any word against it: it lists models, and
            does not know `/health/ready`.
        stranger: whether it is not ready for it does not look like the gateway, or would be if
            that were not to be passed over.

    Args:
        clock: for the time.
        seconds: how long to wait.
        admin_named: whether the user said where the admin side is.
        told: called with why it is not ready yet, whenever that changes.
        any_id: whether it may be taken for the gateway though no id of a request comes back.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        *,
        admin_named: bool,
        told: Callable[[str], object],
        any_id: bool = False,
    ) -> None:
        """Take what the class documents."""
        self.public_only = False
        self.by_models = False
        self.stranger = False
        self._clock = clock
        self._seconds = seconds
        self._admin_named = admin_named
        self._told = told
        self._any_id = any_id
        self._remark = ""

    async def wait(self, probe: Probe) -> str:
        """Wait until the gateway is ready.

        Returns:
            What is to be said of it. Cancelling it stops the waiting.

        Raises:
            NotReady: it is not in time, or does not look like the gateway.
        """
        began = probe.now()
        until = began + self._seconds
        before = ""
        while True:
            why = await self._look(probe)
            if self.stranger and not self._any_id:
                # Nothing more is asked of it: it is to see no token, and no log has what is asked.
                raise NotReady(STRANGER)
            if not why:
                return self._remark
            now = probe.now()
            if now >= until:
                # The last look may have taken longer than there was time for.
                raise NotReady(f"not ready after {round(now - began, 1):g} s: {why}")
            if why != before:
                self._told(why)
                before = why
            await deferLater(self._clock, min(EVERY_SECONDS, until - now))

    async def _look(self, probe: Probe) -> str:
        """Look once; gives why it is not ready, "" where it is."""
        public, why_public = await _ask(probe, "/v1/models", admin=False)
        known = public is not None and public.field("X-Request-ID") == probe.request_ids[-1]
        ready, why = await _ask(probe, "/health/ready", admin=True)
        if ready is not None and ready.status == 200:
            if public is None or not (public.status < 300 or 400 <= public.status < 500):
                return f"the admin side is, the public side is not: /v1/models: {why_public}"
            # Another id than was sent is a proxy's before it; so may a refusal be, without one.
            self.stranger = public.status == 200 and not public.field("X-Request-ID")
            return ""
        if public is None or public.status != 200:
            return f"/health/ready: {why}"
        if not self._admin_named:
            if ready is not None and ready.status == 404:
                return await self._by_models(probe, known)
            return f"/health/ready: {why}"
        if ready is not None and ready.status == 503:
            return f"/health/ready: {why}"
        return (
            f"the public side answers, the admin side that --admin names does not: "
            f"/health/ready: {why}"
        )

    async def _by_models(self, probe: Probe, known: bool) -> str:
        """Judge what lists models, and does not know `/health/ready`, as `_look` does.

        Args:
            probe: asks.
            known: whether the id of a request came back, as the gateway has it.
        """
        health, why = await _ask(probe, "/health", admin=False)
        if health is None or health.status >= 500:
            return f"/health: {why}"
        self.by_models = True
        self.stranger = not known
        self.public_only = health.status >= 400
        self._remark = PUBLIC_ONLY if self.public_only else OLDER
        return ""


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

"""Makes checks one after the other, records what came of each, and removes what they leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.check.catalogue import CHECKS, Accepted
from twisted_gateway.check.client import Client, one_line
from twisted_gateway.check.probe import Probe, Tokens
from twisted_gateway.check.results import (
    MAX_IDS_SHOWN,
    MAX_SAID_CHARS,
    Failed,
    NotReady,
    Report,
    Result,
    Skipped,
    Tolerated,
    Unable,
    Verdict,
)
from twisted_gateway.core.redaction import redacted

CLEANUP_SECONDS = 10.0
"""The bound on the removal of one thing."""

Work = Callable[[Probe], Awaitable[str]]
"""Makes a check; gives what there is to say of it, and raises as `Runner.check` says."""


class Runner:
    """Makes checks.

    Attributes:
        report: what has come of them so far.
        tokens: what requests bear; they may be set while checks are made.
    """

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        report: Report,
        *,
        seconds: float,
        tokens: Tokens | None = None,
        accepted: Accepted | None = None,
        skip: Iterable[str] = (),
        secrets: Iterable[str] = (),
        told: Callable[[Result], object] = lambda result: None,
    ) -> None:
        """Take what checks need.

        Args:
            client: the way to the gateway.
            clock: tells how long checks take.
            report: where their results go.
            seconds: the bound on each request.
            tokens: what requests bear.
            accepted: statuses that are taken beside those expected.
            skip: checks that are not to be made.
            secrets: what is to be shown nowhere, whoever repeats it.
            told: called with each result.
        """
        self.report = report
        self.tokens = tokens or Tokens()
        self._client = client
        self._clock = clock
        self._seconds = seconds
        self._accepted = accepted or Accepted()
        self._skip = frozenset(skip)
        self._secrets = set(secrets)
        self._told = told
        self._left: dict[str, Work] = {}
        self._cut = Verdict.SKIPPED, "it was cut short"

    def conceal(self, secret: str) -> None:
        """Keep this out of every text from here on."""
        self._secrets.add(secret)

    def overdue(self) -> None:
        """Say that a check which is cancelled from here on has taken too long."""
        self._cut = Verdict.FAILED, "it was under way when the time for all checks was over"

    def skips(self, name: str) -> bool:
        """Say whether a check is not to be made."""
        return name in self._skip

    async def check(self, name: str, subject: str, work: Work, *, tentative: bool = False) -> bool:
        """Make one check, and record its result.

        Args:
            name: of the check.
            subject: what it is made of; "" for the gateway itself.
            work: makes it. It may raise `Failed`, `Skipped`, `Tolerated`, and `Unable`.
            tentative: whether `Unable` is the caller's business; else it is a failure.

        Returns:
            Whether what was checked is as it should be. Cancelling it gives the check up, which is
            recorded.

        Raises:
            Unable: see `tentative`; nothing is recorded then.
            NotReady: by the check for it; it is recorded.
        """
        if name in self._skip:
            self.record(name, subject, Verdict.SKIPPED, "--skip says so")
            return False
        probe = Probe(
            self._client,
            self._clock,
            tokens=self.tokens,
            seconds=self._seconds,
            accepted=self._accepted.by(CHECKS[name]),
        )
        began = probe.now()
        try:
            verdict, said = Verdict.PASSED, await work(probe)
        except Tolerated as why:
            verdict, said = Verdict.ACCEPTED, str(why)
        except Skipped as why:
            verdict, said = Verdict.SKIPPED, str(why)
        except NotReady as why:
            self.record(name, subject, Verdict.FAILED, str(why), probe, began)
            raise
        except Unable as why:
            if tentative:
                raise
            verdict, said = Verdict.FAILED, str(why)
        except Failed as why:
            verdict, said = Verdict.FAILED, str(why)
        except CancelledError:
            self.record(name, subject, *self._cut, probe, began)
            raise
        self.record(name, subject, verdict, said, probe, began)
        return verdict is Verdict.PASSED

    def record(
        self,
        name: str,
        subject: str,
        verdict: Verdict,
        said: str,
        probe: Probe | None = None,
        began: float = 0.0,
    ) -> None:
        """Record the result of a check, without credentials and in one line."""
        result = Result(
            name=name,
            subject=one_line(subject, MAX_SAID_CHARS),
            verdict=verdict,
            said=one_line(redacted(said, self._secrets), MAX_SAID_CHARS),
            seconds=0.0 if probe is None else max(0.0, probe.now() - began),
            request_ids=() if probe is None else tuple(probe.request_ids[-MAX_IDS_SHOWN:]),
        )
        self.report.results.append(result)
        self._told(result)

    # What is left to be removed.

    def leave(self, what: str, remove: Work) -> None:
        """Remember what a check is about to make, so that it does not stay.

        Args:
            what: what it is; once for each thing.
            remove: removes it, and does not mind when it is not there.
        """
        self._left[what] = remove

    def removed(self, what: str) -> None:
        """Forget what a check has removed itself."""
        del self._left[what]

    async def clean_up(self) -> None:
        """Remove what is left, however the run has ended; `cleanup` says what became of it."""
        if self._left:
            await self.check("cleanup", "", self._clean_up)

    async def _clean_up(self, probe: Probe) -> str:
        probe.seconds = CLEANUP_SECONDS
        done, faults = [], []
        while self._left:
            # The latest first: it may stand in what was made before.
            what, remove = self._left.popitem()
            try:
                await remove(probe)
                done.append(what)
            except (Failed, Tolerated) as why:
                faults.append(f"{what} is left behind: {why}")
        if faults:
            raise Failed("; ".join(faults))
        return f"removed {', '.join(done)}"

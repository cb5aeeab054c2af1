"""Makes checks one after the other, records what came of each, and removes what they leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.check.catalogue import CHECKS, Accepted
from twisted_gateway.check.client import Client, one_line
from twisted_gateway.check.probe import Probe, Tokens
from twisted_gateway.check.redactor import Redactor
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
from twisted_gateway.console.terminal import plain

CLEANUP_SECONDS = 10.0
"""The bound on the removal of one thing."""
ALL_CLEANUP_SECONDS = 40.0
"""The bound on the removal of all: a Job has `terminationGracePeriodSeconds` to end in."""

Work = Callable[[Probe], Awaitable[str]]
"""Makes a check; gives what there is to say of it, and raises as `Runner.check` says."""


class Runner:
    """Makes checks.

    Attributes:
        report: what has come of them so far.
        tokens: what requests bear; they may be set while checks are made.
        cleaning: whether what checks have made is being removed, which is not to be cut short.
    """

    _log = Logger()

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
        redactor: Redactor | None = None,
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
            redactor: knows what is to be shown nowhere, whoever repeats it.
            told: called with each result.
        """
        self.report = report
        self.tokens = tokens or Tokens()
        self._client = client
        self._clock = clock
        self._seconds = seconds
        self._accepted = accepted or Accepted()
        self._skip = frozenset(skip)
        self._redactor = redactor or Redactor()
        self._told = told
        self._left: dict[str, Work] = {}
        self.cleaning = False
        self._cut = "it was under way when the run was interrupted"

    def conceal(self, secret: str) -> None:
        """Keep this out of every text from here on."""
        self._redactor.add(secret)

    def overdue(self) -> None:
        """Say that a check which is cancelled from here on has taken too long."""
        self._cut = "it was under way when the time for all checks was over"

    def shown(self, text: str) -> str:
        """Give a text as it may be shown: without credentials, in one line, of bounded length."""
        return one_line(self._redactor(text), MAX_SAID_CHARS)

    def skips(self, name: str) -> bool:
        """Say whether a check is not to be made."""
        return name in self._skip

    async def check(self, name: str, subject: str, work: Work, *, tentative: bool = False) -> bool:
        """Make one check, and record its result.

        Args:
            name: of the check.
            subject: what it is made of; "" for the gateway itself.
            work: makes it. It may raise `Failed`, `Skipped`, `Tolerated`, and `Unable`; whatever
                else it raises is a fault of the check itself, which is logged, and has failed.
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
        internal = False
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
            self.record(name, subject, Verdict.FAILED, self._cut, probe, began)
            raise
        except Exception as fault:  # noqa: BLE001 -- a check that is wrong may raise anything
            # One check that is wrong does not cost the others, nor the report.
            verdict, said, internal = Verdict.FAILED, self._internal(fault), True
        self.record(name, subject, verdict, said, probe, began, internal=internal)
        return verdict is Verdict.PASSED

    async def contain(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Make a part of the run, and record where it ends by a fault of the check itself.

        Args:
            name: of the check that such a fault is recorded as.
            part: makes its checks. Cancelling it is passed on.
        """
        try:
            await part()
        except CancelledError:
            raise
        except Exception as fault:  # noqa: BLE001 -- it is logged, and has failed
            self.record(name, "", Verdict.FAILED, self._internal(fault), internal=True)

    def _internal(self, fault: Exception) -> str:
        """Log a fault of the check itself, without credentials; gives what is said of it."""
        trace = plain(self._redactor(Failure(fault).getTraceback()))
        self._log.critical("internal error\n{trace}", trace=trace)
        return f"internal error: {type(fault).__name__}: {fault}"

    def record(
        self,
        name: str,
        subject: str,
        verdict: Verdict,
        said: str,
        probe: Probe | None = None,
        began: float = 0.0,
        *,
        internal: bool = False,
    ) -> None:
        """Record the result of a check, without credentials and in one line."""
        result = Result(
            name=name,
            subject=self.shown(subject),
            verdict=verdict,
            said=self.shown(said),
            seconds=0.0 if probe is None else max(0.0, probe.now() - began),
            request_ids=() if probe is None else tuple(probe.request_ids[-MAX_IDS_SHOWN:]),
            internal=internal,
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
        """Remove what is left, however the run has ended; `cleanup` says what became of it.

        It takes no longer than `ALL_CLEANUP_SECONDS`, so that nobody needs to cut it short.
        Cancelling it all the same gives it up, and `cleanup` names what is left behind.
        """
        if not self._left:
            return
        self.cleaning = True
        try:
            await self.check("cleanup", "", self._clean_up)
        finally:
            self.cleaning = False

    async def _clean_up(self, probe: Probe) -> str:
        until = probe.now() + ALL_CLEANUP_SECONDS
        done, faults = [], []
        while self._left:
            # The latest first: it may stand in what was made before.
            what = next(reversed(self._left))
            probe.seconds = min(CLEANUP_SECONDS, until - probe.now())
            if probe.seconds <= 0:
                faults.append(f"{self._names()}: left behind, for want of time")
                break
            try:
                await self._left[what](probe)
                done.append(what)
            except (Failed, Tolerated) as why:
                faults.append(f"{what} is left behind: {why}")
            except CancelledError:
                faults.append(f"{self._names()}: left behind, for it was cut short")
                self._cut = "; ".join(faults)
                raise
            except Exception as fault:  # noqa: BLE001 -- it is logged, and is told
                # What else is left is removed all the same.
                faults.append(f"{what} is left behind: {self._internal(fault)}")
            del self._left[what]
        if faults:
            raise Failed("; ".join(faults))
        return f"removed {', '.join(done)}"

    def _names(self) -> str:
        return ", ".join(reversed(self._left))

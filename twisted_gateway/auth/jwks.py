"""The cache of the issuer's keys: fetched in the background, and for a key that is not there.

what happens                         what the cache does
---------------------------------    -----------------------------------------------------------
it starts                            fetches; requests that come first wait for that
`refresh_seconds` have passed        fetches
a token names a key it has not       fetches, at most once in `cooldown_seconds`; whoever else
                                     comes meanwhile waits for the same fetch
a fetch fails                        keeps the last good keys and tries again, at first after a
                                     second, then ever later, at the latest after `refresh_seconds`;
                                     who names an unknown key meanwhile has it tried no sooner than
                                     that either, and at the latest after `cooldown_seconds`
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_gateway.auth.flight import SingleFlight
from twisted_gateway.auth.keys import BadKeys, Key, KeySet, read_keys
from twisted_gateway.upstream.errors import UpstreamError

FIRST_RETRY_SECONDS = 1.0
"""How soon after a failed fetch it is tried again; doubled with every further failure."""

Fetch = Callable[[], Coroutine[Deferred[Any], Any, bytes]]


class FetchFailed(UpstreamError):
    """The issuer answered, and did not give what it was asked for; the text says why."""


class KeysUnavailable(Exception):
    """There are no keys at all, so that no token can be judged.

    Attributes:
        retry_after_seconds: when there may be some.
    """

    def __init__(self, retry_after_seconds: float) -> None:
        """Take the time."""
        super().__init__("the issuer's keys are not known")
        self.retry_after_seconds = retry_after_seconds


class KeyCache:
    """The issuer's keys, as well as they are known.

    Args:
        clock: for its timers.
        fetch: gives the issuer's document, in bounded time; raises an `UpstreamError`.
        cooldown_seconds: the least time between two fetches for the sake of unknown keys.
        refresh_seconds: the time between two fetches in the background.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        fetch: Fetch,
        *,
        cooldown_seconds: float,
        refresh_seconds: float,
    ) -> None:
        """Know nothing yet."""
        self._clock = clock
        self._fetch = fetch
        self._cooldown_seconds = cooldown_seconds
        self._refresh_seconds = refresh_seconds
        self._keys: KeySet | None = None
        self._failures = 0
        self._ask_from: float | None = None
        self._timer: IDelayedCall | None = None
        self._flight: SingleFlight[None] = SingleFlight(self._refresh)
        self._stopped = False

    def start(self) -> None:
        """Fetch the keys, now and from time to time."""
        self._in_background()

    def pace(self, cooldown_seconds: float, refresh_seconds: float) -> None:
        """Keep the keys, and ask the issuer at other intervals from here on."""
        self._cooldown_seconds = cooldown_seconds
        self._refresh_seconds = refresh_seconds
        if self._timer is not None and self._timer.active():
            left_seconds = self._timer.getTime() - self._clock.seconds()
            # Never later: whoever reloads often would put the next fetch off for good.
            self._timer.reset(min(left_seconds, self._next_seconds()))

    def stop(self) -> None:
        """Fetch no more; who waits goes on with the keys that there are."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._flight.stop()

    async def find(self, name: str | None, algorithm: str) -> Key | None:
        """Give the key that a token names; None where the issuer has none such.

        Waits for the issuer only where the key is not known and it may be asked again. Cancelling
        stops nothing but the waiting.

        Args:
            name: the token's `kid`.
            algorithm: its `alg`.

        Raises:
            KeysUnavailable: there are no keys at all.
        """
        known = self._known(name, algorithm)
        if known is not None:
            return known
        if self._may_ask():
            await self._flight.run()
            known = self._known(name, algorithm)
        if self._keys is None:
            raise KeysUnavailable(self._cooldown_seconds)
        return known

    def _known(self, name: str | None, algorithm: str) -> Key | None:
        return None if self._keys is None else self._keys.find(name, algorithm)

    def _may_ask(self) -> bool:
        """Whether an unknown key is a reason to ask the issuer, or to wait for its answer."""
        if self._stopped:
            return False
        if self._flight.running:
            return True
        now = self._clock.seconds()
        if self._ask_from is not None and now < self._ask_from:
            return False
        self._ask_from = now + self._cooldown_seconds
        return True

    def _in_background(self) -> None:
        self._timer = None
        _ = self._flight.run().addErrback(
            lambda failure: self._log.failure("fetching the issuer's keys", failure=failure)
        )

    async def _refresh(self) -> None:
        """Fetch once, and set the timer for the next time, whatever comes of it."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._failures += 1
        try:
            self._keys = read_keys(await self._fetch())
            self._failures = 0
        except CancelledError:
            # Only `stop` does that; whoever waits goes on with the keys that there are.
            return
        except (BadKeys, UpstreamError) as fault:
            self._ask_sooner()
            self._log.warn(
                "the issuer's keys could not be fetched ({why}); {state}",
                why=str(fault),
                state="the last good ones stay in force" if self._keys else "there are none",
            )
        finally:
            if not self._stopped:
                self._timer = self._clock.callLater(self._next_seconds(), self._in_background)

    def _ask_sooner(self) -> None:
        """A fetch that failed has answered nobody: it does not use up the whole cooldown."""
        if self._ask_from is not None:
            after_seconds = min(self._cooldown_seconds, self._next_seconds())
            self._ask_from = min(self._ask_from, self._clock.seconds() + after_seconds)

    def _next_seconds(self) -> float:
        if not self._failures:
            return self._refresh_seconds
        # The exponent is bounded, for an issuer may be down for weeks.
        later = FIRST_RETRY_SECONDS * 2.0 ** min(self._failures - 1, 20)
        return min(later, self._refresh_seconds)

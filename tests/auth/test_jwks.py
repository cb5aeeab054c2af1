from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.auth import issuer
from tests.support import TestCase
from twisted_gateway.auth.jwks import FetchFailed, KeyCache, KeysUnavailable
from twisted_gateway.auth.keys import Key

ONE = issuer.jwks(issuer.ec_jwk("ec-1"))
TWO = issuer.jwks(issuer.ec_jwk("ec-1"), issuer.ec_jwk("ec-2"))


class CacheTestCase(TestCase):
    """A cache whose fetches the test answers."""

    def setUp(self) -> None:
        super().setUp()
        self.fetches: list[Deferred[bytes]] = []
        self.cancelled = 0
        self.cache = KeyCache(self.clock, self.fetch, cooldown_seconds=30, refresh_seconds=300)
        self.addCleanup(self.flushLoggedErrors)

    async def fetch(self) -> bytes:
        fetch: Deferred[bytes] = Deferred(self.dropped)
        self.fetches.append(fetch)
        return await fetch

    def dropped(self, _: object) -> None:
        self.cancelled += 1

    def start(self, document: bytes | None = ONE) -> None:
        self.cache.start()
        self.addCleanup(self.cache.stop)
        if document is not None:
            self.fetches[-1].callback(document)

    def find(self, name: str | None = "ec-1") -> Deferred[Key | None]:
        return Deferred.fromCoroutine(self.cache.find(name, "ES256"))

    def found(self, name: str | None = "ec-1") -> bool:
        """Whether a key is there, at once."""
        return self.successResultOf(self.find(name)) is not None


class StartTests(CacheTestCase):
    """What happens first."""

    def test_waits_for_the_first_fetch(self) -> None:
        """Who comes before there are keys waits for the fetch that is under way."""
        self.start(None)
        waiting = [self.find(), self.find("ec-9")]
        self.assertEqual(len(self.fetches), 1)
        self.fetches[0].callback(ONE)
        self.assertIsNotNone(self.successResultOf(waiting[0]))
        self.assertIsNone(self.successResultOf(waiting[1]))

    def test_no_keys(self) -> None:
        """Where there are none at all that is said, and tried again, ever later."""
        self.start(None)
        waiting = self.find()
        self.fetches[0].errback(FetchFailed("no"))
        self.failureResultOf(waiting, KeysUnavailable)
        times = []
        for _ in range(12):
            before = len(self.fetches)
            seconds = 0
            while len(self.fetches) == before:
                self.clock.advance(1)
                seconds += 1
            times.append(seconds)
            self.fetches[-1].errback(FetchFailed("no"))
        self.assertEqual(times, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300])
        self.clock.advance(300)
        self.fetches[-1].callback(ONE)
        self.assertTrue(self.found())

    def test_no_keys_is_no_reason_to_hammer(self) -> None:
        """While there are none, requests ask the issuer at most once in the cooldown."""
        self.start(None)
        self.fetches[0].errback(FetchFailed("no"))
        first = self.find()
        self.assertEqual(len(self.fetches), 2)
        self.fetches[1].errback(FetchFailed("no"))
        self.failureResultOf(first, KeysUnavailable)
        for _ in range(100):
            self.failureResultOf(self.find(), KeysUnavailable)
        self.assertEqual(len(self.fetches), 2)

    def test_stop(self) -> None:
        """Stopping drops the fetch; who waits is told that there are no keys."""
        self.start(None)
        waiting = self.find()
        self.cache.stop()
        self.assertEqual(self.cancelled, 1)
        self.failureResultOf(waiting, KeysUnavailable)
        self.failureResultOf(self.find(), KeysUnavailable)
        self.assertEqual(len(self.fetches), 1)


class UnknownKeyTests(CacheTestCase):
    """Tokens that name keys that are not there."""

    def test_rotation(self) -> None:
        """A new key is found with its first token."""
        self.start()
        waiting = self.find("ec-2")
        self.fetches[1].callback(TWO)
        self.assertIsNotNone(self.successResultOf(waiting))
        self.assertTrue(self.found("ec-2"))
        self.assertEqual(len(self.fetches), 2)

    def test_retired(self) -> None:
        """A key that the issuer publishes no more is no longer accepted."""
        self.start(TWO)
        self.clock.advance(300)
        self.fetches[1].callback(ONE)
        self.clock.advance(40)
        waiting = self.find("ec-2")
        self.fetches[2].callback(ONE)
        self.assertIsNone(self.successResultOf(waiting))

    def test_flood(self) -> None:
        """A thousand made-up names bring one fetch in the cooldown; known keys do not wait."""
        self.start()
        waiting = [self.find(f"evil-{number}") for number in range(500)]
        self.assertTrue(self.found())
        self.fetches[1].callback(ONE)
        self.assertEqual({self.successResultOf(one) for one in waiting}, {None})
        for number in range(500):
            self.assertFalse(self.found(f"evil-{500 + number}"))
            self.clock.advance(0.05)
        self.assertEqual(len(self.fetches), 2)
        self.clock.advance(5)
        self.assertNoResult(self.find("evil"))
        self.assertEqual(len(self.fetches), 3)

    def test_background_fetch_is_no_cooldown(self) -> None:
        """A key that came right after a background fetch is found all the same."""
        self.start()
        self.clock.advance(300)
        self.fetches[1].callback(ONE)
        waiting = self.find("ec-2")
        self.fetches[2].callback(TWO)
        self.assertIsNotNone(self.successResultOf(waiting))

    def test_failed_fetch(self) -> None:
        """A fetch that failed leaves an unknown key to be asked for again as soon as it is tried.

        A flood of made-up names brings no more fetches than there are such times.
        """
        self.start()
        waiting = self.find("ec-2")
        self.fetches[1].errback(FetchFailed("no"))
        self.assertIsNone(self.successResultOf(waiting))
        self.assertFalse(self.found("ec-2"))
        self.clock.advance(1)
        self.fetches[2].callback(ONE)
        waiting = self.find("ec-2")
        self.fetches[3].callback(TWO)
        self.assertIsNotNone(self.successResultOf(waiting))

    def test_flood_in_an_outage(self) -> None:
        """While fetches fail made-up names bring few more of them than are made anyway."""
        self.start()
        for second in range(120):
            for number in range(20):
                waiting = self.find(f"evil-{second}-{number}")
                if not self.fetches[-1].called:
                    self.fetches[-1].errback(FetchFailed("no"))
                self.assertIsNone(self.successResultOf(waiting))
            self.clock.advance(1)
            if not self.fetches[-1].called:
                self.fetches[-1].errback(FetchFailed("no"))
        self.assertLess(len(self.fetches), 12)

    def test_leaving(self) -> None:
        """Who leaves while waiting does not stop the fetch for the others."""
        self.start()
        leaving, staying = self.find("ec-2"), self.find("ec-2")
        leaving.cancel()
        self.failureResultOf(leaving)
        self.assertEqual(self.cancelled, 0)
        self.fetches[1].callback(TWO)
        self.assertIsNotNone(self.successResultOf(staying))


class OutageTests(CacheTestCase):
    """The issuer is down."""

    def test_last_good_keys(self) -> None:
        """The last good keys stay in force, whatever the issuer answers."""
        self.start()
        faults: list[Any] = [b"<html>", FetchFailed("500"), b'{"keys": []}', b" " * 300_000]
        for fault in faults:
            before = len(self.fetches)
            while len(self.fetches) == before:
                self.clock.advance(1)
            if isinstance(fault, bytes):
                self.fetches[-1].callback(fault)
            else:
                self.fetches[-1].errback(fault)
            self.assertTrue(self.found())

    def test_refreshes(self) -> None:
        """While all is well it is asked every refresh_seconds, and only then."""
        self.start()
        for _ in range(5):
            self.clock.advance(299)
            before = len(self.fetches)
            self.clock.advance(1)
            self.assertEqual(len(self.fetches), before + 1)
            self.fetches[-1].callback(ONE)
        self.assertEqual(len(self.fetches), 6)

    def test_a_fault_of_ours(self) -> None:
        """A fault that nobody foresaw is logged, and does not end the fetching."""
        self.start()
        self.clock.advance(300)
        self.fetches[1].errback(ZeroDivisionError())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertTrue(self.found())
        self.clock.advance(300)
        self.assertEqual(len(self.fetches), 3)

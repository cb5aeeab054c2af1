"""Before a run: whether anybody is there, and serves the model."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.load.harness import RunTestCase, answer
from twisted_gateway.load.look import Looker
from twisted_gateway.load.preflight import NoSuchModel, Unreachable, preflight


class Preflight(RunTestCase):
    """One question to each address."""

    def look(self, *addresses: str, model: str = "m", **choices: Any) -> Deferred[None]:
        looker = Looker(self.agent, self.clock)
        asked = addresses or ("http://one:80",)
        return Deferred.fromCoroutine(preflight(looker, asked, model, **choices))

    def lists(self, *names: str) -> None:
        """Let the address that was asked list models."""
        listed = ",".join(f'{{"id":"{name}"}}' for name in names)
        self.socket().say(answer(200, f'{{"data":[{listed}]}}'.encode()))

    def test_listed(self) -> None:
        """An address that lists the model will do; each is asked once."""
        looked = self.look("http://one:80", "http://two:80", "http://one:80")
        self.lists("m")
        self.assertNoResult(looked)
        self.lists("m", "other")
        self.successResultOf(looked)
        self.assertEqual([dial.uri.host for dial in self.net.dials], [b"one", b"two"])

    def test_not_listed(self) -> None:
        """One that lists others will not: what it has is named, not at any length."""
        looked = self.look()
        self.lists(*(f"m{number}" for number in range(200)))
        told = str(self.failureResultOf(looked, NoSuchModel).value)
        self.assertIn("http://one:80 has no model m. It has m0, m1, ", told)
        self.assertIn(" and 190 more.", told)

    def test_every_address(self) -> None:
        """All of them must have it."""
        looked = self.look("http://one:80", "http://two:80")
        self.lists("m")
        self.lists("other")
        self.assertIn("two", str(self.failureResultOf(looked, NoSuchModel).value))

    def test_unlisted(self) -> None:
        """It may be asked for all the same."""
        looked = self.look(unlisted=True)
        self.lists("other")
        self.successResultOf(looked)

    def test_default_tag(self) -> None:
        """Ollama lists a model with its tag, and serves it without."""
        looked = self.look(model="llama3.2")
        self.lists("llama3.2:latest")
        self.successResultOf(looked)

    def test_no_list(self) -> None:
        """Whoever answers may list nothing, or something else, or hang up."""
        for said in (
            *(answer(401), answer(404), answer(200, b'{"data":[]}'), answer(200, b"<html>")),
            b"no HTTP at all\r\n\r\n",
        ):
            self.start()
            looked = self.look()
            self.socket().say(said)
            self.successResultOf(looked)
        self.start()
        looked = self.look()
        self.socket().end()
        self.successResultOf(looked)

    def test_unreachable(self) -> None:
        """Where nobody listens there is nothing to be had."""
        self.net.manual = True
        looked = self.look()
        self.clock.advance(5.0)
        told = str(self.failureResultOf(looked, Unreachable).value)
        self.assertTrue(told.startswith("http://one:80 cannot be reached: "))

    def test_cancelled(self) -> None:
        """Cancelling it drops the connection."""
        looked = self.look()
        looked.cancel()
        self.failureResultOf(looked, CancelledError)
        self.assertEqual(self.socket().transport.closed, "abort")
        self.clock.advance(0)

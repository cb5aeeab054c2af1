"""nginx with its defaults in front: what it would hold back, and what it lets through."""

from __future__ import annotations

from tests.integration.cache import Unavailable
from tests.integration.case import TestCase, chat, unavailable
from tests.integration.nginx import IMPATIENT_SECONDS
from tests.integration.wire import Call
from tests.integration.world import WORLD

ZIPPED = {"Accept-Encoding": "gzip"}
# Of 250 bytes each: nginx' buffers of 4 or 8 kB hold twenty or so.
TOKENS = 600


class NginxTests(TestCase):
    """Streams pass as they come."""

    def setUp(self) -> None:
        try:
            self.nginx = WORLD.nginx()
        except Unavailable as fault:
            raise unavailable(fault) from None
        super().setUp()

    def parked(self, location: str) -> Call:
        """A stream through that location that parks for a while, and its end."""
        running = self.fill(700)
        call = self.stream(TOKENS, f"{self.nginx.url}{location}")
        for other in running:
            other.finish(120)
        return call.finish(120)

    def assertFlows(self, call: Call) -> None:
        self.assertTrue(call.whole, call.describe())
        self.assertLess(call.comments[0], call.contents[0] - 0.5, "comments are held back")
        self.assertGreater(len(set(call.contents)), TOKENS / 4, "tokens are held back")

    def test_http_1_1(self) -> None:
        """With HTTP/1.1 to the gateway comments and tokens arrive one by one."""
        self.assertFlows(self.parked(""))

    def test_http_1_0(self) -> None:
        """So they do with HTTP/1.0, nginx' default."""
        self.assertFlows(self.parked("/old"))

    def test_without_the_header(self) -> None:
        """Without X-Accel-Buffering nginx holds the stream back: the header is what cures it."""
        call = self.parked("/deaf")
        self.assertTrue(call.whole, call.describe())
        self.assertGreater(call.comments[0], call.contents[0] - 0.1)
        self.assertLess(len(set(call.contents)), TOKENS / 4)

    def test_gzip(self) -> None:
        """`gzip on` for event streams holds nothing back either."""
        self.fill(2000)
        for location in ("", "/old"):
            call = self.call(
                "/v1/chat/completions",
                chat(50, stream=True),
                f"{self.nginx.url}{location}",
                headers=ZIPPED,
            )
            call.expect(lambda one: len(one.comments) >= 2, 10, "comments")
            self.assertEqual(call.headers.get("content-encoding"), "gzip")
            self.assertLess(call.comments[0], call.comments[1])
            self.assertFalse(call.contents)
            call.leave()

    def test_read_timeout(self) -> None:
        """Comments keep a parked stream alive for longer than nginx waits for an answer."""
        running = self.fill(2000)
        call = self.stream(10, f"{self.nginx.url}/impatient")
        call.expect(lambda one: one.contents, 120, "content")
        self.assertGreater(call.contents[0], IMPATIENT_SECONDS + 1)
        self.assertTrue(call.finish(30).whole, call.describe())
        for other in running:
            self.assertTrue(other.finish(60).whole, other.describe())
        self.ended(ok=5)

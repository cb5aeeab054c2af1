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

    def test_buffering(self) -> None:
        """Over HTTP/1.1 and 1.0 a stream comes as from the gateway itself, thanks to its header."""
        # A machine that stands still delays what nginx lets through, but what nginx holds back
        # never comes in time: the best of three tries tells one from the other.
        for attempt in range(3):
            direct, new, old, deaf = self._parked_streams()
            # Without the header: nothing before its first content, and then whole buffers.
            self.assertGreater(deaf.comments[0], deaf.contents[0] - 0.1)
            if all(_flows(call, direct) and _reads(call) > _reads(deaf) for call in (new, old)):
                return
            seen = [_shape(call) for call in (direct, new, old, deaf)]
            print(f"attempt {attempt}: direct, HTTP/1.1, HTTP/1.0, without the header:\n{seen}")
            self._settle()
        raise AssertionError("nginx has held something back in each of three attempts")

    def _parked_streams(self) -> list[Call]:
        """Streams that park and end: direct, over 1.1, over 1.0, and 1.0 without the header."""
        self.fill(1500, self.gateway.url)
        # All at once, so that each meets the same engine on the same machine.
        nginx = self.nginx.url
        bases = (self.gateway.url, nginx, f"{nginx}/old", f"{nginx}/deaf")
        calls = [self.stream(TOKENS, base) for base in bases]
        for call in calls:
            self.assertTrue(call.finish(120).whole, call.describe())
            self.assertTrue(call.comments, "it has not parked for long enough")
        return calls

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


def _flows(call: Call, direct: Call) -> bool:
    """Whether comments came while it was parked, and tokens about as they do without nginx."""
    early = call.contents[0] - call.comments[0] > 1.0
    return early and _reads(call) > _reads(direct) / 3


def _reads(call: Call) -> int:
    """In how many pieces the content came."""
    return len(set(call.contents))


def _shape(call: Call) -> str:
    comments = [f"{at:.2f}" for at in call.comments[:5]]
    content = f"content {call.contents[0]:.2f} to {call.contents[-1]:.2f} in {_reads(call)} reads"
    return f"comments {comments}, {content}"

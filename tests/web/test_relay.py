"""Any chunking of an engine's stream gives the client the same bytes and the same account."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.stack import DONE, ROLE, Stack, event, token
from tests.support import TestCase, examples

STREAM = b"".join(
    [
        b"\xef\xbb\xbf: hello\n\n",
        ROLE,
        token("a"),
        token("\u00e4\n\r b").replace(b"\n\n", b"\r\n\r\n"),
        b"event: x\ndata: {\ndata: }\n\n",
        event(choices=[], usage={"completion_tokens": 9}),
        DONE,
        b"data: left without its blank line",
    ]
)


class Chunking(TestCase):
    """The stream through the whole stack, cut anywhere."""

    @examples(25)
    @given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12, unique=True))
    def test_bytes_and_events(self, cuts: list[int]) -> None:
        """The bytes are the engine's; tokens, content events and outcome never depend on cuts."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream()
        edges = [0, *sorted(cuts), len(STREAM)]
        for start, end in pairwise(edges):
            asked.more(STREAM[start:end])
        asked.end()
        self.assertEqual(client.body, STREAM)
        self.assertTrue(client.whole)
        self.assertEqual(stack.metric("llm_tokens_total", model="reasoning"), 9)
        self.assertEqual(stack.metric("llm_itl_seconds_count", model="reasoning"), 1)
        self.assertEqual(stack.outcomes, ["ok"])

    def test_byte_by_byte(self) -> None:
        """The engine's whole answer, head and framing, a byte at a time."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        answer += b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(STREAM), STREAM)
        for index in range(len(answer)):
            asked.wire.protocol.dataReceived(answer[index : index + 1])
        stack.settle()
        self.assertEqual(client.body, STREAM)
        self.assertTrue(client.whole)

    def test_one_write_for_each_read(self) -> None:
        """However many chunks a read brings, the client's transport is written to once."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream()
        writes: list[bytes] = []
        write = client.wire.write
        client.wire.write = lambda data: (writes.append(data), write(data))[1]  # type: ignore[func-returns-value, method-assign]
        events = [token(str(number)) for number in range(20)]
        asked.send(b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in events))
        self.assertEqual(len(writes), 1)
        self.assertEqual(client.body, b"".join(events))

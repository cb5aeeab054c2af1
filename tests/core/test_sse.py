"""The splitter of event streams: same events and same bytes, however the stream is cut."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.sse import (
    HELD_LIMIT_BYTES,
    KEEP_ALIVE,
    Cut,
    Event,
    EventSplitter,
    comment,
)

FIXTURES = Path(__file__).parent / "fixtures"


def recorded(name: str) -> bytes:
    """The body of a recorded answer."""
    return (FIXTURES / f"{name}.http").read_bytes().partition(b"\r\n\r\n")[2]


def reference(stream: bytes, limit_bytes: int) -> list[Event]:
    """The events of a whole stream, by the letter of the standard, line by line."""
    events: list[Event] = []
    size, data, name, has_id, seen = 0, list[bytes](), b"", False, False
    for number, found in enumerate(re.finditer(rb"([^\r\n]*)(\r\n|\r|\n)", stream)):
        line = found[1]
        if number == 0 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        if not line:
            if seen:
                whole = b"\n".join(data) if size <= limit_bytes else None
                events.append(Event(whole, name, has_id))
            size, data, name, has_id, seen = 0, [], b"", False, False
            continue
        size += len(found[0])
        colon = line.find(b":")
        field, value = (line, b"") if colon < 0 else (line[:colon], line[colon + 1 :])
        if value[:1] == b" ":
            value = value[1:]
        seen = seen or field in (b"data", b"event", b"id")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value if len(value) <= 256 else b""
        elif field == b"id":
            has_id = True
    return events


def told(splitter: EventSplitter, pieces: Iterable[bytes]) -> tuple[bytes, list[Event]]:
    """Feed all pieces and the end; all bytes that left, all events."""
    out, events = b"", list[Event]()
    for piece in pieces:
        cut = splitter.feed(piece)
        out += cut.passed
        events += cut.events
    return out + splitter.finish(), events


def bytewise(stream: bytes) -> list[bytes]:
    """The smallest pieces."""
    return [stream[at : at + 1] for at in range(len(stream))]


ATOMS = st.sampled_from(
    [
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b": c", b":", b"\xef\xbb\xbf"),
        *(b"data: x", b"data:", b"data", b"data:  y:z", b"event: e", b"event", b"id: 1", b"id"),
        *(b"retry: 5", b"unknown: v", b"x", b" ", b"data: {}\n\n", b"event: " + b"n" * 257),
        *(b"data: " + b"long" * 9, b"data: a\ndata: b\n\n", b"event: m\ndata: q\n\n"),
    ]
)


class AnyChunking(TestCase):
    """Whatever the pieces, the same comes out."""

    @examples(150)
    @given(
        st.lists(st.one_of(ATOMS, ATOMS, st.binary(max_size=4)), max_size=14).map(b"".join),
        st.lists(st.integers(0, 200), max_size=8),
        st.sampled_from([0, 1, 7, 12, 30, HELD_LIMIT_BYTES]),
    )
    @example(b"\xef\xbb\xbfdata: x\r\r\n\rdata: y\r\n\r\n", [9, 10, 11], 30)
    @example(b"data: a\rdata: b\n\n", [], 30)
    @example(b"data: a\ndata: b\n\n", [], 30)
    @example(b"event: e\ndata: a\n\n", [9], 30)
    @example(b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [9], 30)
    @example(b"event: " + b"n" * 300 + b"\ndata: x\n\n", [], 12)
    @example(b"data: " + b"x" * 40 + b"\nid: 1\n\n", [20, 47], 12)
    def test_same_events_same_bytes(self, stream: bytes, cuts: list[int], limit_bytes: int) -> None:
        """Whole, bytewise and cut anywhere: the bytes that came, and the standard's events."""
        edges = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
        somehow = [stream[a:b] for a, b in pairwise(edges)]
        expected = stream, reference(stream, limit_bytes)
        for pieces in ([stream], bytewise(stream), somehow):
            self.assertEqual(told(EventSplitter(limit_bytes), pieces), expected)

    @examples(100)
    @given(
        st.lists(ATOMS, max_size=14).map(b"".join),
        st.sampled_from([12, 30, HELD_LIMIT_BYTES]),
    )
    def test_boundary_is_one(self, stream: bytes, limit_bytes: int) -> None:
        """Comments at every boundary change nothing in the events that a client sees."""
        splitter = EventSplitter(limit_bytes)
        out = b""
        for piece in bytewise(stream):
            out += splitter.feed(piece).passed
            if splitter.at_boundary and out:
                # An empty stream so far would move a BOM away from its start.
                out += KEEP_ALIVE
            self.assertLessEqual(splitter.held_bytes, limit_bytes)
        out += splitter.finish()
        self.assertEqual(reference(out, 1 << 30), reference(stream, 1 << 30))

    def test_recordings(self) -> None:
        """Real streams come out as they went in, cut at any width."""
        for name in ("vllm_chat_stream", "vllm_responses_stream", "llamacpp_chat_stream"):
            for stream in (recorded(name), recorded(name).replace(b"\n", b"\r\n")):
                expected = stream, reference(stream, HELD_LIMIT_BYTES)
                self.assertGreater(len(expected[1]), 5)
                for width in (1, 2, 3, 100, 211, 1448):
                    pieces = [stream[at : at + width] for at in range(0, len(stream), width)]
                    self.assertEqual(told(EventSplitter(), pieces), expected)


class Splitting(TestCase):
    """What leaves when."""

    def setUp(self) -> None:
        """Each test has a splitter of its own."""
        super().setUp()
        self.splitter = EventSplitter()

    def test_whole_event_is_passed_as_it_is(self) -> None:
        """One event, or several, in one piece leave without being copied."""
        for piece in (b"data: a\n\n", b"data: a\n\nevent: b\ndata: c\n\n", b": ping\n\n"):
            self.assertIs(self.splitter.feed(piece).passed, piece)

    def test_unfinished_event_is_held(self) -> None:
        """The whole events leave, the begun one waits for its end and then leaves whole."""
        self.assertEqual(
            self.splitter.feed(b"data: a\n\ndata: b"), Cut(b"data: a\n\n", (Event(b"a"),))
        )
        self.assertEqual(self.splitter.held_bytes, 7)
        self.assertTrue(self.splitter.at_boundary)
        self.assertEqual(self.splitter.feed(b"c\n"), Cut(b""))
        self.assertEqual(self.splitter.feed(b""), Cut(b""))
        self.assertEqual(self.splitter.feed(b"\n"), Cut(b"data: bc\n\n", (Event(b"bc"),)))
        self.assertEqual(self.splitter.held_bytes, 0)

    def test_nothing_between_cr_and_lf(self) -> None:
        """A CR at the end of a piece ends the line; the LF after it is no second line end."""
        self.assertEqual(self.splitter.feed(b"data: a\r"), Cut(b""))
        self.assertEqual(self.splitter.feed(b""), Cut(b""))
        self.assertEqual(self.splitter.feed(b"\n"), Cut(b""))
        self.assertEqual(self.splitter.feed(b"\r"), Cut(b"data: a\r\n\r", (Event(b"a"),)))
        self.assertEqual(self.splitter.feed(b"\n"), Cut(b"\n"))
        self.assertTrue(self.splitter.at_boundary)

    def test_clean_end_gives_up_the_rest(self) -> None:
        """At the end the held rest comes out, and after it there is no boundary."""
        self.assertEqual(self.splitter.feed(b"data: [DONE]\n"), Cut(b""))
        self.assertEqual(self.splitter.finish(), b"data: [DONE]\n")
        self.assertEqual(self.splitter.held_bytes, 0)
        self.assertFalse(self.splitter.at_boundary)

    def test_clean_end_at_a_boundary(self) -> None:
        """A stream of whole events has no rest, and ends at a boundary."""
        self.splitter.feed(b"data: a\n\n")
        self.assertEqual(self.splitter.finish(), b"")
        self.assertTrue(self.splitter.at_boundary)

    def test_ids_are_remembered(self) -> None:
        """`id` is seen in any event, and for good; a longer field name is none."""
        self.splitter.feed(b"identity: 1\ndata: a\n\n")
        self.assertFalse(self.splitter.saw_id)
        cut = self.splitter.feed(b"id: 7\ndata: a\n\ndata: b\n\n")
        self.assertEqual([event.has_id for event in cut.events], [True, False])
        self.assertTrue(self.splitter.saw_id)

    def test_comments_are_no_events(self) -> None:
        """Comments, `retry` and blank lines pass without an event."""
        stream = b": ping\n\nretry: 10\n\n\n\n: x\r\n\r\n"
        self.assertEqual(self.splitter.feed(stream), Cut(stream))

    def test_comment_is_framed(self) -> None:
        """A comment is one line and a blank one, whatever its text."""
        self.assertEqual(comment("keep-alive"), KEEP_ALIVE)
        self.assertEqual(comment("a\nb\r\nc"), b": a b c\n\n")


class Oversized(TestCase):
    """An event over the limit passes unread."""

    def test_passes_as_it_comes(self) -> None:
        """Past the limit the bytes leave, away from any boundary until the event ends."""
        splitter = EventSplitter(20)
        self.assertEqual(splitter.feed(b"event: e\ndata: 12345"), Cut(b""))
        self.assertTrue(splitter.at_boundary)
        self.assertEqual(splitter.feed(b"6"), Cut(b"event: e\ndata: 123456"))
        self.assertFalse(splitter.at_boundary)
        self.assertEqual(splitter.feed(b"789\nid: 1\n"), Cut(b"789\nid: 1\n"))
        self.assertFalse(splitter.at_boundary)
        self.assertEqual(splitter.feed(b"\ndata: b"), Cut(b"\n", (Event(None, b"e", has_id=True),)))
        self.assertTrue(splitter.at_boundary)
        self.assertEqual(splitter.feed(b"\n\n"), Cut(b"data: b\n\n", (Event(b"b"),)))

    def test_end_inside(self) -> None:
        """A stream that ends within one ends at no boundary."""
        splitter = EventSplitter(4)
        self.assertEqual(splitter.feed(b"data: 123"), Cut(b"data: 123"))
        self.assertEqual(splitter.finish(), b"")
        self.assertFalse(splitter.at_boundary)

    def test_limit_itself_is_allowed(self) -> None:
        """An event of just the limit is read, one byte more is not; in one piece or in many."""
        for extra in (0, 1):
            stream = b"data: " + b"x" * (HELD_LIMIT_BYTES - 7 + extra) + b"\n\n"
            for width in (len(stream), 1000, len(stream) - 2):
                pieces = [stream[at : at + width] for at in range(0, len(stream), width)]
                out, events = told(EventSplitter(), pieces)
                self.assertEqual(out, stream)
                self.assertEqual([event.data is None for event in events], [bool(extra)])

    def test_endless_event_is_not_gathered(self) -> None:
        """However long an event grows, in lines or in one, next to nothing of it is kept."""
        for piece in (b"data: " + b"x" * 1000, b"data: x\n" * 100):
            splitter = EventSplitter(100)
            for _ in range(50):
                self.assertEqual(splitter.feed(piece).passed, piece)
            self.assertEqual(splitter.held_bytes, 0)
            self.assertLess(len(splitter._line) + len(splitter._data), 300)

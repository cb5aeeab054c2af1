"""Server-sent events on their way through: cut into whole events, byte for byte.

`EventSplitter` is told what the engine sends, in whatever pieces it comes, and says which bytes may
leave now and which events became complete. Nothing is added, lost or reordered: all that leaves,
one after the other, is all that came. Bytes leave up to the end of an event only, so that whoever
writes a comment or an error after them finds an event boundary; the one exception is an event
larger than the limit.

The grammar is that of the WHATWG HTML standard, section 9.2.6 "Interpreting an event stream":
lines end with LF, CR or CRLF, a blank line ends an event, one BOM may stand in front of it all.
"""

from __future__ import annotations

from msgspec import Struct

EVENT_STREAM = b"text/event-stream"
"""The media type of an event stream."""
HELD_LIMIT_BYTES = 65_536
"""How much of an unfinished event is held back."""
KEEP_ALIVE = b": keep-alive\n\n"
"""The comment that keeps a silent stream alive. Like any, it must stand at an event boundary."""

_BOM = b"\xef\xbb\xbf"
_LF, _CR = 10, 13
_MAX_NAME_BYTES = 256
# Of a line in an oversized event only so much is kept: enough for a field name and an event name.
_MAX_STUB_BYTES = _MAX_NAME_BYTES + 16


class Event(Struct, frozen=True, gc=False):
    """One event that has become complete.

    Attributes:
        data: the data lines, joined by LF; None for an event over the limit, which nobody reads.
        name: the `event` field, `b""` where there is none. A name over 256 bytes is none.
        has_id: whether it carries an `id` field.
    """

    data: bytes | None
    name: bytes = b""
    has_id: bool = False


class Cut(Struct, frozen=True, gc=False):
    """What one piece of the stream brought.

    Attributes:
        passed: the bytes that may leave now. Where a piece holds whole events, it is that very
            object.
        events: the events that these bytes complete. Blocks with neither `data`, `event` nor `id`
            (comments, `retry`) are none.
    """

    passed: bytes
    events: tuple[Event, ...] = ()


_NOTHING_YET = Cut(b"")


class EventSplitter:
    """Cuts a byte stream into whole events.

    An unfinished event is held up to `limit_bytes`; beyond that its bytes pass as they come, and
    until it ends the stream is at no boundary. Such an event is reported without its data. Whether
    an event is over the limit, what is reported and when depend on the bytes alone, never on the
    pieces in which they came. What is held is at most the limit and one piece.

    Attributes:
        saw_id: whether any event so far carried an `id` field. Some clients choke on a comment
            after one (the OpenAI client makes an empty event of it), so none may be sent then.
    """

    # While an event is unfinished, `_size` counts its bytes; it is 0 at a boundary. The bytes
    # themselves are in `_held`, or have left already when `_passing`. `_line` is the part of the
    # unfinished last line. `_cr`: the last line ended with the CR at the very end of a piece, so
    # a LF at the start of the next one belongs to it.

    def __init__(self, limit_bytes: int = HELD_LIMIT_BYTES) -> None:
        """Start at the beginning of a stream.

        Args:
            limit_bytes: how many bytes of an unfinished event are held, and how large an event
                may be, its final blank line not counted, to be reported with its data.
        """
        self._limit_bytes = limit_bytes
        self._held = bytearray()
        self._line = bytearray()
        self._size = 0
        self._passing = False
        self._cr = False
        self._first_line = True
        self._ended_inside = False
        self._data: list[bytes] = []
        self._name = b""
        self._has_id = False
        self._is_event = False
        self.saw_id = False

    @property
    def at_boundary(self) -> bool:
        """Whether all bytes passed so far end with an event's end: other bytes may go between."""
        return not (self._passing or self._ended_inside)

    @property
    def held_bytes(self) -> int:
        """How many bytes of an unfinished event are held."""
        return len(self._held)

    def feed(self, data: bytes) -> Cut:
        """Take the next piece of the stream, of any length.

        Returns:
            What may leave now, and the events that this completes.
        """
        if (
            not self._size
            and data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
            and len(data) - 1 <= self._limit_bytes
        ):
            # What engines send almost always: one read, one event, one data line.
            self._first_line = self._cr = False
            return Cut(data, (Event(data[6:-2]),))
        return self._cut(data)

    def finish(self) -> bytes:
        """Take note of the clean end of the stream.

        Returns:
            The held rest: an event that the stream did not end. Once that has been passed on, the
            stream is at no boundary.
        """
        rest = bytes(self._held)
        self._held.clear()
        self._ended_inside = bool(rest)
        return rest

    def _cut(self, data: bytes) -> Cut:
        if not data:
            return _NOTHING_YET
        events: list[Event] = []
        at = boundary = 0
        # For bytes, splitlines knows just LF, CR and CRLF.
        for line in data.splitlines(keepends=True):
            at += len(line)
            if self._cr:
                self._cr = False
                if line == b"\n":
                    if self._size:
                        self._size += 1
                    else:
                        boundary = at
                    continue
            if line[-1] not in (_LF, _CR):
                self._keep(line)
                break
            text = self._whole(line)
            if text:
                self._size += len(line)
                self._field(text)
            else:
                self._end_event(events)
                boundary = at
        self._cr = data.endswith(b"\r")
        passed = self._pass(data, boundary)
        return Cut(passed, tuple(events)) if passed else _NOTHING_YET

    def _keep(self, part: bytes) -> None:
        """Keep the beginning of a line whose end has not come; of an oversized event, a stub."""
        self._size += len(part)
        self._line += part
        if self._size > self._limit_bytes:
            del self._line[_MAX_STUB_BYTES:]

    def _whole(self, line: bytes) -> bytes:
        """The line that `line` is the end of, without its terminator."""
        text = line.rstrip(b"\r\n")
        if self._line:
            text = bytes(self._line + text)
            self._line.clear()
        if self._first_line:
            self._first_line = False
            text = text.removeprefix(_BOM)
        return text

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._is_event = True
            if self._size <= self._limit_bytes:
                self._data.append(value)
        elif field == b"event":
            self._is_event = True
            self._name = value if len(value) <= _MAX_NAME_BYTES else b""
        elif field == b"id":
            self._is_event = self._has_id = self.saw_id = True

    def _end_event(self, events: list[Event]) -> None:
        """A blank line: report what has gathered, if it is an event, and start afresh."""
        if self._is_event:
            whole = self._size <= self._limit_bytes
            data = b"\n".join(self._data) if whole else None
            events.append(Event(data, self._name, self._has_id))
            self._data.clear()
            self._name = b""
            self._is_event = self._has_id = False
        self._size = 0

    def _pass(self, data: bytes, boundary: int) -> bytes:
        """Take out what may leave: all up to `boundary` in `data`, or all that there is."""
        self._passing = self._size > self._limit_bytes
        if self._passing:
            boundary = len(data)
        if not boundary:
            self._held += data
            return b""
        leaving = data[:boundary]
        if self._held:
            leaving = bytes(self._held + leaving)
            self._held.clear()
        self._held += data[boundary:]
        return leaving


def comment(text: str) -> bytes:
    """Frame a comment; it must stand at an event boundary. Line breaks in it become blanks."""
    return b": " + " ".join(text.splitlines()).encode() + b"\n\n"

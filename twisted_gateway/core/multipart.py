"""Which model a multipart/form-data body names (RFC 7578), read where it stands.

No part is copied: parts are spans of the body. Parsers of this format differ a good deal in what
they let pass, and the engine has one of its own (python-multipart under Starlette, cpp-httplib,
Go's). So this one takes only what all of them read alike, and refuses what any could read
otherwise near a boundary, in a part's header, or in a name that could be `model`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from twisted_gateway.core.body import (
    MOST_TOKENS,
    TOKENS,
    BodyError,
    BodyFacts,
    check_utf8,
    largest,
)

MOST_PARTS = 1000
"""As many as Starlette takes."""
MOST_HEADER_BYTES = 4096
"""The most bytes of one part's header; python-multipart takes as many."""
MOST_HEADER_LINES = 8
"""The most lines of one part's header; python-multipart takes as many."""

_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
# A doubled backslash is left out: Python's email parser, which Starlette uses, ends the string
# elsewhere. Unquoted values may have what many senders leave unquoted in boundaries.
_PARAMETER = re.compile(
    rb"[ \t]*;[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)="
    rb"(?:([!#$%&'*+.^_`|~0-9A-Za-z/:=?()-]+)"
    rb'|"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\\\x00-\x1f\x7f])*)")'
)
_END = re.compile(rb"[ \t]*;?[ \t]*")

_UTF8 = (b"utf-8", b"utf8")
_ASCII_SUPERSETS = (b"us-ascii", b"iso-8859-1")
_IDENTITY = (b"7bit", b"8bit", b"binary")

_TOKENS = tuple(name.encode("ascii") for name in TOKENS)
_READ = (b"model", b"stream", b"_charset_", *_TOKENS)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part: its name, its header fields in lower case, and where its content stands."""

    name: bytes
    is_file: bool
    headers: dict[bytes, bytes]
    start: int
    end: int


def read_multipart(body: bytes, content_type: bytes) -> BodyFacts:
    """Read the facts of a multipart/form-data body.

    Text before the first boundary and after the last is passed over. `stream` is `true` or
    `false` in any case. Numbers are read as in JSON.

    Args:
        body: the body.
        content_type: the request's `Content-Type`.

    Raises:
        BodyError: the boundary is missing or malformed, the body is not what RFC 7578 says or
            could be read in two ways, or it does not have exactly one non-empty `model` part
            that is plain UTF-8 text.
    """
    boundary = _boundary(content_type)
    if not body:
        raise BodyError("The body is empty; multipart/form-data with `model` was expected.")
    fields: dict[bytes, _Part] = {}
    for part in _parts(body, b"--" + boundary):
        name = _plain_name(part.name)
        if name in _READ:
            if name in fields:
                raise _fault(name, "occurs more than once; exactly one was expected")
            _check_field(body, part, name)
            fields[name] = part
    if b"model" not in fields:
        raise BodyError(
            "The body has no part with the name `model`; one with the name of a model was "
            "expected.",
            param="model",
        )
    text = {name: body[part.start : part.end] for name, part in fields.items()}
    if text.get(b"_charset_", b"utf-8").lower() not in _UTF8:
        raise BodyError("The part `_charset_` names another charset than UTF-8.")
    if not text[b"model"]:
        raise _fault(b"model", "is empty; the name of a model was expected")
    model = fields[b"model"]
    return BodyFacts(
        text[b"model"].decode("utf-8"),
        (model.start, model.end),
        _read_stream(text.get(b"stream")),
        largest([text.get(name, b"") for name in _TOKENS], MOST_TOKENS),
        encoding="multipart",
    )


def _boundary(content_type: bytes) -> bytes:
    parsed = _value(content_type)
    if parsed is None or parsed[0] != b"multipart/form-data":
        raise BodyError("The Content-Type is malformed; multipart/form-data was expected.")
    parameters = parsed[1]
    if parameters.get(b"charset", b"utf-8").lower() not in _UTF8:
        raise BodyError("The Content-Type names another charset than UTF-8.")
    boundary = parameters.get(b"boundary")
    if boundary is None or not _BOUNDARY.fullmatch(boundary):
        raise BodyError(
            "The Content-Type has no boundary as RFC 2046 defines it, of 1 to 70 characters."
        )
    return boundary


def _parts(body: bytes, delimiter: bytes) -> Iterator[_Part]:
    """Go from one delimiter line to the next, to the closing one and the end.

    Wherever a line begins with the delimiter, by any idea of a line, it must be a delimiter line.
    """
    if b"\r" + delimiter in body:
        raise _misplaced(body.index(b"\r" + delimiter))
    at = 0 if body.startswith(delimiter) else _next_delimiter(body, delimiter, 0)
    for _ in range(MOST_PARTS):
        after = at + len(delimiter)
        if body[after : after + 2] == b"--":
            break
        if body[after : after + 2] != b"\r\n":
            raise _misplaced(at)
        start = after + 2
        # From the line break on, for the next delimiter may follow at once.
        at = _next_delimiter(body, delimiter, start - 1)
        yield _part(body, start, at - 2)
    else:
        raise BodyError(f"The body has more than {MOST_PARTS} parts.")
    if body[after + 2 : after + 4] not in (b"", b"\r\n") or b"\n" + delimiter in body[after:]:
        raise _misplaced(at)


def _next_delimiter(body: bytes, delimiter: bytes, start: int) -> int:
    found = body.find(b"\n" + delimiter, start)
    if found < 0:
        raise BodyError(
            "The body does not end with the closing boundary that the Content-Type names; it may "
            "have been cut short."
        )
    if found == 0 or body[found - 1] != 0x0D:
        raise _misplaced(found)
    return found + 1


def _misplaced(at: int) -> BodyError:
    return BodyError(
        f"The body has a malformed boundary line at byte {at}; the boundary alone between line "
        "breaks of CR and LF was expected."
    )


def _part(body: bytes, start: int, end: int) -> _Part:
    head_end = body.find(b"\r\n\r\n", start, min(end, start + MOST_HEADER_BYTES + 4))
    if head_end < 0:
        raise _bad_header(start, f"an empty line within {MOST_HEADER_BYTES} bytes")
    lines = body[start:head_end].split(b"\r\n")
    if len(lines) > MOST_HEADER_LINES:
        raise _bad_header(start, f"at most {MOST_HEADER_LINES} lines")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or match[1].lower() in headers:
            raise _bad_header(start, "lines of `name: value`, each name once")
        headers[match[1].lower()] = match[2]
    disposition = _value(headers.get(b"content-disposition", b""))
    if disposition is None or disposition[0] != b"form-data" or b"name" not in disposition[1]:
        raise _bad_header(start, "a Content-Disposition of form-data with a `name`")
    parameters = disposition[1]
    if any(key.startswith(b"name*") for key in parameters):
        raise _bad_header(start, "a `name` that is not extended")
    is_file = any(key.partition(b"*")[0] == b"filename" for key in parameters)
    return _Part(parameters[b"name"], is_file, headers, head_end + 4, end)


def _bad_header(at: int, expected: str) -> BodyError:
    return BodyError(f"The header of the part at byte {at} is malformed; {expected} was expected.")


def _value(header: bytes) -> tuple[bytes, dict[bytes, bytes]] | None:
    """Split a header into its value and parameters, keys in lower case; None if malformed."""
    value = header.partition(b";")[0]
    parameters: dict[bytes, bytes] = {}
    place = len(value)
    while match := _PARAMETER.match(header, place):
        key = match[1].lower()
        if key in parameters:
            return None
        parameters[key] = match[2] or (match[3] or b"").replace(rb"\"", b'"')
        place = match.end()
    return (value.strip().lower(), parameters) if _END.fullmatch(header, place) else None


def _plain_name(name: bytes) -> bytes:
    """The name as it is, unless some parser could take it for `model` although it is not."""
    seen = unquote_to_bytes(name.replace(b"\\", b"")).decode("utf-8", "replace")
    if seen.strip().casefold() == "model" and name != b"model":
        raise BodyError(
            "The body has a part whose name is nearly `model`; exactly one `model`, in lower "
            "case, was expected.",
            param="model",
        )
    return name


def _check_field(body: bytes, part: _Part, name: bytes) -> None:
    """Check that a part is text which every decoder reads alike."""
    if part.is_file:
        raise _fault(name, "has a filename; a plain field was expected")
    encoding = part.headers.get(b"content-transfer-encoding", b"binary")
    if encoding.strip().lower() not in _IDENTITY:
        raise _fault(name, "has a Content-Transfer-Encoding; none was expected")
    parsed = _value(part.headers.get(b"content-type", b"text/plain"))
    charset = b"" if parsed is None else parsed[1].get(b"charset", b"utf-8").lower()
    content = memoryview(body)[part.start : part.end]
    if charset not in _UTF8 and not (charset in _ASCII_SUPERSETS and bytes(content).isascii()):
        raise _fault(name, "has a Content-Type with another charset than UTF-8")
    check_utf8(content, part.start)
    if body.startswith(codecs.BOM_UTF8, part.start, part.end):
        raise _fault(name, "begins with a byte order mark; UTF-8 without one was expected")


def _read_stream(text: bytes | None) -> bool:
    if text is not None and text.lower() not in (b"true", b"false"):
        raise _fault(b"stream", "must be `true` or `false`")
    return text is not None and text.lower() == b"true"


def _fault(name: bytes, what: str) -> BodyError:
    known = name.decode("ascii")
    return BodyError(f"The part `{known}` {what}.", param=known)

"""Which model a JSON body names, read without building a tree of it.

The value that routes must be the value that the engine will see, whatever decoder it uses. So
every body is refused of which two decoders could think differently: one that is not UTF-8, is not
what RFC 8259 allows, or names `model` twice or in another case.

Each step is one pass of C code over the bytes:

1. UTF-8, in blocks, because msgspec does not check the strings that it skips.
2. msgspec checks the grammar and picks the wanted top-level keys, unescaped, as spans of bytes.
   It knows every spelling of `model` in another case by name. Of duplicates it keeps the last.
3. A search for the key as text. If it stands there once, that is the key which msgspec found.
4. If it stands there more often (a tool's schema may have a property of that name), msgspec tells
   whether the first is the only one at the top. Only if it is not, the levels of nesting are
   counted, over the body less everything but brackets and those keys.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, islice, product
from typing import Any, Literal

import msgspec

MOST_TOKENS = 2**31 - 1
"""A larger `max_tokens` is read as this one."""
MOST_SEQUENCES = 128
"""A larger `n` is read as this one: the largest that OpenAI's API takes."""
TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The parameters that bound an answer, of the different APIs."""
SEQUENCES = ("n", "best_of")
"""The parameters that say how many sequences the engine runs."""

_UTF8_BLOCK_BYTES = 65_536
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"\0\0\xfe\xff")

_WANTED = ("model", "stream", *TOKENS, *SEQUENCES)
# No character but the ASCII letters themselves folds to a letter of this word.
_OTHER_CASES = tuple("".join(word) for word in product(*((c, c.upper()) for c in "model")))[1:]
_ABSENT = msgspec.Raw()
_NO_OTHER_CASE = (_ABSENT,) * len(_OTHER_CASES)

_decode_top = msgspec.json.Decoder(
    msgspec.defstruct(
        "Top", [(name, msgspec.Raw, _ABSENT) for name in _WANTED + _OTHER_CASES], gc=False
    )
).decode
_decode_string = msgspec.json.Decoder(str).decode

# A key as text. Outside of strings JSON has no backslash, so that a quote without one before it
# opens a string here; and what ends in a quote and a colon is a key.
_KEY = re.compile(rb'"model"(?<!\\"model")[ \t\r\n]*+:[ \t\r\n]*+')
_ESCAPED_KEY = re.compile(
    rb'"(?<!\\")(?:m|\\u006[dD])(?:o|\\u006[fF])(?:d|\\u0064)(?:e|\\u0065)(?:l|\\u006[cC])"'
    rb"[ \t\r\n]*+:[ \t\r\n]*+"
)
_ESCAPED_LETTER = rb"\u006"
_LETTER_ESCAPES = tuple(
    (rb"\u006" + digit, bytes([0x60 + int(digit, 16)]))
    for digit in (b"d", b"D", b"f", b"F", b"4", b"5", b"c", b"C")
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

# For `_levels`. NUL, which JSON never holds, stands for a key, and so does then 0; 1 and -1 are
# brackets.
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"{}[]\0')
_STEPS = bytes.maketrans(b"{[]}", b"\x01\x01\xff\xff")
_IS_KEY = bytes(byte == 0 for byte in range(256))

_NUMBER = re.compile(rb'"?\s*(\+?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*"?')
_LONGEST_NUMBER_BYTES = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class BodyError(ValueError):
    """A body cannot be routed; its sender is told why.

    Attributes:
        detail: a sentence that says what was wrong, where, and what was expected. It never holds
            any of the body.
        param: "model" or "stream" when that parameter is at fault, else None.
    """

    def __init__(self, detail: str, *, param: str | None = None) -> None:
        """Take what the class documents."""
        super().__init__(detail)
        self.detail = detail
        self.param = param


@dataclass(frozen=True, slots=True)
class BodyFacts:
    """What the gateway needs to know of a request body.

    Attributes:
        model: the name, unescaped; never empty.
        model_span: where the value stands, start and end in bytes: for JSON the string literal
            with its quotes, for multipart the content of the part.
        stream: whether a stream is asked for.
        max_tokens: the largest of `max_tokens`, `max_completion_tokens` and `max_output_tokens`,
            from 1 to `MOST_TOKENS`; None when there is none that an engine would take.
        n: sequences that the engine will run for it, from 1 to `MOST_SEQUENCES`: the larger of
            `n` and `best_of`.
        encoding: how the body is written.
    """

    model: str
    model_span: tuple[int, int]
    stream: bool = False
    max_tokens: int | None = None
    n: int = 1
    encoding: Literal["json", "multipart"] = "json"


def read_json(body: bytes) -> BodyFacts:
    """Read the facts of a JSON body.

    What is nested is skipped, though checked. Nesting is bounded by the interpreter's recursion
    limit, and some hundreds of levels pass. Numbers are read as pydantic reads them (`"2"` and
    `2.0` are 2), for the engine may; one that is no such number, or is below 1, counts as absent,
    because the engine has its own answer to it.

    Raises:
        BodyError: it is empty, is not UTF-8 without a byte order mark, is not a JSON object by
            RFC 8259, is nested too deeply, has no non-empty string `model` or more than one key
            of that name in any case, or has a `stream` that is neither boolean nor null.
    """
    _check_text(body)
    values: tuple[msgspec.Raw, ...] = msgspec.structs.astuple(_parse(body))
    model, stream, tokens, top_tokens, out_tokens, n, best_of = values[: len(_WANTED)]
    if values[len(_WANTED) :] != _NO_OTHER_CASE:
        raise BodyError(
            "The body has a top-level key that equals `model` but for case; exactly one `model`, "
            "in lower case, was expected.",
            param="model",
        )
    if not len(model):
        raise BodyError(
            "The body has no top-level `model`; the name of a model was expected there.",
            param="model",
        )
    start = _find_model(body)
    end = start + len(model)
    return BodyFacts(
        _model_name(body, start, end),
        (start, end),
        _read_stream(stream),
        largest((tokens, top_tokens, out_tokens), MOST_TOKENS),
        largest((n, best_of), MOST_SEQUENCES) or 1,
    )


def rewrite(body: bytes, facts: BodyFacts, name: str) -> list[bytes | memoryview]:
    """Put another model name in the place of the one that is there.

    Args:
        body: the body that `facts` were read of.
        facts: what was read.
        name: the name to put in, from the configuration.

    Returns:
        Pieces whose concatenation is the new body. The outer two are views of `body`.

    Raises:
        ValueError: the name is empty or not text, or, for multipart, would not stand in a part
            as it is: it holds control characters or begins like a boundary.
    """
    if not name:
        raise ValueError("a model name must not be empty")
    # What is no text (lone surrogates) raises UnicodeEncodeError, which is a ValueError.
    value = name.encode("utf-8")
    if facts.encoding == "json":
        value = msgspec.json.encode(name)
    elif _CONTROL.search(name) or name.startswith("--"):
        raise ValueError(
            "a model name in a multipart body must hold no control characters and not begin "
            "with two hyphens"
        )
    start, end = facts.model_span
    view = memoryview(body)
    return [view[:start], value, view[end:]]


def largest(values: Sequence[msgspec.Raw | bytes], most: int) -> int | None:
    """The largest of the values that are whole numbers from 1 on, at most `most`; None if none is.

    Args:
        values: JSON or plain text; empty means absent.
        most: the bound, above which a number is read as `most`.
    """
    found = 0
    for value in values:
        if len(value):
            found = max(found, _whole(bytes(value), most))
    return found or None


def _whole(text: bytes, most: int) -> int:
    """The whole number that a text is, 0 when it is none."""
    if len(text) > _LONGEST_NUMBER_BYTES:
        return 0
    if text.isdigit():
        return min(int(text), most)
    match = _NUMBER.fullmatch(text)
    number = 0.0 if match is None else float(match[1])
    if number >= most:
        return most
    return int(number) if number.is_integer() else 0


def _check_text(body: bytes) -> None:
    if not body:
        raise BodyError("The body is empty; a JSON object with `model` was expected.")
    if body.startswith(_BYTE_ORDER_MARKS):
        raise BodyError(
            "The body begins with a byte order mark; UTF-8 without one was expected (RFC 8259)."
        )
    if not body.isascii():
        check_utf8(memoryview(body), 0)
    # ASCII in UTF-16 or UTF-32 is valid UTF-8, with NULs that JSON does not allow anywhere.
    if b"\0" in body[:4]:
        raise BodyError(
            "The body begins with NUL bytes, as UTF-16 and UTF-32 do; UTF-8 was expected."
        )


def check_utf8(text: memoryview, offset: int) -> None:
    """Check that bytes are UTF-8, with no more than a block of them decoded at a time.

    Args:
        text: the bytes.
        offset: what to add to a place in `text` when it is told.

    Raises:
        BodyError: they are not; it says at which byte.
    """
    done = 0
    final = False
    while not final:
        block = text[done : done + _UTF8_BLOCK_BYTES]
        final = done + len(block) == len(text)
        try:
            done += codecs.utf_8_decode(block, "strict", final)[1]
        except UnicodeDecodeError as fault:
            raise BodyError(
                f"The body is not valid UTF-8 at byte {offset + done + fault.start}; UTF-8 was "
                "expected."
            ) from None


def _parse(body: bytes) -> Any:
    try:
        try:
            return _decode_top(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # RFC 8259 allows the escape of half a surrogate pair, and clients that cut a string
            # in the middle of an emoji send it; msgspec does not.
            patched = _SURROGATE.sub(rb"\\u0078", body)
            if patched == body:
                raise
            return _decode_top(patched)
    except RecursionError:
        raise BodyError("The body is nested too deeply.") from None
    except msgspec.ValidationError:
        raise BodyError("The body is JSON but not an object; an object was expected.") from None
    except msgspec.DecodeError as fault:
        raise BodyError(f"The body is not JSON as RFC 8259 defines it: {fault}.") from None


def _find_model(body: bytes) -> int:
    """Find where the value of the one top-level `model` begins; that there is one is known."""
    key = _ESCAPED_KEY if _ESCAPED_LETTER in body else _KEY
    found = key.finditer(body)
    first = next(found)
    if next(found, None) is None:
        return first.end()
    # As a rule the first is the one, and then there is none at the top when it bears another name.
    view = memoryview(body)
    others = b"".join((view[: first.start()], b'"":', view[first.end() :]))
    if not len(_parse(others).model):
        return first.end()
    levels = _levels(body, escaped=key is _ESCAPED_KEY)
    if levels.count(1) > 1:
        raise BodyError("The body has more than one top-level `model`.", param="model")
    return next(islice(key.finditer(body), levels.index(1), None)).end()


def _levels(body: bytes, *, escaped: bool) -> list[int]:
    """The level of nesting of each key `model` in valid JSON; 1 is the top.

    `escaped` says whether letters of the key may be written as escapes.

    Everything goes but quotes, brackets and the keys, first escapes, then other text, then what
    is left between quotes; the sum of the brackets up to a key is its level.
    """
    text = body.replace(rb"\\", b"__").replace(rb"\"", b"_")
    if escaped:
        for escape, letter in _LETTER_ESCAPES:
            text = text.replace(escape, letter)
    # Most writers put the colon right behind the key, and plain replacing is several times faster.
    text = _KEY.sub(b"\0", text.replace(b'"model":', b"\0"))
    # Dropping two quotes that touch leaves all that follows as much inside or outside as it was.
    text = text.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    text = b"".join(text.split(b'"')[::2])
    text = text.replace(b"{}", b"").replace(b"[]", b"").translate(_STEPS)
    sums = accumulate(memoryview(text).cast("b"))
    return list(compress(sums, text.translate(_IS_KEY)))


def _model_name(body: bytes, start: int, end: int) -> str:
    literal = memoryview(body)[start:end]
    if body[start] != 0x22:
        raise BodyError("`model` is not a string; the name of a model was expected.", param="model")
    try:
        name = _decode_string(literal)
    except msgspec.DecodeError:
        raise BodyError(
            "`model` holds half of a surrogate pair; text was expected.", param="model"
        ) from None
    if not name:
        raise BodyError("`model` is empty; the name of a model was expected.", param="model")
    return name


def _read_stream(value: msgspec.Raw) -> bool:
    # The longest that is allowed has five bytes; anything longer is not worth a copy.
    text = bytes(value) if len(value) <= 5 else b""
    if text == b"true":
        return True
    if text in (b"false", b"null") or not len(value):
        return False
    raise BodyError("`stream` must be a boolean.", param="stream")

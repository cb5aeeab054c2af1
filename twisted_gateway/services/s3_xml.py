"""What S3 says in XML, and what is said to it: listings, refusals, the parts of an upload. Pure.

Names are compared without their namespace, for stores differ in it. A document type is refused: S3
sends none, and entities are what it would be for.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import escape

from twisted_gateway.core.charset import decoded, is_told
from twisted_gateway.services.adapter import BadAnswer

MAX_DEPTH = 16
"""How deep elements may lie in one another; a listing has four levels."""
MAX_ELEMENTS = 25_000
"""How many elements a document may have; a listing of 1000 objects has some 12,000."""

MAX_ATTRIBUTES = 4
"""How many attributes an element may have, declarations of namespaces among them; S3 has two."""
MAX_NAMES = 1000
"""How many objects, and how many prefixes, a listing holds at most; so S3 has it."""
MAX_NAME_CHARACTERS = 3072
"""How long a key in a listing may be: 1024 bytes, each of them an escape."""

Element = ElementTree.Element

# The parser buffers a tag until it has all of it, and says nothing of it before.
_PIECE_BYTES = 16_384
_MOST_PENDING_BYTES = 2 * _PIECE_BYTES
_TEXT_BYTES = 65_536
_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _Bounds:
    """Builds a tree, and bears no more than a listing has."""

    def __init__(self) -> None:
        self._depth = 0
        self._count = 0
        self._builder = ElementTree.TreeBuilder()

    def read(self, words: str) -> Element:
        """Read a document.

        Names are taken as they are written: a parser that knows of namespaces copies the
        namespace's own name, however long, into that of each element.
        """
        # What the document says of its encoding was true of what it was decoded from.
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.buffer_size = _TEXT_BYTES
        parser.ordered_attributes = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._builder.data
        parser.CommentHandler = self._other
        parser.ProcessingInstructionHandler = self._other
        body = words.encode("utf-8", "replace")
        # In pieces, for the parser reads on to the end of what it has, whatever a handler raises.
        for start in range(0, len(body), _PIECE_BYTES):
            piece = body[start : start + _PIECE_BYTES]
            parser.Parse(piece, False)
            if start + len(piece) - parser.CurrentByteIndex > _MOST_PENDING_BYTES:
                raise BadAnswer("its answer is XML with too long a tag or comment")
        parser.Parse(b"", True)
        root: Element = self._builder.close()
        return root

    def _start(self, name: str, attributes: list[str]) -> None:
        self._depth += 1
        self._count_one()
        if len(attributes) > 2 * MAX_ATTRIBUTES:
            raise BadAnswer("its answer is XML of too many attributes")
        self._builder.start(name, {})

    def _doctype(self, *_: object) -> None:
        raise BadAnswer("its answer is XML with a document type")

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._builder.end(name)

    def _other(self, *_: str) -> None:
        self._count_one()

    def _count_one(self) -> None:
        self._count += 1
        if self._depth > MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise BadAnswer("its answer is XML of too many elements")


def parse(body: bytes) -> Element:
    """Read a document, in UTF-8, or in ISO-8859-1 if it says so and is not UTF-8 all the same.

    Raises:
        BadAnswer: it is no XML, in another encoding, has a document type, or too many elements or
            attributes.
    """
    # S3 may have sent white space before it knew what to say.
    body = body.lstrip()
    if not is_told(body):
        # A key of which something is replaced would be that of another object.
        raise BadAnswer("its answer is not XML in UTF-8")
    return _tree(decoded(body))


def _tree(words: str) -> Element:
    # An element has two of them, and a third where its text is a CDATA section.
    if words.count("<") > 3 * MAX_ELEMENTS:
        raise BadAnswer("its answer is XML of too many elements")
    try:
        return _Bounds().read(words)
    except expat.ExpatError:
        raise BadAnswer("its answer is not XML") from None


def listing(body: bytes, bucket: str) -> dict[str, Any]:
    """Read an answer of ListObjectsV2.

    Returns:
        `objects` (`key`, `size`, `etag`, `last_modified`, `storage_class`), `prefixes` (what the
        delimiter cut short), `truncated`, and the `continuation_token` for the rest, or None.

    Raises:
        BadAnswer: it is none, or longer than S3's are.
    """
    root = parse(body)
    if _name(root) != "ListBucketResult":
        raise BadAnswer("its answer is no listing")
    coded = text(root, "EncodingType") == "url"
    truncated = text(root, "IsTruncated") == "true"
    token = text(root, "NextContinuationToken") or None
    return {
        "bucket": bucket,
        "prefix": _decoded(text(root, "Prefix"), coded),
        "objects": [_object(one, coded) for one in _every(root, "Contents")],
        "prefixes": [
            _decoded(text(one, "Prefix"), coded) for one in _every(root, "CommonPrefixes")
        ],
        "truncated": truncated,
        "continuation_token": token if truncated else None,
    }


def refusal(body: bytes, content_type: str = "") -> str:
    """Give the code and the message of an `Error`, whole; "" where the body is none.

    AWS's other services wrap it in an `ErrorResponse`. Its other members are not read: stores
    repeat there what was signed.

    Args:
        body: the document, in whatever encoding: a character that cannot be told is U+FFFD.
        content_type: its `Content-Type`; "" for none.
    """
    try:
        root = _tree(decoded(body.lstrip(), content_type))
    except BadAnswer:
        return ""
    if _name(root) == "ErrorResponse":
        root = next((one for one in root.iter() if _name(one) == "Error"), root)
    if _name(root) != "Error":
        return ""
    said = ": ".join(part for part in (text(root, "Code"), text(root, "Message")) if part)
    return " ".join(said.split())


def text(element: Element, name: str) -> str:
    """Give the text of the first child of that name; "" for none."""
    for child in element:
        if _name(child) == name:
            return child.text or ""
    return ""


def completion(etags: Sequence[str]) -> bytes:
    """Give the body of CompleteMultipartUpload: the parts in their order."""
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    )
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()


def _object(element: Element, coded: bool) -> dict[str, Any]:
    size = text(element, "Size")
    return {
        "key": _decoded(text(element, "Key"), coded),
        "size": int(size) if size.isdecimal() and len(size) < 20 else None,
        "etag": text(element, "ETag"),
        "last_modified": text(element, "LastModified"),
        "storage_class": text(element, "StorageClass") or None,
    }


def _every(root: Element, name: str) -> list[Element]:
    found = [one for one in root if _name(one) == name]
    if len(found) > MAX_NAMES:
        raise BadAnswer(f"its answer is a listing of more than {MAX_NAMES} names")
    return found


def _decoded(value: str, coded: bool) -> str:
    """Undo `encoding-type=url`.

    `urllib.parse.unquote_plus` takes each escape by itself: for a page of keys that are not ASCII a
    second, in which nothing else is done. Quoted-printable is the same by another sign.
    """
    if len(value) > MAX_NAME_CHARACTERS:
        raise BadAnswer("its answer holds a key that is too long to be one")
    if not coded:
        return value
    raw = _NO_ESCAPE.sub(b"%25", value.replace("+", " ").encode("utf-8"))
    quoted = raw.replace(b"=", b"=3D").replace(b"%", b"=")
    return binascii.a2b_qp(quoted).decode("utf-8", "replace")


def _name(element: Element) -> str:
    return element.tag.rpartition(":")[2]

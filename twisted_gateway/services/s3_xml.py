"""What S3 says in XML, and what is said to it: listings, refusals, the parts of an upload. Pure.

Names are compared without their namespace, for stores differ in it. A document type is refused: S3
sends none, and entities are what it would be for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from twisted_gateway.services.adapter import BadAnswer

MAX_MESSAGE_CHARACTERS = 1000
"""The longest message that is taken from a store."""

MAX_DEPTH = 16
"""How deep elements may lie in one another; a listing has four levels."""
MAX_ELEMENTS = 50_000
"""How many elements a document may have; a listing of 1000 objects has some 12,000."""

Element = ElementTree.Element


class _Plain(ElementTree.TreeBuilder):
    """Builds a tree, and bears no document type, and no more than a listing has."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: Any, attrs: Any, /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise BadAnswer("its answer is XML of too many elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise BadAnswer("its answer is XML with a document type")


def parse(body: bytes) -> Element:
    """Read a document.

    Raises:
        BadAnswer: it is no XML, has a document type, or too many elements.
    """
    try:
        # S3 may have sent white space before it knew what to say.
        return ElementTree.fromstring(body.lstrip(), ElementTree.XMLParser(target=_Plain()))
    except (ElementTree.ParseError, ValueError, LookupError):
        raise BadAnswer("its answer is not XML") from None


def listing(body: bytes, bucket: str) -> dict[str, Any]:
    """Read an answer of ListObjectsV2.

    Returns:
        `objects` (`key`, `size`, `etag`, `last_modified`, `storage_class`), `prefixes` (what the
        delimiter cut short), `truncated`, and the `continuation_token` for the rest, or None.

    Raises:
        BadAnswer: it is none.
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
        "objects": [_object(one, coded) for one in root if _name(one) == "Contents"],
        "prefixes": [
            _decoded(text(one, "Prefix"), coded) for one in root if _name(one) == "CommonPrefixes"
        ],
        "truncated": truncated,
        "continuation_token": token if truncated else None,
    }


def refusal(body: bytes) -> str:
    """Give the code and the message of an `Error`; "" where the body is none.

    AWS's other services wrap it in an `ErrorResponse`. Its other members are not read: stores
    repeat there what was signed.
    """
    try:
        root = parse(body)
    except BadAnswer:
        return ""
    if _name(root) == "ErrorResponse":
        root = next((one for one in root.iter() if _name(one) == "Error"), root)
    if _name(root) != "Error":
        return ""
    said = ": ".join(part for part in (text(root, "Code"), text(root, "Message")) if part)
    return " ".join(said.split())[:MAX_MESSAGE_CHARACTERS]


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


def _decoded(value: str, coded: bool) -> str:
    return unquote_plus(value) if coded else value


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]

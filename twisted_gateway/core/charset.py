"""Text in one of the encodings that servers still write errors in. Pure."""

from __future__ import annotations

import re

_LATIN = frozenset(
    {"iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "latin-1", "l1", "us-ascii", "ascii"}
)
_PARAMETER = re.compile(r"(?i);\s*charset\s*=\s*[\"']?([\w.:-]{1,40})")
# XML's declaration, and HTML's elements, which browsers look for in the first 1024 bytes.
_LOOKED_AT_BYTES = 1024
_DECLARED = re.compile(
    rb"(?i)(?:\A\s{0,64}<\?xml\s[^>]{0,200}?\bencoding|<meta\s[^>]{0,200}?\bcharset)"
    rb"\s{0,8}=\s{0,8}[\"']?\s{0,8}([\w.:-]{1,40})"
)


def decoded(body: bytes, content_type: str = "") -> str:
    """Decode a text, whatever it is: what is UTF-8 as that, whatever it calls itself.

    Text in ISO-8859-1 that is UTF-8 by chance as well is rarer than text in UTF-8 that is called
    ISO-8859-1.

    Args:
        body: the text, or its beginning.
        content_type: its `Content-Type`, which counts for more than its own declaration (RFC 7303,
            section 3); "" for none.

    Returns:
        It, without a byte order mark. In another encoding than UTF-8, ISO-8859-1 and US-ASCII, or
        in one that is declared nowhere, what is not UTF-8 is U+FFFD.
    """
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        latin = declared(body, content_type) in _LATIN
        return body.decode("latin-1") if latin else body.decode("utf-8-sig", "replace")


def is_told(body: bytes, content_type: str = "") -> bool:
    """Whether `decoded` knows a text's encoding: it replaces nothing."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return declared(body, content_type) in _LATIN
    return True


def declared(body: bytes, content_type: str = "") -> str:
    """Give the encoding that a text is said to be in, in lower case; "" for none."""
    named = _PARAMETER.search(content_type)
    if named is not None:
        return named[1].lower()
    found = _DECLARED.search(body[:_LOOKED_AT_BYTES])
    return "" if found is None else found[1].decode("ascii", "replace").lower()

"""How words read to whoever undoes their escapes, or takes Unicode's look-alikes for ASCII. Pure.

Browsers, resolvers and loggers each do some of it; so whoever looks for an address looks at this.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

_ESCAPE = re.compile(
    # Only a run of backslashes as a whole is one: JSON within JSON has more than one.
    r"(?<!\\)\\+(?:(?P<short>[/nrt])|u(?P<json>[0-9A-Fa-f]{4})|x(?P<byte>[0-9A-Fa-f]{2}))"
    r"|&(?:\#(?:[xX](?P<hex>[0-9A-Fa-f]{1,6})|(?P<decimal>[0-9]{1,7}))|(?P<name>[a-z]{3,6})(?=;));?"
)
# Of HTML's names those of what addresses are written with, and that of `&` in front of another.
_NAMED = {"amp": "&", "colon": ":", "commat": "@", "period": ".", "sol": "/"}
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_VARIATIONS = range(0xFE00, 0xFE10)


def unescaped(text: str) -> str:
    """Undo once what URLs (RFC 3986), JSON (RFC 8259) and HTML escape with.

    What is no UTF-8 becomes U+FFFD; where there is anything to undo, control characters (line
    breaks too) become blanks.
    """
    read = _ESCAPE.sub(_read, unquote(text, errors="replace"))
    return text if read == text else _CONTROL.sub(" ", read)


def in_ascii(text: str) -> str:
    """Write in ASCII what Unicode has another form of, as UTS 46 does for host names.

    Full-width letters and digits, ideographic full stops; what cannot be seen is left out. Other
    characters stay.
    """
    if text.isascii():
        return text
    return text.translate({ord(one): _ascii(one) for one in set(text) if not one.isascii()})


def _read(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    word = found[kind]
    if kind == "short":
        return "/" if word == "/" else " "
    if kind == "name":
        return _NAMED.get(word, found[0])
    code = int(word, 10 if kind == "decimal" else 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return found[0]
    return chr(code)


def _ascii(character: str) -> str:
    if unicodedata.category(character) == "Cf" or ord(character) in _VARIATIONS:
        return ""
    form = unicodedata.normalize("NFKC", character)
    if form == "\u3002":
        return "."
    return form if form.isascii() else character

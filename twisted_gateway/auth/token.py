"""Bearer tokens: signed JWTs (RFC 7519, as RFC 8725 and RFC 9068 want them checked). Pure.

    parse (form, header) -> find the key -> check (signature, then claims) -> Principal

Nothing in a token says how it is to be checked but its `alg`, which must be one of those
configured, and its `kid`, which must be one of the issuer's: `jwk`, `jku`, `x5c` and `x5u` are not
looked at.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jwt import PyJWS
from jwt.exceptions import PyJWTError

from twisted_gateway.auth.keys import MAX_NAME_CHARACTERS, Key

MAX_TOKEN_CHARACTERS = 16_000
"""The longest token that is looked at: a header line, of 16,384 bytes at most, has room for it."""
MAX_SCOPES = 256
"""The most scopes that are read off a token."""

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_LATEST = 2**53

_jws = PyJWS()


class BadToken(Exception):
    """A token that is not accepted; the text says why, without a word of the token itself."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a token must be.

    Attributes:
        issuer: its `iss`, to the letter.
        audience: what must be among its `aud`.
        algorithms: what its `alg` may be.
        leeway_seconds: how far apart the clocks may be.
    """

    issuer: str
    audience: str
    algorithms: frozenset[str]
    leeway_seconds: float


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a token that was accepted speaks for.

    Attributes:
        subject: its `sub`; None where it has none.
        scopes: what it allows.
        expires_at: when it ends, in seconds since the epoch.
    """

    subject: str | None
    scopes: frozenset[str]
    expires_at: float


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """A token whose header has been read, and nothing of it believed.

    Attributes:
        text: all of it.
        algorithm: its `alg`, one that is accepted.
        key_name: its `kid`.
    """

    text: str
    algorithm: str
    key_name: str | None


def parse(text: str, rules: Rules) -> ParsedToken:
    """Read the form and the header of a token.

    Raises:
        BadToken: it is no signed JWT in the compact form, or asks for what is not done here.
    """
    if len(text) > MAX_TOKEN_CHARACTERS:
        raise BadToken("the token is too long")
    if not _COMPACT.fullmatch(text):
        raise BadToken("the token is no signed JWT")
    header = _object(_decoded(text.partition(".")[0]))
    algorithm, name, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        accepted = ", ".join(sorted(rules.algorithms))
        raise BadToken(f"the token's algorithm is none of {accepted}")
    if "crit" in header or header.get("b64", True) is not True:
        raise BadToken("the token's header asks for an extension that is not supported")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise BadToken("the token is of another type than JWT")
    if not (name is None or (isinstance(name, str) and len(name) <= MAX_NAME_CHARACTERS)):
        raise BadToken("the token's key identifier is malformed")
    return ParsedToken(text, algorithm, name)


def check(token: ParsedToken, key: Key, rules: Rules, now: float) -> Principal:
    """Check signature and claims.

    Args:
        token: as `parse` gave it.
        key: the issuer's that it names.
        rules: what it must be.
        now: seconds since the epoch.

    Raises:
        BadToken: it is forged, expired, or meant for somebody else.
    """
    if token.algorithm not in key.algorithms:
        raise BadToken("the token's algorithm is not that of its key")
    try:
        payload = _jws.decode(token.text, key.public, algorithms=[token.algorithm])
    except (PyJWTError, ValueError, TypeError):
        raise BadToken("the token's signature is wrong") from None
    claims = _object(payload)
    if claims.get("iss") != rules.issuer:
        raise BadToken("the token is from another issuer")
    if rules.audience not in _audiences(claims.get("aud")):
        raise BadToken("the token is for another audience")
    expires_at = _check_times(claims, rules.leeway_seconds, now)
    subject = claims.get("sub")
    if not (subject is None or isinstance(subject, str)):
        raise BadToken("the token's subject is malformed")
    return Principal(subject, _scopes(claims), expires_at)


def _check_times(claims: Mapping[str, Any], leeway_seconds: float, now: float) -> float:
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise BadToken("the token never expires, which is not accepted")
    if now >= expires_at + leeway_seconds:
        raise BadToken("the token has expired")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and now < begins - leeway_seconds:
            raise BadToken("the token is not valid yet")
    return expires_at


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    # To Python true is a number; and what is not finite compares in odd ways.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST:
        raise BadToken("a time in the token is malformed")
    return float(value)


def _audiences(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise BadToken("the token names no audience")


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Read `scope` (RFC 8693, section 4.2), or `scp` as some issuers have it; words or a list."""
    value = claims.get("scope", claims.get("scp", ""))
    words = value.split(" ", MAX_SCOPES) if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
        raise BadToken("the token's scopes are malformed")
    return frozenset(words[:MAX_SCOPES]) - {""}


def _decoded(segment: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except (binascii.Error, ValueError):
        raise BadToken("the token is no signed JWT") from None


def _object(data: bytes) -> dict[str, Any]:
    """Read a JSON object in which every name stands once, at whatever depth."""
    try:
        tree = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise BadToken("the token holds no JSON") from None
    if not isinstance(tree, dict):
        raise BadToken("the token holds no JSON object")
    return tree


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        # RFC 8725, section 2.4: others may read the other one.
        raise BadToken("a name stands twice in the token")
    return tree

"""The issuer's keys: a JWK set (RFC 7517), read into what signatures can be checked with. Pure.

Everything in the document is bounded and none of it is followed: `x5u` and the like are not read.
A key that cannot be used is left out, as RFC 7517, section 5, has it; so an issuer can publish
kinds of keys that this gateway does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from twisted_gateway.core import strict_json

MAX_DOCUMENT_BYTES = 262_144
"""The largest document that is read."""
MAX_KEYS = 100
"""The most keys that are kept of one."""
MAX_NAME_CHARACTERS = 256
"""The longest `kid`."""

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
# What is shorter can be broken; what is longer costs the gateway's time at every request.
_RSA_BITS = range(2048, 8193)
_MOST_EXPONENT = 2**33
_PUBLIC_MEMBERS = ("kty", "n", "e", "crv", "x", "y")

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class BadKeys(Exception):
    """A document that is no JWK set, or has no key that can be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        name: its `kid`; None where it has none.
        public: what the cryptography library checks signatures with.
        algorithms: what it may check: its own `alg`, else those of its kind and curve.
    """

    name: str | None
    public: PublicKey
    algorithms: frozenset[str]


class KeySet:
    """The keys of one document.

    Args:
        keys: in the document's order.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        """Take the keys."""
        self._keys = tuple(keys)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._keys)

    def find(self, name: str | None, algorithm: str) -> Key | None:
        """Give the key that a token names; None where there is none for its algorithm.

        Args:
            name: the token's `kid`. Without one, the only key that fits is meant; of several that
                fit none is, for trying them all would cost a forger nothing.
            algorithm: the token's `alg`.
        """
        fitting = [
            key
            for key in self._keys
            if algorithm in key.algorithms and (name is None or key.name == name)
        ]
        return fitting[0] if fitting and (name is not None or len(fitting) == 1) else None


def read_keys(document: bytes) -> KeySet:
    """Read a JWK set.

    Raises:
        BadKeys: it is none, is too large, or has no key that can be used.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise BadKeys(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")
    try:
        tree = strict_json.loads(document)
    except (ValueError, RecursionError):
        raise BadKeys("the document is not JSON") from None
    listed = tree.get("keys") if isinstance(tree, dict) else None
    if not isinstance(listed, list):
        raise BadKeys("the document has no list of keys")
    found = KeySet([key for one in listed[:MAX_KEYS] if (key := _key(one)) is not None])
    if not found:
        raise BadKeys(f"none of the first {MAX_KEYS} keys can check a signature")
    return found


def _key(jwk: Any) -> Key | None:
    """Read one key; None for one that is of no use here."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    name, algorithm = jwk.get("kid"), jwk.get("alg")
    if not (name is None or (isinstance(name, str) and len(name) <= MAX_NAME_CHARACTERS)):
        return None
    public = _public(jwk)
    fitting = _fitting(public)
    if algorithm is not None:
        fitting &= {algorithm} if isinstance(algorithm, str) else frozenset()
    if public is None or not fitting:
        return None
    return Key(name, public, fitting)


def _public(jwk: dict[str, Any]) -> PublicKey | None:
    """Read the key itself, by its public members alone."""
    members: dict[str, Any] = {name: jwk[name] for name in _PUBLIC_MEMBERS if name in jwk}
    if members.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        public = PyJWK(members).key
    except (PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        # PyJWT says what is wrong with a key in many ways.
        return None
    if isinstance(public, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey):
        return public
    return None


def _fitting(public: PublicKey | None) -> frozenset[str]:
    """The algorithms that a key can check."""
    if isinstance(public, RSAPublicKey):
        cheap = public.public_numbers().e < _MOST_EXPONENT
        return frozenset(_RSA) if cheap and public.key_size in _RSA_BITS else frozenset()
    if isinstance(public, EllipticCurvePublicKey):
        return frozenset({_CURVES[public.curve.name]} if public.curve.name in _CURVES else ())
    return frozenset({"EdDSA"} if public is not None else ())

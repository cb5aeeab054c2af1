"""An issuer of tokens: its keys, its JWK set, and tokens of every kind, good and forged."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

NAME = "https://issuer.example"
AUDIENCE = "gateway"


@functools.cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """An RSA key, the same for a name at every call: making one takes a tenth of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@functools.cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    """A P-256 key, the same for a name at every call."""
    return ec.generate_private_key(ec.SECP256R1())


def rsa_jwk(name: str, **members: Any) -> dict[str, Any]:
    """The public half as a JWK; members may be changed, or removed by None."""
    return _jwk(RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True), name, members)


def ec_jwk(name: str, **members: Any) -> dict[str, Any]:
    """The public half as a JWK; members may be changed, or removed by None."""
    return _jwk(ECAlgorithm.to_jwk(ec_key(name).public_key(), as_dict=True), name, members)


def jwks(*keys: Mapping[str, Any]) -> bytes:
    """A JWK set."""
    return json.dumps({"keys": list(keys)}).encode()


def segment(data: bytes) -> str:
    """A part of a token: base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public_pem(name: str) -> bytes:
    """The public half of an RSA key as a file would have it, for who takes it for a secret."""
    return (
        rsa_key(name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def claims(now: float = 0.0, **members: Any) -> dict[str, Any]:
    """Good claims for an hour; members may be changed, or removed by None."""
    good = {
        "iss": NAME,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": int(now),
        "exp": int(now) + 3600,
        **members,
    }
    return {name: value for name, value in good.items() if value is not None}


def token(
    key: str = "ec-1",
    now: float = 0.0,
    *,
    algorithm: str = "ES256",
    header: Mapping[str, Any] | None = None,
    **members: Any,
) -> str:
    """A token, signed with the named key."""
    private: Any = ec_key(key) if algorithm.startswith("ES") else rsa_key(key)
    return jwt.encode(
        claims(now, **members), private, algorithm, headers={"kid": key, **(header or {})}
    )


def _jwk(jwk: dict[str, Any], name: str, members: Mapping[str, Any]) -> dict[str, Any]:
    jwk = {**jwk, "kid": name, "use": "sig", **members}
    return {name: value for name, value in jwk.items() if value is not None}

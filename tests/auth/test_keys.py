from __future__ import annotations

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.auth import issuer
from tests.support import TestCase, examples
from twisted_gateway.auth.keys import MAX_DOCUMENT_BYTES, MAX_KEYS, BadKeys, read_keys


class ReadTests(TestCase):
    """Which keys are read, and for what."""

    def algorithms(self, jwk: dict[str, Any]) -> set[str]:
        """What a key is good for."""
        names = ("RS256", "RS384", "PS256", "ES256", "ES384", "ES512", "EdDSA", "HS256", "none")
        try:
            keys = read_keys(issuer.jwks(jwk))
        except BadKeys:
            return set()
        return {name for name in names if keys.find(jwk.get("kid"), name) is not None}

    def test_kinds(self) -> None:
        """A key is good for the algorithms of its kind and curve, or for its own `alg` alone."""
        p384 = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), True)
        koblitz = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256K1()).public_key(), True)
        edwards = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), True)
        self.assertEqual(self.algorithms(issuer.rsa_jwk("rsa-1")), {"RS256", "RS384", "PS256"})
        self.assertEqual(self.algorithms(issuer.rsa_jwk("rsa-1", alg="PS256")), {"PS256"})
        self.assertEqual(self.algorithms(issuer.ec_jwk("ec-1")), {"ES256"})
        self.assertEqual(self.algorithms({**p384, "kid": "a"}), {"ES384"})
        self.assertEqual(self.algorithms({**edwards, "kid": "a"}), {"EdDSA"})
        self.assertEqual(self.algorithms({**koblitz, "kid": "a"}), set())

    def test_of_no_use(self) -> None:
        """Keys for other ends, secrets, and broken ones are left out."""
        small = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), True)
        for jwk in (
            issuer.rsa_jwk("rsa-1", use="enc"),
            issuer.rsa_jwk("rsa-1", use=None, key_ops=["encrypt"]),
            issuer.rsa_jwk("rsa-1", key_ops="verify"),
            issuer.rsa_jwk("rsa-1", alg="ES256"),
            issuer.rsa_jwk("rsa-1", alg="HS256"),
            issuer.rsa_jwk("rsa-1", alg=["RS256"]),
            issuer.rsa_jwk("rsa-1", n="AA"),
            issuer.rsa_jwk("rsa-1", n=5),
            issuer.rsa_jwk("rsa-1", n=None),
            issuer.rsa_jwk("rsa-1", e="AQAB" * 3),
            issuer.rsa_jwk("rsa-1", kty="EC"),
            issuer.rsa_jwk("rsa-1", kid=5),
            issuer.rsa_jwk("rsa-1", kid="x" * 257),
            issuer.ec_jwk("ec-1", crv="P-384"),
            issuer.ec_jwk("ec-1", x="AA"),
            issuer.ec_jwk("ec-1", crv=["P-256"]),
            {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"},
            {**small, "kid": "a"},
            {},
        ):
            self.assertEqual(self.algorithms(jwk), set(), jwk)

    def test_beside_others(self) -> None:
        """One that is of no use does not keep the others out."""
        keys = read_keys(issuer.jwks({"kty": "new"}, issuer.ec_jwk("ec-1")))
        self.assertEqual(len(keys), 1)

    def test_private_members_are_not_read(self) -> None:
        """A set that an issuer published with its private halves is read as a public one."""
        private = ECAlgorithm.to_jwk(issuer.ec_key("ec-1"), True)
        keys = read_keys(issuer.jwks({**private, "kid": "a"}))
        found = keys.find("a", "ES256")
        assert found is not None
        self.assertFalse(hasattr(found.public, "sign"))

    def test_without_name(self) -> None:
        """A token without `kid` means the only key that fits, and none where several do."""
        one = read_keys(issuer.jwks(issuer.ec_jwk("ec-1"), issuer.rsa_jwk("rsa-1")))
        self.assertIsNotNone(one.find(None, "ES256"))
        two = read_keys(issuer.jwks(issuer.ec_jwk("ec-1"), issuer.ec_jwk("ec-2")))
        self.assertIsNone(two.find(None, "ES256"))
        self.assertIsNone(one.find("", "ES256"))

    def test_same_name(self) -> None:
        """Keys of two kinds may share a name (RFC 7517, section 4.5)."""
        keys = read_keys(issuer.jwks(issuer.ec_jwk("a"), issuer.rsa_jwk("a")))
        ec_found, rsa_found = keys.find("a", "ES256"), keys.find("a", "RS256")
        assert ec_found is not None
        assert rsa_found is not None
        self.assertIsNot(ec_found, rsa_found)

    def test_no_set(self) -> None:
        """What is none says why."""
        for document in (
            *(b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [5]}'),
            *(b"\xff\xfe", b"<html>", b"[" * 100_000),
        ):
            self.assertRaises(BadKeys, read_keys, document)

    def test_bounds(self) -> None:
        """Size and number are bounded."""
        self.assertRaises(BadKeys, read_keys, b" " * (MAX_DOCUMENT_BYTES + 1))
        many = [issuer.ec_jwk("ec-1", kid=f"k{number}") for number in range(MAX_KEYS + 5)]
        keys = read_keys(issuer.jwks(*many))
        self.assertEqual(len(keys), MAX_KEYS)

    @examples(100)
    @given(
        st.dictionaries(
            st.sampled_from(["kty", "n", "e", "crv", "x", "y", "kid", "alg", "use", "key_ops"]),
            st.none()
            | st.integers()
            | st.sampled_from(
                ["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "sig", "é", "A" * 342]
            )
            | st.lists(st.text(max_size=3), max_size=2),
        )
    )
    def test_anything(self, jwk: dict[str, Any]) -> None:
        """No key, however odd, does more than be left out."""
        try:
            read_keys(json.dumps({"keys": [jwk]}).encode())
        except BadKeys:
            return

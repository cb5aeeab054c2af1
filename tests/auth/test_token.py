from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import jwt
from hypothesis import given
from hypothesis import strategies as st

from tests.auth import issuer
from tests.support import TestCase, examples
from twisted_gateway.auth.keys import read_keys
from twisted_gateway.auth.token import BadToken, Principal, Rules, check, parse

NOW = 1_000_000.0
ALGORITHMS = ("RS256", "ES256", "PS256")
RULES = Rules(issuer.NAME, issuer.AUDIENCE, frozenset(ALGORITHMS), 60.0)
KEYS = read_keys(issuer.jwks(issuer.ec_jwk("ec-1"), issuer.rsa_jwk("rsa-1")))


def judged(text: str, now: float = NOW) -> Principal:
    """Judge a token, as the guard does."""
    token = parse(text, RULES)
    key = KEYS.find(token.key_name, token.algorithm)
    if key is None:
        raise BadToken("unknown key")
    return check(token, key, RULES, now)


def made(**members: Any) -> str:
    return issuer.token(now=NOW, **members)


def segment(data: bytes | dict[str, Any] | str) -> str:
    if isinstance(data, dict):
        data = json.dumps(data)
    if isinstance(data, str):
        data = data.encode()
    return issuer.segment(data)


def signed(header: str, payload: str) -> str:
    """A token of these very texts, with a good signature: only its holder can have made it."""
    text = f"{segment(header)}.{segment(payload)}"
    signature = jwt.algorithms.get_default_algorithms()["ES256"].sign(
        text.encode(), issuer.ec_key("ec-1")
    )
    return f"{text}.{segment(signature)}"


HEADER = json.dumps({"alg": "ES256", "kid": "ec-1"})


class AcceptedTests(TestCase):
    """What is accepted."""

    def test_good(self) -> None:
        """A good token says whom it speaks for, what it allows and until when."""
        principal = judged(made(scope="a b"))
        self.assertEqual(principal, Principal("alice", frozenset("ab"), NOW + 3600))

    def test_algorithms(self) -> None:
        """Each of the algorithms that are configured, with a key of its kind."""
        for algorithm, key in (("RS256", "rsa-1"), ("PS256", "rsa-1"), ("ES256", "ec-1")):
            self.assertEqual(judged(made(key=key, algorithm=algorithm)).subject, "alice")

    def test_audiences(self) -> None:
        """One of several audiences will do."""
        self.assertEqual(judged(made(aud=["other", "gateway"])).subject, "alice")

    def test_types(self) -> None:
        """The types of RFC 9068, and none."""
        for kind in ("JWT", "at+jwt", "application/at+jwt", "AT+JWT"):
            self.assertEqual(judged(made(header={"typ": kind})).subject, "alice")

    def test_leeway(self) -> None:
        """The clocks may differ by the leeway, either way, and no more."""
        for members, good in (
            ({"exp": int(NOW) - 59}, True),
            ({"exp": int(NOW) - 60}, False),
            ({"nbf": int(NOW) + 60}, True),
            ({"nbf": int(NOW) + 61}, False),
            ({"iat": int(NOW) + 61}, False),
            ({"nbf": NOW + 0.5, "exp": NOW + 0.5}, True),
        ):
            text = signed(HEADER, json.dumps(issuer.claims(NOW, **members)))
            if good:
                judged(text)
            else:
                self.assertRaises(BadToken, judged, text)

    def test_no_subject(self) -> None:
        """A token may have none; then it counts for nobody in particular."""
        self.assertIsNone(judged(made(sub=None)).subject)

    def test_embedded_keys_are_not_looked_at(self) -> None:
        """`jwk`, `jku`, `x5u` and `x5c` of a good token change nothing."""
        header = {"jwk": issuer.ec_jwk("evil"), "jku": "http://evil", "x5u": "http://evil"}
        self.assertEqual(judged(made(header=header)).subject, "alice")


class RefusedTests(TestCase):
    """What is not."""

    def refused(self, text: str, why: str, now: float = NOW) -> None:
        with self.assertRaises(BadToken) as caught:
            judged(text, now)
        self.assertIn(why, str(caught.exception))
        # It stands in a quoted string of a header field (RFC 6750, section 3).
        self.assertRegex(str(caught.exception), r"\A[ !#-\[\]-~]+\Z")

    def test_none(self) -> None:
        """`alg: none`, in whatever case, signed or not."""
        for name in ("none", "None", "NONE", "nOnE", ""):
            head = segment({"alg": name, "kid": "ec-1"})
            for end in ("", segment(b"x")):
                self.refused(f"{head}.{segment(issuer.claims(NOW))}.{end}", "the token")

    def test_public_key_as_secret(self) -> None:
        """HMAC with the public key, which everybody has."""
        for algorithm, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            text = f"{segment({'alg': algorithm, 'kid': 'rsa-1'})}.{segment(issuer.claims(NOW))}"
            for secret in (
                issuer.public_pem("rsa-1"),
                json.dumps(issuer.rsa_jwk("rsa-1")).encode(),
            ):
                mac = hmac.new(secret, text.encode(), digest).digest()
                self.refused(f"{text}.{segment(mac)}", "algorithm is none of")

    def test_another_algorithm(self) -> None:
        """An algorithm that is not configured, or is not that of the key."""
        self.refused(made(key="rsa-1", algorithm="RS512"), "algorithm is none of")
        self.refused(made(key="rsa-1", algorithm="RS256", header={"kid": "ec-1"}), "unknown key")
        for algorithm in (None, 5, ["ES256"], {"a": 1}):
            head = segment({"alg": algorithm, "kid": "ec-1"})
            self.refused(f"{head}.{segment(issuer.claims(NOW))}.AA", "algorithm is none of")

    def test_forged(self) -> None:
        """Another key's signature, a changed payload, a signature cut short."""
        self.refused(made(key="evil", header={"kid": "ec-1"}), "signature")
        self.refused(
            made(key="evil", header={"kid": "ec-1", "jwk": issuer.ec_jwk("evil")}), "signature"
        )
        head, _, mac = made().split(".")
        self.refused(f"{head}.{segment(issuer.claims(NOW, sub='root'))}.{mac}", "signature")
        for forged in (segment(bytes(64)), mac[:-2], mac + "AA", "AA"):
            self.refused(f"{head}.{segment(issuer.claims(NOW))}.{forged}", "signature")

    def test_issuer_and_audience(self) -> None:
        """Another's tokens, tokens for another, and tokens for or from nobody."""
        for members, why in (
            ({"iss": "https://issuer.example/"}, "issuer"),
            ({"iss": None}, "issuer"),
            ({"aud": "gateways"}, "audience"),
            ({"aud": None}, "audience"),
            ({"aud": []}, "audience"),
        ):
            self.refused(made(**members), why)
        for iss in ([issuer.NAME], {"a": issuer.NAME}, 5, True):
            self.refused(signed(HEADER, json.dumps(issuer.claims(NOW, iss=iss))), "issuer")
        for aud in (5, [5], {"gateway": 1}, ["gateway", 5], [["gateway"]]):
            self.refused(signed(HEADER, json.dumps(issuer.claims(NOW, aud=aud))), "audience")

    def test_times(self) -> None:
        """Expired, not begun, endless, or with times that are none."""
        self.refused(made(exp=None), "never expires")
        self.refused(made(), "expired", now=NOW + 3660)
        for name in ("exp", "nbf", "iat"):
            for value in ('"5"', "true", "null", "[1]", "NaN", "Infinity", "-Infinity", "1e999"):
                payload = json.dumps(issuer.claims(NOW, **{name: "@"})).replace('"@"', value)
                self.refused(signed(HEADER, payload), "a time in the token")

    def test_critical_extensions(self) -> None:
        """What its maker says must be understood and is not (RFC 7515, section 4.1.11)."""
        headers: tuple[dict[str, Any], ...] = (
            {"crit": ["x"], "x": 1},
            {"crit": []},
            {"b64": False, "crit": ["b64"]},
        )
        for header in headers:
            text = signed(json.dumps({"alg": "ES256", "kid": "ec-1", **header}), "{}")
            self.refused(text, "extension")

    def test_duplicates(self) -> None:
        """A name that stands twice, which others may read otherwise."""
        claims = json.dumps(issuer.claims(NOW))
        self.refused(signed(HEADER, '{"sub": "root", ' + claims[1:]), "twice")
        self.refused(signed('{"alg": "none", ' + HEADER[1:], claims), "twice")
        self.refused(signed(HEADER, claims[:-1] + ', "\\u0073ub": "root"}'), "twice")

    def test_malformed_members(self) -> None:
        """Members of the wrong kind."""
        for claims, why in (
            ({"sub": 5}, "subject"),
            ({"sub": ["alice"]}, "subject"),
            ({"scope": 5}, "scopes"),
            ({"scope": ["a", 5]}, "scopes"),
            ({"scope": {"a": 1}}, "scopes"),
        ):
            self.refused(signed(HEADER, json.dumps(issuer.claims(NOW, **claims))), why)
        for header, why in (
            ({"kid": 5}, "key identifier"),
            ({"kid": "x" * 257}, "key identifier"),
            ({"typ": "JWE"}, "type"),
            ({"typ": 5}, "type"),
        ):
            text = signed(json.dumps({"alg": "ES256", "kid": "ec-1", **header}), "{}")
            self.refused(text, why)

    def test_no_jwt(self) -> None:
        """What is none: too long, of too many or too few parts, not JSON, nested beyond reason."""
        good = made()
        for text in (
            *("", ".", "..", "a.b", "a.b.c.d", good + "=", good + " ", "é.é.é", good + ".AA.AA"),
            *(good.replace(".", ". ", 1), "x" * 20_000, ".".join(["x" * 6000] * 3)),
            f"{segment('[]')}.{segment('{}')}.AA",
            f"{segment('[' * 5000)}.{segment('{}')}.AA",
            f"{segment(bytes([0xFF, 0xFE]))}.{segment('{}')}.AA",
            signed(HEADER, "[]"),
            signed(HEADER, "nonsense"),
            signed(HEADER, "[" * 5000),
        ):
            self.refused(text, "the token")

    @examples(200)
    @given(st.text(st.characters(codec="ascii"), max_size=60))
    def test_anything(self, text: str) -> None:
        """No text at all makes more of it than a refusal."""
        self.assertRaises(BadToken, judged, text)

    @examples(100)
    @given(
        st.dictionaries(
            st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "sub", "scope", "scp"]),
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3),
                max_leaves=4,
            ),
        )
    )
    def test_any_claims(self, claims: dict[str, Any]) -> None:
        """Nor do any claims, however well they are signed."""
        self.assertRaises(BadToken, judged, signed(HEADER, json.dumps(claims)))

    def test_many_scopes(self) -> None:
        """Scopes are bounded in number."""
        principal = judged(made(scope=" ".join(f"s{number}" for number in range(1000))))
        self.assertLessEqual(len(principal.scopes), 256)

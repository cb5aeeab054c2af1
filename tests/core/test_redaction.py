from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.redaction import presentable, redacted, without_addresses

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8")


class RedactionTests(TestCase):
    """`redacted`."""

    def test_words(self) -> None:
        """A credential goes wherever it stands by itself, whatever characters it has."""
        for text, secrets, shown in (
            ("bad token t1.", ["t1"], "bad token ***."),
            ("t1t1 t1", ["t1"], "t1t1 ***"),
            ("a s.c+et/= b", ["s.c+et/="], "a *** b"),
            ("sXc+et/=", ["s.c+et/="], "sXc+et/="),
            ("nothing", [""], "nothing"),
            ("Bearer abc, abc", ["Bearer abc", "abc"], "***, ***"),
            ("a_t1_b, token%20t1%0a", ["t1"], "a_***_b, token%20***%0a"),
            ("in minio-0, minioadmin", ["minio"], "in ***-0, minioadmin"),
        ):
            self.assertEqual(redacted(text, secrets), shown)

    def test_in_words(self) -> None:
        """One of some length goes in the middle of a word too, and percent-encoded."""
        secret = "s3cr+t/= x"
        for text, shown in (
            (f"tok_{secret}", "tok_***"),
            (f"x{secret}x", "x***x"),
            ("token%20s3cr%2Bt%2F%3D%20x&a", "token%20***&a"),
            ("s3cr%2bt/%3d+x", "***"),
            ("s3cr+t/=", "s3cr+t/="),
        ):
            self.assertEqual(redacted(text, [secret]), shown)
        self.assertEqual(redacted("\u00e9%C3%a9", ["\u00e9\u00e9"]), "***")

    def test_longest_first(self) -> None:
        """Of one that begins with another nothing is left."""
        self.assertEqual(redacted("12345678abc", ["12345678", "12345678abc"]), "***")


class AddressTests(TestCase):
    """`without_addresses`."""

    def test_addresses(self) -> None:
        """What tells where a service is goes, with its port and its credentials."""
        for text, shown in (
            ("dial tcp 10.1.2.3:5432: refused", "dial tcp ***: refused"),
            ('Get "http://minio:9000/b?c": no', 'Get "http://***/b?c": no'),
            ("postgresql://u:p@db.example.com:5432/x", "postgresql://***/x"),
            ("lookup db.storage on 10.9.0.10:53: no", "lookup *** on ***: no"),
            ("[::1]:80 fe80::1, 2001:db8::1 ::ffff:10.0.0.1", "*** ***, *** ***"),
            ("db.svc.cluster.local. and a-b.c.svc:6379", "*** and ***"),
            ("host:sqs.messaging:9324 POST", "host:*** POST"),
            ("kafka:9092 is down", "*** is down"),
            ("redis:637: connection refused", "***: connection refused"),
            ("dial redis:637, a@db:5432, //db:80", "dial ***, a@***, //***"),
            ("cannot connect to redis:637", "cannot connect to ***"),
            ("redis-master:6379, sqs.q:9324", "***, ***"),
            ("_10.0.0.1_ v10.0.0.1 x10.43.12.7:80.", "_***_ v*** x***."),
            ("host=postgres-rw.db user=foo; server = 'db'", "host=*** user=foo; server = '***'"),
            ("fe80::1%eth0 [fe80::2%eth1]:80 fd00:1::", "*** *** ***"),
            ("lookup gotify: no such host", "lookup ***: no such host"),
            ("v1.2.3.4:80 srv1.2.3.4 version 10.0.0.1", "v*** srv*** version ***"),
            ("host = 'abc', gemma-2:9000", "host = '***', ***"),
        ):
            self.assertEqual(without_addresses(text), shown)

    def test_words(self) -> None:
        """What only looks like it stays."""
        for text in (
            "at 12:30:45 in line 3:14: std::string, code 500",
            "2026-11-30T03:00:00.000Z a/b.c:7 version 1.2.3",
            "Namespace default is not found; e.g. a local.file, svc",
            "out of memory",
            "max_tokens:4096 exceeded; limit:5000, got:6000",
            "lookup table missing, lookup table-name is: x",
            "version 1.2.3.4, 1.2.3.4.5",
            "llama.cpp v1.2.3.4, Version: 0.10.1.2, (V8.8.8.8), version=1.2.3.4",
            "a::b C::D face:: cafe::1 ::add AWS::S3::Bucket arn:aws:sqs:eu:0000:q",
            "server.go:1042: panic in a.py:1234",
        ):
            self.assertEqual(without_addresses(text, ["memory"]), text)

    def test_known_hosts(self) -> None:
        """A name that is known to be inside goes; without dots it has to have a port."""
        for text, shown in (
            ("DB.example.com and db.example.com:80.", "*** and ***."),
            ("memory:80 has no memory", "*** has no memory"),
            ("my-db.example.com, db.example.com-x", "my-db.example.com, db.example.com-x"),
        ):
            self.assertEqual(without_addresses(text, ["db.example.com", "memory", ""]), shown)

    @examples(200)
    @given(
        st.sampled_from(["at ", "_", "x", "=", "(", "tcp://", ""]),
        st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6, network="fd00::/8").map(str),
        st.sampled_from([":80", ":http", "_", ".", ",", "/x", ")", ""]),
    )
    def test_any_address(self, before: str, address: str, behind: str) -> None:
        """An address is never left whole, whatever touches it."""
        if ":" in address:
            before, behind = before.rstrip("_x"), behind.replace(":80", "").replace(":http", "")
        self.assertNotIn(address, without_addresses(before + address + behind))

    @examples(200)
    @given(
        st.sampled_from(["v", "V", "_v", "version ", "Version: ", "version=", "srv", "host v"]),
        st.sampled_from(PRIVATE).flatmap(lambda net: st.ip_addresses(network=net)).map(str),
        st.sampled_from(["", ".", ":80", ",", " "]),
    )
    def test_no_version(self, before: str, address: str, behind: str) -> None:
        """An address of a private network is none of a version's, whatever it is called."""
        self.assertNotIn(address, without_addresses(before + address + behind))

    @examples(200)
    @given(
        st.sampled_from(["v", "(v", "version ", "is Version: ", "version=", "x v"]),
        st.tuples(st.sampled_from([0, 1, 8, 11, 126]), *[st.integers(0, 255)] * 3),
        st.sampled_from(["", ".", ", x", " ", ")", "-rc1"]),
    )
    def test_version(self, before: str, numbers: tuple[int, ...], behind: str) -> None:
        """A version stays as it is."""
        text = before + ".".join(map(str, numbers)) + behind
        self.assertEqual(without_addresses(text), text)

    @examples(200)
    @given(
        st.lists(
            st.sampled_from(["model", "max_tokens", "exceeds", "the", "limit", "v2", "no", "pod"])
            | st.integers(0, 99_999).map(str)
            | st.floats(0, 9999).map(str)
            | st.times().map(lambda time: time.isoformat("seconds"))
            | st.dates().map(str),
            max_size=8,
        ),
        st.sampled_from([" ", ", ", "; ", " (", "=", "/"]),
    )
    def test_plain_words(self, words: list[str], between: str) -> None:
        """Words, numbers and times are no addresses."""
        text = between.join(words)
        self.assertEqual(without_addresses(text), text)


class PresentableTests(TestCase):
    """`presentable`."""

    @examples(200)
    @given(
        st.integers(0, 450),
        st.sampled_from(["10.43.12.7:6443", "s3cr3t-t0ken-of-24-chars"]),
        st.sampled_from(["x", "y ", ". "]),
    )
    def test_cut(self, before: int, hidden: str, filler: str) -> None:
        """Wherever it is cut, no half of what is masked is left."""
        text = (filler * before)[:before] + " " + hidden + " end" * 200
        shown = presentable(text, 100, secrets=["s3cr3t-t0ken-of-24-chars"])
        self.assertLessEqual(len(shown), 100)
        self.assertNotIn("10.43", shown)
        self.assertNotIn("s3cr", shown)

    def test_mostly_masked(self) -> None:
        """Nor at the end of what is looked at, where so much was masked that it would show."""
        address = "[fd00:1111:2222:3333:4444:5555:6666:7777]:65535"
        for shift in range(60):
            shown = presentable("x" * shift + f" {address}" * 20, 100)
            self.assertNotIn("fd00", shown)
            self.assertNotIn("[", shown)
            self.assertIn(" *** ***", shown)

    def test_end_of_what_is_looked_at(self) -> None:
        """What it cuts through is not shown, nor a name that only the words behind it tell."""
        masked = "[fd00:1111:2222:3333:4444:5555:6666:7777]:65535 "
        for hidden in ("10.32.44.55:6443 ", "engine:9000 connection refused ", "a.b.svc:80 "):
            for shift in range(60):
                for count in range(7, 22):
                    text = "y" * shift + " " + masked * count + hidden + masked * 40
                    shown = presentable(text, 100)
                    for half in ("10.", "engine", "a.b", "fd00", "["):
                        self.assertNotIn(half, shown, (shift, count))

    def test_hosts(self) -> None:
        """Names that are known to be inside go."""
        shown = presentable("no route to api.example.com", 100, hosts=["api.example.com"])
        self.assertEqual(shown, "no route to ***")

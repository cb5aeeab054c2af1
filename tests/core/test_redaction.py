from __future__ import annotations

import html
import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.redaction import presentable, redacted, without_addresses

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8")


ADDRESSES = (
    st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6, network="fd00::/8").map(str)
    | st.ip_addresses(v=6, network="fd00::/8").map(lambda one: one.exploded)
    | st.ip_addresses(v=6, network="2000::/3").map(str)
    | st.ip_addresses(v=4).map("::ffff:{}".format)
    | st.ip_addresses(v=4).map("0:0:0:0:0:ffff:{}".format)
)


def in_url(text: str) -> str:
    return "".join(f"%{ord(one):02x}" for one in text)


def in_json(text: str) -> str:
    return "".join(one if one.isalnum() else f"\\u{ord(one):04x}" for one in text)


def in_html(text: str) -> str:
    return text.replace(".", "&#46;").replace(":", "&#x3a;")


def wide(text: str) -> str:
    return "".join(chr(ord(one) + 0xFEE0) for one in text)


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

    def test_escaped(self) -> None:
        """So does one that is escaped as in JSON, JSON within JSON, or HTML."""
        secret = "s3cr+t/=&\"x'é"
        for written in (
            json.dumps(secret),
            json.dumps(json.dumps(secret)),
            json.dumps(secret, ensure_ascii=False).replace("/", "\\/"),
            html.escape(secret),
            "".join(f"\\u{ord(one):04X}" if not one.isalnum() else one for one in secret),
            "".join(f"&#x{ord(one):X};" if not one.isalnum() else one for one in secret),
            "".join(f"&#{ord(one):03};" if not one.isalnum() else one for one in secret),
            secret.replace("&", "&amp;").replace("'", "&apos;").replace("\xe9", "&eacute;"),
        ):
            shown = redacted(f"key {written} is bad", [secret])
            self.assertRegex(shown, r"\Akey [\"\\]*\*\*\*[\"\\]* is bad\Z", written)

    def test_backslashes(self) -> None:
        """Those of a credential go as well, however many, and quickly."""
        for count in (1, 2, 20):
            secret = "abc" + "\\" * count + '"def'
            for written in (secret, json.dumps(secret), json.dumps(json.dumps(secret))):
                shown = redacted(f"<{written}>", [secret])
                self.assertRegex(shown, r"\A<[\"\\]*\*\*\*[\"\\]*>\Z")
            hostile = ("abc" + "\\" * (4 * count)) * 100
            self.assertEqual(redacted(hostile, [secret]), hostile)

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
            ("arn:aws:iam::1 addr:::1, IP:::ffff:10.0.0.5", "arn:aws:iam::1 addr:***, IP:***"),
        ):
            self.assertEqual(without_addresses(text), shown)

    def test_everyday_forms(self) -> None:
        """Whatever a logger or a resolver puts around an address, it goes as a whole."""
        for text, shown in (
            ("{IP:10.0.0.5 Port:9000 Zone:}", "{IP:*** Port:9000 Zone:}"),
            ("upstream:10.0.0.5:8080 version:10.0.0.5", "upstream:*** version:***"),
            ("[10.0.0.5:80 10.0.0.6:80] [10.0.0.5]:80", "[*** ***] ***"),
            ("10.0.0.5:80:10.0.0.6:90 a:b:10.0.0.5", "***:*** a:b:***"),
            ("dial tcp:10.0.0.5:80: refused", "dial tcp:***: refused"),
            ("peer 010.0.0.5, 10.0.0.05 012.000.000.0005", "peer ***, *** ***"),
            (".10.0.0.5. srv.10.0.0.5, 10.0.0.5/24", ".***. srv.***, ***/24"),
            ("addr:fd00::5, fd00::5: fd00::5:8080", "addr:***, ***: ***"),
            ("face:fd00:0:0:0:0:0:0:5:80: no", "face:***: no"),
            ("0:0:0:0:0:ffff:10.0.0.5 0:0:0:0:0:FFFF:0a00:5", "*** ***"),
            ("0:0:0:0:0:0:0:1 0::1 64:ff9b::10.0.0.5", "*** *** ***"),
            ("[::ffff:10.0.0.5]:80 [fe80::1%25eth0]", "*** ***"),
            ("999.0.0.1:10.0.0.5 300.1.1.1", "999.0.0.1:*** 300.1.1.1"),
        ):
            self.assertEqual(without_addresses(text), shown)

    def test_spellings(self) -> None:
        """Nor does it stay for being escaped, or written in look-alikes."""
        for text, shown in (
            ("http%3A%2F%2F10.0.0.5%3A80", "http%3A%2F%2F***"),
            ("to=%2F%2Fminio.storage%3A9000%2Fx", "to=//***/x"),
            ("%2F%2Fdb%3A5432 http%253A%252F%252Fdb", "//*** http://***"),
            ("q=%2010.0.0.5 \\u002010.0.0.5 minio%2estorage", "q= ***  *** ***"),
            ('{\\"u\\":\\"http:\\/\\/postgres:5432\\/x\\"}', '{\\"u\\":\\"http://***/x\\"}'),
            ("http:\\\\/\\\\/pg/ \\nfd00::5", "http://***/  ***"),
            ("10&#46;0&#x2e;0&period;5 http:&#47;&#47;db/", "*** http://***/"),
            ("10&amp;#46;0.0.5", "***"),
            ("10%252525252E0.0.5 or%2525252010.0.0.5", "10%252525252E0.0.5 or%2525252010.0.0.5"),
            ("or%25252010.0.0.5", "or ***"),
            ("http://10&#46;0&#46;0&#46;5/x", "http://***/x"),
            ("http://10\\u002e0\\u002e0\\u002e5", "http://***"),
            ("192.168.0.255\u200b7 pods", "***7 pods"),
            ("\uff11\uff10.0.0.5 10\u30020\uff0e0\uff615", "*** ***"),
            ("10.0.\u200b0.5 minio\u3002storage", "*** ***"),
        ):
            self.assertEqual(without_addresses(text, ["minio.storage", "db"]), shown)

    def test_other_spellings(self) -> None:
        """Where there is nothing to mask the spelling stays."""
        for text in (
            "a%20b%3A%3Ac, 100%, key=a%2Fb.txt&amp;x",
            "\u65e5\u672c\uff1a12\uff1a30\u3002 \uff23:\\temp\\new v\uff11.2.3.4",
            "line one\nline two \\n &#x20;",
            "\\u0041\\/b https:\\/\\/",
        ):
            self.assertEqual(without_addresses(text, ["db"]), text)

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
            "libfoo.so.1.2.3.4, MAC 00:1a:2b:3c:4d:5e, std::fd12::x, C::D::2",
            "arn:aws:s3:::2024-backups arn:aws:s3:::10 arn:aws:iam::123456789012:user/x",
            "1.3.6.1.4.1.311 10.0.0.5.6 0.10.0.0.5 2010.0.0.5",
            "[12:30] [a:b] x[1:20]",
            "12:30:00:000 1:2:3:4:5:6:7 ::add :::: 0:0",
        ):
            self.assertEqual(without_addresses(text, ["memory"]), text)

    def test_known_hosts(self) -> None:
        """A name that is known to be inside goes; without dots it has to have a port."""
        shown = without_addresses("minio.storage.svc.cluster.local:9000 is", ["minio.storage"])
        self.assertEqual(shown, "*** is")
        for text, shown in (
            ("DB.example.com and db.example.com:80.", "*** and ***."),
            ("memory:80 has no memory", "*** has no memory"),
            ("my-db.example.com, db.example.com-x", "my-db.example.com, db.example.com-x"),
        ):
            self.assertEqual(without_addresses(text, ["db.example.com", "memory", ""]), shown)

    @examples(200)
    @given(
        st.sampled_from(["at ", "_", "x", "=", "(", "tcp://", "addr:", "IP:", "[", "%2F", ".", ""]),
        ADDRESSES,
        st.sampled_from([":80", ":", ": x", ":http", "%3A80", "_", ".", ",", "/x", ")", "]", ""]),
        st.sampled_from([str, in_url, in_json, in_html, wide]),
    )
    def test_any_address(
        self, before: str, address: str, behind: str, spelt: Callable[[str], str]
    ) -> None:
        """Of an address nothing is left, whatever touches it, and however it is spelt."""
        if ":" in address:
            # What touches it there is read as a part of it.
            before = before.removesuffix("x")
        shown = without_addresses(before + spelt(address) + behind)
        self.assertIn("***", shown)
        rest = shown.replace("%3A80", "").replace(":80", "").replace("%2F", "")
        self.assertNotRegex(rest, r"[0-9\uff10-\uff19]|&#|\\u")

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
        st.sampled_from(
            ["10.43.12.7:6443", "10&#46;43&#46;12&#46;7%3A6443", "s3cr3t-t0ken-of-24-chars"]
        ),
        st.sampled_from(["x", "y ", ". "]),
    )
    def test_cut(self, before: int, hidden: str, filler: str) -> None:
        """Wherever it is cut, no half of what is masked is left."""
        text = (filler * before)[:before] + " " + hidden + " end" * 200
        shown = presentable(text, 100, secrets=["s3cr3t-t0ken-of-24-chars"])
        self.assertLessEqual(len(shown), 100)
        self.assertNotRegex(shown, "[04]|s3")

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
        for hidden in (
            "10.32.44.55:6443 ",
            "10%2E32%2e44%2E55%3A6443 ",
            "engine:9000 connection refused ",
            "a.b.svc:80 ",
        ):
            for shift in range(60):
                for count in range(7, 22):
                    text = "y" * shift + " " + masked * count + hidden + masked * 40
                    shown = presentable(text, 100)
                    for half in ("10.", "10%", "engine", "a.b", "fd00", "["):
                        self.assertNotIn(half, shown, (shift, count))

    def test_hosts(self) -> None:
        """Names that are known to be inside go."""
        shown = presentable("no route to api.example.com", 100, hosts=["api.example.com"])
        self.assertEqual(shown, "no route to ***")

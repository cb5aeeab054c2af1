"""References in an answer to the server that gave it."""

from __future__ import annotations

from urllib.parse import urlsplit

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.references import MOST_REFERENCES, Places


class OutsideTests(TestCase):
    """Single references to an engine."""

    ENGINES = ("http://engine:8000", "https://other.llm-serving/prefix/")
    PATHS = {"/v1/rerank": "/rerank", "/v1/late": "/rerank", "/v1/score": "/score/"}  # noqa: RUF012

    def test_table(self) -> None:
        """From engine to gateway, by address, prefix and configured path."""
        for inside, outside in (
            ("http://engine:8000/v1/models/?a=b&c=d#e", "/v1/models/?a=b&c=d#e"),
            ("http://ENGINE:8000", "/"),
            ("http://engine/v1/x", "/v1/x"),
            ("https://engine.:8443/v1/x", "/v1/x"),
            ("http://user:pw@engine:8000/v1/x", "/v1/x"),
            ("//engine:8000/v1/x", "/v1/x"),
            ("http://other.llm-serving/prefix/v1/x", "/v1/x"),
            ("http://other.llm-serving/prefix", "/"),
            ("http://other.llm-serving/prefixed/x", "/prefixed/x"),
            ("/prefix/v1/x", "/v1/x"),
            ("http://engine:8000/rerank", "/v1/rerank"),
            ("http://engine:8000/rerank/", "/v1/rerank"),
            ("/rerank?x=1", "/v1/rerank?x=1"),
            ("https://other.llm-serving/prefix/score", "/v1/score"),
            ("http://engine:8000//evil.example/x", "/evil.example/x"),
            ("http://engine:8000/\\evil.example/x", "/evil.example/x"),
            ("http://other.llm-serving/prefix//evil.example", "/evil.example"),
            ("///evil.example", "/evil.example"),
            ("https://huggingface.co/x", "https://huggingface.co/x"),
            ("http://engine.example/x", "http://engine.example/x"),
            ("//cdn.example/x", "//cdn.example/x"),
            ("models/x", "models/x"),
            ("?page=2", "?page=2"),
            ("", ""),
            ("mailto:a@b", "mailto:a@b"),
            ("ftp://engine.example/x", "ftp://engine.example/x"),
            ("myapp://cb/engines", "myapp://cb/engines"),
            ("/caf\xe9", "/caf\xe9"),
        ):
            got = Places(self.ENGINES, self.PATHS).outside(inside.encode("latin-1"))
            self.assertEqual(got, outside.encode("latin-1"), inside)
        for broken in (b"http://[engine/", b"//[x"):
            self.assertIsNone(Places(self.ENGINES).outside(broken))

    def test_as_browsers_do(self) -> None:
        """What a browser takes for the server's host is that, however it is written."""
        for inside, outside in (
            ("http:///engine/x", "/x"),
            ("http:/engine/x", "/x"),
            ("http:engine/x", "/x"),
            ("HTTPS:////engine:8000/x", "/x"),
            ("http:\\\\engine\\x\\y?a\\b", "/x/y?a\\b"),
            ("http://engine\\@evil.example/x", "/@evil.example/x"),
            ("\\\\engine/x", "/x"),
            ("/\\engine/x", "/x"),
            ("///engine:8000/x", "/x"),
            (" \x00ht\ttp://en\tgine/x\t", "/x"),
            ("http://%65ngine/x", "/x"),
            ("http://a:b@c@engine/x", "/x"),
            ("http://ENGINE.:8000/x#y", "/x#y"),
            ("engine:8000/x", "/x"),
            ("Other.LLM-serving/prefix/x", "/x"),
            ("other.llm-serving", "/"),
            ("//a@10.1/x", "/x"),
            ("http://10.0.0.1/x", "/x"),
            ("http://0xa.0.1/x", "/x"),
            ("http://012.0.0.01/x", "/x"),
            ("http://167772161/x", "/x"),
            ("http://[::ffff:a00:1]:80/x", "/x"),
            ("http://[FD00:0::1]/x", "/x"),
            ("http://[64:ff9b::a00:1]/x", "/x"),
            ("http://[::10.0.0.1]:8000/x", "/x"),
        ):
            engines = (*self.ENGINES, "http://10.0.0.1:8000", "http://[fd00::1]:8000")
            got = Places(engines).outside(inside.encode("latin-1"))
            self.assertEqual(got, outside.encode("latin-1"), inside)

    def test_look_alikes(self) -> None:
        """So is what browsers take for ASCII, in a field that is UTF-8; whose path stays that."""
        places = Places([*self.ENGINES, "http://127.0.0.1:8000"])
        for inside, outside in (
            ("http://\uff11\uff12\uff17.0.0.1:8000/x", "/x"),
            ("http://127\u30020\uff0e0\uff611/x", "/x"),
            ("http://127.\u200b0.0\u00ad.1/x", "/x"),
            ("http://\uff45ngine/caf\u00e9", "/caf\u00e9"),
            ("//\uff25NGINE\u3002/x", "/x"),
            ("http://%EF%BD%85ngine/x", "/x"),
            ("\uff11\uff12\uff17.0.0.1:8000/x", "/x"),
            ("http://\u65e5\u672c.example/\uff11", "http://\u65e5\u672c.example/\uff11"),
            ("http://engin\u00e9/x", "http://engin\u00e9/x"),
            ("/\uff11", "/\uff11"),
        ):
            self.assertEqual(places.outside(inside.encode()), outside.encode(), inside)
        for inside in (
            "ws://\uff45ngine/",
            "http://\uff45ngine@evil.example/",
            # That colon is none, and so nobody can parse it.
            "http://\uff45ngine\uff1a8000/",
        ):
            self.assertIsNone(places.field(b"location", inside.encode()), inside)

    def test_leads_to_no_gateway(self) -> None:
        """Nor does the server's name leave with what cannot be made the gateway's."""
        places = Places([*self.ENGINES, "http://10.0.0.1:8000"], any_port=False)
        for reference in (
            "ftp://engine/x",
            "FTP://u@ENGINE.:21/x",
            "f\ttp://en\tgine/",
            "ws://%65ngine:8000/x",
            "ws://0xa.1/x",
            "file://engine/x",
            "myapp://engine/cb",
            "mailto:root@engine",
            "view-source:http://engine:8000/",
            "http://engine@evil.example/x",
            "http://u:engine:8000@evil.example/x",
            "//engine@evil.example/x",
            "engine:800000/x",
        ):
            value = reference.encode("latin-1")
            self.assertIsNone(places.outside(value), reference)
            self.assertIsNone(places.field(b"location", value), reference)
            self.assertEqual(places.field(b"link", b"<" + value + b">"), b"<about:invalid>")
        for reference in (
            "http://engine.example/engine",
            "http://my-engine/",
            "//x.engine/",
            "https://sso.example/?to=http://engine:8000/",
            "engine/x",
            "engines:x",
            "http://10.0.0.10/x",
            "http://10.0.0.1.example/x",
            "http://1e1.0.0.1/",
            "http://10.0.0.0.1/",
            "http://99999999999/",
            "http://08.1/",
            "http:",
            "http:///",
        ):
            value = reference.encode("latin-1")
            self.assertEqual(places.outside(value), value)

    @examples(300)
    @given(
        st.sampled_from(["http", "HTTPS", "ftp", "ws", "file", "x-app", ""]),
        st.text("/\\\t", min_size=2, max_size=4),
        st.sampled_from(["", "u@", "u:p@", "a@b@", "@", "%40@"]),
        st.sampled_from(["engine", "ENGINE", "engine.", "%65ngine", "en\tgine", "e%6eGine"]),
        st.sampled_from(["", ":", ":80", ":8000", ":9"]),
        st.sampled_from(["", "/", "/x", "\\x", "?y", "#z", "/@evil.example", "//evil.example"]),
    )
    def test_no_spelling_gets_out(
        self, scheme: str, slashes: str, user: str, host: str, port: str, rest: str
    ) -> None:
        """However the server is named, it is not named outside, and nobody else is either."""
        text = (f"{scheme}:" if scheme else "") + slashes + user + host + port + rest
        if not scheme and len(slashes.replace("\t", "")) < 2:
            return
        for name in (b"location", b"content-location"):
            shown = Places(self.ENGINES).field(name, text.encode("latin-1"))
            if shown is not None:
                self.assertRegex(shown, rb"\A/(?![/\\])")
                self.assertNotIn(b"ngine", shown.lower())

    @examples(80)
    @given(st.text("/\\.:@?#ae\t\xe9[]", max_size=12), st.sampled_from(["", ":8000", ":x"]))
    @example("//evil.example", ":8000")
    def test_no_host_gets_out(self, rest: str, port: str) -> None:
        """What points at the engine comes out without any host, and stays without one."""
        got = Places(self.ENGINES).outside(f"http://engine{port}/{rest}".encode("latin-1"))
        if got is not None:
            text = got.decode("latin-1")
            self.assertTrue(text.startswith("/"), text)
            self.assertNotIn(text[1:2], ("/", "\\"))
            self.assertEqual(urlsplit(text).netloc, "")

    def test_other_ports(self) -> None:
        """Where ports are not all its own another one is another server's (RFC 8252's clients)."""
        places = Places(["http://localhost:8632"], prefix="/app", any_port=False)
        for inside, outside in (
            (b"http://localhost:8632/x", b"/app/x"),
            (b"http://LOCALHOST/x", b"/app/x"),
            (b"https://localhost:443/x", b"/app/x"),
            (b"//localhost:8632/x", b"/app/x"),
            (b"http://localhost:5000/sso", b"http://localhost:5000/sso"),
            (b"http://localhost:53123/cb", b"http://localhost:53123/cb"),
        ):
            self.assertEqual(places.outside(inside), outside)
        self.assertIsNone(places.outside(b"http://localhost:x/"))

    def test_beside_the_base(self) -> None:
        """What is not below the base URL's path is no place of the prefix's."""
        places = Places(["http://10.6.0.1:3000/public"], prefix="/notes")
        for inside, outside in (
            (b"http://10.6.0.1:3000/public", b"/notes/"),
            (b"/public/a?b", b"/notes/a?b"),
            (b"/other", b"/other"),
            (b"/publicity", b"/publicity"),
            (b"http://10.6.0.1:3000/other", b"/other"),
            (b"http://10.6.0.1:3000//evil.example", b"/evil.example"),
        ):
            self.assertEqual(places.outside(inside), outside)


class FieldTests(TestCase):
    """Whole fields."""

    def setUp(self) -> None:
        self.places = Places(["http://10.6.0.1:3000/public"], prefix="/notes")

    def test_unparsable(self) -> None:
        """What nobody can parse stays, unless it may name a host inside; the others are moved."""
        for name, value, shown in (
            ("location", "http://[bad/", "http://[bad/"),
            ("location", "http://[10.6.0.1/", None),
            ("refresh", "5; url=http://[10.6.0.1/", None),
            ("link", '<>; rel=self; anchor=""', '<>; rel=self; anchor=""'),
            (
                "link",
                "<http://[bad>; rel=a, </public/x>; rel=b",
                "<http://[bad>; rel=a, </notes/x>; rel=b",
            ),
            (
                "link",
                "<http://[10.6.0.1/>; rel=a, </public/x>; rel=b",
                "<about:invalid>; rel=a, </notes/x>; rel=b",
            ),
        ):
            moved = self.places.field(name.encode(), value.encode())
            self.assertEqual(moved and moved.decode(), shown)

    def test_refresh(self) -> None:
        """A blank may stand before its URL, and the word `url` need not."""
        for value, shown in (
            (b"5 http://10.6.0.1:3000/public/x", b"5 /notes/x"),
            (b"5;URL='/public/x'", b"5;URL='/notes/x'"),
            (b"0, /public/x", b"0, /notes/x"),
            (b"5", b"5"),
            (b"5; url=", b"5; url="),
            (b"5; url=ftp://10.6.0.1/x", None),
            (b"url=http://10.6.0.1:3000/public/x", None),
            (b"soon", b"soon"),
        ):
            self.assertEqual(self.places.field(b"refresh", value), shown)

    def test_beside_references(self) -> None:
        """What names the server where nobody looks for a reference is left out all the same."""
        for value in (
            b'</public/x>; rel="http://10.6.0.1:3000/rels/a"',
            b'</public/x>; rel=a; title="at HTTP://u@10.6.0.1"',
            b"</public/x>; rel=a; anchor=http://10.6.0.1/",
            b"http://10.6.0.%31:3000/public/x; rel=a",
        ):
            self.assertIsNone(self.places.field(b"link", value), value)
        value = b'</public/x>; rel="http://10.6.0.10/rels"; title="//x/10.6.0.1"'
        self.assertEqual(self.places.field(b"link", value), value.replace(b"public", b"notes"))

    def test_cookies(self) -> None:
        """A cookie's path is moved as references are, and the server's own name is no domain."""
        for value, shown in (
            ("a=b; Path=/public/x; HttpOnly", "a=b; Path=/notes/x; HttpOnly"),
            ("a=b;path=/public", "a=b;path=/notes"),
            ("a=b; Path=/", "a=b; Path=/notes"),
            ("a=b; Path=/other; Domain=example.com", "a=b; Path=/other; Domain=example.com"),
            ("a=b; Domain=10.6.0.1; Secure", "a=b; Secure"),
            ("a=b; domain=.10.6.0.1", "a=b"),
            ("a=b; domain=10.6.1", "a=b"),
            ("a=/public; Path; Path=x", "a=/public; Path; Path=x"),
            ("__Host-a=b; Secure; Path=/", "__Host-a=b; Secure; Path=/"),
        ):
            moved = self.places.field(b"set-cookie", value.encode())
            self.assertEqual(moved and moved.decode(), shown)
        plain = Places(["http://notes:80"], prefix="/app")
        self.assertEqual(plain.field(b"set-cookie", b"a=b; Path=/"), b"a=b; Path=/app")
        self.assertEqual(plain.field(b"set-cookie", b"a=b; Path=/x"), b"a=b; Path=/app/x")
        engine = Places(["http://engine:8000/v"])
        self.assertEqual(engine.field(b"set-cookie", b"a=b; Path=/"), b"a=b; Path=/")
        self.assertEqual(engine.field(b"set-cookie", b"a=b; Path=/v/x"), b"a=b; Path=/x")

    def test_source_maps(self) -> None:
        """Where scripts have their sources is moved as redirects are."""
        for name in (b"sourcemap", b"x-sourcemap"):
            value = b"http://10.6.0.1:3000/public/a.js.map"
            self.assertEqual(self.places.field(name, value), b"/notes/a.js.map")
            self.assertEqual(self.places.field(name, b"a.js.map"), b"a.js.map")
            self.assertIsNone(self.places.field(name, b"ftp://10.6.0.1/a.js.map"))

    def test_origins(self) -> None:
        """Whoever comes by the gateway has not the server's origin; others' stay."""
        for value, shown in (
            ("http://10.6.0.1:3000", None),
            ("http://10.6.0.%31:3000", None),
            ("http://[10.6.0.1", None),
            ("*", "*"),
            ("null", "null"),
            ("https://app.example", "https://app.example"),
            ("http://10.6.0.1:5173", "http://10.6.0.1:5173"),
        ):
            moved = Places(["http://10.6.0.1:3000"], any_port=False).field(
                b"access-control-allow-origin", value.encode()
            )
            self.assertEqual(moved and moved.decode(), shown)
        several = b"https://a.example, http://10.6.0.1:3000, https://b.example"
        left = b"https://a.example, https://b.example"
        self.assertEqual(self.places.field(b"timing-allow-origin", several), left)
        self.assertIsNone(self.places.field(b"timing-allow-origin", b"http://10.6.0.1"))

    def test_policies(self) -> None:
        """What a page may load from the server it may from the gateway; nothing else changes."""
        for value, shown in (
            (
                "default-src 'self' http://10.6.0.1:3000; connect-src ws://10.6.0.1:3000/public/ws",
                "default-src 'self' 'self'; connect-src 'self'",
            ),
            (
                "img-src 10.6.0.1:* data: https:, frame-ancestors http://10.6.0.1",
                "img-src 'self' data: https:, frame-ancestors 'self'",
            ),
            ("report-uri http://10.6.0.1/public/a /public/b", "report-uri /notes/a /notes/b"),
            ("Script-Src-Elem 10.6.0.1", "Script-Src-Elem 'self'"),
            ("trusted-types 10.6.0.1; sandbox;; ;", "trusted-types 10.6.0.1; sandbox;; ;"),
            ("img-src  https://cdn.example/10.6.0.1 *", "img-src  https://cdn.example/10.6.0.1 *"),
            ("script-src 'nonce-\u00e9' http://[x", "script-src 'nonce-\u00e9' http://[x"),
            ("script-src http://[10.6.0.1", "script-src 'self'"),
            ("report-uri ftp://10.6.0.1/", "report-uri"),
        ):
            for name in ("content-security-policy", "content-security-policy-report-only"):
                for encoding in ("utf-8", "latin-1"):
                    moved = self.places.field(name.encode(), value.encode(encoding))
                    self.assertEqual(moved, shown.encode(encoding))

    def test_reports(self) -> None:
        """Reports go to the gateway, or nowhere, but not to an address that is inside."""
        value = b'a="http://10.6.0.1:3000/public/r", b="https://r.example/"'
        shown = b'a="/notes/r", b="https://r.example/"'
        self.assertEqual(self.places.field(b"reporting-endpoints", value), shown)
        for value in (
            b'{"endpoints":[{"url":"http://10.6.0.1:3000/public/r"}]}',
            b'{"endpoints":[{"url":"http:\\/\\/10\\u002e6.0.1\\/r"}]}',
        ):
            self.assertIsNone(self.places.field(b"report-to", value))
        value = b'{"endpoints":[{"url":"https://r.example/10.6.0.1"}]}'
        self.assertEqual(self.places.field(b"report-to", value), value)

    def test_challenges(self) -> None:
        """A challenge stays a challenge, whatever URLs are in it."""
        for value, shown in (
            (
                'Bearer realm="http://10.6.0.1:3000/public/token",service="r.example"',
                'Bearer realm="/notes/token",service="r.example"',
            ),
            ('Basic realm="ftp://10.6.0.1/", Negotiate', 'Basic realm="about:invalid", Negotiate'),
            ("Bearer error_uri=//10.6.0.1/public/e", "Bearer error_uri=/notes/e"),
            ('Bearer realm="https://sso.example/token"', None),
            ('Basic realm="notes"', None),
            # Whoever computes an answer with it needs it as it is.
            ('Digest realm="http://10.6.0.1/", nonce="x"', None),
            ('Basic realm="x", digest realm="http://10.6.0.1/"', None),
        ):
            moved = self.places.field(b"www-authenticate", value.encode())
            self.assertEqual(moved, (value if shown is None else shown).encode())

    def test_very_many(self) -> None:
        """A field of more references than anybody has is left out."""
        many = b", ".join(b"</public/%d>" % number for number in range(MOST_REFERENCES))
        self.assertIn(b"</notes/255>", self.places.field(b"link", many) or b"")
        self.assertIsNone(self.places.field(b"link", many + b", <x>"))
        origins = b",".join([b"https://a.example"] * MOST_REFERENCES)
        self.assertEqual(self.places.field(b"timing-allow-origin", origins), origins)
        self.assertIsNone(self.places.field(b"timing-allow-origin", origins + b",*"))
        policy = b"report-uri" + b" http://10.6.0.1/public/x" * (MOST_REFERENCES + 1)
        shown = b"report-uri" + b" /notes/x" * MOST_REFERENCES
        self.assertEqual(self.places.field(b"content-security-policy", policy), shown)

    def test_no_field_of_these(self) -> None:
        """Others hold no references, whatever stands in them."""
        self.assertEqual(self.places.field(b"etag", b'"/public/x"'), b'"/public/x"')

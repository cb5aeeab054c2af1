"""Which header fields cross the gateway, and which ones it adds."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.web.http_headers import Headers

from tests.support import TestCase, examples
from twisted_gateway.core.headers import (
    Pair,
    client_address,
    is_event_stream,
    is_json,
    is_trusted,
    is_websocket_handshake,
    pairs,
    request_headers,
    response_headers,
)
from twisted_gateway.core.references import Places

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("2001:db8:1::/48"))
NAMES = st.sampled_from(
    [
        *(b"Connection", b"Keep-Alive", b"Authorization", b"X-Api-Key", b"Host", b"X-Custom"),
        *(b"Content-Type", b"X-Forwarded-For", b"Forwarded", b"TE", b"Transfer-Encoding", b"Via"),
        *(b"X-Request-ID", b"X-Priority", b"Accept-Encoding", b"Content-Length", b"traceparent"),
    ]
)


def to_engine(*headers: Pair, **options: Any) -> dict[str, list[str]]:
    """The request's fields by name in lower case."""
    defaults: dict[str, Any] = {
        "peer": "192.0.2.7",
        "scheme": "http",
        "request_id": "r1",
        "trusted": TRUSTED,
    }
    return by_name(request_headers(headers, **{**defaults, **options}))


def to_client(*headers: Pair, **options: Any) -> dict[str, list[str]]:
    """The response's fields by name in lower case."""
    defaults: dict[str, Any] = {"request_id": "r1", "places": Places(["http://engine:8000"])}
    return by_name(response_headers(headers, **{**defaults, **options}))


def by_name(headers: list[Pair]) -> dict[str, list[str]]:
    """All values of each name, names in lower case."""
    out: dict[str, list[str]] = {}
    for name, value in headers:
        out.setdefault(name.decode().lower(), []).append(value.decode("latin-1"))
    return out


class Requests(TestCase):
    """Towards the engine."""

    def test_what_the_gateway_sets(self) -> None:
        """Of a bare request the engine learns who asked, how, where and under which identifier."""
        self.assertEqual(
            to_engine((b"Host", b"gateway.example:8080"), (b"Accept", b"*/*")),
            {
                "accept": ["*/*"],
                "x-forwarded-for": ["192.0.2.7"],
                "x-forwarded-proto": ["http"],
                "x-forwarded-host": ["gateway.example:8080"],
                "x-request-id": ["r1"],
            },
        )

    def test_does_not_cross(self) -> None:
        """Fields of the connection, of framing, and those meant for the gateway stay here."""
        for name in (
            *("Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "TE"),
            *("Proxy-Authorization", "Trailer", "Transfer-Encoding", "Upgrade", "HTTP2-Settings"),
            *("Content-Length", "Expect", "Host", "Prefer", "X-Priority", "X-Tenant", "X-Service"),
            *("X-Resource", "X-Real-IP", "Forwarded", "X-Forwarded-Port", "X-Forwarded-Prefix"),
        ):
            for spelled in (name, name.lower(), name.upper()):
                self.assertNotIn(name.lower(), to_engine((spelled.encode(), b"x")), spelled)

    def test_crosses(self) -> None:
        """All else crosses: all values, in their order, names as they were spelled."""
        headers = [
            (b"content-TYPE", b"application/json"),
            (b"Cookie", b"a=1"),
            (b"traceparent", b"00-1-2-01"),
            (b"tracestate", b"x=y"),
            (b"baggage", b"k=v"),
            (b"Accept-Encoding", b"gzip"),
            (b"Authorization", b"Bearer client"),
            (b"X-Api-Key", b"client"),
            (b"Cookie", b"b=2"),
            (b"OpenAI-Organization", b"\xff"),
        ]
        out = request_headers(headers, peer="192.0.2.7", scheme="http", request_id="r")
        self.assertEqual(out[: len(headers)], headers)

    def test_named_by_connection(self) -> None:
        """What `Connection` names is dropped, over all its lines and in any case."""
        out = to_engine(
            (b"Connection", b"close, X-One ,,x-TWO"),
            (b"connection", b"traceparent"),
            (b"X-One", b"1"),
            (b"x-two", b"2"),
            (b"Traceparent", b"00"),
            (b"X-Three", b"3"),
        )
        self.assertEqual(set(out) & {"x-one", "x-two", "traceparent", "x-three"}, {"x-three"})

    def test_connection_cannot_strip_what_counts(self) -> None:
        """`Connection` takes out neither what gives the body its sense nor what we add."""
        out = to_engine(
            (
                b"Connection",
                b"content-type, content-encoding, host, authorization, x-api-key, cookie, "
                b"x-forwarded-for, x-forwarded-host, x-request-id",
            ),
            (b"Host", b"h"),
            (b"Content-Type", b"multipart/form-data"),
            (b"Content-Encoding", b"br"),
            (b"Authorization", b"Bearer a"),
            (b"Cookie", b"c"),
            (b"X-Forwarded-For", b"203.0.113.1"),
            peer="10.0.0.1",
        )
        self.assertEqual(
            out,
            {
                "content-type": ["multipart/form-data"],
                "content-encoding": ["br"],
                "authorization": ["Bearer a"],
                "cookie": ["c"],
                "x-forwarded-for": ["203.0.113.1, 10.0.0.1"],
                "x-forwarded-proto": ["http"],
                "x-forwarded-host": ["h"],
                "x-request-id": ["r1"],
            },
        )

    def test_untrusted_forwarding_is_replaced(self) -> None:
        """Anyone but a trusted proxy is not believed about where a request comes from."""
        out = to_engine(
            (b"X-Forwarded-For", b"1.1.1.1"),
            (b"X-Forwarded-Proto", b"https"),
            (b"X-Forwarded-Host", b"bank.example"),
            (b"Forwarded", b"for=1.1.1.1"),
            (b"Host", b"h"),
        )
        self.assertEqual(
            out,
            {
                "x-forwarded-for": ["192.0.2.7"],
                "x-forwarded-proto": ["http"],
                "x-forwarded-host": ["h"],
                "x-request-id": ["r1"],
            },
        )

    def test_trusted_forwarding_is_kept(self) -> None:
        """A trusted proxy's word is kept and its own address added; a dual-stack socket's too."""
        for peer in ("10.0.0.1", "::ffff:10.0.0.1"):
            out = to_engine(
                (b"X-Forwarded-For", b"1.1.1.1"),
                (b"x-forwarded-for", b"10.2.2.2"),
                (b"X-Forwarded-Proto", b"https"),
                (b"X-Forwarded-Host", b"public.example"),
                (b"Forwarded", b"for=1.1.1.1"),
                (b"X-Real-IP", b"1.1.1.1"),
                (b"Host", b"h"),
                peer=peer,
            )
            self.assertEqual(
                out,
                {
                    "forwarded": ["for=1.1.1.1"],
                    "x-real-ip": ["1.1.1.1"],
                    "x-forwarded-for": ["1.1.1.1, 10.2.2.2, 10.0.0.1"],
                    "x-forwarded-proto": ["https"],
                    "x-forwarded-host": ["public.example"],
                    "x-request-id": ["r1"],
                },
            )

    def test_tenant_of_a_trusted_proxy(self) -> None:
        """X-Tenant crosses from a trusted proxy, and `Connection` cannot take it out."""
        sent = [(b"X-Tenant", b"blue"), (b"Connection", b"x-tenant"), (b"X_Tenant", b"red")]
        for peer, expected in (
            ("10.0.0.1", ["blue"]),
            ("::ffff:10.0.0.1", ["blue"]),
            ("192.0.2.7", None),
            ("", None),
        ):
            out = to_engine(*sent, peer=peer)
            self.assertEqual(out.get("x-tenant"), expected, peer)
            self.assertNotIn("x_tenant", out)

    def test_silent_trusted_proxy(self) -> None:
        """What a trusted proxy does not say is filled in; a peer without address is not named."""
        self.assertEqual(
            to_engine((b"Host", b"h"), peer="10.0.0.1", scheme="https"),
            {
                "x-forwarded-for": ["10.0.0.1"],
                "x-forwarded-proto": ["https"],
                "x-forwarded-host": ["h"],
                "x-request-id": ["r1"],
            },
        )
        self.assertEqual(
            to_engine(peer=""), {"x-forwarded-proto": ["http"], "x-request-id": ["r1"]}
        )

    def test_own_key_replaces_credentials(self) -> None:
        """A model's own key goes out alone: none of the client's credentials goes with it."""
        sent = [
            (b"Authorization", b"Bearer client"),
            (b"authorization", b"Basic client"),
            (b"X-API-Key", b"client"),
            (b"Api-Key", b"client"),
        ]
        for checked in (False, True):
            out = to_engine(*sent, api_key=" own\n", token_checked=checked)
            self.assertEqual(out["authorization"], ["Bearer own"])
            self.assertNotIn("client", str(out))
        self.assertEqual(to_engine(api_key="own")["authorization"], ["Bearer own"])

    def test_checked_token_stays_here(self) -> None:
        """A token that the gateway checked is not sent on; other keys are the client's affair."""
        out = to_engine((b"Authorization", b"Bearer t"), (b"X-Api-Key", b"k"), token_checked=True)
        self.assertNotIn("authorization", out)
        self.assertEqual(out["x-api-key"], ["k"])
        self.assertNotIn("authorization", to_engine(api_key=""))

    def test_codings(self) -> None:
        """A stream is asked for plain; a decoded body is not announced as coded."""
        sent = [(b"Accept-Encoding", b"gzip"), (b"Content-Encoding", b"zstd")]
        out = to_engine(*sent)
        self.assertEqual((out["accept-encoding"], out["content-encoding"]), (["gzip"], ["zstd"]))
        out = to_engine(*sent, stream=True, body_decoded=True)
        self.assertEqual(out["accept-encoding"], ["identity"])
        self.assertNotIn("content-encoding", out)

    def test_one_request_id(self) -> None:
        """The engine sees the request's identifier and no other."""
        self.assertEqual(to_engine((b"X-Request-Id", b"a b"))["x-request-id"], ["r1"])

    def test_unsafe_values_never_leave(self) -> None:
        """What would break the framing is left out, our own values not excepted."""
        for bad in (b"a\r\nX: y", b"a\nb", b"a\rb", b"a\0b"):
            self.assertNotIn("x-custom", to_engine((b"X-Custom", bad)))
            self.assertNotIn("x-custom", to_client((b"X-Custom", bad)))
            self.assertEqual(to_engine((b"X" + bad, b"v")), to_engine())
            trail = to_engine((b"X-Forwarded-For", bad), peer="10.0.0.1")["x-forwarded-for"]
            self.assertEqual(trail, ["10.0.0.1"])
        self.assertNotIn("authorization", to_engine(api_key="a\r\nX: y"))

    @examples(60)
    @given(
        st.lists(st.tuples(NAMES, st.one_of(NAMES, st.binary(max_size=8))), max_size=8),
        st.sampled_from(["", "192.0.2.7", "10.0.0.1", "::1"]),
        st.booleans(),
    )
    def test_invariants(self, headers: list[Pair], peer: str, stream: bool) -> None:
        """Whatever a client sends: one identifier, one key, no connection field, no line break."""
        out = request_headers(
            headers,
            peer=peer,
            scheme="http",
            request_id="r1",
            trusted=TRUSTED,
            api_key="own",
            stream=stream,
        )
        seen = by_name(out)
        self.assertEqual(seen["x-request-id"], ["r1"])
        self.assertEqual(seen["authorization"], ["Bearer own"])
        self.assertFalse(
            set(seen) & {"connection", "keep-alive", "te", "transfer-encoding", "content-length"}
        )
        self.assertEqual(len(seen.get("x-forwarded-for", [])), bool(peer))
        for name, value in out:
            self.assertIsNone(re.search(rb"[\r\n\0]", name + value))


class Responses(TestCase):
    """Towards the client."""

    def test_crosses(self) -> None:
        """The engine's own fields cross, less those of its connection and what that names."""
        out = to_client(
            (b"server", b"uvicorn"),
            (b"Content-Type", b"application/json"),
            (b"Set-Cookie", b"a=1"),
            (b"Set-Cookie", b"b=2"),
            (b"Connection", b"keep-alive, X-Hop, Content-Type, Set-Cookie, Cache-Control"),
            (b"Cache-Control", b"no-store"),
            (b"X-Hop", b"1"),
            (b"Keep-Alive", b"timeout=5"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Content-Length", b"7"),
            (b"Upgrade", b"h2c"),
            (b"Proxy-Authenticate", b"Basic"),
            (b"Retry-After", b"5"),
        )
        self.assertEqual(
            out,
            {
                "server": ["uvicorn"],
                "content-type": ["application/json"],
                "set-cookie": ["a=1", "b=2"],
                "cache-control": ["no-store"],
                "retry-after": ["5"],
                "x-request-id": ["r1"],
            },
        )

    def test_event_streams_are_not_to_be_buffered(self) -> None:
        """An event stream, and nothing else, leaves with just one `X-Accel-Buffering: no`."""
        for value, expected in (
            (b"text/event-stream", ["no"]),
            (b"Text/Event-Stream ; charset=utf-8", ["no"]),
            (b"application/json", ["yes"]),
        ):
            out = to_client((b"content-type", value), (b"X-Accel-Buffering", b"yes"))
            self.assertEqual(out["x-accel-buffering"], expected, value)
        self.assertNotIn("x-accel-buffering", to_client())

    def test_engine_identifier_gives_way(self) -> None:
        """The client sees the request's identifier once, whatever the engine calls it."""
        self.assertEqual(to_client((b"x-request-id", b"other"))["x-request-id"], ["r1"])

    def test_locations(self) -> None:
        """Both location fields are rewritten; one that nobody can parse is left out."""
        out = to_client(
            (b"Location", b"http://engine:8000/v1/x"),
            (b"content-location", b"http://engine:8000/rerank"),
            places=Places(["http://engine:8000"], {"/v1/rerank": "/rerank"}),
        )
        self.assertEqual(out["location"], ["/v1/x"])
        self.assertEqual(out["content-location"], ["/v1/rerank"])
        self.assertNotIn("location", to_client((b"Location", b"http://[engine/")))

    def test_other_references(self) -> None:
        """So are references elsewhere in an answer; no other server is advertised."""
        out = to_client(
            (
                b"Link",
                b'<http://engine:8000/v1/x>; rel=next, <//engine/y>;anchor = "http://engine"',
            ),
            (b"Link", b"<https://other.example/z>; rel=help"),
            (b"Refresh", b"0;URL='http://engine:8000/v1/x'"),
            (b"Alt-Svc", b'h3="engine:443"'),
            places=Places(["http://engine:8000"], prefix="/p"),
        )
        self.assertEqual(
            out["link"],
            [
                '</p/v1/x>; rel=next, </p/y>;anchor = "/p/"',
                "<https://other.example/z>; rel=help",
            ],
        )
        self.assertEqual(out["refresh"], ["0;URL='/p/v1/x'"])
        self.assertNotIn("alt-svc", out)
        self.assertEqual(to_client((b"Refresh", b"5"))["refresh"], ["5"])
        self.assertNotIn("refresh", to_client((b"Refresh", b"5 http://[engine/")))


class Clients(TestCase):
    """Who the client is."""

    def test_right_most_untrusted_hop(self) -> None:
        """What trusted proxies report counts; what a client writes itself does not."""
        for peer, values, expected in (
            ("192.0.2.7", ["1.1.1.1"], "192.0.2.7"),
            ("10.0.0.1", [], "10.0.0.1"),
            ("10.0.0.1", ["1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", ["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", ["6.6.6.6, 1.1.1.1, 10.9.9.9"], "1.1.1.1"),
            ("10.0.0.1", ["6.6.6.6", "1.1.1.1", "10.9.9.9 "], "1.1.1.1"),
            ("10.0.0.1", ["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            ("10.0.0.1", ["1.1.1.1, unknown, 10.2.2.2"], "10.2.2.2"),
            ("10.0.0.1", ["1.1.1.1, 999.1.1.1"], "10.0.0.1"),
            ("10.0.0.1", ["1.1.1.1,, ,"], "1.1.1.1"),
            ("10.0.0.1", ["1.1.1.1:443"], "1.1.1.1"),
            ("10.0.0.1", ['"[2001:DB8:2::1]:443"'], "2001:db8:2::1"),
            ("10.0.0.1", ["[2001:db8:2::1]"], "2001:db8:2::1"),
            ("10.0.0.1", ["2001:db8:2:0::1, 2001:db8:1::5"], "2001:db8:2::1"),
            ("::ffff:10.0.0.1", ["::ffff:1.1.1.1"], "1.1.1.1"),
            ("::ffff:192.0.2.7", ["1.1.1.1"], "192.0.2.7"),
            ("2001:db8:1::9", ["1.1.1.1"], "1.1.1.1"),
            ("fe80::1%eth0", [], "fe80::1%eth0"),
            ("", ["1.1.1.1"], ""),
            ("/run/socket", ["1.1.1.1"], "/run/socket"),
        ):
            got = client_address(peer, [value.encode() for value in values], TRUSTED)
            self.assertEqual(got, expected, (peer, values))

    @examples(80)
    @given(st.lists(st.binary(max_size=12), max_size=3), st.binary(max_size=12))
    def test_client_cannot_choose(self, forged: list[bytes], more: bytes) -> None:
        """Whatever stands before what the trusted proxy appended does not matter."""
        trail = [*forged, more + b", 203.0.113.9"]
        self.assertEqual(client_address("10.0.0.1", trail, TRUSTED), "203.0.113.9")

    def test_trusted(self) -> None:
        """A proxy is known by its network, also where it comes through a dual-stack socket."""
        for peer, expected in (
            ("10.0.0.1", True),
            ("::ffff:10.0.0.1", True),
            ("2001:db8:1::9", True),
            ("192.0.2.7", False),
            ("::ffff:192.0.2.7", False),
            ("2001:db8:2::1", False),
            ("", False),
            ("/run/10.0.0.1", False),
        ):
            self.assertIs(is_trusted(peer, TRUSTED), expected, peer)
        self.assertFalse(is_trusted("10.0.0.1", ()))


class Kinds(TestCase):
    """What a message is, by its header."""

    def test_websocket_handshake(self) -> None:
        """`Upgrade: websocket` with `Connection: Upgrade` is one; h2c, or half of it, is not."""
        upgrade, connection = b"Upgrade", b"connection"
        for headers, expected in (
            ([(upgrade, b"WebSocket"), (connection, b"keep-alive, Upgrade")], True),
            ([(upgrade, b"h2c, websocket"), (connection, b"upgrade")], True),
            ([(upgrade, b"h2c"), (connection, b"Upgrade, HTTP2-Settings")], False),
            ([(upgrade, b"websocket")], False),
            ([(connection, b"upgrade")], False),
            ([], False),
        ):
            self.assertEqual(is_websocket_handshake(headers), expected, headers)

    def test_event_stream(self) -> None:
        """The media type decides, without its parameters."""
        for value, expected in (
            (b"text/event-stream", True),
            (b"TEXT/event-stream;charset=utf-8", True),
            (b"text/event-streams", False),
            (b"application/json; x=text/event-stream", False),
            (b"", False),
            (None, False),
        ):
            self.assertEqual(is_event_stream(value), expected, value)

    def test_json(self) -> None:
        """The type counts, in any case and with any parameters; a kin of it is another."""
        for value, expected in (
            (b"application/json", True),
            (b"Application/JSON; charset=utf-8", True),
            (b"application/problem+json", False),
            (b"", False),
            (None, False),
        ):
            self.assertEqual(is_json(value), expected, value)

    def test_pairs_of_twisted_headers(self) -> None:
        """Twisted's headers come out as pairs, values in order."""
        headers = Headers({b"X-A": [b"1", b"2"]})
        self.assertEqual(pairs(headers.getAllRawHeaders()), [(b"X-A", b"1"), (b"X-A", b"2")])

"""Asking an engine over HTTP, with the gateway's agent on in-memory transports."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from tests.engines.pages import body, fixture
from tests.support import TestCase
from twisted_gateway.config.schema import Secret
from twisted_gateway.engines.exposition import MAX_PAGE_BYTES, Page
from twisted_gateway.engines.scrape import MAX_MODELS_BYTES, Scraper, read_model_len
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import Truncated


class Wire(StringTransport):
    """An in-memory connection that knows how it was given up."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class Engine:
    """Every address that the agent connects to, in memory."""

    def __init__(self) -> None:
        self.connections: list[tuple[IProtocol, Wire]] = []
        self.uris: list[bytes] = []

    def endpointForURI(self, uri: object) -> Engine:
        self.uris.append(uri.toBytes())  # type: ignore[attr-defined]
        return self

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        protocol = factory.buildProtocol(None)  # type: ignore[arg-type]
        assert protocol is not None
        wire = Wire()
        protocol.makeConnection(wire)
        self.connections.append((protocol, wire))
        return succeed(protocol)


class ScraperTestCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.engine = Engine()
        self.agent = UpstreamAgent(self.clock, connect_seconds=5, endpoints=self.engine)
        self.scraper = Scraper(
            self.agent, "http://engine:8000/a/", names=["reasoning"], api_key=Secret("s3cret")
        )

        self.addCleanup(self.hang_up)

    def hang_up(self) -> None:
        self.closing = self.agent.close()
        for protocol, _ in self.engine.connections:
            protocol.connectionLost(Failure(ConnectionDone()))
        self.clock.advance(10)

    @property
    def wire(self) -> Wire:
        return self.engine.connections[-1][1]

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.engine.connections[-1][0].dataReceived(part)

    def close(self, reason: Exception | None = None) -> None:
        protocol, _ = self.engine.connections.pop()
        protocol.connectionLost(Failure(reason or ConnectionDone()))

    def answer(self, content: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> None:
        length = b"Content-Length: %d\r\n" % len(content)
        self.send(b"HTTP/1.1 " + status + b"\r\n" + headers + length + b"\r\n" + content)


class PageTests(ScraperTestCase):
    def test_the_request(self) -> None:
        """GET below the base URL, without credential, cookie or coding."""
        page = self.scraper.page()
        head = self.wire.value()
        self.assertTrue(head.startswith(b"GET /a/metrics HTTP/1.1\r\n"), head)
        self.assertIn(b"\r\nHost: engine:8000\r\n", head)
        self.assertIn(b"\r\nAccept-Encoding: identity\r\n", head)
        self.assertNotIn(b"s3cret", head)
        self.answer(b"a 1\n")
        self.assertEqual(self.successResultOf(page), Page(200, b"a 1\n"))

    def test_one_connection_serves_many_polls(self) -> None:
        """A kept-alive connection is used again."""
        for _ in range(3):
            page = self.scraper.page()
            self.answer(b"a 1\n")
            self.successResultOf(page)
        self.assertEqual(len(self.engine.connections), 1)

    def test_no_manners_of_a_browser(self) -> None:
        """A redirect is an answer like any other, and a cookie is not sent back."""
        page = self.scraper.page()
        self.answer(b"", b"302 Found", b"Location: /login\r\nSet-Cookie: a=b\r\n")
        self.assertEqual(self.successResultOf(page).status, 302)
        self.wire.clear()
        page = self.scraper.page()
        self.assertNotIn(b"ookie", self.wire.value())
        self.answer(b"")
        self.successResultOf(page)

    def test_a_page_in_pieces(self) -> None:
        """Chunked or ended by its connection, a page comes whole."""
        page = self.scraper.page()
        self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n")
        self.assertNoResult(page)
        self.send(b"4\r\nb 2\n\r\n0\r\n\r\n")
        self.assertEqual(self.successResultOf(page).body, b"a 1\nb 2\n")
        page = self.scraper.page()
        self.send(b"HTTP/1.1 200 OK\r\n\r\na 1\n")
        self.assertNoResult(page)
        self.close()
        self.assertEqual(self.successResultOf(page).body, b"a 1\n")

    def test_a_page_that_breaks_off(self) -> None:
        """A page shorter than it says fails; nothing is made of its part."""
        page = self.scraper.page()
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n")
        self.close(ConnectionLost())
        self.failureResultOf(page, Truncated)

    def test_a_page_that_says_it_is_too_long(self) -> None:
        """It is given up at once, without a byte of it."""
        page = self.scraper.page()
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_PAGE_BYTES + 1))
        self.assertEqual(self.successResultOf(page), Page(200, b"", too_long=True))
        self.assertTrue(self.wire.aborted)
        self.send(b"a 1\n")

    def test_a_page_that_grows_too_long(self) -> None:
        """Reading stops at the bound and a byte, and the connection is given up."""
        page = self.scraper.page()
        self.send(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * MAX_PAGE_BYTES)
        self.assertNoResult(page)
        self.send(b"yz")
        result = self.successResultOf(page)
        self.assertTrue(result.too_long)
        self.assertEqual(len(result.body), MAX_PAGE_BYTES + 1)
        self.assertTrue(self.wire.aborted)
        self.send(b"x")
        self.close()

    def test_cancelling_before_the_head(self) -> None:
        """The connection is given up at once."""
        page = self.scraper.page()
        page.cancel()
        self.assertTrue(self.wire.aborted)
        self.close()
        self.failureResultOf(page, CancelledError)

    def test_cancelling_within_the_body(self) -> None:
        """The connection is given up at once, and what comes late is dropped."""
        page = self.scraper.page()
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n")
        page.cancel()
        self.failureResultOf(page, CancelledError)
        self.assertTrue(self.wire.aborted)
        self.send(b"b 2\n")
        self.close()


class ModelLengthTests(ScraperTestCase):
    def test_the_request_and_its_answer(self) -> None:
        """The key goes to /v1/models, and a recorded vLLM says how long its sequences may be."""
        tokens = self.scraper.model_len()
        head = self.wire.value()
        self.assertTrue(head.startswith(b"GET /a/v1/models HTTP/1.1\r\n"), head)
        self.assertIn(b"\r\nAuthorization: Bearer s3cret\r\n", head)
        self.answer(body("vllm_models.http"))
        self.assertEqual(self.successResultOf(tokens), 8192)

    def test_no_key(self) -> None:
        """Without a key none is sent."""
        self.scraper._api_key = None
        tokens = self.scraper.model_len()
        self.assertNotIn(b"uthorization", self.wire.value())
        self.answer(b"{}")
        self.assertIsNone(self.successResultOf(tokens))

    def test_answers_that_do_not_say(self) -> None:
        """An error, and an answer over its bound, mean that it is unknown."""
        tokens = self.scraper.model_len()
        self.answer(body("vllm_models.http"), b"401 Unauthorized")
        self.assertIsNone(self.successResultOf(tokens))
        tokens = self.scraper.model_len()
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_MODELS_BYTES + 1))
        self.assertIsNone(self.successResultOf(tokens))

    def test_which_model(self) -> None:
        """The model named, else the only one; of several named the smallest length counts."""
        two = b'{"data": [{"id": "a", "max_model_len": 10}, {"id": "b", "max_model_len": 20}]}'
        self.assertEqual(read_model_len(two, ["b"]), 20)
        self.assertEqual(read_model_len(two, ["a", "b"]), 10)
        self.assertIsNone(read_model_len(two, ["c"]))
        self.assertEqual(read_model_len(body("vllm_models.http"), ["c"]), 8192)
        self.assertIsNone(read_model_len(body("llamacpp_models.http"), ["reasoning"]))

    def test_answers_that_are_none(self) -> None:
        """Whatever is no positive number of tokens is unknown, and nothing is raised."""
        for length in [b"null", b"0", b"-5", b"true", b'"8192"', b"8192.5", b"1e400", b"1" * 30]:
            text = b'{"data": [{"id": "a", "max_model_len": ' + length + b"}]}"
            self.assertIsNone(read_model_len(text, ["a"]), length)
        for text in [
            b"",
            b"<html>",
            b"[]",
            b'{"data": {}}',
            b'{"data": [{"id": 5}]}',
            b'{"data": [{"id": "\xff"}]}',
            b'{"data": ' + b"[" * 100_000,
            b'{"x": ' + b"[" * 100_000,
            fixture("vllm_idle.prom"),
        ]:
            self.assertIsNone(read_model_len(text, ["a"]), text[:40])

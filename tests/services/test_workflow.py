from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from tests.services.stack import ServicesTestCase
from tests.stack import Client
from tests.support import TestCase, examples
from twisted_gateway.config import extras
from twisted_gateway.config.adapters import WorkflowAdapter
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services import build
from twisted_gateway.services.adapter import BadAnswer, BadParameter, Pairs, Refused
from twisted_gateway.services.workflow import Listing, Page, Workflow, _encoded, page_token
from twisted_gateway.upstream.errors import AnswerTimedOut, ConnectFailed

CONFIG = """
adapters:
  workflow: {upstream: "temporal:7233", requireAuth: false, timeoutSeconds: 8}
"""


class FakeTemporal:
    """Temporal, asked by the adapter and answered by the test."""

    def __init__(self) -> None:
        self.asked: list[Listing] = []
        self.metadata: Pairs = []
        self.answers: list[Deferred[Page]] = []
        self.given_up = 0
        self.retired = 0

    def list(self, listing: Listing, metadata: Pairs) -> Deferred[Page]:
        def give_up(_: object) -> None:
            self.given_up += 1

        self.asked.append(listing)
        self.metadata = metadata
        self.answers.append(Deferred(give_up))
        return self.answers[-1]

    def retire(self) -> None:
        self.retired += 1


class WorkflowTests(ServicesTestCase):
    """`list`, as far as gRPC."""

    config = CONFIG

    def setUp(self) -> None:
        self.patch(extras, "WORKFLOW", ())
        self.temporal = FakeTemporal()
        kinds = {**build.BUILDERS, "workflow": lambda one, parts: Workflow(one, self.temporal)}
        self.patch(build, "BUILDERS", kinds)
        super().setUp()

    def list(self, query: str, **headers: str) -> Client:
        return self.ask(
            "workflow",
            "list",
            method="GET",
            path=f"/?{query}",
            body=b"",
            token=None,
            headers=headers,
        )

    def test_page(self) -> None:
        """What is asked for is what Temporal is asked for, page by page."""
        query = "WorkflowType%3D%22pay%22%20AND%20x%3D'%26'"
        client = self.list(f"namespace=prod&page_size=2&query={query}")
        self.assertEqual(
            self.temporal.asked, [Listing("prod", "WorkflowType=\"pay\" AND x='&'", 2, b"")]
        )
        self.temporal.answers[-1].callback(Page([{"workflow_id": "w"}], b"\xff\xfe\xfd?", 9))
        page = client.json
        self.assertEqual(page["executions"], [{"workflow_id": "w"}])
        client = self.list(f"namespace=prod&next_page_token={page['next_page_token']}")
        self.assertEqual(self.temporal.asked[-1], Listing("prod", "", 100, b"\xff\xfe\xfd?"))
        self.temporal.answers[-1].callback(Page([], b"", 0))
        self.assertEqual(client.json, {"executions": [], "next_page_token": None})
        self.assertEqual(self.stack.entries[-1].route, "workflow/list")

    def test_metadata(self) -> None:
        """The request's id and the trace context go along, and nothing else of the client's."""
        parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        headers = {"X-Request-ID": "abc", "traceparent": parent, "Cookie": "c", "grpc-timeout": "1"}
        self.list("namespace=a", **headers)
        fields = {name.lower(): value for name, value in self.temporal.metadata}
        self.assertEqual(fields, {b"x-request-id": b"abc", b"traceparent": parent.encode()})
        self.temporal.answers[-1].callback(Page([], b"", 0))

    def test_bad(self) -> None:
        """No namespace is 400, as is what no page has."""
        for query, names in (
            ("", ["namespace"]),
            ("namespace=", ["namespace"]),
            ("namespace=a%0ab", ["namespace"]),
            ("namespace=a&page_size=0", ["page_size"]),
            ("namespace=a&page_size=1001", ["page_size"]),
            ("namespace=a&next_page_token=!", ["next_page_token"]),
            ("namespace=a&next_page_token=%C3%A9", ["next_page_token"]),
            ("namespace=a&query=" + "x" * 4097, ["query"]),
        ):
            client = self.list(query)
            self.assertEqual(client.status, 400, query[:50])
            self.assertEqual([*client.json["missing"], *client.json["invalid"]], names)
        self.assertEqual(self.temporal.asked, [])

    def test_failures(self) -> None:
        """Temporal's refusals come with their status, and its silence and absence as such."""
        for fault, status, outcome in (
            (Refused(404, "NOT_FOUND: no namespace"), 404, Outcome.UPSTREAM_STATUS),
            (ConnectFailed("the connection failed"), 502, Outcome.UPSTREAM_ERROR),
            (AnswerTimedOut("no answer came in time"), 504, Outcome.UPSTREAM_TIMEOUT),
        ):
            client = self.list("namespace=a")
            self.temporal.answers[-1].errback(fault)
            self.assertEqual(client.status, status)
            self.assertIs(self.stack.entries[-1].outcome, outcome)

    def test_its_host(self) -> None:
        """Words that name the service's own host come without it, and bounded."""
        self.stack.text = CONFIG.replace("temporal:7233", "temporal.example.com:7233")
        self.assertTrue(self.stack.gateway.reload())
        client = self.list("namespace=a")
        why = "INTERNAL: temporal.example.com has no history.example.org "
        self.temporal.answers[-1].errback(Refused(500, why + "x" * 9000))
        said = client.json["upstream_message"]
        self.assertTrue(said.startswith("INTERNAL: *** has no history.example.org xx"), said)
        self.assertLess(len(said), 2001)

    def test_silence(self) -> None:
        """After timeoutSeconds the call is given up."""
        client = self.list("namespace=a")
        self.stack.advance(9)
        self.assertEqual((client.status, self.temporal.given_up), (504, 1))

    def test_leaving(self) -> None:
        """So it is when the client leaves."""
        self.list("namespace=a").leave()
        self.assertEqual(self.temporal.given_up, 1)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(self.stack.metric("gateway_inflight", model=""), 0)

    def test_retired(self) -> None:
        """An adapter that is no longer in force is let go; who waits on it gets the answer."""
        client = self.list("namespace=a")
        self.assertTrue(self.stack.gateway.reload())
        self.assertEqual(self.temporal.retired, 1)
        self.temporal.answers[-1].callback(Page([], b"", 0))
        self.assertEqual(client.status, 200)


class TokenTests(TestCase):
    """Page tokens, which are bytes to Temporal and text to clients."""

    @given(st.binary(min_size=1, max_size=200))
    @examples(50)
    def test_both_ways(self, token: bytes) -> None:
        """Every token that Temporal gives is taken back."""
        text = _encoded(token)
        self.assertRegex(text, r"\A[A-Za-z0-9_-]+\Z")
        self.assertEqual(page_token(text), text)

    def test_others(self) -> None:
        """What is none, or far too long, is refused."""
        for text in ("a", "====", "a b", "é", "A" * 9000):
            self.assertRaises(BadParameter, page_token, text)


class Ended:
    """A gRPC call that has ended."""

    def __init__(self, code: Any, details: str | None) -> None:
        self.code = lambda: code
        self.details = lambda: details


class Answered:
    """A gRPC call that has brought something."""

    def __init__(self, result: Any) -> None:
        self.result = lambda: result

    def add_done_callback(self, ended: Callable[[Any], object]) -> None:
        ended(self)


class Method:
    """A gRPC method whose only call has ended."""

    def __init__(self, call: Answered) -> None:
        self.future = lambda asked, **options: call


class Here:
    """A reactor whose thread is this one."""

    def callFromThread(self, work: Callable[..., object], *arguments: Any) -> None:
        work(*arguments)


class Channel:
    """A gRPC channel, which takes no call once it is closed; calls end when the test says so."""

    def __init__(self) -> None:
        self.closed = False
        self.calls: list[Any] = []

    def unary_unary(self, *_: object, **__: object) -> Channel:
        return self

    def future(self, *_: object, **__: object) -> Channel:
        if self.closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        return self

    def add_done_callback(self, ended: Callable[[Any], object]) -> None:
        self.calls.append(lambda result: ended(Answered(result)))

    def close(self) -> None:
        self.closed = True


class GrpcTestCase(TestCase):
    """A test of the module that needs the extra."""

    def setUp(self) -> None:
        super().setUp()
        if extras.missing(extras.WORKFLOW):
            raise SkipTest("the extra workflow is not installed")
        self.module = importlib.import_module("twisted_gateway.services.temporal")
        self.grpc = importlib.import_module("grpc")
        self.codes = self.grpc.StatusCode


class RetiredTests(GrpcTestCase):
    """A reload has put another adapter in force."""

    def setUp(self) -> None:
        super().setUp()
        self.channels: list[Channel] = []
        self.patch(self.grpc, "insecure_channel", self.open)
        adapter = WorkflowAdapter(name="w", upstream="127.0.0.1:1")
        self.temporal = self.module.Temporal(adapter, Here())

    def open(self, *_: object) -> Channel:
        self.channels.append(Channel())
        return self.channels[-1]

    def list(self) -> Deferred[Page]:
        answered: Deferred[Page] = self.temporal.list(Listing("a", "", 1, b""), [])
        return answered

    def test_under_way(self) -> None:
        """A call that is under way gets its answer; then the connection closes."""
        one, two = self.list(), self.list()
        self.temporal.retire()
        (channel,) = self.channels
        channel.calls[0](b"")
        self.assertFalse(channel.closed)
        channel.calls[1](b"")
        self.assertTrue(channel.closed)
        self.assertEqual(self.successResultOf(one), self.successResultOf(two))

    def test_let_in_before(self) -> None:
        """Who was let in before that and asks after it is answered too, and leaves nothing open."""
        self.temporal.retire()
        for _ in range(2):
            answered = self.list()
            self.channels[-1].calls[-1](b"")
            self.successResultOf(answered)
        self.assertEqual([one.closed for one in self.channels], [True, True])


class FaultTests(GrpcTestCase):
    """What a gRPC status is to HTTP."""

    def test_every_code(self) -> None:
        """Every code but OK is a refusal with a status, or no answer."""
        for code in self.codes:
            fault = self.module.fault_of(Ended(code, "no\nsuch"))
            if isinstance(fault, Refused):
                self.assertTrue(400 <= fault.status < 600)
                self.assertEqual(fault.message, f"{code.name}: no such")
        refused = self.module.fault_of(Ended(self.codes.NOT_FOUND, None))
        self.assertEqual((refused.status, refused.message), (404, "NOT_FOUND: "))

    def test_no_connection(self) -> None:
        """Where there is no connection no address is told; Temporal's own words are."""
        for words in (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: refused",
            "DNS resolution failed for 10.0.0.1:7233: C-ares status is not ARES_SUCCESS",
            "recvmsg:Connection reset by peer 10.0.0.1",
            "Socket closed",
            "GOAWAY received",
            "keepalive watchdog timeout",
        ):
            fault = self.module.fault_of(Ended(self.codes.UNAVAILABLE, words))
            self.assertIsInstance(fault, ConnectFailed, words)
            self.assertNotIn("10.0.0.1", str(fault))
        fault = self.module.fault_of(Ended(self.codes.UNAVAILABLE, "busy"))
        self.assertEqual((fault.status, fault.message), (503, "UNAVAILABLE: busy"))

    def test_too_large(self) -> None:
        """A page that gRPC here does not take is no limit of Temporal's; a smaller one may do."""
        words = "Stream removed (CLIENT: Received message larger than max (10000 vs. 100))"
        fault = self.module.fault_of(Ended(self.codes.RESOURCE_EXHAUSTED, words))
        self.assertIsInstance(fault, BadAnswer)
        self.assertIn("page_size", fault.reason)
        fault = self.module.fault_of(Ended(self.codes.RESOURCE_EXHAUSTED, "namespace limit"))
        self.assertEqual(fault.status, 429)

    def test_unreadable(self) -> None:
        """Nor is one that is no such message a failure of Temporal's."""
        self.assertRaises(BadAnswer, self.module.page_of, b"\xff")
        fault = self.module.fault_of(Ended(self.codes.INTERNAL, "a panic"))
        self.assertEqual(fault.status, 500)

    def test_metadata(self) -> None:
        """What gRPC would refuse is left out."""
        fields = [(b"X-A", b"b c"), (b"Tracestate", b"a=\xc3\xa9"), (b"B", b"a\tb"), (b"C", b"")]
        self.assertEqual(self.module.metadata_of(fields), [("x-a", "b c")])

    def answer(self, **members: Any) -> Deferred[Page]:
        """Have an answer with one execution come, as gRPC brings it."""
        api = importlib.import_module("temporalio.api.workflow.v1")
        service = importlib.import_module("temporalio.api.workflowservice.v1")
        info = api.WorkflowExecutionInfo()
        # From the wire, which takes what the constructor may not.
        info.MergeFromString(b"\x28" + bytes([members.get("status", 1)]))
        info.start_time.seconds = members.get("seconds", 0)
        page = service.ListWorkflowExecutionsResponse(executions=[info])
        adapter = WorkflowAdapter(name="w", upstream="127.0.0.1:1")
        temporal = self.module.Temporal(adapter, Here())
        temporal._method = Method(Answered(page.SerializeToString()))
        self.addCleanup(temporal.retire)
        answered: Deferred[Page] = temporal.list(Listing("a", "", 1, b""), [])
        return answered

    def test_unknown_status(self) -> None:
        """A status of a later release is shown as such."""
        for status, word in ((2, "completed"), (99, "unknown")):
            page = self.successResultOf(self.answer(status=status))
            self.assertEqual(page.executions[0]["status"], word)
            self.assertGreater(page.size_bytes, 0)

    def test_impossible(self) -> None:
        """An answer that cannot be shown ends the waiting all the same."""
        self.failureResultOf(self.answer(seconds=10**15), BadAnswer)

    def test_late(self) -> None:
        """A deadline is a time-out."""
        fault = self.module.fault_of(Ended(self.codes.DEADLINE_EXCEEDED, "late"))
        self.assertIsInstance(fault, AnswerTimedOut)

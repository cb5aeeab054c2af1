from __future__ import annotations

from opentelemetry.trace import SpanKind, StatusCode
from twisted.logger import formatEvent

from tests.services.sessions.apiserver import ApiServer
from tests.services.sessions.stack import FLEET, KUBERNETES, MEMORY, PLAIN, KubeEngine
from tests.services.sessions.test_life import EVERYTHING
from tests.stack import Client, Stack
from tests.web.test_traces import TracesTestCase


class SandboxTraces(TracesTestCase):
    """What traces and log tell of sandboxes."""

    def cluster(self, config: str) -> Stack:
        stack = self.stack(config)
        self.api = ApiServer(lambda: stack.now)
        self.kube = stack.engines[KUBERNETES] = KubeEngine(stack, self.api)
        return stack

    def post(self, stack: Stack, session: str = "s1") -> Client:
        return stack.client().send(
            f"POST /?session_id={session} HTTP/1.1\r\nHost: g\r\nX-Service: sessions\r\n"
            "X-Resource: sandbox\r\nContent-Length: 0\r\n\r\n".encode()
        )

    def said(self) -> list[str]:
        """The lines of the log that are about the adapter."""
        return [formatEvent(one) for one in self.events if one.get("service") == "sessions"]

    def test_spans(self) -> None:
        """A server span, and one client span for all that the sandbox took."""
        stack = self.cluster(PLAIN)
        self.post(stack)
        stack.advance(3)
        self.api.become_ready()
        stack.settle()
        spans = {span.kind: span for span in self.of(stack.entries[-1].trace_id)}
        server, client = spans[SpanKind.SERVER], spans[SpanKind.CLIENT]
        self.assertEqual(server.name, "POST sessions/sandbox")
        assert client.attributes is not None
        self.assertEqual(client.attributes["server.address"], KUBERNETES[0])
        assert client.end_time is not None
        assert client.start_time is not None
        self.assertNotIn("s1", str(dict(client.attributes)))
        self.assertIs(client.status.status_code, StatusCode.UNSET)

    def test_failure(self) -> None:
        """A sandbox that does not come makes both spans errors, and a line in the log."""
        stack = self.cluster(PLAIN)
        for _ in range(2):
            self.post(stack)
            self.api.become_unpullable()
            stack.advance(31)
        spans = self.of(stack.entries[-1].trace_id)
        self.assertEqual({span.status.status_code for span in spans}, {StatusCode.ERROR})
        self.assertEqual(len(self.said()), 1)
        self.assertIn(
            "sessions: a sandbox was not made within 30 s: the pod is not Ready: Pending, "
            "ImagePullBackOff",
            self.said()[0],
        )

    def test_what_is_said(self) -> None:
        """What goes wrong behind a client's back is said, without credentials or ids."""
        stack = self.cluster(EVERYTHING)
        stack.engine(*MEMORY).up = False
        for session in ("s1", "s2", "s3"):
            self.post(stack, session)
            stack.engine(*FLEET).last.answer(404, {"error": "no warm pod"})
            self.api.become_ready(session)
            stack.settle()
        said = self.said()
        self.assertEqual(len(said), 2)
        self.assertIn(
            "the fleet controller gives no pod, Kubernetes is asked: it answered 404: no warm",
            said[0],
        )
        self.assertIn("updating a memory entity failed: the connection was refused", said[1])
        self.assertNotIn("token-1", "".join(map(formatEvent, self.events)))

    def test_nobody_waits(self) -> None:
        """What goes wrong when the client has left is said too."""
        stack = self.cluster(PLAIN)
        self.kube.holding = True
        self.post(stack).leave()
        self.api.tokens.clear()
        self.kube.let_go()
        self.assertIn("sessions: a sandbox could not be made: 401 Unauthorized", self.said()[0])

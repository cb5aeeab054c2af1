"""Tests of problem documents and the in-stream error frame."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase
from twisted_gateway.core.errors import Problem, error_frame
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.sse import EventSplitter


class Problems(TestCase):
    """What a client is told."""

    def test_the_document(self) -> None:
        """RFC 9457's members, members of its own, and an `error` object in OpenAI's form."""
        problem = Problem(
            "queue_full",
            503,
            "Full.",
            outcome=Outcome.REJECTED,
            members={"reason": "queue_full", "retry_after": 5},
            headers={"Retry-After": "5"},
        )
        self.assertEqual(
            json.loads(problem.body("r-1")),
            {
                "type": "urn:twisted-gateway:problem:queue_full",
                "title": "Service Unavailable",
                "status": 503,
                "detail": "Full.",
                "instance": "urn:request:r-1",
                "reason": "queue_full",
                "retry_after": 5,
                "error": {
                    "message": "Full.",
                    "type": "server_error",
                    "param": None,
                    "code": "queue_full",
                },
            },
        )

    def test_the_error_type_goes_by_the_status(self) -> None:
        """OpenAI's words."""
        for status, word in (
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (502, "server_error"),
        ):
            problem = Problem("x", status, "d", outcome=Outcome.BAD_REQUEST, param="model")
            self.assertEqual(problem.error_object()["type"], word)
            self.assertEqual(problem.error_object()["param"], "model")

    @given(st.text(), st.text())
    def test_a_frame_is_one_event_whatever_the_message(self, message: str, value: str) -> None:
        """No line break of a message leaves its one data line."""
        frame = error_frame({"message": message}, {"status": 502, "said": value})
        cut = EventSplitter().feed(frame)
        self.assertEqual(cut.passed, frame)
        (event,) = cut.events
        self.assertEqual(event.name, b"error")
        tree = json.loads(event.data or b"")
        self.assertEqual((tree["type"], tree["error"]["message"]), ("error", message))
        self.assertEqual(tree["said"], value)

    def test_outcomes(self) -> None:
        """Each has its label; those that failed are told from those that did not."""
        self.assertEqual(Outcome.CLIENT_DISCONNECT.value, "client_disconnect")
        self.assertEqual(
            {one for one in Outcome if one.is_error},
            {
                Outcome.UPSTREAM_ERROR,
                Outcome.UPSTREAM_TIMEOUT,
                Outcome.UPSTREAM_INCOMPLETE,
                Outcome.INTERNAL_ERROR,
            },
        )

"""The line that a request leaves in the log."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import (
    ILogObserver,
    LogEvent,
    Logger,
    LogPublisher,
    formatEvent,
    globalLogPublisher,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.support import TestCase
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.access import AccessEntry, AccessLog, json_observer

ENTRY = AccessEntry(
    request_id="r-1",
    trace_id="0af7651916cd43dd8448eb211c80319c",
    span_id="b7ad6b7169203331",
    client="2001:db8::1",
    route="/v1/chat/completions",
    model="reasoning",
    stream=True,
    tenant="5f0c2d9e81ab",
    outcome=Outcome.OK,
    status=200,
    waited_seconds=2.5,
    ttft_seconds=3.14159,
    duration_seconds=12.0,
    bytes_sent=4711,
)


def lines(entry: AccessEntry) -> tuple[str, dict[str, Any]]:
    """What is logged of `entry`: as text, and as a JSON object."""
    stream = io.StringIO()
    texts: list[str] = []

    @implementer(ILogObserver)
    def as_text(event: LogEvent) -> None:
        texts.append(formatEvent(event))

    observers: list[ILogObserver] = [json_observer(stream), as_text]
    for observer in observers:
        globalLogPublisher.addObserver(observer)
    try:
        AccessLog().ended(entry)
    finally:
        for observer in observers:
            globalLogPublisher.removeObserver(observer)
    (text,), (line,) = texts, stream.getvalue().splitlines()
    return text, json.loads(line)


class AccessTests(TestCase):
    """One line, with the contract's fields."""

    def test_text(self) -> None:
        """In text the fields are `key=value` pairs."""
        self.assertEqual(
            lines(ENTRY)[0],
            "request_id=r-1 trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331"
            " client=2001:db8::1 route=/v1/chat/completions model=reasoning stream=true"
            " tenant=5f0c2d9e81ab outcome=ok reason=- status=200"
            " waited_seconds=2.5 ttft_seconds=3.142 duration_seconds=12.0 bytes=4711",
        )

    def test_json(self) -> None:
        """In JSON they stand at the top level, numbers as numbers."""
        tree = lines(ENTRY)[1]
        self.assertRegex(tree.pop("time"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(
            tree,
            {
                "level": "info",
                "logger": "twisted_gateway.telemetry.access.AccessLog",
                "message": "request",
                "request_id": "r-1",
                "trace_id": "0af7651916cd43dd8448eb211c80319c",
                "span_id": "b7ad6b7169203331",
                "client": "2001:db8::1",
                "route": "/v1/chat/completions",
                "model": "reasoning",
                "stream": True,
                "tenant": "5f0c2d9e81ab",
                "outcome": "ok",
                "reason": "",
                "status": 200,
                "waited_seconds": 2.5,
                "ttft_seconds": 3.142,
                "duration_seconds": 12.0,
                "bytes": 4711,
            },
        )

    def test_what_is_not_there(self) -> None:
        """A request without model, tenant, trace or first token says so in one mark each."""
        text, tree = lines(
            replace(
                ENTRY, model="", tenant="", trace_id="", client="", stream=None, ttft_seconds=None
            )
        )
        self.assertIn(" client=- ", text)
        self.assertIn(" stream=- ", text)
        self.assertIsNone(tree["stream"])
        self.assertIn(" model=- ", text)
        self.assertIn(" tenant=- ", text)
        self.assertIn(" trace_id=- ", text)
        self.assertIn(" ttft_seconds=- ", text)
        self.assertIsNone(tree["ttft_seconds"])

    def test_failures_are_warnings(self) -> None:
        """An engine's failure stands out; a client that leaves does not."""
        failed = replace(ENTRY, outcome=Outcome.UPSTREAM_TIMEOUT)
        self.assertEqual(lines(failed)[1]["level"], "warn")
        left = replace(ENTRY, outcome=Outcome.CLIENT_DISCONNECT)
        self.assertEqual(lines(left)[1]["level"], "info")

    @given(st.text())
    def test_nothing_breaks_out_of_its_field(self, name: str) -> None:
        """Whatever stands in a field, the text is one printable line and the JSON gives it back."""
        text, tree = lines(replace(ENTRY, model=name))
        self.assertTrue(text.isascii() and text.isprintable())
        self.assertEqual(tree["model"], name)
        _, _, rest = text.partition(" model=")
        value, _, _ = rest.partition(" stream=true tenant=5f0c2d9e81ab")
        self.assertEqual(json.loads(value) if value.startswith('"') else value, name or "-")


class RoutineTests(TestCase):
    """Probes, scrapes and looks at the status."""

    def levels(self, entry: AccessEntry, *, debug: bool) -> list[str]:
        """At what levels lines are written of a request."""
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        try:
            AccessLog(debug=debug).ended(entry)
        finally:
            globalLogPublisher.removeObserver(observer)
        return [event["log_level"].name for event in events]

    def test_they_leave_no_line(self) -> None:
        """Unless debugging is asked for."""
        for route in ("/health", "/health/ready", "/metrics", "/status.json", "/status/events"):
            for outcome in (Outcome.OK, Outcome.CLIENT_DISCONNECT):
                entry = replace(ENTRY, route=route, outcome=outcome)
                self.assertEqual(self.levels(entry, debug=False), [], entry)
                self.assertEqual(self.levels(entry, debug=True), ["debug"], entry)

    def test_what_went_wrong_is_said(self) -> None:
        """A scrape that fails is no routine; nor is a request to a model, however it ends."""
        failed = replace(ENTRY, route="/metrics", outcome=Outcome.INTERNAL_ERROR)
        self.assertEqual(self.levels(failed, debug=False), ["warn"])
        self.assertEqual(self.levels(ENTRY, debug=False), ["info"])


class JSONObserverTests(TestCase):
    """The process's log as JSON."""

    def setUp(self) -> None:
        super().setUp()
        self.stream = io.StringIO()
        self.log = Logger("some.part", observer=LogPublisher(json_observer(self.stream)))

    def tree(self) -> dict[str, Any]:
        (line,) = self.stream.getvalue().splitlines()
        tree: dict[str, Any] = json.loads(line)
        return tree

    def test_an_ordinary_event(self) -> None:
        """Any event has time, level, logger and its text."""
        self.log.error("{model}: no answer\r\n\x1b[31m", model="reasoning", secret=object())
        tree = self.tree()
        del tree["time"]
        self.assertEqual(
            tree,
            {
                "level": "error",
                "logger": "some.part",
                "message": "reasoning: no answer\r\n\x1b[31m",
            },
        )
        self.assertTrue(self.stream.getvalue().rstrip("\n").isprintable())

    def test_a_failure(self) -> None:
        """A failure brings its traceback, in the same line."""
        try:
            raise ValueError("broken")
        except ValueError:
            self.log.failure("while trying", Failure())
        tree = self.tree()
        self.assertEqual((tree["level"], tree["message"]), ("critical", "while trying"))
        self.assertIn("ValueError: broken", tree["traceback"])

    def test_a_failure_without_words(self) -> None:
        """A failure that was logged with no text is named by its own message."""
        observer = json_observer(self.stream)
        observer({"log_failure": Failure(ValueError("broken")), "log_time": 0.0})
        self.assertEqual(self.tree()["message"], "broken")

    def test_an_event_without_anything(self) -> None:
        """An event from an old part of the process, with nothing in it, is a line all the same."""
        json_observer(self.stream)({})
        self.assertEqual(
            self.tree(),
            {"time": "1970-01-01T00:00:00.000Z", "level": "info", "logger": "", "message": ""},
        )

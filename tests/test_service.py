"""Tests of the service: start, reload, drain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from twisted.application.internet import StreamServerEndpointService
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent, globalLogPublisher

from tests.stack import CONFIG, DONE, ROLE, Asked, Engine, Stack, token
from tests.support import TestCase
from twisted_gateway.watcher import Watcher
from twisted_gateway.web.background import in_background

COMMENT = b": keep-alive position=1\n\n"


class Draining(TestCase):
    """Section 8: nothing is cut in silence."""

    def setUp(self) -> None:
        """Four running, one parked in silence, one parked and kept alive."""
        super().setUp()
        self.stack = stack = Stack(self, "drainSeconds: 60\n" + CONFIG)
        self.running = [stack.client().chat(stream=True) for _ in range(4)]
        for asked in stack.engine().asked:
            asked.stream(ROLE)
        self.kept = stack.client().chat(stream=True)
        stack.advance(16)
        self.silent = stack.client().chat()
        self.drained: list[object] = []
        self.idle = stack.client().get("/health")
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.draining = stack.gateway.drain().addCallback(self.drained.append)
        globalLogPublisher.removeObserver(observer)
        self.said = [formatEvent(one) for one in events if "{seconds}" in one["log_format"]]
        stack.settle()
        # Let the drain end, so that no timer is left.
        self.addCleanup(stack.advance, 65, step=1)

    def test_readiness_turns_at_once(self) -> None:
        """503 with the reason; liveness stays."""
        client = self.stack.client().get("/health/ready")
        self.assertEqual((client.status, client.json["reasons"]), (503, ["draining"]))
        self.assertEqual(self.stack.client().get("/health").status, 200)

    def test_whoever_has_no_status_is_refused_at_once(self) -> None:
        """So that the client can try elsewhere; newcomers too."""
        self.assertEqual((self.silent.status, self.silent.json["reason"]), (503, "draining"))
        client = self.idle.chat()
        self.assertIn(b"draining", client.received)

    def test_running_and_kept_alive_streams_go_on(self) -> None:
        """They end in their own time, then the drain is over."""
        for asked in list(self.stack.engine().asked):
            asked.more(token("x"), DONE).end()
        self.stack.engine().last.stream(ROLE, token("late"), DONE).end()
        self.assertEqual(self.kept.body, COMMENT + ROLE + token("late") + DONE)
        for client in self.running:
            self.assertTrue(client.whole)
        self.assertEqual(self.drained, [])
        self.stack.advance(4)
        self.assertEqual(self.drained, [None])

    def test_listeners_stop_after_a_grace(self) -> None:
        """Not at once: whoever routes to us needs time to notice."""
        self.assertTrue(self.stack.reactor.tcpServers)
        self.stack.advance(3)
        self.assertFalse([one for one in self.stack.gateway._listeners if one.running])

    def test_what_remains_is_told(self) -> None:
        """After drainSeconds streams get the error event, others are cut; then it is over."""
        whole = self.running[0]
        self.stack.advance(61, step=1)
        for client in (*self.running, self.kept):
            tree = json.loads(client.body.rpartition(b"data: ")[2])
            self.assertEqual(tree["reason"], "draining")
            self.assertTrue(client.whole)
        self.assertTrue(whole.whole)
        self.stack.advance(2)
        self.assertEqual(self.drained, [None])

    def test_the_log_says_how_to_end_it(self) -> None:
        """Whoever waits reads for how many, how long, and what a second signal does."""
        self.assertEqual(
            self.said,
            [
                "draining: 6 requests under way, 60 s at most; a second signal, such as another "
                "Ctrl-C, ends it at once"
            ],
        )

    def test_a_second_signal_ends_it(self) -> None:
        """Draining again is ending the drain now."""
        self.assertIs(self.stack.gateway.drain(), self.stack.gateway.drain())
        self.stack.advance(4)
        self.assertEqual(self.drained, [None])
        self.assertIn(b"draining", self.kept.body)


class DrainingOthers(TestCase):
    """What is no stream, and what has not come whole."""

    def test_an_answer_in_the_middle_is_cut(self) -> None:
        """Where there is no stream nothing can be told."""
        stack = Stack(self, "drainSeconds: 10\n" + CONFIG)
        client = stack.client().chat()
        stack.engine().last.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        drained = stack.gateway.drain()
        stack.advance(14)
        self.assertTrue(client.wire.aborted)
        self.assertTrue(drained.called)

    def test_a_request_whose_answer_has_not_begun_is_told(self) -> None:
        """It gets the problem document."""
        stack = Stack(self, "drainSeconds: 10\n" + CONFIG)
        client = stack.client().chat()
        drained = stack.gateway.drain()
        stack.advance(14)
        self.assertEqual((client.status, client.json["reason"]), (503, "draining"))
        self.assertTrue(drained.called)

    def test_a_body_that_never_comes_does_not_hold_it_up(self) -> None:
        """The drain ends all the same."""
        stack = Stack(self, "drainSeconds: 10\n" + CONFIG)
        stack.client().send(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        done: list[object] = []
        drained = stack.gateway.drain().addCallback(done.append)
        stack.advance(14)
        self.assertEqual((done, drained.called), ([None], True))

    def test_the_books_are_closed_first(self) -> None:
        """When the drain is over each request has been counted and logged."""
        stack = Stack(self, CONFIG)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE)
        seen: list[list[str]] = []
        empty = stack.gateway.exchanges.when_empty()
        _ = empty.addCallback(lambda _: seen.append(stack.outcomes))
        client.leave()
        self.assertEqual(seen, [["client_disconnect"]])

    def test_stopping_in_the_middle(self) -> None:
        """In each of its phases the drain is over then, and leaves no timer."""
        for seconds in (1.0, 5.0, 10.5):
            stack = Stack(self, "drainSeconds: 10\n" + CONFIG)
            client = stack.client().chat()
            client.wire.congested = True
            done: list[object] = []
            _ = stack.gateway.drain().addCallback(done.append)
            stack.advance(seconds)
            self.assertEqual(done, [])
            stack.gateway.stopService()
            self.assertEqual(done, [None])
            client.wire.lose()
            stack.settle()
            self.assertEqual(stack.reactor.getDelayedCalls(), [])


class Reloading(TestCase):
    """A new configuration disturbs nobody."""

    def test_what_can_not_be_built(self) -> None:
        """Then everything stays as it was, and the metric says so."""
        stack = Stack(self)
        gateway = stack.gateway

        def fails(config: object) -> None:
            raise OSError("of the test")

        self.patch(gateway._service_side, "build", fails)
        stack.text = CONFIG.replace("maxInflight: 4", "maxInflight: 7") + "maxConnections: 77\n"
        self.assertRaises(OSError, gateway.reload)
        self.assertEqual(stack.facts()["max_inflight"], 4)
        self.assertNotEqual(gateway._connections.limit, 77)
        self.assertEqual(gateway.fleet.config.models["reasoning"].policy.max_inflight, 4)
        self.assertEqual(stack.metric("config_last_reload_successful"), 0)

    def test_a_reader_that_fails(self) -> None:
        """Whatever is wrong, even a fault of ours: what is in the file is not in force."""
        stack = Stack(self)

        def fails() -> None:
            raise OverflowError("of the test")

        self.patch(stack.gateway, "_load", fails)
        self.assertRaises(OverflowError, stack.gateway.reload)
        self.assertEqual(stack.metric("config_last_reload_successful"), 0)
        self.assertEqual(stack.facts()["max_inflight"], 4)

    def test_requests_in_flight_and_parked_go_on(self) -> None:
        """They keep their engine and their place in line."""
        stack = Stack(self)
        running = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE)
        parked = [stack.client().chat(stream=True) for _ in range(4)][-1]
        stack.text = CONFIG.replace("maxInflight: 4", "maxInflight: 5")
        self.assertTrue(stack.gateway.reload())
        stack.settle()
        self.assertEqual(len(stack.engine().asked), 5)
        stack.engine().asked[0].more(token("a"), DONE).end()
        stack.engine().last.stream(DONE).end()
        self.assertEqual(running.body, ROLE + token("a") + DONE)
        self.assertTrue(parked.whole)
        self.assertEqual(stack.facts()["max_inflight"], 5)

    def test_a_faulty_file_is_refused(self) -> None:
        """The old one stays in force, and a metric says so."""
        stack = Stack(self)
        stack.text = "models: {reasoning: {upstream: 4}}"
        self.assertFalse(stack.gateway.reload())
        self.assertEqual(stack.metric("config_last_reload_successful"), 0)
        self.assertEqual(stack.client().get("/v1/models/gpt-4o").status, 200)
        stack.text = CONFIG
        self.assertTrue(stack.gateway.reload())
        self.assertEqual(stack.metric("config_last_reload_successful"), 1)

    def test_engines_that_are_gone_serve_what_they_have(self) -> None:
        """Their queue is served to its end, then nothing polls them any more."""
        stack = Stack(self)
        clients = [stack.client().chat(stream=True) for _ in range(5)]
        stack.text = CONFIG.replace("10.0.0.1", "10.0.0.2")
        stack.gateway.reload()
        stack.settle()
        stack.client().chat(stream=True)
        self.assertEqual(len(stack.engine("10.0.0.2").asked), 1)
        for _ in range(5):
            asked = next(one for one in stack.engine().asked if not one.gone and one.body)
            asked.stream(DONE).end()
            stack.engine().asked.remove(asked)
        self.assertTrue(all(client.whole for client in clients))
        polls = stack.engine().polls
        stack.advance(10)
        self.assertEqual(stack.engine().polls, polls)

    def test_models_come_and_go(self) -> None:
        """Names and series follow."""
        stack = Stack(self)
        stack.text = CONFIG.replace("reasoning", "thinking")
        stack.gateway.reload()
        self.assertEqual(stack.client().chat().status, 400)
        self.assertIsNone(stack.metric("llm_tokens_total", model="reasoning"))
        self.assertEqual(stack.metric("llm_tokens_total", model="thinking"), 0)


class ReloadingUnderLoad(TestCase):
    """Whatever is reloaded, no more than S are in an engine when all callers are ours."""

    SMALL = CONFIG.replace("4}", "2}")

    def _in(self, stack: Stack, host: str = "10.0.0.1") -> int:
        return len([one for one in stack.engine(host).asked if not one.gone and one.body])

    def _end_one(self, stack: Stack, host: str = "10.0.0.1") -> None:
        asked = next(one for one in stack.engine(host).asked if not one.gone and one.body)
        stack.engine(host).asked.remove(asked)
        asked.stream(DONE).end()

    def _reload(self, stack: Stack, text: str) -> None:
        stack.text = text
        self.assertTrue(stack.gateway.reload())
        stack.settle()

    def test_away_and_back(self) -> None:
        """The gate that was retired is taken back, with its queue and its ledger."""
        stack = Stack(self, self.SMALL)
        clients = []
        for _ in range(3):
            clients += [stack.client().chat(stream=True) for _ in range(3)]
            self._reload(stack, self.SMALL.replace("10.0.0.1", "10.0.0.2"))
            clients += [stack.client().chat(stream=True) for _ in range(3)]
            self._reload(stack, self.SMALL)
            self.assertEqual((self._in(stack), self._in(stack, "10.0.0.2")), (2, 2))
        self.assertEqual(stack.metric("admission_parked_requests", model="reasoning"), 14)
        self.assertEqual(stack.metric("admission_in_flight", model="reasoning"), 4)
        for _ in range(9):
            self._end_one(stack)
            self._end_one(stack, "10.0.0.2")
        self.assertTrue(all(client.whole for client in clients))
        self.assertEqual(stack.gateway.fleet.retired(), [])
        polls = stack.engine("10.0.0.2").polls
        stack.advance(10)
        self.assertEqual(stack.engine("10.0.0.2").polls, polls)

    def test_another_kind(self) -> None:
        """A new gate in front of the same engine knows what the old one has sent there."""
        stack = Stack(self, self.SMALL)
        old = [stack.client().chat(stream=True) for _ in range(4)]
        page = b"llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"
        stack.engine().gauges = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (
            len(page),
            page,
        )
        self._reload(stack, self.SMALL.replace("vllm", "llamacpp"))
        new = [stack.client().chat(stream=True) for _ in range(4)]
        for _ in range(6):
            self.assertEqual(self._in(stack), 2)
            self._end_one(stack)
            stack.advance(2.5)
        self._end_one(stack)
        self._end_one(stack)
        self.assertTrue(all(client.whole for client in [*old, *new]))
        self.assertEqual(stack.gateway.fleet.retired(), [])

    def test_a_ledger_stays_with_its_address(self) -> None:
        """Also where the gate before it had nothing to do and went at once."""
        stack = Stack(self, self.SMALL)
        moved = self.SMALL.replace("10.0.0.1", "10.0.0.2")
        self._reload(stack, moved)
        self.assertEqual(list(stack.gateway.fleet._ledgers), ["http://10.0.0.2:8000"])
        clients = [stack.client().chat(stream=True) for _ in range(2)]
        self._reload(stack, moved.replace("vllm", "llamacpp"))
        clients += [stack.client().chat(stream=True) for _ in range(2)]
        self.assertEqual(self._in(stack, "10.0.0.2"), 2)

    def test_what_is_degraded_starts_anew_with_its_observer(self) -> None:
        """Neither a replaced observer's last word nor a retired one's stays on the gauge."""
        stack = Stack(self, self.SMALL)
        stack.engine().gauges = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n"
        stack.poll()
        self.assertEqual(stack.metric("observer_degraded", model="reasoning"), 1)
        stack.client().chat(stream=True)
        self._reload(stack, self.SMALL.replace("10.0.0.1", "10.0.0.2"))
        stack.advance(5)
        self.assertEqual(stack.metric("observer_degraded", model="reasoning"), 0)

    def test_polls_follow_the_path_before_v1(self) -> None:
        """It is part of the engine's address for those who ask it, if not for the gate."""
        stack = Stack(self, self.SMALL)
        asked: list[str] = []
        take = Engine._take

        def note(engine: Engine, request: Asked) -> None:
            asked.append(request.path)
            take(engine, request)

        self.patch(Engine, "_take", note)
        self._reload(stack, self.SMALL.replace(":8000", ":8000/new"))
        stack.advance(3)
        self.assertIn("/new/metrics", asked)
        self.assertNotIn("/metrics", asked)

    def test_another_engine_beside_it(self) -> None:
        """What is in the one counts for the gate of both; the retired queue is served."""
        stack = Stack(self, self.SMALL)
        old = [stack.client().chat(stream=True) for _ in range(3)]
        self._reload(
            stack,
            self.SMALL.replace(
                "upstream: http://10.0.0.1:8000",
                "upstreams: ['http://10.0.0.1:8000', 'http://10.0.0.2:8000']",
            ),
        )
        new = [stack.client().chat(stream=True) for _ in range(4)]
        self.assertEqual((self._in(stack), self._in(stack, "10.0.0.2")), (2, 2))
        for host in ("10.0.0.1", "10.0.0.2") * 3:
            if self._in(stack, host):
                self._end_one(stack, host)
            stack.advance(2.5)
            self.assertLessEqual(self._in(stack), 2)
        while not all(client.whole for client in [*old, *new]):
            for host in ("10.0.0.1", "10.0.0.2"):
                if self._in(stack, host):
                    self._end_one(stack, host)
            stack.advance(2.5)
        self.assertEqual(stack.gateway.fleet.retired(), [])


class Watching(TestCase):
    """`reload: watch`."""

    def setUp(self) -> None:
        """Watch a file."""
        super().setUp()
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("1")
        self.reloads: list[str] = []
        self.watcher = Watcher(
            self.clock, self.path, lambda: self.reloads.append(self.path.read_text())
        )
        self.watcher.startService()
        self.addCleanup(self.watcher.stopService)

    def test_a_change_is_read_once(self) -> None:
        """Within seconds, and not again."""
        self.clock.advance(2)
        self.assertEqual(self.reloads, [])
        self.path.write_text("22")
        self.clock.pump([2] * 3)
        self.assertEqual(self.reloads, ["22"])

    def test_a_file_that_is_swapped(self) -> None:
        """As a mounted ConfigMap is: for a moment it may not be there."""
        self.path.unlink()
        self.clock.advance(2)
        self.path.write_text("333")
        self.clock.pump([2] * 2)
        self.assertEqual(self.reloads, ["333"])


class WatchingFaults(TestCase):
    """A reload that raises."""

    def test_the_next_change_is_seen_all_the_same(self) -> None:
        """The fault is logged, and the watch goes on."""
        path = Path(self.mktemp())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
        calls: list[int] = []

        def fails() -> None:
            calls.append(1)
            raise ValueError("x")

        watcher = Watcher(self.clock, path, fails)
        watcher.startService()
        self.addCleanup(watcher.stopService)
        for text in ("22", "333"):
            path.write_text(text)
            self.clock.advance(2)
        self.assertEqual(len(calls), 2)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)


class Background(TestCase):
    """Deferreds that nobody awaits."""

    def test_their_failure_is_logged(self) -> None:
        """And goes no further; being cancelled is no failure."""
        work: Deferred[None] = Deferred()
        in_background(work, Logger(), "it")
        work.errback(ValueError("x"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        work = Deferred()
        in_background(work, Logger(), "it")
        work.cancel()


class Operating(TestCase):
    """Section 5's endpoints."""

    def test_health(self) -> None:
        """All is well, whatever the engine does."""
        stack = Stack(self)
        stack.engine().gauges = None
        for path in ("/health", "/health/live", "/health/ready"):
            client = stack.client().get(path)
            self.assertEqual((client.status, client.json), (200, {"status": "ok"}))

    def test_metrics_in_both_forms(self) -> None:
        """The text format, and OpenMetrics when asked for."""
        stack = Stack(self)
        client = stack.client().get("/metrics")
        self.assertTrue(client.headers["content-type"].startswith("text/plain; version="))
        self.assertIn(b'admission_max_inflight{model="reasoning"} 4.0', client.body)
        client = stack.client().get("/metrics", Accept="application/openmetrics-text")
        self.assertTrue(client.body.endswith(b"# EOF\n"))

    def test_status(self) -> None:
        """What runs and waits, as JSON and as a page; no prompt is in it."""
        stack = Stack(self)
        for _ in range(6):
            stack.client().chat(stream=True, messages=[{"role": "user", "content": "SECRET"}])
        stack.poll(running=4)
        facts = stack.client().get("/status.json").json["models"]["reasoning"]
        self.assertEqual((facts["running"], facts["in_engine"], len(facts["parked"])), (4, 4, 2))
        self.assertEqual([one["position"] for one in facts["parked"]], [1, 2])
        page = stack.client().get("/status")
        self.assertIn(b"4 of 4", page.body)
        self.assertIn("default-src 'none'", page.headers["content-security-policy"])
        self.assertNotIn(b"SECRET", page.body)

    def test_a_stale_engine_shows(self) -> None:
        """The page says in words what is wrong."""
        stack = Stack(self)
        stack.engine().gauges = b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"
        stack.advance(8)
        facts = stack.facts()
        self.assertTrue(facts["stale"])
        page = stack.client().get("/status").body
        self.assertIn(b"Gauges stale for 8.0 s: /metrics answers status 500", page)
        self.assertEqual(stack.metric("engine_state_stale_total", model="reasoning"), 1)
        self.assertIsNone(stack.metric("vllm_requests_running", model="reasoning"))

    def test_a_listener_of_its_own(self) -> None:
        """With adminListen they are served there and nowhere else."""
        stack = Stack(self, "adminListen: [tcp:9090]\n" + CONFIG)
        self.assertEqual(stack.client().get("/metrics").status, 404)
        self.assertEqual(stack.client(site=1).get("/metrics").status, 200)
        self.assertEqual(stack.client(site=1).get("/v1/models").status, 404)

    def test_that_listener_outlives_the_others(self) -> None:
        """Probes and scrapes follow a drain to its end; without it nobody is listened to."""
        stack = Stack(self, "drainSeconds: 9\nadminListen: [tcp:9090]\n" + CONFIG)
        stack.client().chat()
        drained = stack.gateway.drain()
        stack.advance(4)
        listeners = [one for one in stack.gateway if isinstance(one, StreamServerEndpointService)]
        self.assertEqual([one.running for one in listeners], [0, 1])
        self.assertEqual(stack.client(site=1).get("/health/ready").status, 503)
        stack.advance(10)
        self.assertTrue(drained.called)


class CrossOrigin(TestCase):
    """`cors: {origins: []}`."""

    CONFIG = "cors: {origins: ['https://app.example']}\n" + CONFIG

    def test_a_preflight(self) -> None:
        """It is answered, without a token."""
        client = (
            Stack(self, self.CONFIG)
            .client()
            .get(
                "/v1/chat/completions",
                "OPTIONS",
                Origin="https://app.example",
                Access_Control_Request_Method="POST",
                Access_Control_Request_Headers="authorization",
            )
        )
        self.assertEqual(client.status, 204)
        self.assertEqual(client.headers["access-control-allow-origin"], "https://app.example")
        self.assertEqual(client.headers["access-control-allow-headers"], "authorization")

    def test_errors_carry_the_headers(self) -> None:
        """The gateway's own errors too, early ones and late ones."""
        stack = Stack(self, self.CONFIG)
        client = stack.client().chat(model="no", headers={"Origin": "https://app.example"})
        self.assertEqual(client.headers["access-control-allow-origin"], "https://app.example")
        client = stack.client().send(
            b"POST /v1/x HTTP/1.1\r\nOrigin: https://app.example\r\nContent-Length: 9999999\r\n\r\n"
        )
        self.assertEqual(client.headers["access-control-allow-origin"], "https://app.example")

    def test_other_origins_get_nothing(self) -> None:
        """No header, no permission."""
        client = Stack(self, self.CONFIG).client().chat(headers={"Origin": "https://evil.example"})
        self.assertNotIn("access-control-allow-origin", client.headers)

"""Tests of the demo as a whole: where its engines listen, and how the gateway is told."""

from __future__ import annotations

import io
import sys
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock

from tests.demo.harness import Connection
from tests.support import TestCase
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import EngineKind
from twisted_gateway.demo.__main__ import main, options
from twisted_gateway.demo.service import DemoEngines, demo_config_text, demo_engines
from twisted_gateway.engines.kinds import read


class _Reactor(MemoryReactorClock):
    """Its ports stop at once; the port after the first `ports` ones is taken."""

    ports = 9

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        if len(self.tcpServers) == self.ports:
            raise CannotListenError(interface, port, OSError("taken"))
        listening = super().listenTCP(port, factory, backlog, interface)
        listening.stopListening = self._stopped
        return listening

    stops = 0

    def _stopped(self) -> Deferred[None]:
        self.stops += 1
        return succeed(None)


class DemoTests(TestCase):
    """Two engines on one reactor."""

    def setUp(self) -> None:
        super().setUp()
        self.reactor = _Reactor()

    def start(self, speed: float = 1.0) -> DemoEngines:
        return self.successResultOf(Deferred.fromCoroutine(demo_engines(self.reactor, speed)))

    def sites(self) -> list[Any]:
        return [site for _, site, _, _ in self.reactor.tcpServers]

    def test_engines_listen_on_loopback_only(self) -> None:
        """Both take a free port of 127.0.0.1 and say which."""
        engines = self.start()
        self.assertEqual(
            [(port, interface) for port, _, _, interface in self.reactor.tcpServers],
            [(0, "127.0.0.1"), (0, "127.0.0.1")],
        )
        self.assertRegex(engines.reasoning.url, r"^http://127\.0\.0\.1:\d+$")

    def test_each_serves_its_model(self) -> None:
        """The one generates, the other pools."""
        self.start()
        models = []
        for site in self.sites():
            connection = Connection(site).send("GET", "/v1/models")
            models.append(connection.answer.json["data"][0]["id"])
            site.cut()
        self.assertEqual(models, ["reasoning", "embeddings"])

    def test_stop_leaves_nothing(self) -> None:
        """Ports, connections and timers are gone."""
        engines = self.start(speed=3)
        connection = Connection(self.sites()[0])
        body = b'{"messages": [], "stream": true}'
        connection.send("POST", "/v1/chat/completions", body)
        self.assertEqual(engines.reasoning.host.engine.in_engine_now, 1)
        self.successResultOf(Deferred.fromCoroutine(engines.stop()))
        self.assertTrue(connection.transport.gone)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(self.reactor.stops, 2)

    def test_nothing_is_left_when_the_second_cannot_start(self) -> None:
        """Where there is only one port, the engine that has it gives it back."""
        self.reactor.ports = 1
        starting = Deferred.fromCoroutine(demo_engines(self.reactor))
        self.failureResultOf(starting, CannotListenError)
        self.assertEqual(self.reactor.stops, 1)

    def test_configuration(self) -> None:
        """The gateway takes it: three models, each gated at its engine's S and led to its name."""
        text = demo_config_text(
            "http://127.0.0.1:1", "http://127.0.0.1:2", ["tcp:8080:interface=127.0.0.1"]
        )
        config = load(text, name="demo", environ={}, read_file=lambda path: path)
        self.assertEqual(config.listen, ("tcp:8080:interface=127.0.0.1",))
        self.assertEqual(
            {
                name: (model.upstreams, model.gated, model.policy.max_inflight)
                for name, model in config.models.items()
            },
            {
                "reasoning": (("http://127.0.0.1:1",), True, 4),
                "embeddings": (("http://127.0.0.1:2",), True, 32),
                "rerank": (("http://127.0.0.1:2",), True, 32),
            },
        )
        self.assertEqual(config.models["reasoning"].aliases, ("gpt-4o",))
        self.assertEqual(config.models["rerank"].upstream_model, "embeddings")
        # Who ends it by Ctrl-C does not wait for answers of minutes.
        self.assertLessEqual(config.drain_seconds, 10)

    def test_a_fast_engine_has_a_fast_gateway(self) -> None:
        """What the gateway counts in the engine's time is as fast as that."""
        text = demo_config_text("http://127.0.0.1:1", "http://127.0.0.1:2", ["tcp:1"], 20)
        policy = (
            load(text, name="demo", environ={}, read_file=lambda path: path)
            .models["reasoning"]
            .policy
        )
        self.assertEqual((policy.long_prefill_seconds, policy.patience_seconds), (0.75, 30))
        self.assertEqual(policy.prefill_tokens_per_second, 20 * 525)
        self.assertEqual(policy.decode_tokens_per_second, 500)
        self.assertEqual((policy.poll_seconds, policy.max_park_seconds), (0.1, 27))

    def test_the_gateway_can_read_the_gauges(self) -> None:
        """The gateway's own reader finds in a page what the engine published."""
        self.start()
        site = self.sites()[0]
        for _ in range(6):
            body = b'{"messages": [{"content": "%s"}], "max_tokens": 1}' % (b"x" * 28_000)
            Connection(site).send("POST", "/v1/chat/completions", body)
        self.reactor.advance(8)
        page = Connection(site).send("GET", "/metrics").answer.body
        reading = read(EngineKind.VLLM, page, ["reasoning"])
        self.assertEqual((reading.running, reading.waiting), (1, 5))
        self.assertEqual((reading.kv_tokens, reading.kv_usage), (152_432, 256 / 9527))
        for each in self.sites():
            each.cut()


class MainTests(TestCase):
    """One engine alone."""

    def test_options(self) -> None:
        """Each option changes the engine's profile."""
        chosen = options(["--port", "8000", "--speed", "20", "--max-num-seqs", "8"])
        self.assertEqual((chosen.port, chosen.speed, chosen.profile.max_num_seqs), (8000, 20.0, 8))
        chosen = options(["--kind", "embeddings", "--num-gpu-blocks", "600"])
        self.assertEqual(chosen.profile.kv_tokens, 9600)

    def test_impossible_options(self) -> None:
        """Exit 2, with a line that says what was wrong."""
        for arguments in (["--speed", "0"], ["--max-model-len", "999999"], ["--kind", "x"]):
            said = io.StringIO()
            self.patch(sys, "stderr", said)
            self.assertRaises(SystemExit, options, arguments)
            self.assertIn("error:", said.getvalue())

    def test_says_where_it_listens(self) -> None:
        """The address goes to standard output, and the engine runs on."""
        said = io.StringIO()
        self.patch(sys, "stdout", said)
        running = Deferred.fromCoroutine(main(_Reactor(), options(["--speed", "2"])))
        self.assertNoResult(running)
        self.assertRegex(said.getvalue(), r"^http://127\.0\.0\.1:\d+\n$")

    def test_port_that_is_taken(self) -> None:
        """The program ends with a message."""
        reactor = _Reactor()
        reactor.ports = 0
        failed = Deferred.fromCoroutine(main(reactor, options(["--port", "1"])))
        self.failureResultOf(failed, SystemExit)

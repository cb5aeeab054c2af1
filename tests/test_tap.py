"""Tests of the command line: what ends the process before the reactor runs, and what is said."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.application.service import Application, IServiceMaker, MultiService
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from tests.support import TestCase
from twisted_gateway import __version__
from twisted_gateway.cgroup import Limits
from twisted_gateway.config.load import load
from twisted_gateway.service import Gateway
from twisted_gateway.tap import Options, _Demo, _Process, makeService
from twisted_gateway.telemetry.access import AccessLog
from twisted_gateway.telemetry.tracing import NoTracing

LIMITS = Limits(usable_cpus=64, quota_cpus=0.5, memory_bytes=100_000_000)
GOOD = "models: {a: {upstream: 'http://127.0.0.1:1', apiKey: sesame}}\n"
BAD = """\
models:
  a: {upstream: 4, engine: vlm}
  b: {upstrem: http://x}
"""


class CommandLine(TestCase):
    """`twistd llm-gateway ...`."""

    def setUp(self) -> None:
        """Catch what is printed, and know the environment."""
        super().setUp()
        self.out, self.err = io.StringIO(), io.StringIO()
        self.patch(sys, "__stdout__", self.out)
        self.patch(sys, "__stderr__", self.err)
        self.patch(os, "environ", {})
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _exits(self, *arguments: str) -> object:
        options = Options()
        with self.assertRaises(SystemExit) as caught:
            options.parseOptions(list(arguments))
            makeService(options)
        return caught.exception.code

    def test_the_plugin_is_found(self) -> None:
        """twistd lists llm-gateway."""
        names = [plugin.tapname for plugin in getPlugins(IServiceMaker)]
        self.assertIn("llm-gateway", names)

    def test_check_prints_what_is_in_force(self) -> None:
        """As YAML, secrets as ***, exit 0."""
        self.path.write_text(GOOD)
        self.assertEqual(self._exits("--check", "--config", str(self.path)), 0)
        self.assertIn("upstream: http://127.0.0.1:1", self.out.getvalue())
        self.assertIn("***", self.out.getvalue())
        self.assertNotIn("sesame", self.out.getvalue() + self.err.getvalue())
        os.environ["ADMISSION_OBSERVE_MODELS"] = "nobody"
        self.assertEqual(self._exits("--check", "--config", str(self.path)), 0)
        self.assertIn("nobody", self.err.getvalue())

    def test_every_fault_is_printed(self) -> None:
        """FILE: line N: KEY.PATH: what was expected; exit 1; with --check and without."""
        self.path.write_text(BAD)
        for arguments in (["--check"], []):
            self.assertEqual(self._exits("--config", str(self.path), *arguments), 1)
        lines = self.err.getvalue().splitlines()
        self.assertEqual(lines[: len(lines) // 2], lines[len(lines) // 2 :])
        self.assertIn(f"{self.path}: line 2: models.a.engine: expected one of vllm", lines[1])
        self.assertIn(f"{self.path}: line 3: models.b.upstrem: unknown key", self.err.getvalue())

    def test_no_file(self) -> None:
        """One line that names --config and --demo; exit 1."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.path.parent)
        self.assertEqual(self._exits(), 1)
        self.assertEqual(len(self.err.getvalue().splitlines()), 1)
        self.assertIn("config.yaml", self.err.getvalue())
        self.assertIn("--demo", self.err.getvalue())

    def test_the_environment_names_the_file_and_the_listeners(self) -> None:
        """GATEWAY_CONFIG and GATEWAY_LISTEN; options win."""
        self.path.write_text(GOOD)
        os.environ["GATEWAY_CONFIG"] = str(self.path)
        os.environ["GATEWAY_LISTEN"] = "tcp:1 tcp:2"
        self.assertEqual(self._exits("--check"), 0)
        self.assertIn("- tcp:1\n- tcp:2\n", self.out.getvalue())
        self.assertEqual(self._exits("--check", "-l", "tcp:3", "--listen", "tcp:4"), 0)
        self.assertIn("- tcp:3\n- tcp:4\n", self.out.getvalue())

    def test_an_option_is_blamed_by_its_name(self) -> None:
        """A fault of --listen is of the command line's, and of no variable's that nobody set."""
        self.path.write_text(GOOD)
        self.assertEqual(self._exits("--config", str(self.path), "--listen", "8081"), 1)
        self.assertEqual(
            self.err.getvalue(),
            "command line: --listen: expected a Twisted server endpoint such as tcp:8080\n",
        )

    def test_models_without_a_gate(self) -> None:
        """--check says which models have none by nobody's wish; who asks for none knows."""
        self.path.write_text(
            "models:\n"
            "  a: {upstream: 'http://127.0.0.1:1'}\n"
            "  b: {upstream: 'http://127.0.0.1:2', engine: none}\n"
            "  c: {upstream: 'http://127.0.0.1:3', engine: vllm}\n"
            "  d.e: {upstream: 'http://127.0.0.1:4', engine: tei}\n"
            "  f: {upstream: 'http://127.0.0.1:5', engine: tei, admission: {maxInflight: 9}}\n"
            "  g.h: {upstream: 'http://127.0.0.1:6', engine: none}\n"
        )
        self.assertEqual(self._exits("--check", "--config", str(self.path)), 0)
        self.assertEqual(
            self.err.getvalue().splitlines(),
            [
                "note: models.a has no gate, for it names no engine: requests go on as they come",
                'note: models."d.e" has no gate: tei has one with admission.maxInflight only',
            ],
        )

    def test_models_that_the_environment_leaves_out(self) -> None:
        """Who is left out of ADMISSION_OBSERVE_MODELS loses its gate, and that is said."""
        self.path.write_text(
            "models:\n"
            "  chat: {upstream: 'http://127.0.0.1:1', engine: vllm}\n"
            "  big: {upstream: 'http://127.0.0.1:2', engine: vllm, admission: {maxInflight: 3}}\n"
            "  plain: {upstream: 'http://127.0.0.1:3', engine: none}\n"
            "  it: {upstream: 'http://127.0.0.1:4'}\n"
            + "".join(f"  {name}: {{upstream: 'http://127.0.0.1:5'}}\n" for name in "abc")
        )
        others = [f"models.{name} has" for name in ("it", *"abc")]
        for names, notes in (
            ("chat, it", ["models.big has no gate: ADMISSION_OBSERVE_MODELS names chat, it alone"]),
            (
                "a, b, c, chat",
                ["models.big has no gate: ADMISSION_OBSERVE_MODELS names chat, a, b and 1 more"],
            ),
            (
                "",
                [
                    f"models.{name} has no gate: ADMISSION_OBSERVE_MODELS names none of the models"
                    for name in ("chat", "big")
                ],
            ),
        ):
            self.err.truncate(self.err.seek(0))
            os.environ["ADMISSION_OBSERVE_MODELS"] = names
            self.assertEqual(self._exits("--check", "--config", str(self.path)), 0)
            said = [
                line
                for line in self.err.getvalue().splitlines()
                if not any(one in line for one in others)
            ]
            self.assertEqual(said, [f"note: {note}" for note in notes])

    def test_version(self) -> None:
        """The gateway's, and those of what it runs on; exit 0."""
        self.assertEqual(self._exits("--version"), 0)
        self.assertRegex(
            self.out.getvalue(), rf"^twisted-gateway {__version__} on Python 3\.\S+, Twisted \S+\n$"
        )

    def test_schema(self) -> None:
        """JSON Schema on standard output, exit 0."""
        self.assertEqual(self._exits("--schema"), 0)
        self.assertIn("models", json.loads(self.out.getvalue())["properties"])

    def _process(self, config: str = GOOD) -> tuple[Any, Gateway, MultiService]:
        """The service of a process, on a reactor in memory."""
        reactor: Any = MemoryReactorClock()
        reactor.callFromThread = lambda act: act()
        self.threads: list[int] = []
        reactor.suggestThreadPoolSize = self.threads.append
        gateway = Gateway(
            reactor,
            load(config, name="c", environ={}, read_file=str),
            registry=CollectorRegistry(),
            tracing=NoTracing(),
            access_log=AccessLog(),
            limits=LIMITS,
        )
        process = _Process(reactor, gateway, LIMITS)
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        self.addCleanup(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        self.addCleanup(signal.signal, signal.SIGHUP, signal.getsignal(signal.SIGHUP))
        return reactor, gateway, process

    def test_threads_by_the_quota(self) -> None:
        """The reactor's pool is as large as the quota asks for, and the log says what was seen."""
        _, _, process = self._process()
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        process.startService()
        self.assertEqual(self.threads, [5])
        said = "\n".join(map(formatEvent, events))
        self.assertIn("may use 0.5 CPUs by quota, of 64;", said)
        self.assertIn("more than the memory limit of 100000000", said)

    def test_sigterm_drains_and_then_stops(self) -> None:
        """The reactor runs on until the drain is over; then it stops, and twistd exits 0."""
        reactor, gateway, process = self._process()
        process.startService()
        stops: list[int] = []
        reactor.running = True
        reactor.stop = lambda: stops.append(1)
        for hook, *_ in reactor.whenRunningHooks:
            hook()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        self.assertTrue(gateway.fleet.draining)
        self.assertEqual(stops, [])
        reactor.pump([0.5] * 8)
        self.assertEqual(stops, [1])

    def test_a_port_that_is_taken(self) -> None:
        """One line that names it; exit 1."""
        for number, elsewhere in ((errno.EADDRINUSE, True), (errno.EACCES, False)):
            reactor, _, process = self._process()
            fault = OSError(number, "no")

            def listen(port: int, *_: object, fault: OSError = fault, **__: object) -> None:
                raise CannotListenError("", port, fault)

            reactor.listenTCP = listen
            self.err.truncate(0)
            with self.assertRaises(SystemExit) as caught:
                process.startService()
            self.assertEqual(caught.exception.code, 1)
            self.assertIn("cannot listen: Couldn't listen on any:8080", self.err.getvalue())
            self.assertEqual("--listen" in self.err.getvalue(), elsewhere)

    def test_json_logs(self) -> None:
        """LOG_FORMAT=json takes the application's log over."""
        os.environ["LOG_FORMAT"] = "json"
        _, _, process = self._process()
        application: Any = Application("x")
        process.setServiceParent(application)
        self.assertTrue(ILogObserver.providedBy(application.getComponent(ILogObserver)))

    def _demo(self, *arguments: str) -> tuple[Any, _Demo, list[int]]:
        """A demo that has not started, on a reactor in memory, and the sizes of its pool."""
        reactor: Any = MemoryReactorClock()
        listen = reactor.listenTCP
        # Port 0 is any that is free, which a reactor in memory does not know.
        free = iter(range(40000, 40010))
        reactor.listenTCP = lambda port, *a, **k: listen(port or next(free), *a, **k)
        options = Options()
        options.parseOptions(["--demo", *arguments])
        threads: list[int] = []
        reactor.suggestThreadPoolSize = threads.append
        return reactor, _Demo(reactor, options, Limits(usable_cpus=1)), threads

    def test_the_demo(self) -> None:
        """Two engines and a gateway; it says where the status page is and what to try."""
        reactor, demo, threads = self._demo("-l", "tcp:9999")
        demo.startService()
        self.assertEqual(len(reactor.tcpServers), 3)
        self.assertEqual(threads, [5])
        reactor.advance(1)
        self.assertIn("http://127.0.0.1:9999/status", self.out.getvalue())
        self.assertIn("its engines as fast as real ones", self.out.getvalue())
        self.assertIn("curl -N http://127.0.0.1:9999/v1/chat/completions", self.out.getvalue())
        self.successResultOf(demo.stopService())
        self.assertEqual(reactor.getDelayedCalls(), [])

    def test_where_the_demo_listens(self) -> None:
        """On this machine alone, unless the environment or the command line says otherwise."""
        for arguments, environ, port, interface in (
            ([], {}, 8080, "127.0.0.1"),
            ([], {"GATEWAY_LISTEN": "tcp:1"}, 1, ""),
            (["-l", "tcp:2"], {"GATEWAY_LISTEN": "x"}, 2, ""),
        ):
            self.patch(os, "environ", environ)
            reactor, demo, _ = self._demo(*arguments, "--demo-speed", "20")
            demo.startService()
            found = [(one[0], one[3]) for one in reactor.tcpServers]
            self.assertIn((port, interface), found)
            reactor.advance(1)
            self.successResultOf(demo.stopService())
        self.assertIn("its engines 20 times as fast as real ones", self.out.getvalue())

    def test_a_demo_that_cannot_start(self) -> None:
        """What is wrong with --listen or its variable is said by its name; exit 1."""
        for arguments, environ, said in (
            (["--listen", "8081"], {}, "command line: --listen: expected a Twisted server"),
            ([], {"GATEWAY_LISTEN": "8081"}, "environment: GATEWAY_LISTEN: expected a Twisted"),
        ):
            self.patch(os, "environ", environ)
            _, demo, _ = self._demo(*arguments)
            with self.assertRaises(SystemExit) as caught:
                demo.startService()
            self.assertEqual(caught.exception.code, 1)
            self.assertIn(f"the demo could not start: {said}", self.err.getvalue())
            self.successResultOf(demo.stopService())

    def test_the_demo_passes_nothing_over(self) -> None:
        """What it would have no use for is refused: --config and --check, and its speed without."""
        for arguments, said in (
            (["--demo", "--config", "my.yaml"], "leave out --config, or --demo"),
            (["--demo", "--check"], "leave out --check, or --demo"),
            (["--demo-speed", "2"], "--demo-speed is for --demo alone"),
        ):
            refusal = self.assertRaises(UsageError, Options().parseOptions, arguments)
            self.assertIn(said, str(refusal))
        # A variable may be set for all that is started there.
        os.environ["GATEWAY_CONFIG"] = "my.yaml"
        Options().parseOptions(["--demo"])

    def test_demo_speed(self) -> None:
        """A number above 0."""
        for text in ("x", "0", "-1", "nan", "inf", "1e9"):
            with self.assertRaises(UsageError):
                Options().parseOptions(["--demo", "--demo-speed", text])
        Options().parseOptions(["--demo", "--demo-speed", "20"])

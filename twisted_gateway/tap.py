"""`twistd llm-gateway`: the command line, and the only module that takes the global reactor."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry
from twisted.application.service import IService, MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import ILogObserver, Logger
from twisted.python import usage
from twisted.python.failure import Failure

from twisted_gateway.banner import running, ungated
from twisted_gateway.cgroup import Limits, read_limits
from twisted_gateway.config.dump import dump
from twisted_gateway.config.jsonschema import json_schema
from twisted_gateway.config.load import ConfigError, load, load_file
from twisted_gateway.config.schema import Config
from twisted_gateway.service import Gateway
from twisted_gateway.telemetry import tracing
from twisted_gateway.telemetry.access import AccessLog, json_observer
from twisted_gateway.telemetry.metrics import register_process
from twisted_gateway.watcher import Watcher
from twisted_gateway.web.background import in_background

DEFAULT_CONFIG = "config.yaml"
DEMO_LISTEN = "tcp:8080:interface=127.0.0.1"
"""Where the demo listens unless told otherwise: it asks nobody who they are."""
ELSEWHERE = (
    " Is another gateway running, or the demo? --listen, GATEWAY_LISTEN or the configuration's "
    "listen and adminListen name other endpoints."
)
"""What is said where somebody else has a listener's port."""
_LISTEN = "GATEWAY_LISTEN"
_HELLO_SECONDS = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Options(usage.Options):
    """The options of `twistd llm-gateway`."""

    synopsis = "[options]"
    longdesc = (
        "Routes OpenAI-style requests to the engines of a configuration file, and lets no more "
        "into an engine than its own scheduler gauges show room for."
    )
    optParameters: ClassVar[list[list[str | None]]] = [
        ["config", "c", None, f"The configuration file [GATEWAY_CONFIG, else {DEFAULT_CONFIG}]."],
        ["demo-speed", None, None, "How many times as fast the demo's engines run [1]."],
    ]
    optFlags: ClassVar[list[list[str | None]]] = [
        ["demo", None, "Serve two simulated engines, with a configuration of their own."],
        ["check", None, "Validate the configuration, print it as it is in force, and exit."],
        ["schema", None, "Print the JSON Schema of the configuration, and exit."],
    ]

    def __init__(self) -> None:
        """Start with no listeners named."""
        super().__init__()
        self.listen: list[str] = []

    def opt_listen(self, endpoint: str) -> None:
        """A Twisted server endpoint to listen on; may be given again [GATEWAY_LISTEN]."""
        self.listen.append(endpoint)

    opt_l = opt_listen

    def opt_version(self) -> None:
        """Say which releases of the gateway, Python and Twisted these are, and exit."""
        _print(running())
        raise SystemExit(0)

    def postOptions(self) -> None:
        """Do what ends the process here; check the rest."""
        if self["schema"]:
            _print(json.dumps(json_schema(), indent=2))
            raise SystemExit(0)
        self._check_demo()
        if self["check"]:
            config = _load_or_exit(self)
            for warning in config.warnings:
                _complain(f"warning: {warning}")
            for note in ungated(config):
                _complain(f"note: {note}")
            _print(dump(config))
            raise SystemExit(0)

    def _check_demo(self) -> None:
        # What would be passed over in silence is refused: somebody means something by it.
        if self["demo"]:
            for name in ("config", "check"):
                if self[name]:
                    raise usage.UsageError(
                        f"--demo has a configuration of its own, without a file: leave out "
                        f"--{name}, or --demo"
                    )
        elif self["demo-speed"] is not None:
            raise usage.UsageError("--demo-speed is for --demo alone")
        try:
            speed = float(self["demo-speed"] or 1)
        except ValueError:
            speed = 0.0
        if not 0 < speed <= 1000:
            raise usage.UsageError("--demo-speed takes a number above 0, at most 1000")
        self["demo-speed"] = speed


def makeService(options: Options) -> IService:
    """Make the service that twistd runs.

    Raises:
        SystemExit: 1, the configuration is faulty; every fault has been printed.
    """
    from twisted.internet import reactor

    limits = read_limits()
    if options["demo"]:
        return _Demo(reactor, options, limits)
    config = _load_or_exit(options)
    path = _config_path(options)
    gateway = _gateway(reactor, config, lambda: _load(options), limits)
    if config.reload == "watch":
        Watcher(reactor, path, gateway.reload).setServiceParent(gateway)
    return _Process(reactor, gateway, limits, daemon=_in_background(options))


class _Process(MultiService):
    """The gateway with what belongs to its process: signals, threads, and the form of the log."""

    _log = Logger()

    def __init__(
        self, reactor: Any, gateway: Gateway, limits: Limits, *, daemon: bool = False
    ) -> None:
        super().__init__()
        self._daemon = daemon
        self._limits = limits
        self._reactor = reactor
        self._gateway = gateway
        self._draining = False
        gateway.setServiceParent(self)

    def setServiceParent(self, parent: Any) -> None:
        """Take the application's log over where JSON is asked for."""
        super().setServiceParent(parent)
        if os.environ.get("LOG_FORMAT", "").strip().lower() == "json":
            parent.setComponent(ILogObserver, json_observer(sys.stdout))

    def startService(self) -> None:
        """Start, and take the signals over once the reactor has installed its own.

        Raises:
            SystemExit: 1, a listener's port cannot be had; it has been said which.
            CannotListenError: the same, where twistd has put itself into the background.
        """
        self._reactor.suggestThreadPoolSize(self._limits.threads)
        try:
            super().startService()
        except (CannotListenError, OSError) as fault:
            _complain(f"cannot listen: {fault}{_elsewhere(fault)}")
            if self._daemon:
                # twistd's parent process waits to be told of an exception, and of no exit.
                raise
            raise SystemExit(1) from None
        self._reactor.callWhenRunning(self._take_signals)

    def _take_signals(self) -> None:
        # twistd would end with -SIGTERM and cut everything: a drain ends with 0.
        for number in _SIGNALS:
            signal.signal(number, self._on_signal(self._drain))
        signal.signal(signal.SIGHUP, self._on_signal(self._gateway.reload))

    def _on_signal(self, act: Callable[[], object]) -> Callable[[int, Any], None]:
        return lambda number, frame: self._reactor.callFromThread(act)

    def _drain(self) -> None:
        drained = self._gateway.drain()
        if not self._draining:
            self._draining = True
            in_background(drained.addBoth(lambda _: self._stop()), self._log, "the drain")

    def _stop(self) -> None:
        if self._reactor.running:
            self._reactor.stop()


class _Demo(MultiService):
    """Two simulated engines, and the real gateway in front of them."""

    _log = Logger()

    def __init__(self, reactor: Any, options: Options, limits: Limits) -> None:
        super().__init__()
        self._reactor = reactor
        self._options = options
        self._limits = limits
        self._engines: Any = None

    def startService(self) -> None:
        """Start the engines, then the gateway."""
        # The demo is no part of the gateway: nobody else pays for its import.
        from twisted_gateway.demo.service import demo_config_text, demo_engines

        super().startService()
        speed = self._options["demo-speed"]

        async def start() -> None:
            engines = self._engines = await demo_engines(self._reactor, speed)
            text = demo_config_text(
                engines.reasoning.url,
                engines.embeddings.url,
                [DEMO_LISTEN],
                speed,
            )
            config = load(
                text,
                name="demo",
                environ={_LISTEN: os.environ.get(_LISTEN, "")},
                read_file=_no_file,
                options=_given(self._options),
            )
            gateway = _gateway(self._reactor, config, None, self._limits)
            _Process(self._reactor, gateway, self._limits).setServiceParent(self)
            # After what the log has to say at the start, so that it stays in sight.
            self._reactor.callLater(_HELLO_SECONDS, self._say_hello, config, speed)

        # Listening on loopback is done when it returns, so a failure is known at once.
        failures: list[Failure] = []
        in_background(
            Deferred.fromCoroutine(start()).addErrback(failures.append), self._log, "the demo"
        )
        for failure in failures:
            if not failure.check(SystemExit):
                _complain(f"the demo could not start: {failure.getErrorMessage()}")
            raise SystemExit(1)

    def stopService(self) -> Any:
        """Stop the gateway, then the engines."""
        stopped = super().stopService()
        if self._engines is not None:
            return Deferred.fromCoroutine(self._engines.stop()).addCallback(lambda _: stopped)
        return stopped

    def _say_hello(self, config: Config, speed: float) -> None:
        port = re.match(r"(?:tcp:)?(?:port=)?([0-9]+)(?![^:])", config.listen[0])
        base = f"http://127.0.0.1:{port[1]}" if port else config.listen[0]
        _print(
            f"\nThe demo runs, its engines {_as_fast(speed)} real ones. Ctrl-C ends it.\n"
            f"  status   {base}/status\n"
            f"  try      curl -N {base}/v1/chat/completions -H 'Content-Type: application/json' "
            """-d '{"model":"reasoning","stream":true,"""
            """"messages":[{"role":"user","content":"hello"}]}'\n"""
            "  queue    for i in $(seq 12); do curl -sN "
            f"{base}/v1/chat/completions -H 'Content-Type: application/json' "
            """-d '{"model":"reasoning","stream":true,"max_tokens":600,"ignore_eos":true,"""
            """"messages":[{"role":"user","content":"hello"}]}' >/dev/null & done\n"""
        )


def _elsewhere(fault: Exception) -> str:
    cause = fault.socketError if isinstance(fault, CannotListenError) else fault
    return ELSEWHERE if getattr(cause, "errno", None) == errno.EADDRINUSE else ""


def _gateway(
    reactor: Any, config: Config, reload: Callable[[], Config] | None, limits: Limits
) -> Gateway:
    registry = CollectorRegistry()
    register_process(registry)
    return Gateway(
        reactor,
        config,
        registry=registry,
        tracing=tracing.start(os.environ, reactor, reactor),
        access_log=AccessLog(debug=_log_level() == "debug"),
        load=reload,
        limits=limits,
    )


def _log_level() -> str:
    return os.environ.get("LOG_LEVEL", "").strip().lower()


def _in_background(options: Options) -> bool:
    """Whether twistd runs as a daemon: on POSIX it does unless told not to."""
    return options.parent is not None and not options.parent.get("nodaemon", True)


def _config_path(options: Options) -> Path:
    return Path(options["config"] or os.environ.get("GATEWAY_CONFIG") or DEFAULT_CONFIG)


def _given(options: Options) -> Mapping[str, str]:
    """Give what the command line says for keys of the configuration."""
    return {"--listen": " ".join(options.listen)}


def _load(options: Options) -> Config:
    return load_file(_config_path(options), os.environ, _given(options))


def _as_fast(speed: float) -> str:
    return "as fast as" if speed == 1 else f"{speed:g} times as fast as"


def _load_or_exit(options: Options) -> Config:
    path = _config_path(options)
    if not path.exists():
        _complain(
            f"{path}: there is no such configuration file; name one with --config FILE or "
            "GATEWAY_CONFIG, or try --demo, which needs none"
        )
        raise SystemExit(1)
    try:
        return _load(options)
    except ConfigError as fault:
        _complain(str(fault))
        raise SystemExit(1) from None


def _no_file(path: str) -> str:
    raise OSError(f"the demo reads no {path}")


def _print(text: str) -> None:
    # Past the log, which twistd puts in the place of sys.stdout.
    stream = sys.__stdout__ or sys.stdout
    stream.write(text.rstrip("\n") + "\n")
    stream.flush()


def _complain(text: str) -> None:
    stream = sys.__stderr__ or sys.stderr
    stream.write(text.rstrip("\n") + "\n")
    stream.flush()

"""What the tests share: engines, gateway and nginx, each started once, when first asked for."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable
from tests.integration.engines import (
    Engine,
    real_engine,
    real_pooling_engine,
    real_slow_engine,
    simulated_engine,
    simulated_pooling_engine,
    simulated_slow_engine,
)
from tests.integration.gateway import Gateway, configuration
from tests.integration.nginx import Nginx
from tests.integration.processes import NotReady, free_port

ASKED = "INTEGRATION_ENGINE"
"""The environment variable that may say `simulated`, to do without a vLLM."""

_ANSWER_SECONDS = 15.0


class World:
    """The parts, started when they are first asked for and ended with the process.

    Attributes:
        unreal: why the chat engine is a simulated one although it should be a vLLM; None: it is
            one, or has not been asked for.
        broken: whether that is because a vLLM that is installed did not start.
        pooling_unreal, pooling_broken: the same of the engine for embeddings and rerank.
    """

    def __init__(self) -> None:
        self.unreal: str | None = None
        self.broken = False
        self.pooling_unreal: str | None = None
        self.pooling_broken = False
        self._engine: Engine | None = None
        self._pooling: Engine | None = None
        self._gateway: Gateway | None = None
        self._nginx: Nginx | None = None
        self._said: list[str] = []
        self._chat_port = free_port()
        self._pooling_port = free_port()

    @property
    def logs(self) -> Path:
        """Where this run's logs and configurations lie: in trial's directory."""
        path = Path.cwd() / "integration"
        path.mkdir(exist_ok=True)
        return path

    def engine(self) -> Engine:
        """The chat engine, which serves; one that a test has killed is started again.

        Raises:
            NotReady: neither the real nor the simulated one starts.
        """
        if self._engine is None:
            self._engine = self._first_engine()
            return self._engine
        engine = self._engine
        if engine.process.alive and not engine.serves(_ANSWER_SECONDS):
            # Its scheduler has died and its server hangs, say: one test failed of it, not all.
            self.say(f"the chat engine was found out of order, and ended\n{engine.process.tail()}")
            engine.kill()
        if not engine.process.alive:
            engine.start()
            engine.wait_ready()
        return engine

    def pooling(self) -> Engine:
        """The engine for embeddings and rerank, which serves.

        Raises:
            NotReady: neither the real nor the simulated one starts.
        """
        if self._pooling is None:
            if self._engine is not None and self._engine.process.alive:
                # Starting takes both cores.
                self._engine.wait_idle()
            self._pooling = self._first_pooling()
        return self._pooling

    def slow(self) -> Engine:
        """Another chat engine, whose prefills take long; its caller ends it.

        Raises:
            NotReady: it does not start.
        """
        port = free_port()
        if os.environ.get(ASKED) == "simulated":
            return _started(simulated_slow_engine(port, self.logs))
        try:
            engine = real_slow_engine(port, self.logs)
        except Unavailable as fault:
            self.say(f"NO REAL vLLM, the slow chat engine is a SIMULATED one: {fault}")
            engine = simulated_slow_engine(port, self.logs)
        return _started(engine)

    def configuration(self, **changes: Any) -> dict[str, Any]:
        """What a gateway before these engines is configured with; they need not run yet."""
        chat, pooling = (
            f"http://127.0.0.1:{port}" for port in (self._chat_port, self._pooling_port)
        )
        return configuration(chat, pooling, **changes)

    def gateway(self) -> Gateway:
        """The gateway, before both engines."""
        if self._gateway is None:
            self._gateway = Gateway("gateway", self.configuration(), self.logs)
            self._gateway.start()
        assert self._gateway.process.alive, f"the gateway ended\n{self._gateway.process.tail()}"
        return self._gateway

    def nginx(self) -> Nginx:
        """nginx, before the gateway.

        Raises:
            Unavailable: there is none here.
        """
        if self._nginx is None:
            self._nginx = Nginx(self.gateway().url, self.logs)
            self._nginx.start()
        return self._nginx

    @property
    def front(self) -> str:
        """Where clients connect: nginx, or the gateway itself where there is no nginx."""
        try:
            return self.nginx().url
        except Unavailable as fault:
            self.say(f"{fault}: clients talk to the gateway without one")
            return self.gateway().url

    def say(self, words: str) -> None:
        """Say loudly what is not as it should be: now, and once more when all has run."""
        if words not in self._said:
            if not self._said:
                atexit.register(self._repeat)
            self._said.append(words)
            _shout([words])

    def _repeat(self) -> None:
        _shout(self._said)

    def _first_engine(self) -> Engine:
        if os.environ.get(ASKED) == "simulated":
            self.unreal = f"{ASKED}=simulated asks for it"
        else:
            try:
                return _started(real_engine(self._chat_port, self.logs))
            except Unavailable as fault:
                self.unreal = f"vLLM cannot be had here: {fault}"
            except NotReady as fault:
                self.unreal, self.broken = f"vLLM is installed and does not start: {fault}", True
        self.say(f"NO REAL vLLM, the chat engine is a SIMULATED one: {self.unreal}")
        return _started(simulated_engine(self._chat_port, self.logs))

    def _first_pooling(self) -> Engine:
        if os.environ.get(ASKED) == "simulated":
            self.pooling_unreal = f"{ASKED}=simulated asks for it"
        else:
            try:
                return _started(real_pooling_engine(self._pooling_port, self.logs))
            except Unavailable as fault:
                self.pooling_unreal = f"vLLM with an embedder cannot be had here: {fault}"
            except NotReady as fault:
                self.pooling_unreal = f"vLLM is installed and does not start so: {fault}"
                self.pooling_broken = True
        self.say(f"NO REAL EMBEDDER, the pooling engine is a SIMULATED one: {self.pooling_unreal}")
        return _started(simulated_pooling_engine(self._pooling_port, self.logs))


def _started(engine: Engine) -> Engine:
    engine.start()
    try:
        engine.wait_ready()
    except NotReady:
        engine.process.stop()
        raise
    return engine


def _shout(lines: list[str]) -> None:
    # Past trial, which takes sys.stdout's place.
    stream = sys.__stdout__ or sys.stdout
    bar = "!" * 100
    stream.write("\n".join(["", bar, *(f"!! {line}" for line in lines), bar, ""]) + "\n")
    stream.flush()


WORLD = World()

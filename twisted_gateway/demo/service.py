"""The demo: two simulated engines on loopback, and a configuration of the gateway for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.interfaces import IListeningPort

from twisted_gateway.core.policy import Policy
from twisted_gateway.demo.host import Host
from twisted_gateway.demo.scheduler import Profile
from twisted_gateway.demo.server import EngineSite

REASONING = Profile()
"""An engine of four sequences and 152,432 KV tokens, as `Profile` describes."""

_LEAST_SECONDS = 0.1
_DRAIN_SECONDS = 10
"""How long Ctrl-C waits for what is under way: nobody depends on the demo's answers."""

EMBEDDINGS = Profile(
    max_num_seqs=32,
    max_batched_tokens=8192,
    max_model_tokens=8192,
    prefill_tokens_per_second=20_000.0,
    shared_prefill_tokens_per_second=20_000.0,
    step_seconds=0.002,
    prefix_caching=False,
)
"""A small and fast pooling engine."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """One simulated engine that listens on loopback.

    Attributes:
        url: its base URL.
        host: the engine itself: `host.engine` knows the truth, `host.change_faults` breaks it.
    """

    url: str
    host: Host
    _site: EngineSite
    _port: IListeningPort

    async def stop(self) -> None:
        """Stop listening, cut every connection, end every timer."""
        self._site.cut()
        await _done(self._port.stopListening())


@dataclass(frozen=True, slots=True)
class DemoEngines:
    """The demo's two engines."""

    reasoning: RunningEngine
    embeddings: RunningEngine

    async def stop(self) -> None:
        """Stop both."""
        await self.reasoning.stop()
        await self.embeddings.stop()


async def start_engine(
    reactor: Any,
    model: str,
    profile: Profile,
    *,
    pools: bool = False,
    speed: float = 1.0,
    port: int = 0,
) -> RunningEngine:
    """Start one engine on loopback.

    Args:
        reactor: provides IReactorTCP and IReactorTime.
        model: the name it serves its model by.
        profile: what it can do at speed 1.
        pools: it embeds and scores; else it generates.
        speed: its time runs this many times as fast.
        port: 0 for any that is free.

    Raises:
        CannotListenError: the port is taken.
        ValueError: `speed` is not above zero.
    """
    host = Host(reactor, model, profile, speed=speed)
    site = EngineSite(reactor, host, pools=pools)
    endpoint = TCP4ServerEndpoint(reactor, port, interface="127.0.0.1")
    listening = await endpoint.listen(site)
    address: Any = listening.getHost()
    return RunningEngine(f"http://127.0.0.1:{address.port}", host, site, listening)


async def demo_engines(reactor: Any, speed: float = 1.0) -> DemoEngines:
    """Start the demo's engines on ephemeral ports of loopback.

    Args:
        reactor: provides IReactorTCP and IReactorTime.
        speed: their time runs this many times as fast.

    Raises:
        CannotListenError: there is no port to be had; nothing is left running.
        ValueError: `speed` is not above zero.
    """
    reasoning = await start_engine(reactor, "reasoning", REASONING, speed=speed)
    try:
        embeddings = await start_engine(reactor, "embeddings", EMBEDDINGS, pools=True, speed=speed)
    except BaseException:
        await reasoning.stop()
        raise
    return DemoEngines(reasoning, embeddings)


def demo_config_text(
    reasoning_url: str, embeddings_url: str, listen: Sequence[str], speed: float = 1.0
) -> str:
    """The configuration, as YAML, of a gateway in front of the demo's engines.

    Rerank is a model of its own that the embeddings engine serves under its one name, so that chat,
    completions, embeddings and rerank can all be tried. What concerns the time of the reasoning
    engine is as fast as that, so that sped up it shows what it would at its own pace.
    """
    policy = Policy()
    admission = {
        "maxInflight": REASONING.max_num_seqs,
        "prefillTokensPerSecond": REASONING.prefill_tokens_per_second * speed,
        "decodeTokensPerSecond": speed / REASONING.step_seconds,
    }
    if speed != 1:
        seconds = {
            "maxParkSeconds": policy.max_park_seconds,
            "keepAliveSeconds": policy.keep_alive_seconds,
            "pollSeconds": policy.poll_seconds,
            "patienceSeconds": policy.patience_seconds,
            "longPrefillSeconds": policy.long_prefill_seconds,
            "parkedWorkSeconds": policy.parked_work_seconds,
        }
        admission |= {name: max(_LEAST_SECONDS, value / speed) for name, value in seconds.items()}
    pooling = f"""\
    upstream: {_quoted(embeddings_url)}
    engine: vllm
    upstreamModel: embeddings
    admission: {{maxInflight: {EMBEDDINGS.max_num_seqs}}}"""
    return f"""\
# The demo: two simulated engines on loopback behind the real gateway.
listen: {json.dumps(list(listen))}
drainSeconds: {_DRAIN_SECONDS}
tenants: {{trustedProxies: ["127.0.0.0/8", "::1"]}}     # so that X-Tenant can be tried
models:
  reasoning:
    upstream: {_quoted(reasoning_url)}
    engine: vllm
    aliases: [gpt-4o]
    admission: {json.dumps(admission)}
  embeddings:
{pooling}
  rerank:
{pooling}
"""


def _quoted(text: str) -> str:
    return json.dumps(text)


async def _done(result: object) -> None:
    if isinstance(result, Deferred):
        await result

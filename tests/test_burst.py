"""The gate in front of an engine that models steps: what really is in the engine, not what it says.

The engine is the demo's: it publishes its gauges at the end of a step, takes arrivals between
steps, and knows how many requests it really holds. Everything is in memory and on one Clock.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address

from tests.stack import CONFIG, Client, Engine, Stack, Wire
from tests.support import TestCase
from twisted_gateway.demo.host import Host
from twisted_gateway.demo.scheduler import Profile
from twisted_gateway.demo.server import EngineSite


class SteppingEngine(Engine):
    """The demo's engine at the other end of the gateway's connections."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.host = Host(stack.reactor, "reasoning", Profile())
        self._site = EngineSite(stack.reactor, self.host, pools=False)
        self._pairs: list[tuple[Wire, Wire, list[int]]] = []

    def accept(self, factory: Any, host: str, port: int) -> None:
        """Join the two ends of a connection."""
        address = IPv4Address("TCP", host, port)
        ours, theirs = (Wire(self.stack.reactor, address) for _ in range(2))
        ours.protocol = factory.buildProtocol(address)
        theirs.protocol = self._site.buildProtocol(address)
        theirs.protocol.makeConnection(theirs)
        ours.protocol.makeConnection(ours)
        self._pairs.append((ours, theirs, [0, 0]))
        self._wires += [(ours, 0), (theirs, 0)]

    def read(self) -> bool:
        """Carry what was written to the other end."""
        progress = False
        for ours, theirs, done in self._pairs:
            for index, (source, target) in enumerate(((ours, theirs), (theirs, ours))):
                data = source.value()[done[index] :]
                if data and not target.closed:
                    done[index] += len(data)
                    progress = True
                    target.deliver(data)
                if source.closed and not target.closed:
                    progress = True
                    target.lose()
        return progress


class Bursts(TestCase):
    """Never more than S in the engine, and no place left idle."""

    def _stack(self, config: str = CONFIG) -> tuple[Stack, SteppingEngine]:
        stack = Stack(self, config, engine=SteppingEngine)
        engine = stack.engine()
        assert isinstance(engine, SteppingEngine)
        return stack, engine

    def _burst(self, stack: Stack, count: int, words: int, tokens: int) -> list[Client]:
        return [
            stack.client().chat(
                stream=True,
                max_tokens=tokens,
                ignore_eos=True,
                messages=[{"role": "user", "content": f"{number} " + "word " * words}],
            )
            for number in range(count)
        ]

    def test_twenty_at_once(self) -> None:
        """Long prompts hide in the gauges for many seconds; the ledger knows them all the same."""
        stack, engine = self._stack()
        stack.advance(3, step=1)
        clients = self._burst(stack, 20, words=1600, tokens=20)
        for _ in range(1000):
            stack.advance(1, step=1)
            if all(client.whole for client in clients):
                break
        self.assertTrue(all(client.body.endswith(b"data: [DONE]\n\n") for client in clients))
        self.assertEqual(engine.host.engine.peak_in_engine, 4)

    def test_on_a_cold_start(self) -> None:
        """Before the first poll has been answered the ledger alone holds the burst to S."""
        stack, engine = self._stack()
        engine.host.change_faults({"metrics": "hang"})
        clients = self._burst(stack, 20, words=10, tokens=5)
        self.assertEqual(engine.host.engine.peak_in_engine, 4)
        engine.host.change_faults({"metrics": "ok"})
        stack.advance(30, step=0.5)
        self.assertTrue(all(client.whole for client in clients))
        self.assertEqual(engine.host.engine.peak_in_engine, 4)

    def test_no_slot_time_is_lost_to_the_poll_interval(self) -> None:
        """A place that frees is filled at once, though polls are an age apart."""
        stack, engine = self._stack(CONFIG.replace("4}", "4, pollSeconds: 500}"))
        clients = self._burst(stack, 20, words=1, tokens=25)
        started = stack.now
        while not all(client.whole for client in clients):
            parked = stack.facts()["parked"]
            if parked:
                self.assertEqual(engine.host.engine.in_engine_now, 4)
            stack.advance(0.05, step=0.05)
        # 5 rounds of 25 steps of 40 ms, and a prefill each.
        self.assertLess(stack.now - started, 5 * 25 * 0.04 * 1.3)
        self.assertEqual(engine.host.engine.peak_in_engine, 4)

    def test_direct_callers_count(self) -> None:
        """With two of others in the engine, two of ours go, and four of ours never."""
        stack, engine = self._stack()
        for _ in range(2):
            _ = engine.host.engine.submit(50, 2000, lambda _: None, lambda _: None)
        self.addCleanup(engine.host.engine.die)
        stack.advance(4, step=0.5)
        self._burst(stack, 6, words=1, tokens=20)
        stack.advance(0.5, step=0.1)
        self.assertEqual(engine.host.engine.peak_in_engine, 4)
        self.assertEqual(stack.facts()["own"], 2)

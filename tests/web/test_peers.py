"""The replicas' exchange: its listener, its rounds and the names that it looks up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import CannotListenError, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, capturedLogs

from tests.stack import CONFIG, Client, Engine, Stack
from tests.support import TestCase
from tests.upstream.network import Dial, Network, Socket
from twisted_gateway.config.schema import Config, Model, Secret
from twisted_gateway.config.schema import Peers as PeersSection
from twisted_gateway.core.peers import GateReport, HeadView
from twisted_gateway.core.peerwire import MAX_VIEW_BYTES, PeerView, read_view, render_view
from twisted_gateway.core.policy import Policy, Replicas
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web import peer_site
from twisted_gateway.web.peer_addresses import PeerAddresses
from twisted_gateway.web.peer_rounds import ExchangingGate, Rounds
from twisted_gateway.web.peers import Peers

STEP = 1 / 16
"""Of time, in seconds: a sum of such is exact."""

TOKEN = "a token of the replicas".replace(" ", "-")
AUTHORIZATION = f"Bearer {TOKEN}"
ENGINE = "http://10.0.0.1:8000"
OWN = "0123456789abcdef"
A, B = ("10.1.0.1", 8081), ("10.1.0.2", 8081)
BOTH = Replicas(addresses=(A, B))
NAMED = Replicas(dns=("gateways", 8081))
BUSY = GateReport(in_flight=(1,), long_prefill_seconds=(0.0,))
NOTHING = GateReport(in_flight=(0,), long_prefill_seconds=(0.0,))


class FakeGate:
    """A gate that says what the test wants and notes what it is told."""

    def __init__(self) -> None:
        self.holds = BUSY
        self.told: list[tuple[dict[str, GateReport | None], bool]] = []
        self.fault: Exception | None = None

    def report(self) -> GateReport:
        if self.fault is not None:
            raise self.fault
        return self.holds

    def peers(self, views: Mapping[str, GateReport | None], *, current: bool) -> None:
        self.told.append((dict(views), current))
        if self.fault is not None:
            raise self.fault


class Port:
    """A port that the gateway listens on."""

    def __init__(self, number: int, factory: Any, interface: str) -> None:
        self.number = number
        self.interface = interface
        self.factory = factory
        self.open = True

    def stopListening(self) -> None:
        self.open = False


class Endpoint:
    """An endpoint that takes its time, as those do that are no sockets."""

    def __init__(self) -> None:
        self.openings: list[Deferred[Any]] = []

    def listen(self, factory: Any) -> Deferred[Any]:
        self.openings.append(Deferred())
        return self.openings[-1]


class Resolver:
    """A name resolver whose answers are the test's."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.receivers: list[Any] = []
        self.addresses: list[str] | Exception | None = []

    def resolveHostName(self, receiver: Any, host: str, port: int = 0, *rest: Any) -> None:
        self.asked.append((host, port))
        self.receivers.append(receiver)
        receiver.resolutionBegan(None)
        if isinstance(self.addresses, Exception):
            raise self.addresses
        if self.addresses is not None:
            self.finish(receiver, port)

    def finish(self, receiver: Any, port: int = 8081) -> None:
        for host in self.addresses or ():  # type: ignore[union-attr]
            kind = IPv6Address if ":" in host else IPv4Address
            receiver.addressResolved(kind("TCP", host, port))
        receiver.resolutionComplete()


class Reactor(MemoryReactorClock):
    """A reactor in memory, with ports that can be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: list[Port] = []
        self.taken: set[int] = set()
        self.missing: set[str] = set()
        self.nameResolver = self.resolver = Resolver()  # type: ignore[assignment]

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        bound = {one.number for one in self.ports if one.open}
        if port in self.taken | bound or interface in self.missing:
            raise CannotListenError(interface, port, OSError(98, "Address already in use"))
        self.ports.append(Port(port, factory, interface))
        return self.ports[-1]


class Replica:
    """Another replica, on one address.

    Attributes:
        answer: the whole answer to every request; None: it hangs.
        dials: how often it was connected to.
        asked: how many requests have come.
    """

    def __init__(self, instance: str) -> None:
        self.up = True
        self.sockets: list[Socket] = []
        self.unanswered: list[Socket] = []
        self.requests: list[bytes] = []
        self.dials = 0
        self.answer: bytes | None = None
        self.says(instance, BUSY)

    @property
    def asked(self) -> int:
        return len(self.requests)

    def says(self, instance: str, report: GateReport, key: str = ENGINE) -> Replica:
        """Answer with this view from now on."""
        self.answer = answer(render_view(PeerView(instance, {key: report})))
        return self

    def accept(self, dial: Dial) -> None:
        self.dials += 1
        if self.up:
            self.sockets.append(dial.accept())
        else:
            dial.result.errback(ConnectionRefusedError())

    def read(self) -> None:
        """Read what has come."""
        for socket in self.sockets:
            request = b"" if socket.transport.closed else socket.sent
            if request:
                self.requests.append(request)
                self.unanswered.append(socket)
                if self.answer is not None:
                    self.finish()

    def finish(self) -> None:
        """Answer what has come."""
        sockets, self.unanswered = self.unanswered, []
        for socket in sockets:
            if not socket.transport.closed:
                socket.say(self.answer or answer(b""))


def answer(body: bytes, status: int = 200) -> bytes:
    """An answer with this body."""
    return b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def config(
    replicas: Replicas = BOTH, *, token: str | None = TOKEN, listen: str = "tcp:8081"
) -> Config:
    """A configuration with one model."""
    model = Model(
        name="m", upstreams=(ENGINE,), gated=True, policy=Policy(replicas=replicas, max_inflight=4)
    )
    secret = None if token is None else Secret(token)
    return Config(models={"m": model}, peers=PeersSection(listen=listen, token=secret))


class ExchangeTestCase(TestCase):
    """A replica's side of the exchange, and others played by the test."""

    def setUp(self) -> None:
        super().setUp()
        self.reactor = Reactor()
        self.reactor.advance(1000)
        self.net = Network(self.reactor)
        self.net.manual = True
        self.dialled = 0
        self.gate = FakeGate()
        self.gates = [ExchangingGate((ENGINE,), BOTH, self.gate)]
        self.others = {A: Replica("aa"), B: Replica("bb")}
        self.clients: list[Client] = []
        self.now = 0.0
        agent = UpstreamAgent(self.reactor, connect_seconds=5.0, endpoints=self.net)
        self.peers = Peers(self.reactor, lambda: self.gates, instance=OWN, agent=agent)
        self.addCleanup(self.leave)

    def leave(self) -> None:
        """Stop: nothing may stay."""
        for client in self.clients:
            client.wire.lose()
        stopped = self.peers.stop()
        self.reactor.advance(0)
        self.successResultOf(stopped)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertFalse([port for port in self.reactor.ports if port.open])
        sockets = [socket for one in self.others.values() for socket in one.sockets]
        self.assertFalse([one for one in sockets if not one.transport.closed])
        self.assertFalse([one for one in self.net.dials if not one.result.called])

    def start(self, replicas: Replicas = BOTH, **options: Any) -> None:
        """Begin, with these replicas of the one gate."""
        self.gates[:] = [ExchangingGate((ENGINE,), replicas, self.gate)]
        self.peers.start(config(replicas, **options))
        self.pass_time(0)

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        while True:
            for dial in self.net.dials[self.dialled :]:
                self.dialled += 1
                host, port = dial.uri.host.decode(), dial.uri.port
                self.others.setdefault((host, port), Replica("cc")).accept(dial)
            for one in list(self.others.values()):
                one.read()
            now = self.reactor.seconds()
            due = [one for one in self.reactor.getDelayedCalls() if one.getTime() <= now]
            if not due and self.dialled == len(self.net.dials):
                return
            self.reactor.advance(0)

    def pass_time(self, seconds: float, step: float = STEP) -> None:
        """Let time pass."""
        self.settle()
        for _ in range(round(seconds / step)):
            self.reactor.advance(step)
            self.settle()

    def lines(self, seconds: float, step: float = STEP) -> list[str]:
        """What is logged within so much time."""
        with capturedLogs() as events:
            self.pass_time(seconds, step)
        return [
            str(event["log_format"]).format(**event)
            for event in events
            if event["log_namespace"].startswith("twisted_gateway.web.peer")
        ]

    @property
    def views(self) -> dict[str, GateReport | None]:
        """What the gate was told last."""
        return self.gate.told[-1][0]

    def client(self, port: int = 0) -> Client:
        """Somebody who connects to the listener."""
        return Client(self, self.reactor.ports[port].factory, "10.1.0.1")  # type: ignore[arg-type]


class Answering(ExchangeTestCase):
    """GET /v1/peer."""

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_view(self) -> None:
        """Who shows the token is told what every gate holds, by the addresses of its engines."""
        head = HeadView(age_seconds=1.5, cost_seconds=2.0, tenant="ab")
        self.gate.holds = GateReport(
            in_flight=(3,), long_prefill_seconds=(4.0,), head=head, use={"ab": 5.0}
        )
        other = FakeGate()
        other.holds = GateReport(in_flight=(1, 2), long_prefill_seconds=(0.0, 0.0), use={})
        retired = FakeGate()
        self.gates += [
            ExchangingGate(("http://a:1", "http://b:1"), BOTH, other),
            ExchangingGate((ENGINE,), BOTH, retired),
        ]
        client = self.client().get("/v1/peer", Authorization=AUTHORIZATION)
        self.assertEqual((client.status, client.headers["content-type"]), (200, "application/json"))
        self.assertEqual(client.headers["cache-control"], "no-store")
        self.assertEqual(
            read_view(client.body),
            PeerView(OWN, {ENGINE: self.gate.holds, "http://a:1 http://b:1": other.holds}),
        )

    def test_without_the_token(self) -> None:
        """401, and the answer does not say what the token is."""
        for fields in (
            b"",
            b"Authorization: Bearer\r\n",
            b"Authorization: Bearer \r\n",
            b"Authorization: Bearer wrong\r\n",
            b"Authorization: Bearer %sx\r\n" % TOKEN.encode(),
            b"Authorization: Basic %s\r\n" % TOKEN.encode(),
            b"Authorization: \xff\r\n",
            b"Authorization: Bearer a\r\nAuthorization: %s\r\n" % AUTHORIZATION.encode(),
        ):
            client = self.client().send(b"GET /v1/peer HTTP/1.1\r\nHost: a\r\n%s\r\n" % fields)
            self.assertEqual(client.status, 401, fields)
            self.assertEqual(client.headers["content-type"], "application/problem+json")
            self.assertIn("www-authenticate", client.headers)
            self.assertNotIn(TOKEN.encode(), client.received)

    def test_the_scheme_in_any_case(self) -> None:
        """RFC 9110, section 11.1."""
        client = self.client().get("/v1/peer", Authorization=f"bearer {TOKEN}")
        self.assertEqual(client.status, 200)

    def test_anything_else(self) -> None:
        """There is nothing else here, and it takes no bodies."""
        for method, path, status in (
            ("GET", "/", 404),
            ("GET", "/v1/peer/x", 404),
            ("GET", "/metrics", 404),
            ("POST", "/v1/chat/completions", 404),
            ("HEAD", "/v1/peer", 405),
            ("DELETE", "/v1/peer", 405),
            ("GET", "/v1/../v1/peer", 400),
            ("GET", "/v1%2Fpeer", 404),
            ("GET", "xv1/peer", 400),
            ("GET", "//v1/pee%72/", 200),
        ):
            client = self.client().get(path, method, Authorization=AUTHORIZATION)
            self.assertEqual(client.status, status, path)
        for framing in (b"Content-Length: 1", b"Transfer-Encoding: chunked"):
            client = self.client().send(
                b"POST /v1/peer HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n1\r\nx\r\n0\r\n\r\n" % framing
            )
            self.assertEqual(client.status, 413, framing)

    def test_connections_are_kept(self) -> None:
        """One serves many rounds."""
        client = self.client()
        for _ in range(3):
            client.get("/v1/peer", Authorization=AUTHORIZATION)
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 3)
        self.assertFalse(client.wire.disconnecting)

    def test_who_sends_no_head(self) -> None:
        """The connection closes after a while."""
        client = self.client().send(b"GET /v1/peer HTTP/1.1\r\n")
        self.pass_time(80, step=1)
        self.assertTrue(client.wire.closed)

    def test_too_many_connections(self) -> None:
        """They are turned away, with one line in the log."""
        for _ in range(256):
            self.client()
        with capturedLogs() as events:
            turned_away = [self.client() for _ in range(3)]
        self.assertEqual([client.status for client in turned_away], [503] * 3)
        self.assertEqual(len(events), 1)

    def test_a_fault_of_ours(self) -> None:
        """500 without a traceback; the next request is answered."""
        self.gate.fault = ValueError("inside")
        client = self.client().get("/v1/peer", Authorization=AUTHORIZATION)
        self.assertEqual(client.status, 500)
        self.assertNotIn(b"inside", client.received)
        self.gate.fault = None
        client = self.client().get("/v1/peer", Authorization=AUTHORIZATION)
        self.assertEqual(client.status, 200)
        self.flushLoggedErrors(ValueError)


class Listening(ExchangeTestCase):
    """When, and where, the listener is open."""

    def ports(self) -> list[int]:
        """The open ones."""
        return [port.number for port in self.reactor.ports if port.open]

    def status(self, token: str, port: int = -1) -> int:
        """What the listener says to who shows this token."""
        return self.client(port).get("/v1/peer", Authorization=f"Bearer {token}").status

    def test_not_without_addresses(self) -> None:
        """Nothing is opened or asked while replicas are merely counted, or alone."""
        for replicas in (Replicas(), Replicas(count=3)):
            self.peers.start(config(replicas, token=None))
            self.pass_time(2)
        self.assertEqual((self.ports(), self.net.dials), ([], []))

    def test_a_port_that_is_taken(self) -> None:
        """At start that is an error."""
        self.reactor.taken.add(8081)
        fault = self.assertRaises(CannotListenError, self.peers.start, config())
        self.assertIn("8081", str(fault))

    def test_an_endpoint_that_fails_later(self) -> None:
        """Those of TCP fail at once; of others the log says so, and the next reload tries again."""
        endpoint = Endpoint()
        self.patch(peer_site, "serverFromString", lambda reactor, place: endpoint)
        self.start()
        with capturedLogs() as events:
            endpoint.openings[0].errback(OSError("no such thing"))
        self.assertEqual([event["log_level"] for event in events], [LogLevel.error])
        self.peers.adopt(config())
        port = Port(8081, None, "")
        endpoint.openings[1].callback(port)
        self.peers.adopt(config())
        self.assertEqual(len(endpoint.openings), 2)
        self.assertTrue(port.open)
        self.reactor.ports.append(port)

    def test_moved(self) -> None:
        """A reload opens the new place before it closes the old one, with its connections."""
        self.start()
        idle, half = self.client(), self.client().send(b"GET /v1/peer HTTP/1.1\r\n")
        self.peers.adopt(config(listen="tcp:9000"))
        self.pass_time(0.1)
        self.assertEqual(self.ports(), [9000])
        self.assertTrue(idle.wire.closed)
        self.assertTrue(half.wire.closed)
        self.assertEqual(self.status(TOKEN), 200)

    def test_moved_to_a_port_that_is_taken(self) -> None:
        """The old place stays, the rest is in force, and the log says so."""
        self.start()
        self.reactor.taken.add(9000)
        with capturedLogs() as events:
            self.peers.adopt(config(listen="tcp:9000", token="another" * 3))
        self.assertEqual([event["log_level"] for event in events], [LogLevel.error])
        self.assertEqual(self.ports(), [8081])
        self.assertEqual(self.status("another" * 3), 200)
        self.reactor.taken.clear()
        self.peers.adopt(config(listen="tcp:9000"))
        self.assertEqual(self.ports(), [9000])

    def interfaces(self) -> list[str]:
        """Of the open ports."""
        return [port.interface for port in self.reactor.ports if port.open]

    def test_another_interface(self) -> None:
        """The old place is in the way of the new one, so it is closed first."""
        self.start()
        self.peers.adopt(config(listen="tcp:8081:interface=127.0.0.1"))
        self.assertEqual(self.interfaces(), ["127.0.0.1"])
        self.assertEqual(self.status(TOKEN), 200)

    def test_an_interface_that_is_not_there(self) -> None:
        """The old place is opened again, and the log says so."""
        self.start()
        self.reactor.missing.add("10.9.9.9")
        with capturedLogs() as events:
            self.peers.adopt(config(listen="tcp:8081:interface=10.9.9.9"))
        self.assertIn(LogLevel.error, [event["log_level"] for event in events])
        self.assertEqual(self.interfaces(), [""])
        self.assertEqual(self.status(TOKEN), 200)
        self.reactor.missing.clear()
        self.peers.adopt(config(listen="tcp:8081:interface=10.9.9.9"))
        self.assertEqual(self.interfaces(), ["10.9.9.9"])

    def test_stopped_while_it_moves(self) -> None:
        """What is closed meanwhile is not opened again, and a later place is the one."""
        for last in ("", "tcp:9000"):
            self.start()
            freed: Deferred[None] = Deferred()
            port = self.reactor.ports[-1]
            self.patch(port, "stopListening", lambda freed=freed: freed)
            self.peers.adopt(config(listen="tcp:8081:interface=127.0.0.1"))
            port.open = False
            if last:
                self.peers.adopt(config(listen=last))
            else:
                self.gates.clear()
                self.peers.adopt(config(Replicas()))
            freed.callback(None)
            self.assertEqual(self.ports(), [9000] if last else [])

    def test_closed(self) -> None:
        """When no model's replicas give addresses any more nothing is open or asked."""
        self.start()
        self.gates.clear()
        self.peers.adopt(config(Replicas()))
        self.pass_time(0)
        asked = self.others[A].asked
        self.pass_time(3)
        self.assertEqual((self.ports(), self.others[A].asked), ([], asked))

    def test_another_token(self) -> None:
        """It is the one that is asked for, and shown, from then on."""
        self.start()
        client = self.client()
        self.peers.adopt(config(token="another" * 3))
        self.pass_time(0.1)
        self.assertEqual(self.status(TOKEN), 401)
        self.assertEqual(
            client.get("/v1/peer", Authorization="Bearer " + "another" * 3).status, 200
        )
        self.assertIn(b"Authorization: Bearer anotheranother", self.others[A].requests[-1])


class Asking(ExchangeTestCase):
    """Rounds."""

    def test_all_at_once(self) -> None:
        """Each is asked with the token; the gate is told what they said, by address."""
        self.others[B].says("bb", GateReport(in_flight=(2,), long_prefill_seconds=(3.0,), use={}))
        self.start()
        b = GateReport(in_flight=(2,), long_prefill_seconds=(3.0,), use={})
        self.assertEqual(self.gate.told, [({"10.1.0.1:8081": BUSY, "10.1.0.2:8081": b}, True)])
        request = self.others[A].requests[0]
        self.assertTrue(request.startswith(b"GET /v1/peer HTTP/1.1\r\n"))
        self.assertIn(AUTHORIZATION.encode(), request)

    def test_over_and_over(self) -> None:
        """Every 250 ms, over connections that are kept."""
        self.start()
        self.pass_time(2)
        self.assertEqual(len(self.gate.told), 9)
        self.assertEqual((self.others[A].dials, self.others[A].asked), (1, 9))

    def test_many(self) -> None:
        """With more of them rounds are fewer."""
        addresses = tuple((f"10.2.0.{n}", 8081) for n in range(1, 51))
        for host, port in addresses:
            self.others[host, port] = Replica(f"{len(self.others):x}")
        self.start(Replicas(addresses=addresses))
        self.pass_time(10)
        self.assertEqual(len(self.gate.told), 11)
        self.assertEqual(len(self.views), 50)

    def test_idle(self) -> None:
        """Every second, while this replica holds nothing; 250 ms after it does at the latest."""
        self.gate.holds = NOTHING
        self.start()
        self.pass_time(2.9)
        self.assertEqual(len(self.gate.told), 3)
        self.pass_time(0.2)
        head = HeadView(age_seconds=0.0, cost_seconds=1.0, tenant="ab")
        self.gate.holds = GateReport(in_flight=(0,), long_prefill_seconds=(0.0,), head=head)
        self.pass_time(0.25)
        self.assertEqual(len(self.gate.told), 5)

    def test_oneself(self) -> None:
        """The address at which this very process answers is no peer, even when it fails."""
        self.others[A].says(OWN, BUSY)
        self.start()
        self.others[A].up = False
        self.others[A].sockets[0].end()
        self.pass_time(1)
        self.assertEqual({tuple(views) for views, _ in self.gate.told}, {("10.1.0.2:8081",)})

    def test_two_addresses_of_one(self) -> None:
        """It counts once, whichever of them answers."""
        self.others[A].says("bb", BUSY)
        self.start()
        self.assertEqual(self.views, {"10.1.0.1:8081": BUSY})
        self.others[A].answer = None
        self.pass_time(1)
        self.assertEqual(self.views, {"10.1.0.1:8081": BUSY})

    def test_a_replica_that_restarts(self) -> None:
        """It is another process at the same address, and that is all that changes."""
        self.start()
        self.others[A].says("dd", NOTHING).sockets[0].end()
        self.pass_time(0.3)
        self.assertEqual(self.views["10.1.0.1:8081"], NOTHING)
        self.others[B].says("dd", NOTHING)
        self.pass_time(0.3)
        self.assertEqual(self.views, {"10.1.0.1:8081": NOTHING})

    def test_another_configuration(self) -> None:
        """Who has no such gate holds nothing there."""
        self.others[A].says("aa", BUSY, key="http://elsewhere:80")
        self.start()
        self.assertEqual(self.views["10.1.0.1:8081"], NOTHING)

    def test_gates_of_their_own(self) -> None:
        """Each gate is told of its own replicas alone, and of its own engines."""
        other = FakeGate()
        self.peers.start(config())
        only = Replicas(addresses=(B,))
        self.gates[:] = [
            ExchangingGate((ENGINE,), Replicas(addresses=(A,)), self.gate),
            ExchangingGate(("http://other:80",), only, other),
        ]
        self.pass_time(0)
        self.assertEqual(self.gate.told, [({"10.1.0.1:8081": BUSY}, True)])
        self.assertEqual(other.told, [({"10.1.0.2:8081": NOTHING}, True)])

    def test_retired_ones_first(self) -> None:
        """Of gates in front of one engine those told first take first: retired ones get no more."""
        order: list[FakeGate] = []
        retired = FakeGate()
        for gate in (self.gate, retired):
            self.patch(gate, "peers", lambda *_, gate=gate, current: order.append(gate))
        self.peers.start(config())
        self.gates.append(ExchangingGate((ENGINE,), BOTH, retired))
        self.pass_time(0)
        self.assertEqual(order, [retired, self.gate])

    def test_a_gate_that_fails(self) -> None:
        """The others are told, and rounds go on."""
        other = FakeGate()
        self.gate.fault = ValueError("inside")
        self.start()
        self.gates.append(ExchangingGate(("http://other:80",), BOTH, other))
        self.pass_time(1)
        self.assertEqual(len(other.told), 4)
        self.flushLoggedErrors(ValueError)

    def test_reloaded(self) -> None:
        """Others are asked from then on; whoever still owes an answer is not waited for."""
        self.others[A].answer = None
        self.start()
        self.pass_time(0.1)
        new = Replicas(addresses=(B, ("10.1.0.3", 8081)))
        self.gates[:] = [ExchangingGate((ENGINE,), new, self.gate)]
        self.peers.adopt(config(new))
        self.pass_time(0)
        self.assertTrue(self.others[A].sockets[0].transport.closed)
        self.assertEqual(self.gate.told, [({"10.1.0.2:8081": BUSY, "10.1.0.3:8081": BUSY}, True)])

    def test_ipv6(self) -> None:
        """An address in brackets."""
        self.start(Replicas(addresses=(("fd00::1", 8081),)))
        self.assertEqual(self.views, {"[fd00::1]:8081": BUSY})
        self.assertIn(b"Host: [fd00::1]:8081", self.others["fd00::1", 8081].requests[0])


class Failing(ExchangeTestCase):
    """Replicas that do anything but answer."""

    def test_refused(self) -> None:
        """The gate is told at once that it did not answer; the round is no worse for it."""
        self.others[A].up = False
        self.start()
        self.assertEqual(self.gate.told, [({"10.1.0.1:8081": None, "10.1.0.2:8081": BUSY}, True)])

    def test_all(self) -> None:
        """The gate is told all the same, round after round."""
        for one in self.others.values():
            one.up = False
        self.start()
        self.pass_time(1)
        self.assertEqual(len(self.gate.told), 5)
        self.assertEqual(self.views, {"10.1.0.1:8081": None, "10.1.0.2:8081": None})

    def test_one_that_hangs(self) -> None:
        """It makes one round late; those after it do not wait for it."""
        self.others[A].answer = None
        self.start()
        self.assertEqual(self.gate.told, [])
        self.pass_time(1)
        silent = {"10.1.0.1:8081": None, "10.1.0.2:8081": BUSY}
        self.assertEqual(self.gate.told, [(silent, False), *[(silent, True)] * 4])

    def test_one_that_hangs_is_asked_seldom(self) -> None:
        """Each ask has its two seconds, and there is never more than one."""
        self.others[A].answer = None
        self.start()
        self.pass_time(10)
        self.assertEqual(self.others[A].asked, 6)
        still = [one for one in self.others[A].sockets if not one.transport.closed]
        self.assertEqual(len(still), 1)

    def test_one_that_no_connection_leads_to(self) -> None:
        """The same, where not even a connection comes about."""
        self.others[A].accept = lambda dial: None  # type: ignore[method-assign]
        self.start()
        self.pass_time(10)
        dials = [one for one in self.net.dials if one.uri.host == b"10.1.0.1"]
        self.assertEqual((len(dials), len([one for one in dials if one.cancelled])), (6, 5))
        self.assertEqual(self.gate.told[-1][1], True)

    def test_an_answer_that_comes_late(self) -> None:
        """It counts for no round; whoever answers in time again is waited for again."""
        a = self.others[A]
        says, a.answer = a.answer, None
        self.start()
        self.pass_time(0.3)
        a.answer = says
        a.finish()
        self.assertEqual([views["10.1.0.1:8081"] for views, _ in self.gate.told], [None, None])
        self.pass_time(0.5)
        self.assertEqual(self.views["10.1.0.1:8081"], BUSY)
        a.answer = None
        self.pass_time(0.45)
        silent = {"10.1.0.1:8081": None, "10.1.0.2:8081": BUSY}
        self.assertEqual(self.gate.told[-2:], [(silent, False), (silent, True)])

    def test_one_that_is_always_slow(self) -> None:
        """It is never waited for a second time."""
        a = self.others[A]
        says, a.answer = a.answer, None
        self.start()
        waited_seconds = 0.0
        for _ in range(100):
            self.pass_time(STEP)
            waited_seconds = waited_seconds + STEP if a.unanswered else 0.0
            if waited_seconds > 0.25:
                a.answer = says
                a.finish()
                a.answer = None
        self.assertGreater(a.asked, 10)
        self.assertEqual([current for _, current in self.gate.told].count(False), 1)

    def test_answers_that_are_no_views(self) -> None:
        """Each counts as none, with one line in the log that repeats nothing of it."""
        secret = b"c0ffee"
        for bad in (
            answer(secret, 500),
            answer(secret, 401),
            b"HTTP/1.1 302 Go\r\nlocation: http://%s/\r\ncontent-length: 0\r\n\r\n" % secret,
            answer(secret),
            answer(json.dumps({"instance": "ab", "gates": {ENGINE: {"in_flight": [-1]}}}).encode()),
            answer(b"[" * MAX_VIEW_BYTES),
            answer(secret * 20_000),
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
            % (120_000, secret * 20_000),
            secret + b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n\r\n" + secret,
        ):
            world = type(self)("test_all")
            world.setUp()
            world.others[A].answer = bad
            with capturedLogs() as events:
                world.start()
                world.pass_time(2)
            self.assertEqual(world.views, {"10.1.0.1:8081": None, "10.1.0.2:8081": BUSY}, bad[:80])
            lines = [one for one in events if one["log_level"] is not LogLevel.info]
            self.assertEqual(len(lines), 1, lines)
            self.assertIn("10.1.0.1:8081", str(lines[0]["log_format"]).format(**lines[0]))
            for event in events:
                text = repr(event)
                self.assertNotIn("c0ffee", text)
                self.assertNotIn(TOKEN, text)
            world.leave()

    def test_answers_that_break_off(self) -> None:
        """By length, and where nobody can tell."""
        for head in (
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
            b"HTTP/1.0 200 OK\r\n\r\n{}",
        ):
            a = self.others[A] = Replica("aa")
            a.answer = None
            self.start()
            a.sockets[0].say(head)
            a.sockets[0].end()
            self.pass_time(0)
            self.assertIsNone(self.views["10.1.0.1:8081"])
            self.peers.adopt(config(Replicas()))
            self.settle()

    def test_a_kept_connection_that_was_closed(self) -> None:
        """It costs nothing: another one is opened."""
        self.start()
        self.others[A].sockets[0].end()
        self.pass_time(0.25)
        self.assertEqual(self.gate.told[-1], ({"10.1.0.1:8081": BUSY, "10.1.0.2:8081": BUSY}, True))

    def test_a_fault_of_ours(self) -> None:
        """It is logged, counts as no answer, and rounds go on."""
        clock, told = self.reactor, []

        class Gate(FakeGate):
            def peers(self, views: Mapping[str, GateReport | None], *, current: bool) -> None:
                told.append(views)

        gates = [ExchangingGate((ENGINE,), Replicas(addresses=(A,)), Gate())]
        rounds = Rounds(
            clock, lambda _: fail(ValueError("inside")), PeerAddresses(clock), lambda: gates, OWN
        )
        rounds.start()
        clock.pump([0.0] * 2 + [0.25] * 3)
        rounds.stop()
        self.assertEqual(told, [{"10.1.0.1:8081": None}] * 4)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 4)

    def test_the_log(self) -> None:
        """One line when a replica fails, one when it is back."""
        self.others[A].up = False
        lines = self._lines_of_start()
        self.assertEqual(len(lines), 1)
        self.assertIn("refused", lines[0])
        self.assertEqual(self.lines(5), [])
        self.others[A].up = True
        self.assertEqual(self.lines(5), ["the replica at 10.1.0.1:8081 answers again"])

    def test_the_log_of_one_that_flaps(self) -> None:
        """It is complained of once a minute at most."""
        self.start()
        lines = []
        for _ in range(100):
            self.others[A].answer = answer(b"", 500)
            lines += self.lines(0.5)
            self.others[A].says("aa", BUSY)
            lines += self.lines(0.5)
        self.assertEqual(len(lines), 4)

    def _lines_of_start(self) -> list[str]:
        with capturedLogs() as events:
            self.start()
            self.pass_time(1)
        return [
            str(event["log_format"]).format(**event)
            for event in events
            if event["log_level"] is LogLevel.warn
        ]


class Names(ExchangeTestCase):
    """dns:HOST:PORT, and names in lists."""

    def setUp(self) -> None:
        super().setUp()
        self.resolver = self.reactor.resolver
        self.resolver.addresses = ["10.1.0.2", "10.1.0.1"]

    def test_resolved(self) -> None:
        """Every address of the name is a replica."""
        self.start(NAMED)
        self.assertEqual(self.gate.told, [({"10.1.0.1:8081": BUSY, "10.1.0.2:8081": BUSY}, True)])
        self.assertEqual(self.resolver.asked, [("gateways", 8081)])

    def test_again(self) -> None:
        """Every five seconds: replicas come and go."""
        self.start(NAMED)
        self.resolver.addresses = ["10.1.0.2", "fd00::1"]
        self.pass_time(4.9)
        self.assertEqual(set(self.views), {"10.1.0.1:8081", "10.1.0.2:8081"})
        self.pass_time(0.5)
        self.assertEqual(set(self.views), {"10.1.0.2:8081", "[fd00::1]:8081"})
        self.assertEqual(len(self.resolver.asked), 2)

    def test_too_many(self) -> None:
        """Sixty-four are asked."""
        self.resolver.addresses = [f"10.2.{n}.1" for n in range(200)]
        for n in range(200):
            self.others[f"10.2.{n}.1", 8081] = Replica(f"{n:x}")
        self.start(NAMED)
        self.assertEqual(len(self.views), 64)

    def test_failures(self) -> None:
        """What was found last stays; the log has a line for the first, and for the end of them."""
        self.start(NAMED)
        self.resolver.addresses = []
        lines = self.lines(16)
        self.assertEqual(len(lines), 1)
        self.assertIn("gateways:8081", lines[0])
        self.assertEqual(set(self.views), {"10.1.0.1:8081", "10.1.0.2:8081"})
        self.resolver.addresses = ValueError("a bad name")
        self.assertEqual(self.lines(16), [])
        self.resolver.addresses = ["10.1.0.1"]
        self.assertEqual(self.lines(6), ["gateways:8081 can be resolved again"])
        self.assertEqual(set(self.views), {"10.1.0.1:8081"})

    def test_nothing_found_yet(self) -> None:
        """The gate is told of nobody, and not that it is alone."""
        self.resolver.addresses = None
        self.start(NAMED)
        self.assertEqual(self.gate.told, [({}, False)])
        self.resolver.addresses = []
        self.resolver.finish(self.resolver.receivers[0])
        self.pass_time(1)
        self.assertEqual(self.gate.told[-1], ({}, False))

    def test_a_lookup_that_hangs(self) -> None:
        """There is no second one beside it; after a minute it is given up."""
        self.start(NAMED)
        self.resolver.addresses = None
        self.pass_time(60, step=0.25)
        self.assertEqual(len(self.resolver.asked), 2)
        self.pass_time(15, step=0.25)
        self.assertEqual(len(self.resolver.asked), 3)
        late = self.resolver.receivers[1]
        self.resolver.addresses = ["10.9.9.9"]
        self.resolver.finish(late)
        self.pass_time(1)
        self.assertEqual(set(self.views), {"10.1.0.1:8081", "10.1.0.2:8081"})

    def test_in_a_list(self) -> None:
        """They are looked up too, and not once for every connection."""
        self.resolver.addresses = ["10.1.0.2"]
        self.start(Replicas(addresses=(A, ("gw-1", 8081))))
        self.pass_time(3)
        self.assertEqual(self.gate.told[0], ({"10.1.0.1:8081": BUSY, "10.1.0.2:8081": BUSY}, True))
        self.assertEqual(self.resolver.asked, [("gw-1", 8081)])

    def test_in_a_list_without_anybody(self) -> None:
        """A name that leads nowhere is no replica; while it may lead somewhere nothing is said."""
        self.resolver.addresses = None
        self.start(Replicas(addresses=(A, ("gw-1", 8081))))
        self.assertEqual(self.gate.told, [({}, False)])
        self.resolver.addresses = []
        self.resolver.finish(self.resolver.receivers[0])
        self.pass_time(0.3)
        self.assertEqual(self.gate.told[-1], ({"10.1.0.1:8081": BUSY}, True))

    def test_reloaded(self) -> None:
        """A name that stays is not looked up anew; one that goes is not any more."""
        self.start(NAMED)
        self.peers.adopt(config(NAMED))
        self.pass_time(1)
        self.assertEqual(len(self.resolver.asked), 1)
        self.gates[:] = [ExchangingGate((ENGINE,), BOTH, self.gate)]
        self.peers.adopt(config(BOTH))
        self.pass_time(20, step=0.25)
        self.assertEqual(len(self.resolver.asked), 1)


REPLICATED = (
    CONFIG.replace("{maxInflight: 4}", "{maxInflight: 4, replicas: ['10.0.0.9:8081']}")
    + f"peers: {{listen: 'tcp:8081', token: {TOKEN}}}\n"
)


class OtherReplica(Engine):
    """Another replica, as the whole gateway meets it."""

    holds = 0

    def read(self) -> bool:
        """Answer whoever asks what it holds."""
        progress = super().read()
        asked, self.asked = self.asked, []
        for one in asked:
            report = GateReport(in_flight=(self.holds,), long_prefill_seconds=(0.0,))
            one.answer(body=render_view(PeerView("aa", {ENGINE: report})))
        return progress


class InTheGateway(TestCase):
    """The whole gateway beside another replica."""

    def stack(self, text: str, holds: int = 0) -> Stack:
        """A gateway with this configuration, and the other holding so many."""
        stack = Stack(self, CONFIG)
        other = OtherReplica(stack)
        other.holds = holds
        stack.engines["10.0.0.9", 8081] = other
        self.reload(stack, text)
        return stack

    def reload(self, stack: Stack, text: str) -> None:
        """Put another configuration in force."""
        stack.text = text
        self.assertTrue(stack.gateway.reload())
        stack.settle()

    def running(self, stack: Stack) -> int:
        """How many this replica has in the engine."""
        return len([one for one in stack.engine().asked if not one.gone])

    def test_what_others_hold_counts(self) -> None:
        """Of four places one is left, though the engine's gauges show nothing yet."""
        stack = self.stack(REPLICATED, holds=3)
        stack.advance(1)
        for _ in range(4):
            stack.client().chat(stream=True)
        stack.advance(1)
        self.assertLessEqual(self.running(stack), 2)

    def test_what_they_held_is_forgotten(self) -> None:
        """After a reload that makes this one the only replica."""
        stack = self.stack(REPLICATED, holds=3)
        stack.advance(1)
        for _ in range(4):
            stack.client().chat(stream=True)
        self.reload(stack, CONFIG)
        stack.advance(5)
        self.assertEqual(self.running(stack), 4)

    def test_one_alone_may_use_every_place(self) -> None:
        """Where the other holds nothing."""
        stack = self.stack(REPLICATED)
        stack.advance(1)
        for _ in range(6):
            stack.client().chat(stream=True)
        stack.advance(2)
        self.assertEqual(self.running(stack), 4)

    def test_what_it_says(self) -> None:
        """Requests in the engine and parked ones show in its view."""
        stack = self.stack(REPLICATED)
        stack.advance(1)
        for _ in range(6):
            stack.client().chat(stream=True)
        stack.advance(2)
        client = stack.client(site=1).get("/v1/peer", Authorization=AUTHORIZATION)
        report = read_view(client.body).of(ENGINE)
        self.assertEqual(report.in_flight, (4,))
        assert report.head is not None
        self.assertGreaterEqual(report.head.age_seconds, 2)

    def test_probes_are_no_requests(self) -> None:
        """The exchange shows neither in the access log nor in the metrics."""
        stack = self.stack(REPLICATED)
        stack.client(site=1).get("/v1/peer", Authorization=AUTHORIZATION)
        self.assertEqual(stack.entries, [])

    def test_from_the_start(self) -> None:
        """The listener is open, and the first round begun, without a reload."""
        stack = Stack(self, REPLICATED)
        self.assertEqual([server[0] for server in stack.reactor.tcpServers], [8081, 8080])
        self.assertEqual(stack.engine("10.0.0.9", 8081).last.path, "/v1/peer")

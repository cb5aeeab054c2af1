"""Who counts as one, and what a gate, a log and an engine get to know of it."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from ipaddress import ip_network
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.logger import globalLogPublisher

from tests.stack import CONFIG, Stack
from tests.support import TestCase, examples
from twisted_gateway.config.schema import Config, Peers, Secret, TenantSource
from twisted_gateway.core.prefix import BLOCK_BYTES
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.telemetry.access import AccessLog, json_observer
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.tenancy import NAME_DIGITS, SHOWN_DIGITS, Tenancy

PROXY = "10.0.0.1"
ADDRESS, HEADER = TenantSource.ADDRESS, TenantSource.HEADER
SUBJECT, API_KEY = TenantSource.SUBJECT, TenantSource.API_KEY
TRUSTING = f"tenants: {{from: [header, address], trustedProxies: [{PROXY}]}}\n{CONFIG}"

Lines = Iterable[tuple[str, str | bytes]]


def config(*sources: TenantSource, token: str | None = None) -> Config:
    """A configuration with one trusted network of each kind."""
    return Config(
        tenants_from=sources or Config().tenants_from,
        trusted_proxies=(ip_network("10.0.0.0/8"), ip_network("2001:db8:1::/48")),
        peers=Peers(token=None if token is None else Secret(token)),
    )


def request(
    peer: str | None,
    *headers: tuple[str, str | bytes],
    subject: str | None = None,
    api_key: str | None = None,
) -> GatewayRequest:
    """A request whose head has been read; of None it comes through a Unix socket."""
    channel = mock.Mock()
    address: Any = UNIXAddress(None)
    if peer is not None:
        address = (IPv6Address if ":" in peer else IPv4Address)("TCP", peer, 40000)
    channel.getPeer.return_value = address
    out = GatewayRequest(channel)
    out.exchange = mock.Mock(subject=subject, api_key=api_key)
    for name, value in headers:
        data = value if isinstance(value, bytes) else value.encode()
        out.requestHeaders.addRawHeader(name.encode(), data)
    return out


def counting() -> Tenancy:
    """A tenancy with keys that are known, and are two."""
    numbers = itertools.count()
    return Tenancy(lambda count: bytes([next(numbers)]) * count)


class TenancyTestCase(TestCase):
    """With one tenancy for all requests of a test."""

    def setUp(self) -> None:
        super().setUp()
        self.tenancy = counting()

    def name(self, asked: GatewayRequest, settings: Config | None = None) -> str:
        """The tenant of a request."""
        return self.tenancy.tenant(asked, settings or config())

    def assert_one(self, requests: Iterable[GatewayRequest], settings: Config | None = None) -> str:
        """All of these are one tenant; its name."""
        (name,) = {self.name(each, settings) for each in requests}
        return name

    def assert_apart(
        self, requests: Iterable[GatewayRequest], settings: Config | None = None
    ) -> None:
        """No two of these are one tenant."""
        names = [self.name(each, settings) for each in requests]
        self.assertEqual(len(set(names)), len(names), names)


class Addresses(TenancyTestCase):
    """The client's address."""

    def test_two_addresses_are_two_tenants(self) -> None:
        """Whoever has another IPv4 address is another, on whatever connection."""
        self.assert_one([request("192.0.2.7"), request("192.0.2.7")])
        self.assert_apart([request("192.0.2.7"), request("192.0.2.8")])

    def test_behind_a_trusted_proxy(self) -> None:
        """The proxy's clients are as many as it names, and the same as without it."""
        through = request(PROXY, ("X-Forwarded-For", "192.0.2.7"))
        self.assert_one([through, request("192.0.2.7")])
        self.assert_apart([through, request(PROXY), request("192.0.2.8")])

    def test_what_a_client_writes_itself_does_not_count(self) -> None:
        """A client cannot become another, nor many, by X-Forwarded-For; behind a proxy neither."""
        self.assert_one(
            request("192.0.2.7", *lines)
            for lines in (
                (),
                (("X-Forwarded-For", "192.0.2.8"),),
                (("X-Forwarded-For", "198.51.100.1, 10.0.0.1"),),
            )
        )
        self.assert_one(
            request(PROXY, ("X-Forwarded-For", f"{forged}192.0.2.7"))
            for forged in ("", "192.0.2.8, ", "10.0.0.9, ", "x, ")
        )

    def test_an_ipv6_client_is_its_network(self) -> None:
        """All of a /64 is one, by whatever way it comes; the next /64 is another."""
        self.assert_one(
            [
                request("2001:db8:2::1"),
                request("2001:db8:2:0:ffff::2"),
                request(PROXY, ("X-Forwarded-For", "[2001:DB8:2::3]:443")),
                request("2001:db8:1::9", ("X-Forwarded-For", "2001:db8:2::4")),
            ]
        )
        self.assert_apart([request("2001:db8:2::1"), request("2001:db8:2:1::1")])

    def test_a_dual_stack_socket_changes_nothing(self) -> None:
        """An IPv4 client or proxy is the same one where it is seen as a mapped address."""
        self.assert_one([request("::ffff:192.0.2.7"), request("192.0.2.7")])
        self.assert_apart([request("::ffff:192.0.2.7"), request("::ffff:192.0.2.8")])
        self.assert_one(request(peer, ("X-Tenant", "blue")) for peer in (PROXY, f"::ffff:{PROXY}"))

    def test_a_scope_is_no_part_of_it(self) -> None:
        """A link-local client counts whatever the interface is called."""
        self.assert_one([request("fe80::1%eth0"), request("fe80::2")])

    def test_a_unix_socket_is_one(self) -> None:
        """Whoever comes through a Unix socket is one tenant, and is believed nothing."""
        self.assert_one(
            [
                request(None),
                request(None, ("X-Forwarded-For", "192.0.2.7")),
                request(None, ("X-Tenant", "blue")),
            ]
        )
        self.assert_apart([request(None), request("192.0.2.7")])


class Headers(TenancyTestCase):
    """X-Tenant."""

    def test_from_a_trusted_proxy(self) -> None:
        """Its word makes tenants, whatever their addresses are."""
        self.assert_one(
            request(PROXY, ("X-Tenant", "blue"), ("X-Forwarded-For", each))
            for each in ("192.0.2.7", "192.0.2.8")
        )
        self.assert_apart(request(PROXY, ("X-Tenant", each)) for each in ("blue", "red", "Blue"))

    def test_from_anyone_else(self) -> None:
        """A client cannot name itself, also where it claims to come through a proxy."""
        self.assert_one(
            [
                request("192.0.2.7"),
                request("192.0.2.7", ("X-Tenant", "blue")),
                request("192.0.2.7", ("X-Tenant", "red"), ("X-Forwarded-For", PROXY)),
            ]
        )

    def test_what_says_nothing(self) -> None:
        """A value that is empty or holds control characters, or two, and the next source speaks."""
        plain = request(PROXY)
        for lines in (
            [""],
            [" \t"],
            ["a\tb"],
            ["a\x00b"],
            ["a\x1b[31mb"],
            ["a\x7f"],
            ["red", "blue"],
            ["", "blue"],
        ):
            said = request(PROXY, *(("X-Tenant", line) for line in lines))
            self.assertEqual(self.name(said), self.name(plain), lines)
            self.assertEqual(self.name(said, config(HEADER)), "", lines)

    def test_what_says_the_same(self) -> None:
        """Blanks around a value are no part of it, and saying it twice makes no difference."""
        self.assert_one(
            [
                request(PROXY, ("X-Tenant", "blue")),
                request(PROXY, ("X-Tenant", " blue ")),
                request(PROXY, ("x-tenant", "blue"), ("X-TENANT", "blue")),
            ]
        )

    def test_a_value_of_any_length(self) -> None:
        """Long values, and bytes that are no text, name tenants as well; names stay short."""
        values = [b"x" * 10_000, b"x" * 10_001, b"\xff\xfe", "\u00e4".encode()]
        requests = [request(PROXY, ("X-Tenant", value)) for value in values]
        self.assert_apart(requests)
        for each in requests:
            self.assertEqual(len(self.name(each)), NAME_DIGITS)


class Sources(TenancyTestCase):
    """Which source speaks."""

    def test_the_first_that_applies(self) -> None:
        """The order is the configuration's; one that does not apply is passed over."""
        said = request(PROXY, ("X-Tenant", "blue"), ("X-Forwarded-For", "192.0.2.7"))
        silent = request(PROXY, ("X-Forwarded-For", "192.0.2.7"))
        for sources, same in (
            ((HEADER, ADDRESS), False),
            ((ADDRESS, HEADER), True),
            ((SUBJECT, API_KEY, HEADER, ADDRESS), False),
            ((SUBJECT, API_KEY, ADDRESS), True),
        ):
            names = {self.name(each, config(*sources)) for each in (said, silent)}
            self.assertEqual(len(names) == 1, same, sources)

    def test_what_the_gateway_has_not_checked(self) -> None:
        """Credentials that nobody has checked make no tenant, and are not looked at."""
        self.assert_one(
            request("192.0.2.7", ("Authorization", f"Bearer {each}"), ("X-Api-Key", each))
            for each in ("one", "two")
        )
        token = request("192.0.2.7", ("Authorization", "Bearer one"))
        self.assertEqual(self.name(token, config(SUBJECT, API_KEY)), "")

    def test_what_the_gateway_has_checked(self) -> None:
        """A checked subject or key is a tenant wherever it comes from."""
        for source, checked in ((SUBJECT, "subject"), (API_KEY, "api_key")):
            settings = config(source, HEADER, ADDRESS)
            one, other, elsewhere = (
                request(peer, ("X-Tenant", "blue"), **{checked: who})
                for peer, who in ((PROXY, "ann"), (PROXY, "bob"), ("192.0.2.7", "ann"))
            )
            self.assert_one([one, elsewhere], settings)
            self.assert_apart([one, other, request(PROXY, ("X-Tenant", "blue"))], settings)

    def test_equal_values_of_two_sources_are_two(self) -> None:
        """A header that reads as an address, or as a subject, is not that client."""
        self.assert_apart(
            [
                request(PROXY, ("X-Tenant", "192.0.2.7")),
                request("192.0.2.7"),
                request("192.0.2.7", subject="192.0.2.7"),
            ]
        )

    def test_no_source_applies(self) -> None:
        """All of whom nothing is known are one, which has no name to show either."""
        self.assertEqual(self.name(request("192.0.2.7"), config(HEADER)), "")
        self.assertEqual(self.tenancy.shown(""), "")


class Names(TenancyTestCase):
    """What a name gives away, and to whom."""

    def test_replicas_agree_by_the_peers_token(self) -> None:
        """With one token two processes name a tenant alike; with another token, or none, not."""
        other = Tenancy(lambda count: b"\xff" * count)
        asked = request("192.0.2.7")
        for token, agreed in (("s3cret", True), (None, False), ("", False)):
            names = {each.tenant(asked, config(token=token)) for each in (self.tenancy, other)}
            self.assertEqual(len(names) == 1, agreed, token)
        self.assertNotEqual(
            self.name(asked, config(token="one")), self.name(asked, config(token="two"))
        )

    def test_the_shown_form_is_another(self) -> None:
        """Shown are other digits than those that peers tell each other, in each process others."""
        other = Tenancy(lambda count: b"\xff" * count)
        name = self.name(request("192.0.2.7"), config(token="s3cret"))
        shown = self.tenancy.shown(name)
        self.assertRegex(name, rf"\A[0-9a-f]{{{NAME_DIGITS}}}\Z")
        self.assertRegex(shown, rf"\A[0-9a-f]{{{SHOWN_DIGITS}}}\Z")
        self.assertNotIn(shown, name)
        self.assertEqual(self.tenancy.shown(name), shown)
        self.assertNotEqual(other.shown(name), shown)
        self.assertNotEqual(self.tenancy.shown("red"), self.tenancy.shown("blue"))

    @examples(100)
    @given(
        st.sampled_from([None, "192.0.2.7", PROXY, "::1", "fe80::1%eth0"]),
        st.lists(st.binary(max_size=30), max_size=3),
        st.lists(st.binary(max_size=30), max_size=3),
    )
    def test_whatever_comes(self, peer: str | None, said: list[bytes], hops: list[bytes]) -> None:
        """Whatever a head holds, its tenant has a name of hex digits and nothing else."""
        lines: Lines = [
            *(("X-Tenant", value) for value in said),
            *(("X-Forwarded-For", value) for value in hops),
        ]
        name = counting().tenant(request(peer, *lines), config())
        self.assertRegex(name, rf"\A[0-9a-f]{{{NAME_DIGITS}}}\Z")


class PathTestCase(TestCase):
    """With a whole gateway."""

    def tickets(self, stack: Stack) -> list[Ticket | None]:
        """What asks for a place from here on."""
        taken: list[Ticket | None] = []
        fleet = stack.gateway.fleet
        place = fleet.place

        def record(model: Any, ticket: Ticket | None, exchange: Any) -> Any:
            taken.append(ticket)
            return place(model, ticket, exchange)

        self.patch(fleet, "place", record)
        return taken


class Requests(PathTestCase):
    """What becomes of a tenant on the path of a request."""

    def test_a_ticket_bears_its_tenant(self) -> None:
        """Two clients' tickets are of two tenants; two of one client's are of one."""
        stack = Stack(self, TRUSTING)
        tickets = self.tickets(stack)
        for host in ("192.0.2.7", "192.0.2.7", "192.0.2.8"):
            stack.client(host).chat(headers={"X-Tenant": "mine"})
            stack.engine().last.answer()
        one, again, other = (ticket.tenant for ticket in tickets if ticket is not None)
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        self.assertEqual(len(one), NAME_DIGITS)

    def test_the_log_has_the_shown_form(self) -> None:
        """The entry names the tenant as the status page would, for refused requests too."""
        stack = Stack(self, TRUSTING)
        tickets = self.tickets(stack)
        client = stack.client(PROXY).chat(headers={"X-Tenant": "blue"})
        stack.engine().last.answer()
        stack.client(PROXY).chat(headers={"X-Tenant": "blue"}, model="nope")
        stack.client().get("/health")
        (ticket,) = tickets
        assert ticket is not None
        shown = stack.gateway.tenancy.shown(ticket.tenant)
        self.assertEqual(client.status, 200)
        self.assertEqual([entry.tenant for entry in stack.entries], [shown, shown, ""])
        self.assertNotIn(ticket.tenant, str(stack.entries))

    def test_nothing_raw_is_told(self) -> None:
        """Neither log, metrics, status nor an error has what a tenant is made of, or its name."""
        log = io.StringIO()
        observer = json_observer(log)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        stack = Stack(self, TRUSTING.replace("maxInflight: 4", "maxInflight: 1"))
        tickets = self.tickets(stack)
        access = AccessLog()
        headers = {"X-Tenant": "sesame", "X-Forwarded-For": "198.51.100.77"}
        stack.client(PROXY).chat(headers=headers)
        parked = stack.client(PROXY).chat(headers={**headers, "Prefer": "wait=5"})
        status = stack.client().get("/status.json").received + stack.client().get("/status").body
        metrics = stack.client().get("/metrics").received
        stack.advance(6)
        refused = [parked.received, stack.client(PROXY).chat(headers=headers, model="x").received]
        stack.engine().last.answer()
        for entry in stack.entries:
            access.ended(entry)
        self.assertEqual(parked.status, 503)
        names = {ticket.tenant for ticket in tickets if ticket is not None}
        self.assertEqual(len(names), 1)
        told = (log.getvalue().encode(), status, metrics, *refused)
        for secret in (*names, "sesame", "198.51.100.77"):
            for each in told:
                self.assertNotIn(secret.encode(), each)
        self.assertIn(stack.gateway.tenancy.shown(names.pop()), log.getvalue())

    def test_only_a_trusted_proxys_word_reaches_an_engine(self) -> None:
        """X-Tenant goes on from a trusted proxy; anyone else's ends here."""
        stack = Stack(self, TRUSTING)
        for host, expected in ((PROXY, "blue"), ("192.0.2.7", None)):
            stack.client(host).chat(headers={"X-Tenant": "blue"})
            asked = stack.engine().last
            self.assertEqual(asked.headers.get("x-tenant"), expected, host)
            asked.answer()


class Blocks(PathTestCase):
    """What a ticket says of its prompt."""

    PROMPT = "x" * (3 * BLOCK_BYTES)

    def blocks(self, config: str, *bodies: dict[str, Any]) -> list[tuple[int, ...]]:
        """The blocks that the gate is told of these."""
        stack = Stack(self, config)
        tickets = self.tickets(stack)
        for body in bodies:
            stack.client().post("/v1/completions", body)
            stack.engine().last.answer()
        return [ticket.blocks for ticket in tickets if ticket is not None]

    def test_prompts_that_begin_alike(self) -> None:
        """Two bodies share the names of the whole blocks that they share from their start."""
        body = {"model": "reasoning", "prompt": self.PROMPT}
        one, longer, other = self.blocks(
            CONFIG, body, {**body, "user": "u" * BLOCK_BYTES}, {"x": 1, **body}
        )
        self.assertEqual((len(one), len(longer)), (3, 4))
        self.assertEqual(one[:2], longer[:2])
        self.assertFalse(set(one) & set(other))

    def test_an_alias_begins_as_the_name_does(self) -> None:
        """What counts is what the engine reads."""
        one, alias = self.blocks(
            CONFIG,
            {"model": "reasoning", "prompt": self.PROMPT},
            {"model": "gpt-4o", "prompt": self.PROMPT},
        )
        self.assertEqual(one, alias)

    def test_models_of_one_engine_share_none(self) -> None:
        """Their KV is not the other's, though the body be the same up to their name."""
        second = CONFIG.replace("models:\n", "").replace("reasoning", "tuned")
        one, other = self.blocks(
            CONFIG + second.replace("    aliases: [gpt-4o]\n", ""),
            {"prompt": self.PROMPT, "model": "reasoning"},
            {"prompt": self.PROMPT, "model": "tuned"},
        )
        self.assertEqual(len(one), 3)
        self.assertFalse(set(one) & set(other))

    def test_none_where_nobody_asks(self) -> None:
        """In the order of arrival a prompt's cost decides nothing, so nothing is hashed."""
        fifo = CONFIG.replace("maxInflight: 4", "maxInflight: 4, ordering: fifo")
        body = {"model": "reasoning", "prompt": self.PROMPT}
        self.assertEqual(self.blocks(fifo, body), [()])

    def test_no_process_knows_anothers_names(self) -> None:
        """The key is made at start."""
        body = {"model": "reasoning", "prompt": self.PROMPT}
        self.assertNotEqual(self.blocks(CONFIG, body), self.blocks(CONFIG, body))

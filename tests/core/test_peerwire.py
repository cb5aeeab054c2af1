"""What replicas tell each other, as bytes."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.peers import GateReport, HeadView
from twisted_gateway.core.peerwire import (
    MAX_GATES,
    MAX_IN_FLIGHT,
    MAX_SECONDS,
    MAX_TENANTS,
    MAX_VIEW_BYTES,
    TENANTS_SENT,
    MalformedView,
    PeerView,
    gate_key,
    read_view,
    render_view,
)
from twisted_gateway.core.ticket import Priority

ENGINE = "http://10.0.0.1:8000"

names = st.text("0123456789abcdef", max_size=64)
seconds = st.floats(0, MAX_SECONDS)
heads = st.builds(
    HeadView,
    age_seconds=seconds,
    cost_seconds=seconds,
    tenant=names,
    priority=st.sampled_from(Priority),
    long=st.booleans(),
)


@st.composite
def gates(draw: st.DrawFn) -> tuple[str, GateReport]:
    """A gate's key, and a report of as many engines as that has."""
    engines = draw(st.integers(1, 3))
    key = gate_key([f"http://10.0.{draw(st.integers(0, 9))}.{n}:8000" for n in range(engines)])
    report = GateReport(
        in_flight=tuple(draw(st.integers(0, MAX_IN_FLIGHT)) for _ in range(engines)),
        long_prefill_seconds=tuple(draw(seconds) for _ in range(engines)),
        head=draw(st.none() | heads),
        use=draw(st.dictionaries(names, seconds, max_size=5)),
    )
    return key, report


views = st.builds(
    PeerView, names.filter(bool), st.lists(gates(), max_size=4).map(lambda pairs: dict(pairs))
)
trees: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | names,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["in_flight", "use", "head", "age", "cost", "class", ENGINE]), inner
        )
    ),
)


def view(**members: Any) -> bytes:
    """A view of one gate, with these members beside or in the place of good ones."""
    gate = {"in_flight": [1], "long_prefill": [0], "head": None, "use": {}, **members}
    return json.dumps({"instance": "ab", "gates": {ENGINE: gate}}).encode()


def use_of(count: int) -> dict[str, float]:
    """So many tenants, the first of which has used most."""
    return {f"{n:064x}": count - n / 3 for n in range(count)}


class RoundTrip(TestCase):
    """What is written is what is read."""

    @given(views)
    @examples(100)
    def test_all_that_fits(self, view: PeerView) -> None:
        """Every view within the bounds comes back as it was."""
        self.assertEqual(read_view(render_view(view)), view)

    def test_numbers_are_brought_within_their_bounds(self) -> None:
        """So a peer never refuses what this replica says."""
        report = GateReport(
            in_flight=(MAX_IN_FLIGHT + 1,),
            long_prefill_seconds=(math.nan,),
            head=HeadView(age_seconds=-1.0, cost_seconds=math.inf, tenant="ab"),
            use={"ab": 1e300},
        )
        read = read_view(render_view(PeerView("ab", {ENGINE: report}))).of(ENGINE)
        assert read.head is not None
        self.assertEqual(read.in_flight, (MAX_IN_FLIGHT,))
        self.assertEqual(read.long_prefill_seconds, (0.0,))
        self.assertEqual((read.head.age_seconds, read.head.cost_seconds), (0.0, MAX_SECONDS))
        self.assertEqual(read.use, {"ab": MAX_SECONDS})


class Rendering(TestCase):
    """What is written fits."""

    def test_tenants_of_most_use(self) -> None:
        """Of many tenants those are told that have used most."""
        use = use_of(TENANTS_SENT + 1)
        data = render_view(PeerView("ab", {ENGINE: GateReport(in_flight=(1,), use=use)}))
        told = read_view(data).of(ENGINE).use
        self.assertEqual(set(use) - set(told), {f"{TENANTS_SENT:064x}"})

    def test_many_gates_tell_fewer_tenants(self) -> None:
        """What each gate holds comes first."""
        report = GateReport(in_flight=(3,), use=use_of(TENANTS_SENT))
        data = render_view(PeerView("ab", {f"http://e{n}:80": report for n in range(MAX_GATES)}))
        self.assertLessEqual(len(data), MAX_VIEW_BYTES)
        read = read_view(data)
        self.assertEqual(len(read.gates), MAX_GATES)
        self.assertEqual({len(one.use) for one in read.gates.values()}, {8})

    def test_what_can_never_fit_is_left_out(self) -> None:
        """Gates whose names alone are too long; the first of them stay."""
        gates = {f"http://{n:02}{'x' * 3000}:80": GateReport(in_flight=(1,)) for n in range(70)}
        read = read_view(render_view(PeerView("ab", gates)))
        self.assertEqual(list(read.gates), sorted(gates)[:16])


class Reading(TestCase):
    """What comes from the network."""

    def test_a_gate_that_the_peer_has_not(self) -> None:
        """It holds nothing in any of the engines."""
        report = PeerView("ab", {}).of(gate_key(["http://a:1", "http://b:1"]))
        self.assertEqual(
            report, GateReport(in_flight=(0, 0), long_prefill_seconds=(0.0, 0.0), head=None)
        )

    def test_members_that_are_not_known(self) -> None:
        """They are passed over, and those that may be missing have their defaults."""
        data = b'{"instance":"ab","v":[{}],"gates":{"%s":{"in_flight":[2],"x":{"y":[]}}}}'
        report = read_view(data % ENGINE.encode()).of(ENGINE)
        self.assertEqual(report, GateReport(in_flight=(2,), long_prefill_seconds=(0.0,), use={}))

    def test_numbers_too_large(self) -> None:
        """They count as the bound."""
        read = read_view(
            view(in_flight=[10**30], use={"ab": 10**30}, head={"age": 1e308, "cost": 0})
        ).of(ENGINE)
        assert read.head is not None
        self.assertEqual((read.in_flight, read.use), ((MAX_IN_FLIGHT,), {"ab": MAX_SECONDS}))
        self.assertEqual(read.head.age_seconds, MAX_SECONDS)

    def test_lies(self) -> None:
        """Another type, a negative number, a name that is none: the whole view is refused."""
        head = {"age": 1, "cost": 1, "tenant": "ab", "class": "batch", "long": True}
        self.assertIsNotNone(read_view(view(head=head)).of(ENGINE).head)
        lies: tuple[dict[str, Any], ...] = (
            {"in_flight": [-1]},
            {"in_flight": [True]},
            {"in_flight": ["1"]},
            {"in_flight": [1.5]},
            {"in_flight": [math.nan]},
            {"in_flight": [math.inf]},
            {"in_flight": [None]},
            {"in_flight": 1},
            {"in_flight": []},
            {"in_flight": [1, 1]},
            {"long_prefill": [-0.1]},
            {"long_prefill": [0, 0]},
            {"use": {"AB": 1}},
            {"use": {"g": 1}},
            {"use": {"ab\n": 1}},
            {"use": {"a" * 65: 1}},
            {"use": {"ab": -1}},
            {"use": {"ab": "1"}},
            {"use": use_of(MAX_TENANTS + 1)},
            {"use": []},
            {"head": {}},
            {"head": {**head, "age": -1}},
            {"head": {**head, "cost": False}},
            {"head": {**head, "tenant": "é"}},
            {"head": {**head, "class": "vip"}},
            {"head": {**head, "long": 1}},
        )
        for members in lies:
            self.assertRaises(MalformedView, read_view, view(**members))

    def test_no_view_at_all(self) -> None:
        """Bytes that are no JSON, or JSON of another form, and too much of either."""
        for data in (
            b"",
            b"\xff",
            b"null",
            b"[]",
            b"{}",
            b'{"instance":"","gates":{}}',
            b'{"instance":"ab"}',
            b'{"instance":"AB","gates":{}}',
            b'{"instance":"ab","gates":{"e":{"in_flight":[1%s]}}}' % (b"0" * 9000),
            b'{"instance":"ab","gates":{"e":{"in_flight":[1],"use":{"ab":1e400}}}}',
            b'{"instance":"ab","gates":{},"x":' + b"[" * 60_000,
            b'{"instance":"ab","gates":{},"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
            b'{"instance":"ab","gates":{}}' + b" " * MAX_VIEW_BYTES,
        ):
            self.assertRaises(MalformedView, read_view, data)
        gates = {f"http://e{n}:80": {"in_flight": [1]} for n in range(MAX_GATES + 1)}
        data = json.dumps({"instance": "ab", "gates": gates}).encode()
        self.assertRaises(MalformedView, read_view, data)

    def test_the_message_repeats_nothing(self) -> None:
        """It goes into the log."""
        fault = self.assertRaises(MalformedView, read_view, view(use={"secret": 1}))
        self.assertNotIn("secret", str(fault))

    @given(st.binary(max_size=300) | trees.map(lambda tree: view(use=tree, head=tree)))
    @examples(200)
    def test_garbage(self, data: bytes) -> None:
        """Whatever comes is read or refused, and what is read is within the bounds."""
        try:
            read = read_view(data)
        except MalformedView:
            return
        for report in read.gates.values():
            numbers = [*report.in_flight, *report.long_prefill_seconds, *report.use.values()]
            self.assertTrue(all(0 <= number <= MAX_SECONDS for number in numbers))

"""What replicas tell each other on the wire: the reports of their gates as JSON.

    {"instance": "9f…", "gates": {"http://10.0.0.1:8000": {
        "in_flight": [3], "long_prefill": [0], "use": {"c41d…": 12.5},
        "head": {"age": 1.5, "cost": 2.0, "tenant": "c41d…", "class": "batch", "long": false,
                 "n": 1}}}}

A gate goes by the addresses of its engines, so that replicas whose configurations differ for a
while speak of the same engines or of none. Both ends keep to the bounds below: what is written is
cut to fit, and what is read and does not fit is refused as a whole. Members that are not known are
passed over, so that replicas of different versions understand each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct, field, json

from twisted_gateway.core.peers import GateReport, HeadView
from twisted_gateway.core.ticket import Priority

PATH = "/v1/peer"
"""Where a replica answers with its view."""

MAX_VIEW_BYTES = 65_536
"""No view is longer."""

MAX_GATES = 64
"""No view has more gates."""

MAX_TENANTS = 256
"""No gate of a view has more tenants in its `use`."""

TENANTS_SENT = 128
"""How many tenants of a gate are told at most: those of most use."""

MAX_SECONDS = 1e6
"""An age, a cost or a use that says more counts as this."""

MAX_IN_FLIGHT = 100_000
"""An engine that is said to hold more counts as holding this."""


class MalformedView(Exception):
    """What a replica sent is no view; the message never repeats any of it."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """What one replica holds.

    Attributes:
        instance: names the process that says it; hexadecimal digits.
        gates: the reports, by `gate_key`.
    """

    instance: str
    gates: Mapping[str, GateReport]

    def of(self, key: str) -> GateReport:
        """The report of one gate; one of nothing where the replica has no such gate."""
        report = self.gates.get(key)
        if report is None:
            engines = _engines(key)
            return GateReport(in_flight=(0,) * engines, long_prefill_seconds=(0.0,) * engines)
        return report


def gate_key(addresses: Sequence[str]) -> str:
    """Name a gate by the addresses of its engines, in their order; none holds a space."""
    return " ".join(addresses)


def render_view(view: PeerView) -> bytes:
    """Write a view, cut to fit `MAX_VIEW_BYTES`.

    Numbers are brought within their bounds. Of tenants those of least use are left out, and gates,
    in the order of their keys, when even that does not help.
    """
    gates = sorted(view.gates.items())[:MAX_GATES]
    tenants = TENANTS_SENT
    while True:
        tree = {key: _gate(report, tenants) for key, report in gates}
        data = json.encode(_View(view.instance, tree))
        if len(data) <= MAX_VIEW_BYTES:
            return data
        if tenants:
            tenants //= 2
        else:
            gates = gates[: len(gates) // 2]


def read_view(data: bytes) -> PeerView:
    """Read a view as strictly as can be: it comes from the network.

    Args:
        data: perhaps cut off behind `MAX_VIEW_BYTES`; then it is too long.

    Raises:
        MalformedView: it is too long, is no JSON, or some member of it has another type or form
            than it should have, is negative, or is one too many.
    """
    if len(data) > MAX_VIEW_BYTES:
        raise MalformedView(f"a view of more than {MAX_VIEW_BYTES} bytes")
    try:
        view = json.decode(data, type=_View)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        # The decoder's own message may quote what was sent.
        raise MalformedView("what came is no view of a replica") from None
    return PeerView(view.instance, {key: _report(key, gate) for key, gate in view.gates.items()})


_Name = Annotated[str, Meta(max_length=64, pattern=r"\A[0-9a-f]*\Z")]
_Instance = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[0-9a-f]*\Z")]
_Seconds = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]
_Class = Literal["interactive", "batch", "warmup"]

_PRIORITIES: Mapping[_Class, Priority] = {
    "interactive": Priority.INTERACTIVE,
    "batch": Priority.BATCH,
    "warmup": Priority.WARMUP,
}
_CLASSES: Mapping[Priority, _Class] = {one: name for name, one in _PRIORITIES.items()}


class _Head(Struct):
    age: _Seconds
    cost: _Seconds
    tenant: _Name = ""
    priority: _Class = field(name="class", default="interactive")
    long: bool = False
    n: Annotated[int, Meta(ge=1)] = 1


class _Gate(Struct):
    in_flight: list[_Count]
    long_prefill: list[_Seconds] = []
    head: _Head | None = None
    use: Annotated[dict[_Name, _Seconds], Meta(max_length=MAX_TENANTS)] = {}


class _View(Struct):
    instance: _Instance
    gates: Annotated[dict[str, _Gate], Meta(max_length=MAX_GATES)]


def _gate(report: GateReport, tenants: int) -> _Gate:
    use = report.use
    if len(use) > tenants:
        most = sorted(use.items(), key=lambda one: (-one[1], one[0]))[:tenants]
        use = dict(most)
    return _Gate(
        in_flight=[min(max(count, 0), MAX_IN_FLIGHT) for count in report.in_flight],
        long_prefill=[_seconds(one) for one in report.long_prefill_seconds],
        head=None if report.head is None else _head(report.head),
        use={tenant: _seconds(one) for tenant, one in use.items()},
    )


def _head(head: HeadView) -> _Head:
    return _Head(
        age=_seconds(head.age_seconds),
        cost=_seconds(head.cost_seconds),
        tenant=head.tenant,
        priority=_CLASSES[head.priority],
        long=head.long,
        n=min(head.sequences, MAX_IN_FLIGHT),
    )


def _report(key: str, gate: _Gate) -> GateReport:
    engines = _engines(key)
    if len(gate.in_flight) != engines or len(gate.long_prefill) not in (0, engines):
        raise MalformedView("a gate with more, or fewer, engines than it is named by")
    head = gate.head
    return GateReport(
        in_flight=tuple(min(count, MAX_IN_FLIGHT) for count in gate.in_flight),
        long_prefill_seconds=tuple(map(_seconds, gate.long_prefill)) or (0.0,) * engines,
        head=None
        if head is None
        else HeadView(
            age_seconds=_seconds(head.age),
            cost_seconds=_seconds(head.cost),
            tenant=head.tenant,
            priority=_PRIORITIES[head.priority],
            long=head.long,
            sequences=min(head.n, MAX_IN_FLIGHT),
        ),
        use={tenant: _seconds(one) for tenant, one in gate.use.items()},
    )


def _engines(key: str) -> int:
    return key.count(" ") + 1


def _seconds(value: float) -> float:
    """Bring a number of seconds within its bounds; what is none, as NaN, is 0."""
    return min(float(value), MAX_SECONDS) if value > 0 else 0.0

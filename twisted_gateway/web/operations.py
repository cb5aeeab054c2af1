"""What operators and their machines ask: health, metrics, status."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime

from twisted_gateway import __version__
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.view import EngineView, GateSummary, GateView, TenantView
from twisted_gateway.engines.observer import Observation
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.telemetry.states import ModelState
from twisted_gateway.web.exchange import Exchanges
from twisted_gateway.web.fleet import Fleet, Group
from twisted_gateway.web.status import page

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

Handler = Callable[["GatewayRequest"], None]

MOST_TENANTS_SHOWN = 100

_UNCACHED = [(b"Cache-Control", b"no-store")]


class Operations:
    """Health, metrics and status.

    Args:
        fleet: the engines and the configuration in force.
        exchanges: the requests under way.
        metrics: what `/metrics` shows.
        clock: for ages.
        shown: what may be shown of a tenant's name.
    """

    def __init__(
        self,
        fleet: Fleet,
        exchanges: Exchanges,
        metrics: Metrics,
        clock: IReactorTime,
        shown: Callable[[str], str],
    ) -> None:
        """Take what the class documents."""
        self._shown = shown
        self._fleet = fleet
        self._exchanges = exchanges
        self._metrics = metrics
        self._clock = clock
        self._started_at = clock.seconds()

    def routes(self) -> Mapping[str, Handler]:
        """Path -> handler, all for GET."""
        return {
            "/health": self.live,
            "/health/live": self.live,
            "/health/ready": self.ready,
            "/metrics": self.metrics,
            "/status": self.status_page,
            "/status.json": self.status,
        }

    def live(self, request: GatewayRequest) -> None:
        """200 while the process runs."""
        request.exchange.route = "/health"
        _answer_json(request, 200, {"status": "ok"})

    def ready(self, request: GatewayRequest) -> None:
        """200, or 503 with reasons; an engine that is down is no reason."""
        request.exchange.route = "/health/ready"
        if self._fleet.draining:
            _answer_json(request, 503, {"status": "unavailable", "reasons": ["draining"]})
        else:
            _answer_json(request, 200, {"status": "ok"})

    def metrics(self, request: GatewayRequest) -> None:
        """The exposition, in Prometheus' text form or OpenMetrics' where that is asked for."""
        request.exchange.route = "/metrics"
        body, content_type = self._metrics.render(request.getHeader("accept"))
        request.answer(200, content_type.encode("ascii"), body, _UNCACHED)

    def status(self, request: GatewayRequest) -> None:
        """What runs, what waits and why, as JSON."""
        request.exchange.route = "/status.json"
        _answer_json(request, 200, self.facts())

    def status_page(self, request: GatewayRequest) -> None:
        """The same facts for people."""
        request.exchange.route = "/status"
        request.answer(
            200,
            b"text/html; charset=utf-8",
            page.render(self.facts()).encode("utf-8"),
            [*_UNCACHED, (b"Content-Security-Policy", page.CONTENT_SECURITY_POLICY)],
        )

    # The facts

    def facts(self) -> dict[str, Any]:
        """The tree behind `/status.json`; neither prompts nor credentials are in it."""
        now = self._clock.seconds()
        models: dict[str, Any] = {}
        for group in self._fleet.groups.values():
            view = None if group.admission is None else group.admission.gate.view(now)
            for name in group.models:
                models[name] = _model_facts(group, name, view, now, self._shown)
        return {
            "version": __version__,
            "uptime_seconds": round(now - self._started_at, 3),
            "draining": self._fleet.draining,
            "requests_in_flight": len(self._exchanges),
            "models": dict(sorted(models.items())),
        }

    def states(self) -> dict[str, ModelState]:
        """What the gauges of `/metrics` show, for each model."""
        now = self._clock.seconds()
        states: dict[str, ModelState] = {}
        for group in self._fleet.groups.values():
            view = None if group.admission is None else group.admission.gate.summary(now)
            for name in group.models:
                states[name] = _model_state(group, name, view, now)
        for group, shown in self._fleet.retired():
            if group.admission is not None:
                _add_retired(states, group.admission.gate.summary(now), in_flight_too=not shown)
        return states


def _together(samples: list[Sample]) -> Sample | None:
    """Several engines as one: what runs and waits adds up, the fullest KV cache speaks."""
    if not samples:
        return None
    usages = [sample.kv_usage for sample in samples if sample.kv_usage is not None]
    return Sample(
        running=_total([sample.running for sample in samples]),
        waiting=sum(sample.waiting for sample in samples),
        kv_usage=max(usages, default=None),
    )


def _add_retired(states: dict[str, ModelState], view: GateSummary, *, in_flight_too: bool) -> None:
    """Count what a retired gate still holds to the models that are still there."""
    for name, totals in view.models.items():
        state = states.get(name)
        if state is not None:
            states[name] = replace(
                state,
                parked_requests=(state.parked_requests or 0) + totals.parked,
                parked_bytes=(state.parked_bytes or 0) + totals.parked_bytes,
                in_flight=(state.in_flight or 0) + (totals.in_flight if in_flight_too else 0),
            )


def _observations(group: Group) -> list[Observation]:
    return [observer.observation for observer in group.observers]


def _model_state(group: Group, name: str, view: GateSummary | None, now: float) -> ModelState:
    observations = _observations(group)
    known = [one.sample for one in observations if one.sample is not None]
    fresh = [one.sample for one in observations if one.sample is not None and not one.stale]
    totals = None if view is None else view.models.get(name)
    return ModelState(
        sample=_together(fresh),
        # Of several engines the oldest reading speaks: it is the one to look after.
        sample_age_seconds=max((now - sample.taken_at for sample in known), default=None),
        parked_requests=None if view is None else totals.parked if totals else 0,
        parked_bytes=None if view is None else totals.parked_bytes if totals else 0,
        in_flight=None if view is None else totals.in_flight if totals else 0,
        max_inflight=None if view is None else sum(one.max_inflight for one in view.engines),
        drift=None if view is None else any(one.drift for one in view.engines),
    )


def _model_facts(
    group: Group, name: str, view: GateView | None, now: float, shown: Callable[[str], str]
) -> dict[str, Any]:
    model = group.models[name]
    observations = _observations(group)
    facts: dict[str, Any] = {
        "engine": model.engine.value,
        "aliases": list(model.aliases),
        "observed": model.observed,
        "shares_its_engine_with": sorted(other for other in group.models if other != name),
        "gated": view is not None,
        "degraded": any(one.degraded for one in observations),
        "stale": any(one.stale for one in observations),
        "reason": "; ".join(one.reason for one in observations if one.reason),
    }
    if view is None:
        return facts | _reading(observations, now)
    first = view.engines[0]
    facts |= {
        "running": _total([one.running for one in view.engines]),
        "waiting": _total([one.waiting for one in view.engines]),
        "kv_usage": max(
            (one.kv_usage for one in view.engines if one.kv_usage is not None), default=None
        ),
        "sample_age_seconds": _rounded(first.sample_age_seconds),
        "max_inflight": sum(one.max_inflight for one in view.engines),
        "in_engine": sum(one.in_engine for one in view.engines),
        "own": sum(one.own for one in view.engines),
        "parked": [
            {
                "position": ticket.position,
                "model": ticket.model,
                "waited_seconds": _rounded(ticket.waited_seconds),
                "priority": ticket.priority.name.lower(),
                "stream": ticket.stream,
                "prompt_tokens": ticket.prompt_tokens,
                "reparked": ticket.reparked,
                "tenant": shown(ticket.tenant),
                "cost_seconds": _rounded(ticket.cost_seconds),
                "long_prefill": ticket.long,
                "eta_seconds": _rounded(ticket.eta_seconds),
            }
            for ticket in view.parked
        ],
        "parked_bytes": view.parked_bytes,
        "engines": [_engine_facts(number, one) for number, one in enumerate(view.engines)],
        "max_park_seconds": model.policy.max_park_seconds,
        "max_queue_depth": model.policy.max_queue_depth,
        "ordering": model.policy.ordering.value,
        "parked_work_seconds": _rounded(view.parked_work_seconds),
        "tenants": [
            {
                "tenant": shown(tenant),
                "used_seconds": _rounded(one.used_seconds),
                "parked": one.parked,
                "parked_work_seconds": _rounded(one.parked_work_seconds),
            }
            for tenant, one in _most_concerned(view)
        ],
        "rates": {
            "prefill_tokens_per_second": round(view.prefill_tokens_per_second, 1),
            "decode_tokens_per_second": round(view.decode_tokens_per_second, 1),
            "learned": view.rates_learned,
        },
        "replicas": view.replicas,
        "peers": [
            {"address": address, "heard_seconds": _rounded(seconds)}
            for address, seconds in sorted(view.heard_seconds.items())
        ],
    }
    return facts


def _most_concerned(view: GateView) -> list[tuple[str, TenantView]]:
    """The tenants who have most parked, then those who have used most; so many as are read."""
    ranked = sorted(
        view.tenants.items(),
        key=lambda item: (-item[1].parked_work_seconds, -item[1].used_seconds, item[0]),
    )
    return ranked[:MOST_TENANTS_SHOWN]


def _reading(observations: list[Observation], now: float) -> dict[str, Any]:
    """What is known of engines that are observed but have no gate."""
    samples = [one.sample for one in observations if one.sample is not None]
    usages = [sample.kv_usage for sample in samples if sample.kv_usage is not None]
    return {
        "running": _total([sample.running for sample in samples]),
        "waiting": _total([sample.waiting for sample in samples]),
        "kv_usage": max(usages, default=None),
        "sample_age_seconds": _rounded(
            max((now - sample.taken_at for sample in samples), default=None)
        ),
        "max_inflight": None,
        "in_engine": None,
        "parked": [],
    }


def _engine_facts(number: int, engine: EngineView) -> dict[str, Any]:
    return {
        "number": number,
        "running": engine.running,
        "waiting": engine.waiting,
        "kv_usage": engine.kv_usage,
        "kv_tokens": engine.kv_tokens,
        "sample_age_seconds": _rounded(engine.sample_age_seconds),
        "max_inflight": engine.max_inflight,
        "learned": engine.learned,
        "drift": engine.drift,
        "own": engine.own,
        "peers": engine.peers,
        "long_prefill": engine.long_prefill,
        "foreign": engine.foreign,
        "in_engine": engine.in_engine,
        "judged_by": engine.sight.value,
        "hold": None if engine.hold is None else engine.hold.value,
    }


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _answer_json(request: GatewayRequest, code: int, tree: object) -> None:
    request.answer(code, b"application/json", json.dumps(tree).encode("ascii"), _UNCACHED)

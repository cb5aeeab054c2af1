"""What operators and their machines ask: health, metrics; `web.status` answers what is so now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core.sample import Sample
from twisted_gateway.core.view import GateSummary
from twisted_gateway.engines.observer import Observation
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.telemetry.states import ModelState
from twisted_gateway.web.exchange import Exchanges
from twisted_gateway.web.fleet import Fleet, Group
from twisted_gateway.web.json_answer import answer_json
from twisted_gateway.web.known import total
from twisted_gateway.web.status.endpoint import Status

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

Handler = Callable[["GatewayRequest"], Deferred[None] | None]

_UNCACHED = [(b"Cache-Control", b"no-store")]


class Operations:
    """Health, metrics and status.

    Args:
        fleet: the engines and the configuration in force.
        exchanges: the requests under way.
        metrics: what `/metrics` shows.
        clock: for ages.
        shown: what may be shown of a tenant's name.

    Attributes:
        status: the status endpoints, a service to be started.
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
        self._fleet = fleet
        self._metrics = metrics
        self._clock = clock
        self.status = Status(fleet, exchanges, clock, shown)

    def routes(self) -> Mapping[str, Handler]:
        """Path -> handler, all for GET."""
        return {
            "/health": self.live,
            "/health/live": self.live,
            "/health/ready": self.ready,
            "/metrics": self.metrics,
            **self.status.routes(),
        }

    def live(self, request: GatewayRequest) -> None:
        """200 while the process runs."""
        request.exchange.route = "/health"
        answer_json(request, 200, {"status": "ok"}, _UNCACHED)

    def ready(self, request: GatewayRequest) -> None:
        """200, or 503 with reasons; an engine that is down is no reason."""
        request.exchange.route = "/health/ready"
        if self._fleet.draining:
            answer_json(request, 503, {"status": "unavailable", "reasons": ["draining"]}, _UNCACHED)
        else:
            answer_json(request, 200, {"status": "ok"}, _UNCACHED)

    def metrics(self, request: GatewayRequest) -> None:
        """The exposition, in Prometheus' text form or OpenMetrics' where that is asked for."""
        request.exchange.route = "/metrics"
        body, content_type = self._metrics.render(request.getHeader("accept"))
        request.answer(200, content_type.encode("ascii"), body, _UNCACHED)

    def facts(self) -> dict[str, Any]:
        """The tree behind `/status.json`; neither prompts nor credentials are in it."""
        return self.status.facts()

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
        running=total([sample.running for sample in samples]),
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


def _model_state(group: Group, name: str, view: GateSummary | None, now: float) -> ModelState:
    observations = [observer.observation for observer in group.observers]
    fresh = [one.sample for one in observations if one.sample is not None and not one.stale]
    totals = None if view is None else view.models.get(name)
    return ModelState(
        sample=_together(fresh),
        sample_age_seconds=_oldest_seconds(observations, now),
        parked_requests=None if view is None else totals.parked if totals else 0,
        parked_bytes=None if view is None else totals.parked_bytes if totals else 0,
        in_flight=None if view is None else totals.in_flight if totals else 0,
        max_inflight=None if view is None else sum(one.max_inflight for one in view.engines),
        drift=None if view is None else any(one.drift for one in view.engines),
    )


def _oldest_seconds(observations: list[Observation], now: float) -> float | None:
    """The age of the oldest reading, for that engine is the one to look after.

    None where one has never been read: a young reading of another would hide it.
    """
    samples = [one.sample for one in observations]
    known = [now - sample.taken_at for sample in samples if sample is not None]
    return max(known, default=None) if len(known) == len(samples) else None

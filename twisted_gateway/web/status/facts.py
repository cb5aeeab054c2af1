"""The facts of `/status.json`, which the page and the table show too.

Neither prompts nor credentials are in them, and of a tenant no more than its shown name. Keys of
the contract are never renamed; None means unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_gateway import __version__
from twisted_gateway.config.effective import effective
from twisted_gateway.config.schema import Config, Model
from twisted_gateway.core.view import EngineView, GateView, ModelTotals, ParkedView, TenantView
from twisted_gateway.engines.observer import Observation
from twisted_gateway.telemetry.history import SLOT_SECONDS, History, Trend
from twisted_gateway.web.exchange import Exchange, Exchanges
from twisted_gateway.web.fleet import Fleet, Group
from twisted_gateway.web.known import most, rounded, total
from twisted_gateway.web.status import reasons
from twisted_gateway.web.status.served import answers, rates
from twisted_gateway.web.tries import Tries

MOST_TENANTS_SHOWN = 100

NO_MODEL = ()
"""The history's key for requests of which no model was known."""

Tree = dict[str, Any]


class Facts:
    """Reads what is so now.

    Attributes:
        refused_configuration: the faults for which the file as last read is not in force.

    Args:
        fleet: the engines and the configuration in force.
        exchanges: the requests under way.
        history: what was so lately.
        clock: for ages.
        shown: what may be shown of a tenant's name.
    """

    def __init__(
        self,
        fleet: Fleet,
        exchanges: Exchanges,
        history: History,
        clock: IReactorTime,
        shown: Callable[[str], str],
    ) -> None:
        """Take what the class documents."""
        self._fleet = fleet
        self._exchanges = exchanges
        self._history = history
        self._clock = clock
        self._shown = shown
        self._started_at = clock.seconds()
        self._settings: tuple[Config, list[Tree]] | None = None
        self.refused_configuration: list[str] = []

    def __call__(self, most_parked: int | None = None) -> Tree:
        """The tree behind `/status.json`.

        Args:
            most_parked: of how many of a queue, from the head, there is more than their number;
                None is of all. What is left out of a long queue need not be worked out.
        """
        now = self._clock.seconds()
        under_way = Counter(exchange.model for exchange in self._exchanges)
        # A name in a form to be shown is dear, and of thousands parked many have the same.
        shown = cache(self._shown)
        models: Tree = {}
        groups = []
        for key, group in self._fleet.groups.items():
            told = _group(group, now, under_way, shown, most_parked, self._fleet.tries)
            models |= told
            groups.append(self._shared(key, told))
        return {
            "version": __version__,
            "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
            "uptime_seconds": round(now - self._started_at, 3),
            "draining": self._fleet.draining,
            "requests_in_flight": sum(not _watches(one) for one in self._exchanges),
            "refused_configuration": self.refused_configuration,
            "refused_without_model": dict(self._history.trend(NO_MODEL).refused_by_reason),
            "models": dict(sorted(models.items())),
            "groups": groups,
            "retired": _retired(self._fleet, now),
            "settings": self._settings_in_force(),
        }

    def _settings_in_force(self) -> list[Tree]:
        # Worked out anew only after a reload.
        config = self._fleet.config
        if self._settings is None or self._settings[0] is not config:
            self._settings = config, [asdict(one) for one in effective(config)]
        return self._settings[1]

    def _shared(self, key: tuple[str, ...], told: Mapping[str, Tree]) -> Tree:
        """What models that share their engines have in common; `told` has the rest."""
        first = next(iter(told.values()))
        trend = _trend(self._history.trend(key))
        return {
            "models": sorted(told),
            "upstreams": first["upstreams"],
            "state": first["state"],
            "why": first["why"],
            "notes": reasons.notes(first) + reasons.failures(trend),
            "trend": trend,
        }


def _watches(exchange: Exchange) -> bool:
    """Whether a request only asks how the gateway fares."""
    return exchange.route.startswith(("/status", "/health", "/metrics"))


def _group(
    group: Group,
    now: float,
    under_way: Counter[str],
    shown: Callable[[str], str],
    most_parked: int | None,
    tries: Tries,
) -> dict[str, Tree]:
    """The facts of each model of a group."""
    view = None if group.admission is None else group.admission.gate.view(now, most_parked)
    observations = [observer.observation for observer in group.observers]
    # Either all of a group's engines are observed, or none.
    seen: Sequence[Observation | None] = observations or [None] * len(group.model.upstreams)
    if view is None:
        common = _ungated(group.model, seen, now)
    else:
        common = _gated(group.model, view, seen, shown)
    for engine in common["engines"]:
        engine |= answers(group.model, view, tries, engine["address"])
    common |= {
        "upstreams": list(group.model.upstreams),
        "observed": group.model.observed,
        "gated": view is not None,
        "degraded": any(one.degraded for one in observations),
        "stale": any(one.stale for one in observations),
        "reason": "; ".join(one.reason for one in observations if one.reason),
        "requests": {"under_way": sum(under_way[name] for name in group.models)},
    }
    state = reasons.state(common)
    common |= {"state": state.value, "why": reasons.sentence(common)}
    return {
        name: {
            "engine": model.engine.value,
            "aliases": list(model.aliases),
            "require_auth": model.require_auth,
            "shares_its_engine_with": sorted(other for other in group.models if other != name),
            **common,
            "requests": _requests(name, view, under_way),
            **_own_policy(model, view),
        }
        for name, model in group.models.items()
    }


def _requests(name: str, view: GateView | None, under_way: Counter[str]) -> Tree:
    """What one model has of its own, of what it shares."""
    totals = None if view is None else view.models.get(name, ModelTotals())
    return {
        "under_way": under_way[name],
        "in_engine": None if totals is None else totals.in_flight,
        "parked": None if totals is None else totals.parked,
    }


def _own_policy(model: Model, view: GateView | None) -> Tree:
    return {} if view is None else {"max_park_seconds": model.policy.max_park_seconds}


def _gated(
    model: Model,
    view: GateView,
    seen: Sequence[Observation | None],
    shown: Callable[[str], str],
) -> Tree:
    engines = [
        {"number": number, "address": address, **_engine(one), "observer": _health(observation)}
        for number, (address, one, observation) in enumerate(
            zip(model.upstreams, view.engines, seen, strict=True)
        )
    ]
    return {
        "running": total([one.running for one in view.engines]),
        "waiting": total([one.waiting for one in view.engines]),
        "kv_usage": most([one.kv_usage for one in view.engines]),
        # Of several engines the oldest reading speaks: it is the one to look after.
        "sample_age_seconds": rounded(most([one.sample_age_seconds for one in view.engines])),
        "max_inflight": sum(one.max_inflight for one in view.engines),
        "in_engine": sum(one.in_engine for one in view.engines),
        "own": sum(one.own for one in view.engines),
        "parked_requests": sum(one.parked for one in view.models.values()),
        "parked": [_parked(ticket, shown) for ticket in view.parked],
        "parked_bytes": view.parked_bytes,
        "parked_work_seconds": rounded(view.parked_work_seconds),
        "engines": engines,
        "kv_threshold": model.policy.kv_threshold,
        "max_queue_depth": model.policy.max_queue_depth,
        "ordering": model.policy.ordering.value,
        "tenants": [
            {
                "tenant": shown(tenant),
                "used_seconds": rounded(one.used_seconds),
                "parked": one.parked,
                "parked_work_seconds": rounded(one.parked_work_seconds),
            }
            for tenant, one in _most_concerned(view)
        ],
        "rates": rates(model, view),
        "replicas": view.replicas,
        "peers": [
            {"address": address, "heard_seconds": rounded(seconds)}
            for address, seconds in sorted(view.heard_seconds.items())
        ],
    }


def _parked(ticket: ParkedView, shown: Callable[[str], str]) -> Tree:
    return {
        "position": ticket.position,
        "model": ticket.model,
        "waited_seconds": rounded(ticket.waited_seconds),
        "priority": ticket.priority.name.lower(),
        "stream": ticket.stream,
        "prompt_tokens": ticket.prompt_tokens,
        "reparked": ticket.reparked,
        "held": ticket.held,
        "tenant": shown(ticket.tenant),
        "cost_seconds": rounded(ticket.cost_seconds),
        "long_prefill": ticket.long,
        "eta_seconds": rounded(ticket.eta_seconds),
    }


def _engine(engine: EngineView) -> Tree:
    return {
        "running": engine.running,
        "waiting": engine.waiting,
        "kv_usage": engine.kv_usage,
        "kv_tokens": engine.kv_tokens,
        "sample_age_seconds": rounded(engine.sample_age_seconds),
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


def _ungated(model: Model, seen: Sequence[Observation | None], now: float) -> Tree:
    """What is known of engines that have no gate, observed or not."""
    engines = [
        {
            "number": number,
            "address": address,
            **_reading(observation, now),
            "observer": _health(observation),
        }
        for number, (address, observation) in enumerate(zip(model.upstreams, seen, strict=True))
    ]
    return {
        "running": total([one["running"] for one in engines]),
        "waiting": total([one["waiting"] for one in engines]),
        "kv_usage": most([one["kv_usage"] for one in engines]),
        "sample_age_seconds": most([one["sample_age_seconds"] for one in engines]),
        "max_inflight": None,
        "in_engine": None,
        "parked_requests": 0,
        "parked": [],
        "engines": engines,
    }


def _reading(seen: Observation | None, now: float) -> Tree:
    """The gauges of an engine that no gate judges."""
    sample = None if seen is None else seen.sample
    return {
        "running": None if sample is None else sample.running,
        "waiting": None if sample is None else sample.waiting,
        "kv_usage": None if sample is None else sample.kv_usage,
        "kv_tokens": None if sample is None else sample.kv_tokens,
        "sample_age_seconds": None if sample is None else rounded(now - sample.taken_at),
        "judged_by": None,
        "hold": None,
        "drift": False,
    }


def _health(seen: Observation | None) -> Tree | None:
    """How well an engine can be seen; None where nobody looks."""
    if seen is None:
        return None
    return {
        "ok": seen.ok,
        "stale": seen.stale,
        "degraded": seen.degraded,
        "reason": seen.reason,
        "polls": seen.polls,
        "failed_polls": seen.failed_polls,
        "max_model_len": seen.max_model_len,
    }


def _retired(fleet: Fleet, now: float) -> list[Tree]:
    """What gates still serve that a reload has put out of force."""
    told = []
    for group, _ in fleet.retired():
        if group.admission is not None:
            totals = group.admission.gate.summary(now).models.values()
            told.append(
                {
                    "models": sorted(group.models),
                    "in_engine": sum(one.in_flight for one in totals),
                    "parked": sum(one.parked for one in totals),
                }
            )
    return told


def _trend(trend: Trend) -> Tree:
    # As `asdict`, but without a copy of every point.
    points = {one.name: getattr(trend, one.name) for one in fields(trend)}
    return {"slot_seconds": SLOT_SECONDS, **points}


def _most_concerned(view: GateView) -> list[tuple[str, TenantView]]:
    """The tenants who have most parked, then those who have used most; so many as are read."""
    ranked = sorted(
        view.tenants.items(),
        key=lambda item: (-item[1].parked_work_seconds, -item[1].used_seconds, item[0]),
    )
    return ranked[:MOST_TENANTS_SHOWN]

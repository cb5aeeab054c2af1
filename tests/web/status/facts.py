"""Facts as `/status.json` has them, for the tests of what is made of them."""

from __future__ import annotations

from typing import Any

from twisted_gateway.telemetry.history import SLOTS
from twisted_gateway.web.status import reasons

Tree = dict[str, Any]

SERVED = {
    "silent_seconds": None,
    "expected_seconds": None,
    "faults_in_a_row": 0,
    "fault_status": None,
    "unreached": "",
}
"""How an engine fares by our own requests, where nothing is amiss."""

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def parked(position: int = 1, **changes: Any) -> Tree:
    """One parked request."""
    return {
        "position": position,
        "model": "reasoning",
        "waited_seconds": 3.25,
        "priority": "interactive",
        "stream": True,
        "prompt_tokens": 12_345,
        "reparked": False,
        "held": False,
        "tenant": "3fa9c1d20b77",
        "cost_seconds": 20.0,
        "long_prefill": False,
        "eta_seconds": 41.2,
    } | changes


def observer(**changes: Any) -> Tree:
    """How well an engine can be seen."""
    return {
        "ok": True,
        "stale": False,
        "degraded": False,
        "reason": "",
        "polls": 12,
        "failed_polls": 0,
        "max_model_len": 8192,
    } | changes


def engine(**changes: Any) -> Tree:
    """One engine behind a gate."""
    return {
        "number": 0,
        "address": "http://10.0.0.1:8000",
        "running": 3,
        "waiting": 1,
        "kv_usage": 0.42,
        "kv_tokens": 152_432,
        "sample_age_seconds": 1.5,
        "max_inflight": 4,
        "learned": False,
        "drift": False,
        "own": 3,
        "peers": 0,
        "foreign": 0,
        "long_prefill": False,
        "in_engine": 3,
        "judged_by": "fresh",
        "hold": None,
        "observer": observer(),
        **SERVED,
    } | changes


def model(**changes: Any) -> Tree:
    """One gated model."""
    made: Tree = {
        "engine": "vllm",
        "aliases": [],
        "upstreams": ["http://10.0.0.1:8000"],
        "observed": True,
        "gated": True,
        "degraded": False,
        "stale": False,
        "reason": "",
        "requests": {"under_way": 4, "in_engine": 3, "parked": 1},
        "running": 3,
        "waiting": 1,
        "kv_usage": 0.42,
        "kv_threshold": 0.9,
        "sample_age_seconds": 1.5,
        "max_inflight": 4,
        "in_engine": 3,
        "own": 3,
        "parked": [],
        "parked_bytes": 0,
        "parked_work_seconds": 0.0,
        "engines": [engine()],
        "max_park_seconds": 540.0,
        "max_queue_depth": 256,
        "ordering": "cost",
        "tenants": [],
        "rates": {
            "prefill_tokens_per_second": 525.0,
            "decode_tokens_per_second": 25.0,
            "prefill_source": "learned",
            "decode_source": "configured",
            "learned": True,
        },
        "replicas": 1,
        "peers": [],
    } | changes
    made = {"parked_requests": len(made["parked"])} | made
    return made | {"state": reasons.state(made).value, "why": reasons.sentence(made)}


def full(**changes: Any) -> Tree:
    """One gated model whose engine is full, with one request parked."""
    inside = engine(running=4, own=4, in_engine=4)
    return model(**{"in_engine": 4, "engines": [inside], "parked": [parked()]} | changes)


def ungated(**changes: Any) -> Tree:
    """One model without a gate; observed, unless its engines say otherwise."""
    seen = {"number": 0, "address": "http://10.0.0.1:8000", "running": 3, "waiting": 1}
    seen |= {"kv_usage": None, "kv_tokens": None, "sample_age_seconds": 1.5, "judged_by": None}
    seen |= {"hold": None, "drift": False, "observer": observer(), **SERVED}
    free = {"gated": False, "max_inflight": None, "in_engine": None, "engines": [seen]}
    return model(**free | changes)


def trend(**changes: Any) -> Tree:
    """The last quarter of an hour, of which the last minute is known."""
    gap = [None] * (SLOTS - 6)
    return {
        "slot_seconds": 10.0,
        "in_engine": [*gap, 0, 1, 3, 4, 4, 3],
        "parked": [*gap, 0, 0, 2, 7, 5, 1],
        "ttft_p50_seconds": [*gap, None, 1.1, 1.2, 3.5, 3.6, 3.2],
        "ttft_p95_seconds": [*gap, None, 2.2, 2.4, 9.9, 11.5, 9.1],
        "refused": [*gap, 0, 0, 0, 2, 1, 0],
        "refused_by_reason": {"deadline": 1, "queue_full": 2},
        "ended": {"ok": 80, "rejected": 3},
        "answered": {"2xx": 80},
    } | changes


def facts(models: Tree, **changes: Any) -> Tree:
    """The whole tree; each model has engines of its own unless `groups` says otherwise."""
    groups = [
        {
            "models": [name],
            "upstreams": one["upstreams"],
            "state": one["state"],
            "why": one["why"],
            "notes": reasons.notes(one),
            "trend": trend(),
        }
        for name, one in models.items()
    ]
    return {
        "version": "0.1.0",
        "time": "2026-11-30T03:10:02.000+00:00",
        "uptime_seconds": 12.0,
        "draining": False,
        "requests_in_flight": 2,
        "refused_configuration": [],
        "refused_without_model": {},
        "models": models,
        "groups": groups,
        "retired": [],
        "settings": [
            {"key": "listen", "value": "tcp:8080", "source": "default"},
            {"key": "drainSeconds", "value": "5", "source": "config.yaml line 1"},
        ],
    } | changes

"""The paths that every engine has beside its work, and the two that only a simulated one has.

`GET /demo/state` tells the truth that the gauges tell late; `POST` measures its peak anew.
`POST /demo/faults` makes the engine fail; see `Faults`. Both are for callers on loopback.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from twisted.web.server import Request

from twisted_gateway.demo.ask import ApiError
from twisted_gateway.demo.host import Host, Routes
from twisted_gateway.demo.statistics import CONTENT_TYPE

VERSION = "0.32.0"

_TORN = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_run\x00\xff{engine="
_PAGES: Mapping[str, tuple[int, bytes, bytes]] = MappingProxyType(
    {
        "garble": (200, CONTENT_TYPE, _TORN),
        "html": (200, b"text/html", b"<!doctype html><title>Sign in</title><p>Please sign in.\n"),
        "500": (500, b"text/plain; charset=utf-8", b"Internal Server Error"),
    }
)


def routes(host: Host) -> Routes:
    """Health, version, metrics and models; state and faults."""
    return {
        "/health": {"GET": lambda request: _health(host, request)},
        "/version": {"GET": lambda request: host.reply(request, 200, {"version": VERSION})},
        "/metrics": {"GET": lambda request: _metrics(host, request)},
        "/v1/models": {"GET": lambda request: _models(host, request)},
        "/demo/state": {
            "GET": lambda request: _state(host, request),
            "POST": lambda request: _reset_peak(host, request),
        },
        "/demo/faults": {"POST": lambda request: _change_faults(host, request)},
    }


def _health(host: Host, request: Request) -> None:
    host.send(request, 503 if host.engine.dead else 200, None, b"")


def _metrics(host: Host, request: Request) -> None:
    mode = host.faults.metrics
    if mode == "ok":
        host.statistics.show(host.engine.gauges())
        host.send(request, 200, CONTENT_TYPE, host.statistics.page())
    elif mode != "hang":
        status, kind, body = _PAGES[mode]
        host.send(request, status, kind, body)


def _models(host: Host, request: Request) -> None:
    permission = {
        "id": f"modelperm-{host.new_id()}",
        "object": "model_permission",
        "created": host.started_at,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": host.limits.model,
        "object": "model",
        "created": host.started_at,
        "owned_by": "vllm",
        "root": host.limits.model,
        "parent": None,
        "max_model_len": host.limits.max_model_tokens,
        "permission": [permission],
    }
    host.reply(request, 200, {"object": "list", "data": [model]})


def _state(host: Host, request: Request) -> None:
    engine = host.engine
    state = {
        "in_engine_now": engine.in_engine_now,
        "peak_in_engine": engine.peak_in_engine,
        "most_behind_seconds": engine.most_behind_seconds,
        "prefilled_tokens": engine.prefilled_tokens,
        "wasted_tokens": engine.wasted_tokens,
        "published": asdict(engine.gauges()),
        "faults": asdict(host.faults),
    }
    host.reply(request, 200, state)


def _reset_peak(host: Host, request: Request) -> None:
    host.engine.reset_peak()
    _state(host, request)


def _change_faults(host: Host, request: Request) -> None:
    try:
        host.change_faults(host.body(request))
    except ValueError as fault:
        raise ApiError(400, str(fault), "BadRequestError") from fault
    _state(host, request)

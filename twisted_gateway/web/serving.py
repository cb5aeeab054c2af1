"""The frame of a handler that says itself how its requests end: each in exactly one outcome."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import work_for
from twisted_gateway.web.exchange import Cut, Exchange
from twisted_gateway.web.problems import internal_error
from twisted_gateway.web.request import GatewayRequest

Work = Callable[[GatewayRequest], Coroutine[Deferred[Any], Any, Outcome]]
"""Serves a request and says how it ended; raises `Problem` for what is to be answered."""

Entered = Callable[[str], Callable[[], None]]
"""Told of the model of a request that is under way; gives what is called when it has ended."""


def nothing_entered(model: str) -> Callable[[], None]:
    """Count nothing: for work that counts its requests itself."""
    return lambda: None


def serve(request: GatewayRequest, route: str, work: Work, entered: Entered) -> Deferred[None]:
    """Serve one request, to its one outcome.

    Args:
        request: its head has been read.
        route: the bounded name of what serves it; `work` may find a better one.
        work: serves it.
        entered: counts it among those under way.

    Returns:
        Fires with None when the answer is written or the connection cut. Cancelling it (Klein
        does when the client leaves) cancels whatever `work` waits for.
    """
    exchange = request.exchange
    exchange.route = route
    exchange.ends_itself = True
    exchange.work = Deferred.fromCoroutine(_serve(request, exchange, work, entered))
    return exchange.work


async def _serve(request: GatewayRequest, exchange: Exchange, work: Work, entered: Entered) -> None:
    left = entered("")
    work_for(exchange.about)
    try:
        outcome = await work(request)
    except Problem as problem:
        request.answer_problem(problem)
        outcome = problem.outcome
    except CancelledError:
        outcome = interrupted(request, exchange.interruption())
    except Exception:
        # A fault of ours: the client is told in whatever form is open, and the log knows.
        if exchange.outcome is None:
            exchange.end(interrupted(request, internal_error()))
        raise
    finally:
        left()
    exchange.end(outcome)
    if not request.finished:
        # The connection was cut: returning now would have Klein finish the response.
        await request.closed()


def interrupted(request: GatewayRequest, why: Problem | Cut) -> Outcome:
    """Tell the client why, if it can still be told; else cut the connection."""
    if isinstance(why, Cut) or request.startedWriting:
        request.abort()
    else:
        request.answer_problem(why)
    return why.outcome

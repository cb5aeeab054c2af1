"""What a gate shows of itself, put together for the metrics and for the status page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from types import MappingProxyType

from twisted_gateway.core.forecast import Forecast
from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.queue import Queue
from twisted_gateway.core.rates import Rates
from twisted_gateway.core.share import Share
from twisted_gateway.core.view import GateSummary, GateView, ModelTotals, ParkedView, TenantView


def summary(ledgers: Sequence[Ledger], queue: Queue, policy: Policy, now: float) -> GateSummary:
    """The engines, and how much of each model is where, frozen."""
    totals: dict[str, list[int]] = {}
    for ledger in ledgers:
        for ticket in ledger.own:
            totals.setdefault(ticket.model, [0, 0, 0])[0] += 1
    for ticket in queue:
        total = totals.setdefault(ticket.model, [0, 0, 0])
        total[1] += 1
        total[2] += ticket.body_bytes
    return GateSummary(
        engines=tuple(ledger.view(policy, now) for ledger in ledgers),
        models=MappingProxyType(
            {
                model: ModelTotals(in_flight=sent, parked=parked, parked_bytes=size)
                for model, (sent, parked, size) in totals.items()
            }
        ),
    )


def view(
    shown: GateSummary,
    queue: Queue,
    share: Share,
    rates: Rates,
    forecast: Forecast,
    now: float,
    *,
    most_parked: int | None,
    draining: bool,
) -> GateView:
    """All that is known, frozen.

    Args:
        shown: the summary of the same moment.
        queue: who is parked.
        share: what is known of other replicas and of tenants.
        rates: how fast the engines are.
        forecast: how long it will take.
        now: the time.
        most_parked: how many of the parked are shown one by one, from the head; None is all.
        draining: whether newcomers are refused.
    """
    return GateView(
        engines=shown.engines,
        parked=_parked(queue, forecast, now, most_parked),
        parked_bytes=queue.bytes,
        parked_work_seconds=queue.work_seconds,
        models=shown.models,
        tenants=MappingProxyType(_tenants(queue, share, now)),
        prefill_tokens_per_second=rates.prefill,
        decode_tokens_per_second=rates.decode,
        rates_learned=rates.learned,
        replicas=share.replicas(now),
        heard_seconds=MappingProxyType(share.heard(now)),
        draining=draining,
    )


def _parked(
    queue: Queue, forecast: Forecast, now: float, most_parked: int | None
) -> tuple[ParkedView, ...]:
    outlook = forecast.outlook(now)
    return tuple(
        ParkedView(
            position=position,
            model=ticket.model,
            waited_seconds=now - ticket.parked_at,
            priority=ticket.priority,
            stream=ticket.stream,
            prompt_tokens=ticket.prompt_tokens,
            head_sent=ticket.head_sent,
            reparked=ticket.reparked,
            held=queue.holds(ticket),
            tenant=ticket.tenant,
            cost_seconds=ticket.cost_seconds,
            long=ticket.long,
            eta_seconds=outlook.standing(ticket, now).eta_seconds,
        )
        for position, ticket in enumerate(islice(outlook.in_order(queue.held), most_parked), 1)
    )


def _tenants(queue: Queue, share: Share, now: float) -> dict[str, TenantView]:
    parked: dict[str, int] = {}
    work_seconds: dict[str, float] = {}
    for ticket in queue:
        tenant = ticket.tenant
        parked[tenant] = parked.get(tenant, 0) + 1
        work_seconds[tenant] = work_seconds.get(tenant, 0.0) + ticket.cost_seconds
    return {
        tenant: TenantView(
            used_seconds=share.use(tenant, now),
            parked=parked.get(tenant, 0),
            parked_work_seconds=work_seconds.get(tenant, 0.0),
        )
        for tenant in (*share.tenants.all(now), *parked)
    }

"""The whole run: which checks, in which order, of which models and services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.check import gateway
from twisted_gateway.check.client import listed
from twisted_gateway.check.gateway import Grant, Keeps
from twisted_gateway.check.models import ModelChecks
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.ready import PUBLIC_ONLY, Readiness
from twisted_gateway.check.results import Failed, Skipped, Verdict
from twisted_gateway.check.runner import Runner, Work
from twisted_gateway.check.services import Asking, Service, ServiceChecks, services

MOST_SUBJECTS = 100
"""How many models, and how many services, one run checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to check.

    Attributes:
        admin_named: whether the user said where the operations endpoints are.
        models: name -> what it is for, "" to find out; None: all that are listed.
        services: their names; None: all that are listed.
        grant: gets a token; None where one was given, or none is wanted.
        asking: what the user said of services.
        token_to_models: whether models are asked with the token where nobody says that the gateway
            keeps it.
    """

    admin_named: bool = False
    models: Mapping[str, str] | None = None
    services: Sequence[str] | None = None
    grant: Grant | None = None
    asking: Asking = field(default_factory=Asking)
    token_to_models: bool = False


class Suite:
    """Makes all checks.

    Args:
        runner: makes each.
        clock: for pauses.
        plan: what to check.
        readiness: waits for the gateway.
    """

    def __init__(
        self, runner: Runner, clock: IReactorTime, plan: Plan, readiness: Readiness
    ) -> None:
        """Take what the class documents."""
        self._runner = runner
        self._clock = clock
        self._plan = plan
        self._readiness = readiness
        self._models: list[str] | None = None
        self._services: list[Service] | None = None
        self._described: Mapping[str, Mapping[str, Any]] = {}

    async def run(self) -> None:
        """Make them, one after the other, and remove what they have made.

        Cancelling it ends the check under way, and leaves out the others; what was made is
        removed all the same.

        Raises:
            NotReady: the gateway is not; nothing else was checked.
        """
        try:
            await self._runner.check("ready", "", self._ready)
            await self._gateway()
            await self._runner.contain("models", self._check_models)
            await self._runner.contain("services", self._check_services)
        finally:
            await self._runner.clean_up()

    async def _ready(self, probe: Probe) -> str:
        try:
            return await self._readiness.wait(probe)
        finally:
            self._runner.report.traceable = not self._readiness.stranger

    async def _gateway(self) -> None:
        check, run_id = self._runner.check, self._runner.report.run_id
        if self._plan.grant is not None:
            await check("token", "", partial(self._get_token, self._plan.grant))
        await check("health", "", self._on_admin_side(gateway.health))
        await check("metrics", "", self._on_admin_side(gateway.metrics))
        await check("models", "", self._list_models)
        await check("services", "", self._list_services)
        await check("request-id", "", gateway.request_id)
        await check("admin-not-public", "", self._admin_not_public)
        await check("unknown-model", "", self._unknown_model)
        await check("unknown-service", "", lambda probe: gateway.unknown_service(probe, run_id))
        await check("webhook-signature", "", lambda probe: gateway.webhook_signature(probe, run_id))

    async def _get_token(self, grant: Grant, probe: Probe) -> str:
        token = await gateway.get_token(probe, grant)
        self._runner.conceal(token)
        self._runner.tokens = replace(self._runner.tokens, gateway=token)
        return ""

    def _on_admin_side(self, work: Work) -> Work:
        """Make a check one that is not made where nobody knows the admin side."""

        async def there(probe: Probe) -> str:
            if self._readiness.public_only:
                raise Skipped(PUBLIC_ONLY)
            return await work(probe)

        return there

    async def _admin_not_public(self, probe: Probe) -> str:
        if not (self._plan.admin_named or self._readiness.public_only):
            raise Skipped("one address serves both; with adminListen, --admin URL names the other")
        return await gateway.admin_not_public(probe)

    async def _unknown_model(self, probe: Probe) -> str:
        run_id = self._runner.report.run_id
        return await gateway.unknown_model(probe, run_id, self._keeps_all())

    async def _list_models(self, probe: Probe) -> str:
        said, names = await gateway.models(probe)
        described = await self._status(probe)
        aliases = {
            alias: about
            for about in described.values()
            for alias in gateway.words(about.get("aliases"))
        }
        self._described = {**aliases, **described}
        # An alias is another name of what is checked by its own.
        self._models = [name for name in names if name not in aliases]
        left_out = len(names) - len(self._models)
        return said + (f" (aliases are not checked: {left_out})" if left_out else "")

    async def _status(self, probe: Probe) -> Mapping[str, Mapping[str, Any]]:
        """Read what the gateway says of its models; nothing where it does not say."""
        if self._readiness.by_models:
            # Whoever lists models need not be the gateway, whose word alone a token goes by.
            return {}
        try:
            answer = await probe.ask("GET", "/status.json", admin=True)
        except Failed:
            # Older ones have none; then asking has to tell.
            return {}
        models = gateway.members(gateway.members(answer.tree).get("models"))
        return {name: gateway.members(about) for name, about in models.items()}

    def _keeps(self, model: str) -> Keeps:
        about = self._described.get(model, {})
        return Keeps.read(about, trusted=self._plan.token_to_models)

    def _keeps_all(self) -> Keeps:
        """Say whether a token stays with the gateway, whatever model is asked for.

        Only where all models take one it is wanted before the gateway knows which is meant.
        """
        every = {self._keeps(name) for name in self._described}
        if len(every) == 1:
            return every.pop()
        return Keeps.NO if every else Keeps.read({}, trusted=self._plan.token_to_models)

    async def _list_services(self, probe: Probe) -> str:
        said, self._services = await services(probe)
        named = self._plan.models is not None or self._plan.services is not None
        if self._models == [] and not self._services and not named:
            # Nothing but the lists says what there is to be checked.
            raise Failed("there are none, nor models: nothing is served (--models '' if so it is)")
        return said

    # One by one

    async def _check_models(self) -> None:
        wanted, listed = self._plan.models, self._models
        checks = ModelChecks(self._runner, self._clock, named=wanted is not None)
        chosen = dict.fromkeys(listed or (), "") if wanted is None else dict(wanted)
        for name in self._bounded("models", list(chosen)):
            engine = self._described.get(name, {}).get("engine")
            await checks.check(
                name,
                kind=chosen[name],
                engine=engine if isinstance(engine, str) else "",
                keeps=self._keeps(name),
            )

    async def _check_services(self) -> None:
        wanted, known = self._plan.services, self._services
        checks = ServiceChecks(self._runner, self._plan.asking, named=wanted is not None)
        found = {one.name: one for one in known or ()}
        for name in self._bounded("services", list(found) if wanted is None else list(wanted)):
            service = found.get(name)
            if service is not None:
                await checks.check(service)
            elif known is None:
                # An older gateway lists none; its adapters are named after their kinds.
                await checks.check(Service(name=name, kind=name))
            else:
                said = f"it is not configured; there are {listed(found) or 'none'}"
                self._runner.record("services", name, Verdict.FAILED, said)

    def _bounded(self, what: str, names: list[str]) -> list[str]:
        if len(names) > MOST_SUBJECTS:
            said = f"{len(names)} {what}, and one run checks {MOST_SUBJECTS}: name some (--{what})"
            self._runner.record(what, "", Verdict.FAILED, said)
        return names[:MOST_SUBJECTS]

"""Checks of services behind X-Service, by their kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twisted_gateway.check.client import Answer, json_body, listed
from twisted_gateway.check.gateway import members
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.results import Failed, Skipped, Verdict
from twisted_gateway.check.runner import Runner, Work
from twisted_gateway.check.s3 import S3Checks

TEXT = "llm-gateway-check was here; this says nothing and may go."
SOURCE = "llm-gateway-check"
NO_TOKEN = "it takes a token, and none was given (--token-file)"
BODIES: Mapping[str, Any] = {
    "memory-ingest": {"text": TEXT, "source": SOURCE},
    "memory-query": {"query": TEXT},
}
"""What is posted to the memory service, unless the user has it otherwise."""

# Of kinds without a GET: what comes to nothing with the body {}.
_HARMLESS_POSTS = {"memory": "query", "notification": "send-message", "sessions": "sandbox"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What the user has said of services.

    Attributes:
        bucket: of the store, to be written to; "" for none.
        namespace: of workflows.
        notify: whether a notification is sent.
        bodies: name of a check -> the body that it posts.
    """

    bucket: str = ""
    namespace: str = "default"
    notify: bool = False
    bodies: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service, as `GET /v1/services` tells of it.

    Attributes:
        name: as in X-Service.
        kind: of its adapter.
        require_auth: whether it takes a token; None where that is not known.
        allowed: resource -> whether the bearer of our token may use it; empty if not known.
        methods: resource -> its methods.
    """

    name: str
    kind: str
    require_auth: bool | None = None
    allowed: Mapping[str, bool] = field(default_factory=dict)
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, tree: Any) -> Service:
        """Read the description of a service."""
        about = members(tree)
        resources = {
            resource: members(one) for resource, one in members(about.get("resources")).items()
        }
        kind, require_auth = about.get("kind"), about.get("require_auth")
        return cls(
            name=name,
            kind=kind if isinstance(kind, str) else name,
            require_auth=require_auth if isinstance(require_auth, bool) else None,
            allowed={
                resource: one.get("allowed") is not False for resource, one in resources.items()
            },
            methods={
                resource: tuple(members(one.get("methods"))) for resource, one in resources.items()
            },
        )

    def harmless(self) -> tuple[str, str] | None:
        """Give a resource and a method that do nothing even where no token is asked for."""
        for resource, methods in self.methods.items():
            if "GET" in methods:
                return resource, "GET"
        resource = _HARMLESS_POSTS.get(self.kind, "")
        if "POST" in self.methods.get(resource, ()):
            return resource, "POST"
        # An older gateway says nothing of its services, and queues always took a token.
        return ("list-queues", "GET") if self.kind == "sqs" and not self.methods else None


async def services(probe: Probe) -> tuple[str, list[Service]]:
    """Read the list of services."""
    answer = await probe.ask("GET", "/v1/services", token=probe.tokens.gateway)
    probe.expect(answer, 200)
    tree = members(answer.tree).get("services")
    if not isinstance(tree, dict):
        raise Failed("the answer is no list of services")
    found = [Service.read(name, one) for name, one in tree.items()]
    return f"{len(found)} listed: {listed(tree)}" if found else "there are none", found


class ServiceChecks:
    """Makes the checks of services.

    Args:
        runner: makes each.
        asking: what the user has said.
        named: whether the user named the services: one that cannot be checked has then failed.
    """

    def __init__(self, runner: Runner, asking: Asking, *, named: bool) -> None:
        """Take what the class documents."""
        self._runner = runner
        self._asking = asking
        self._named = named
        self._s3 = S3Checks(runner, asking.bucket)
        self._kinds: Mapping[str, Callable[[Service], Awaitable[None]]] = {
            "memory": self._memory,
            "s3": self._store,
            "sqs": self._sqs,
            "workflow": self._workflow,
            "iam": self._iam,
            "notification": self._notification,
            "registry": self._registry,
            "sessions": self._sessions,
        }

    async def check(self, service: Service) -> None:
        """Check one service."""
        harmless = service.harmless()
        if service.require_auth is not False and harmless is not None:
            work = partial(self._no_token, service.name, *harmless)
            await self._runner.check("no-token", service.name, work)
        checks = self._kinds.get(service.kind)
        if checks is None:
            verdict = Verdict.FAILED if self._named else Verdict.SKIPPED
            said = f"nothing is known of services of the kind {service.kind}"
            self._runner.record("services", service.name, verdict, said)
        else:
            await checks(service)

    def _guarded(self, service: Service, resource: str, work: Work) -> Work:
        """Make a check one that is not made where the token does not suffice."""

        async def guarded(probe: Probe) -> str:
            why = self._forbidden(service, resource)
            if why and self._named:
                raise Failed(why)
            if why:
                raise Skipped(why)
            return await work(probe)

        return guarded

    def _forbidden(self, service: Service, resource: str) -> str:
        if service.require_auth and not self._runner.tokens.gateway:
            return NO_TOKEN
        if not service.allowed.get(resource, True):
            return f"the token lacks the scopes for {service.name}/{resource}"
        return ""

    async def _check(self, name: str, service: Service, resource: str, work: Work) -> bool:
        guarded = self._guarded(service, resource, work)
        return await self._runner.check(name, service.name, guarded)

    async def _list(
        self,
        name: str,
        service: Service,
        resource: str,
        parameters: Mapping[str, str],
        key: str,
        hint: str = "",
    ) -> None:
        """Make a check of a listing: `key` names the list in the answer, which may be empty."""

        async def work(probe: Probe) -> str:
            token = _token(probe, service)
            answer = await probe.service(service.name, resource, parameters=parameters, token=token)
            probe.expect(answer, 200, hint=hint)
            found = members(answer.tree).get(key)
            if not isinstance(found, list):
                raise Failed(f"the answer has no list {key!r}")
            # Who and what they are is nobody's business here.
            return f"{len(found)} {key} in the first page"

        await self._check(name, service, resource, work)

    async def _no_token(self, service: str, resource: str, method: str, probe: Probe) -> str:
        body = json_body({}) if method == "POST" else None
        headers = {} if body is None else {"Content-Type": "application/json"}
        answer = await probe.service(service, resource, method, headers=headers, body=body)
        if answer.status < 400:
            raise Failed(f"it is open to everybody (status {answer.status})")
        probe.expect(answer, 401)
        return ""

    async def _memory(self, service: Service) -> None:
        for resource in ("ingest", "query"):
            name = f"memory-{resource}"
            body = self._asking.bodies.get(name) or json_body(BODIES[name])
            work = partial(self._post, service, resource, body)
            await self._check(name, service, resource, work)

    async def _post(self, service: Service, resource: str, body: bytes, probe: Probe) -> str:
        answer = await self._send(probe, service, resource, body)
        if not 200 <= answer.status < 300:
            probe.expect(answer, 200, hint=f"--body memory-{resource}=FILE has what it takes")
        return ""

    async def _store(self, service: Service) -> None:
        await self._s3.check(
            service.name,
            lambda resource, work: self._guarded(service, resource, work),
            lambda probe: _token(probe, service),
            lacks=self._forbidden(service, "list"),
            named=self._named,
        )

    async def _sqs(self, service: Service) -> None:
        await self._list("sqs-list", service, "list-queues", {"max_results": "10"}, "queues")

    async def _workflow(self, service: Service) -> None:
        of = {"namespace": self._asking.namespace, "page_size": "10"}
        hint = "--namespace names one that there is"
        await self._list("workflow-list", service, "list", of, "executions", hint)
        await self._check(
            "workflow-namespace", service, "list", partial(self._no_namespace, service)
        )

    async def _no_namespace(self, service: Service, probe: Probe) -> str:
        token = _token(probe, service)
        answer = await probe.service(service.name, "list", token=token)
        probe.expect(answer, 400)
        return ""

    async def _iam(self, service: Service) -> None:
        await self._list("iam-list", service, "list-users", {"page_size": "1"}, "users")

    async def _notification(self, service: Service) -> None:
        work: Work = partial(self._notify, service)
        if not self._asking.notify:
            work = _not_asked
        await self._check("notification-send", service, "send-message", work)

    async def _notify(self, service: Service, probe: Probe) -> str:
        tree = {"title": SOURCE, "message": TEXT, "priority": 0}
        answer = await self._send(probe, service, "send-message", json_body(tree))
        probe.expect(answer, 200)
        if not members(answer.tree).get("id"):
            raise Failed("the answer does not say that it was sent")
        return "sent with priority 0"

    async def _registry(self, service: Service) -> None:
        await self._list("registry-list", service, "list-repos", {"limit": "1"}, "repositories")

    async def _sessions(self, service: Service) -> None:
        self._runner.record(
            "sessions", service.name, Verdict.SKIPPED, "a sandbox costs a pod, and is not made"
        )

    async def _send(self, probe: Probe, service: Service, resource: str, body: bytes) -> Answer:
        headers = {"Content-Type": "application/json"}
        token = _token(probe, service)
        return await probe.service(
            service.name, resource, "POST", headers=headers, body=body, token=token
        )


async def _not_asked(probe: Probe) -> str:
    raise Skipped("it rings telephones: --notify asks for it")


def _token(probe: Probe, service: Service) -> str:
    """Give what a request to a service bears: nothing where it takes no token."""
    return "" if service.require_auth is False else probe.tokens.gateway

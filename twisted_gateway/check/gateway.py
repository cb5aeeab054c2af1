"""Checks of the gateway itself: what it serves, what it refuses, and how it says so."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote_plus, urlencode

from twisted_gateway.check.client import Answer, json_body, listed
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.results import Failed, Skipped
from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import credential

ADMIN_PATHS = ("/health", "/health/ready", "/metrics", "/status", "/status.json")
"""What `adminListen` takes off the public side."""
WEBHOOK = "/v1/webhooks/forgejo"
MAX_METRICS_BYTES = 8 * 1024 * 1024
"""The longest page of metrics that is read; that of many models is some 100 kB."""
NO_WORD = (
    "it was asked without the token, for nothing says that the gateway would keep it from the "
    "engine: --admin URL has it say so, --token-to-models sends it all the same"
)
"""What is said where somebody behind the gateway's address wants a token."""
_SERIES = b"gateway_requests_total"


def members(tree: Any) -> Mapping[str, Any]:
    """Take a JSON object; anything else has no members."""
    return tree if isinstance(tree, dict) else {}


def objects(tree: Any) -> list[Mapping[str, Any]]:
    """Take the objects of a JSON array; anything else has none."""
    return [one for one in tree if isinstance(one, dict)] if isinstance(tree, list) else []


def words(tree: Any) -> list[str]:
    """Take the texts of a JSON array; anything else has none."""
    return [one for one in tree if isinstance(one, str)] if isinstance(tree, list) else []


async def health(probe: Probe) -> str:
    """See `/health` and `/health/live` say ok."""
    for path in ("/health", "/health/live"):
        answer = await probe.ask("GET", path, admin=True)
        probe.expect(answer, 200)
        if members(answer.tree).get("status") != "ok":
            raise Failed(f'{path} does not say {{"status": "ok"}}')
    return ""


async def metrics(probe: Probe) -> str:
    """See the gateway's own series in `/metrics`."""
    answer = await probe.ask("GET", "/metrics", admin=True, limit_bytes=MAX_METRICS_BYTES)
    probe.expect(answer, 200)
    if _SERIES not in answer.body:
        raise Failed(f"it has no {_SERIES.decode()}: this is not the gateway's page")
    return f"{len(answer.body)} bytes"


async def request_id(probe: Probe) -> str:
    """See the id of a request come back."""
    answer = await probe.ask("GET", "/v1/models")
    probe.expect(answer, 200)
    sent, came = probe.request_ids[-1], answer.field("X-Request-ID")
    if came != sent:
        raise Failed(f"{sent} was sent, {came or 'none'} came back: it will not be in the log")
    return ""


async def admin_not_public(probe: Probe) -> str:
    """See the operations endpoints missing from the public side."""
    for path in ADMIN_PATHS:
        answer = await probe.ask("GET", path)
        if answer.status < 400:
            raise Failed(f"{path} is served to everybody (status {answer.status})")
        probe.expect(answer, 404)
    return ""


async def unknown_model(probe: Probe, name: str, keeps: Keeps) -> str:
    """See a model that there is not refused with the names of those that there are."""
    body = json_body({"model": name, "messages": [{"role": "user", "content": "-"}]})
    answer = await ask_model(probe, "/v1/chat/completions", body, keeps)
    if answer.status == 401 and not probe.tokens.gateway:
        raise Skipped("every model takes a token, and none was given (--token-file)")
    if lacks_word(answer, probe, keeps):
        raise Skipped(NO_WORD)
    probe.expect(answer, 400)
    names = answer.members.get("valid_models")
    if not isinstance(names, list):
        raise probe.lacks(answer, "valid_models")
    return ""


async def unknown_service(probe: Probe, name: str) -> str:
    """See a service that there is not refused with the names of those that there are."""
    answer = await probe.service(name, "list")
    probe.expect(answer, 404)
    names = answer.members.get("valid_services")
    if not isinstance(names, list):
        raise probe.lacks(answer, "valid_services: X-Service does not reach the gateway")
    return ""


async def webhook_signature(probe: Probe, delivery: str) -> str:
    """See an event with a wrong signature refused."""
    headers = {
        "Content-Type": "application/json",
        "X-Forgejo-Signature": "0" * 64,
        "X-Forgejo-Event": "llm-gateway-check",
        "X-Forgejo-Delivery": delivery,
    }
    answer = await probe.ask("POST", WEBHOOK, headers=headers, body=b"{}")
    if answer.status == 503 and answer.problem == "webhook_not_configured":
        raise Skipped("the gateway has no secret for webhooks, and takes none")
    probe.expect(answer, 401)
    return ""


class Keeps(Enum):
    """Whether the gateway keeps the token of a request to a model to itself.

    It does where it judges it (`requireAuth`). Where it does not, it passes the field on to the
    engine, whose business the token is not; and an engine can answer as if it were the gateway.
    """

    YES = "the gateway says that it takes a token"
    NO = "the gateway says that it takes none"
    UNKNOWN = "nobody says"
    TRUSTED = "nobody says, and the user trusts the engines"

    @classmethod
    def read(cls, about: Mapping[str, Any], *, trusted: bool) -> Keeps:
        """Read what `/status.json` says of a model; nothing of one that it does not know."""
        required = about.get("require_auth")
        if isinstance(required, bool):
            return cls.YES if required else cls.NO
        return cls.TRUSTED if trusted else cls.UNKNOWN


async def ask_model(
    probe: Probe,
    path: str,
    body: bytes,
    keeps: Keeps,
    headers: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> Answer:
    """Ask a model, with the gateway's token only where that stays with the gateway.

    Args:
        probe: asks.
        path: of the operation.
        body: of the request, JSON.
        keeps: whether the gateway keeps the token; where the user trusts the engines it is sent
            once somebody has asked for it.
        headers: further fields.
        seconds: the bound on each request; None for the usual.
    """
    fields = {"Content-Type": "application/json", **(headers or {})}
    token = probe.tokens.gateway
    first = token if token and keeps is Keeps.YES else probe.tokens.engine
    answer = await probe.ask("POST", path, headers=fields, body=body, token=first, seconds=seconds)
    if keeps is Keeps.TRUSTED and token and _wants_token(answer):
        answer = await probe.ask(
            "POST", path, headers=fields, body=body, token=token, seconds=seconds
        )
    return answer


def lacks_word(answer: Answer, probe: Probe, keeps: Keeps) -> bool:
    """Say whether a request was refused for want of the token that there is, and was not sent."""
    return keeps is Keeps.UNKNOWN and bool(probe.tokens.gateway) and _wants_token(answer)


def _wants_token(answer: Answer) -> bool:
    """Say whether the gateway asks for a token, or an engine that speaks as it does."""
    return answer.status == 401 and answer.problem == "unauthorized"


async def models(probe: Probe) -> tuple[str, list[str]]:
    """Read the list of models."""
    answer = await probe.ask("GET", "/v1/models")
    probe.expect(answer, 200)
    tree = members(answer.tree)
    if not isinstance(tree.get("data"), list):
        raise Failed("the answer is no list of models")
    ids = [one.get("id") for one in objects(tree["data"])]
    names = [name for name in ids if isinstance(name, str) and name]
    return f"{len(names)} listed: {listed(names)}" if names else "there are none", names


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A client that gets a token by its credentials (RFC 6749, section 4.4).

    Attributes:
        client: its id.
        secret: its secret.
        parameters: further ones of the request, such as `scope`.
    """

    client: str
    secret: str
    parameters: Sequence[tuple[str, str]] = ()

    @property
    def basic(self) -> str:
        """The credentials as they stand in an Authorization field (section 2.3.1)."""
        pair = f"{quote_plus(self.client)}:{quote_plus(self.secret)}"
        return base64.b64encode(pair.encode("ascii")).decode("ascii")


async def get_token(probe: Probe, grant: Grant) -> str:
    """Get a token through the gateway.

    Raises:
        Failed: there is none to be had; nothing of what was sent is in the text.
    """
    form = urlencode([("grant_type", "client_credentials"), *grant.parameters])
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Authorization": f"Basic {grant.basic}",
    }
    answer = await probe.ask("POST", "/v1/auth/token", headers=headers, body=form.encode("ascii"))
    tree = members(answer.tree)
    if answer.status != 200 and isinstance(tree.get("error"), str):
        # RFC 6749, section 5.2; its description is for people.
        said = tree.get("error_description")
        about = f": {said}" if isinstance(said, str) else ""
        raise Failed(f"status {answer.status}: {tree['error']}{about}")
    probe.expect(answer, 200)
    token = tree.get("access_token")
    try:
        if not isinstance(token, str) or not credential(token):
            raise Failed("the answer has no access_token")
    except Wrong as fault:
        raise Failed(f"the access_token cannot be sent: {fault}") from None
    return token

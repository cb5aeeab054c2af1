"""The fleet controller, which keeps warm pods and gives one to a session without a wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IAgent

from twisted_gateway.core import strict_json
from twisted_gateway.core.events import upstream_words
from twisted_gateway.core.redaction import presentable
from twisted_gateway.services.adapter import BadAnswer, Refused
from twisted_gateway.services.sessions.absence import says_absent
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.whole import WholeAnswer, ask

RELEASE_SECONDS = 10.0
"""How long it may take to give a pod back: what is given up half way may be carried out all the
same, when somebody else has the pod."""
MOST_ANSWER_BYTES = 65_536
"""The largest answer that is read."""
MOST_MESSAGE_CHARACTERS = 1000
"""How much of its own words is said in the log."""

_HEADERS = (
    (b"Accept", b"application/json"),
    (b"Content-Type", b"application/json"),
    (b"User-Agent", b"twisted-gateway"),
)
_DNS = ("svc_dns", "podSvcDns")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session's sandbox is.

    Attributes:
        svc_dns: the DNS name of its Service; None: it is nowhere.
        pod_name: its pod; None where the fleet controller does not say.
        pvc_name: the claim of its workspace; None where the fleet controller does not say.
        fleet: whether the fleet controller gave it.
        port: its Service's port; None where the fleet controller gave it.
    """

    svc_dns: str | None
    pod_name: str | None = None
    pvc_name: str | None = None
    fleet: bool = False
    port: int | None = None

    def members(self) -> dict[str, str | None]:
        """Give it by the names that answers and memory entities have; None for what is unknown."""
        return {"svc_dns": self.svc_dns, "pod_name": self.pod_name, "pvc_name": self.pvc_name}


NOWHERE = Place(None)
"""Where a session's sandbox is that has been removed."""


class NotAssigned(Exception):
    """The fleet controller has given no pod, as far as can be said: why is a clause for the log."""


class Fleet:
    """Asks the fleet controller, each time within a bound.

    Args:
        url: its base URL.
        seconds: the bound on an assignment; nobody waits for a warm pod that is none.
        agent: sends.
        clock: for the bound.
    """

    def __init__(self, url: str, seconds: float, agent: IAgent, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._url = url
        self._seconds = seconds
        self._agent = agent
        self._clock = clock

    async def assign(self, session: str) -> Place:
        """Get a warm pod for a session. Cancelling drops the connection.

        Raises:
            NotAssigned: there is none to be had.
        """
        try:
            answer = await self._post(session, "assign", self._seconds)
        except UpstreamError as fault:
            raise NotAssigned(fault.reason) from fault
        if answer.code >= 400:
            said = self._words(answer)
            why = f"it answered {answer.code}: {said}" if said else f"it answered {answer.code}"
            raise NotAssigned(why)
        return _place(answer)

    async def release(self, session: str, seconds: float) -> bool:
        """Give the pod of a session back. Cancelling drops the connection.

        Args:
            session: whose pod it is.
            seconds: how long that may take.

        Returns:
            False where it had none.

        Raises:
            Refused: the controller refuses.
            UpstreamError: it does not answer.
        """
        answer = await self._post(session, "release", seconds)
        if says_absent(answer):
            return False
        if answer.code == 404:
            raise BadAnswer("something in front of it answered 404, with a page of its own")
        if answer.code >= 400:
            raise Refused(answer.code, self._words(answer))
        if answer.code >= 300:
            raise BadAnswer(f"it answered with status {answer.code}")
        return True

    def _words(self, answer: WholeAnswer) -> str:
        """Give its own words of a refusal, for the log: where it is is in none."""
        types = answer.headers.getRawHeaders(b"Content-Type") or [b""]
        said = upstream_words(answer.body, types[0].decode("latin-1"))
        host = urlsplit(self._url).hostname or ""
        return presentable(said, MOST_MESSAGE_CHARACTERS, hosts=[host])

    async def _post(self, session: str, verb: str, seconds: float) -> WholeAnswer:
        return await ask(
            self._agent,
            self._clock,
            b"POST",
            f"{self._url}/sessions/{session}/{verb}",
            _HEADERS,
            b"{}",
            limit_bytes=MOST_ANSWER_BYTES,
            seconds=seconds,
        )


def _place(answer: WholeAnswer) -> Place:
    """Read where the pod is.

    Raises:
        NotAssigned: the answer does not say.
    """
    tree: Any = None
    if 200 <= answer.code < 300:
        try:
            tree = strict_json.loads(answer.body)
        except (ValueError, RecursionError):
            tree = None
    if not isinstance(tree, dict):
        raise NotAssigned("its answer is no JSON object")
    dns = next((tree[name] for name in _DNS if name in tree), None)
    if not isinstance(dns, str) or len(dns) > 253 or not _DNS_NAME.fullmatch(dns):
        raise NotAssigned("its answer has no DNS name as svc_dns")
    return Place(dns, _name(tree.get("pod_name")), _name(tree.get("pvc_name")), fleet=True)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and _OBJECT_NAME.fullmatch(value) else None

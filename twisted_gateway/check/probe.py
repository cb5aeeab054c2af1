"""One check under way: its requests, and what it expects of their answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.check.client import MAX_BODY_BYTES, Answer, Client, NoAnswer
from twisted_gateway.check.results import Failed, Tolerated

SERVICE_PATH = "/v1/check"
"""Where requests with X-Service go: any path will do, and an Ingress may publish `/v1` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What requests may bear.

    Attributes:
        gateway: a token that the gateway checks; "" for none.
        engine: an API key of the engines', which the gateway passes on; "" for none.
    """

    gateway: str = ""
    engine: str = ""


class Probe:
    """One check of one subject.

    Attributes:
        tokens: what its requests may bear.
        seconds: the bound on each of its requests.
        request_ids: of the requests that it has sent.
    """

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        tokens: Tokens,
        seconds: float,
        accepted: Collection[int] = (),
    ) -> None:
        """Take the way to the gateway, and which statuses are taken beside those expected."""
        self.tokens = tokens
        self.seconds = seconds
        self.request_ids: list[str] = []
        self._client = client
        self._clock = clock
        self._accepted = accepted

    def now(self) -> float:
        """Give the time, in seconds."""
        return float(self._clock.seconds())

    async def ask(
        self,
        method: str,
        path: str,
        *,
        admin: bool = False,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        token: str = "",
        seconds: float | None = None,
        limit_bytes: int = MAX_BODY_BYTES,
    ) -> Answer:
        """Send a request.

        Args:
            method: a token.
            path: with its query.
            admin: whether it goes to the admin side.
            headers: further fields.
            body: its body.
            token: sent as Bearer; "" for none.
            seconds: a bound of its own.
            limit_bytes: the bound on the answer's body.

        Returns:
            The answer, whatever its status.

        Raises:
            Failed: there is no whole answer.
        """
        base = self._client.admin if admin else self._client.public
        fields = dict(headers or {})
        if token:
            fields["Authorization"] = f"Bearer {token}"
        request_id = self._client.next_id()
        self.request_ids.append(request_id)
        bound = self.seconds if seconds is None else seconds
        try:
            return await self._client.ask(
                method,
                base + path,
                request_id,
                seconds=bound,
                headers=fields,
                body=body,
                limit_bytes=limit_bytes,
            )
        except NoAnswer as fault:
            raise Failed(str(fault)) from None

    async def service(
        self,
        service: str,
        resource: str,
        method: str = "GET",
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        token: str = "",
    ) -> Answer:
        """Send a request with X-Service; see `ask`."""
        query = urlencode(parameters or {}, quote_via=quote)
        path = f"{SERVICE_PATH}?{query}" if query else SERVICE_PATH
        fields = {"X-Service": service, "X-Resource": resource, **(headers or {})}
        return await self.ask(method, path, headers=fields, body=body, token=token)

    def expect(self, answer: Answer, *statuses: int, hint: str = "") -> None:
        """See to it that an answer has one of these statuses.

        Args:
            answer: the answer.
            statuses: those that are right.
            hint: what to do where it has another, as a clause.

        Raises:
            Tolerated: it has another, that the user accepts.
            Failed: it has another.
        """
        if answer.status in statuses:
            return
        expected = " or ".join(map(str, statuses))
        if answer.status in self._accepted:
            raise Tolerated(f"{answer.words}, and {expected} was expected")
        wanted = "" if answer.status >= 500 else f" ({expected} was expected)"
        raise Failed(f"{answer.words}{wanted}" + (f"; {hint}" if hint else ""))

    def lacks(self, answer: Answer, what: str) -> Exception:
        """Give what is to be raised where an answer with the right status lacks something.

        A status that the user accepts is accepted whatever comes with it.
        """
        why = f"the {answer.status} has no {what}"
        return Tolerated(why) if answer.status in self._accepted else Failed(why)

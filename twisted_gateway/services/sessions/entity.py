"""A session's memory entity, into which is merged where its sandbox is.

The memory service has no merge of its own: the entity is got, and put back with what is new, its
other members byte for byte as they came. Where the service tells versions apart (`ETag`) a change
in between is not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IAgent

from twisted_gateway.config.sandbox import SESSION_ID
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions.absence import says_absent
from twisted_gateway.upstream.whole import WholeAnswer, ask

ANSWER_SECONDS = 10.0
"""How long the memory service may take to answer a request."""
MOST_ENTITY_BYTES = 1_048_576
"""The largest entity that is merged into."""
MOST_TRIES = 3
"""How often an entity is got anew that others change at the same time."""

Members = dict[str, msgspec.Raw]

_HEADERS = ((b"Accept", b"application/json"), (b"User-Agent", b"twisted-gateway"))


class Entity:
    """Merges into the memory entities of sessions.

    Args:
        url: the URL of one, with `{session_id}` in it.
        agent: sends.
        clock: for the bounds, and the time of day.
    """

    def __init__(self, url: str, agent: IAgent, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._url = url
        self._agent = agent
        self._clock = clock

    async def merge(
        self, session: str, members: Mapping[str, str | None], *, make: bool = True
    ) -> None:
        """Merge members, and `last_active_at`, into the entity of a session.

        Cancelling drops the connection; the entity is then as it was, or as it was to be.

        Args:
            session: its id.
            members: text, or null.
            make: whether an entity that is not there is made.

        Raises:
            UpstreamError: it could not be done.
        """
        url = self._url.replace(SESSION_ID, session)
        now = datetime.fromtimestamp(self._clock.seconds(), UTC)
        values = {**members, "last_active_at": now.isoformat(timespec="seconds")}
        new = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}
        tries = 0
        while True:
            tries += 1
            got = await self._ask(b"GET", url)
            old = _members(got)
            if old is None and not make:
                return
            merged = msgspec.json.encode({**(old or {}), **new})
            answer = await self._ask(b"PUT", url, merged, _condition(got))
            if 200 <= answer.code < 300:
                return
            if answer.code not in (409, 412) or tries == MOST_TRIES:
                raise BadAnswer(f"the PUT was answered with status {answer.code}")

    async def _ask(
        self,
        method: bytes,
        url: str,
        body: bytes | None = None,
        more: tuple[tuple[bytes, bytes], ...] = (),
    ) -> WholeAnswer:
        if body is not None:
            more = (*more, (b"Content-Type", b"application/json"))
        return await ask(
            self._agent,
            self._clock,
            method,
            url,
            (*_HEADERS, *more),
            body,
            limit_bytes=MOST_ENTITY_BYTES,
            seconds=ANSWER_SECONDS,
        )


def _members(got: WholeAnswer) -> Members | None:
    """Take an entity apart; None where there is none yet.

    Raises:
        BadAnswer: it is nothing that could be merged into without losing something.
    """
    if says_absent(got):
        return None
    if got.code != 200:
        raise BadAnswer(f"the GET was answered with status {got.code}")
    try:
        return msgspec.json.decode(got.body, type=Members)
    except (msgspec.DecodeError, RecursionError):
        raise BadAnswer("the entity is no JSON object") from None


def _condition(got: WholeAnswer) -> tuple[tuple[bytes, bytes], ...]:
    """Give the field by which a PUT is refused when the entity has changed since (RFC 9110)."""
    if got.code == 404:
        return ((b"If-None-Match", b"*"),)
    tags = got.headers.getRawHeaders(b"ETag") or []
    # A weak tag never matches in If-Match.
    return tuple((b"If-Match", tag) for tag in tags[:1] if not tag.startswith(b"W/"))

"""A place in a gated engine, as the request path holds it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from twisted_gateway.core.ticket import Ticket
from twisted_gateway.web.exchange import Exchange

if TYPE_CHECKING:
    from twisted_gateway.web.admission import Admission


class PlaceLike(Protocol):
    """What the proxy needs of a place (`Place` and `OpenPlace`)."""

    @property
    def upstream(self) -> str:
        """The engine's base URL."""

    async def again(self, *, connected: bool) -> bool:
        """The engine refused; True when the request may be tried once more."""

    def broken(self) -> None:
        """The engine's answer broke off."""

    def content(self) -> None:
        """An event that bears content came."""

    def answered(self) -> None:
        """The head of an answer that is to be relayed has come."""


class Place:
    """A request's place in an engine, or its way there; an async context manager.

    Entering waits until the gate admits the ticket; leaving gives the place back, whatever
    happened. Cancelling the wait takes the ticket out of the queue.
    """

    def __init__(
        self,
        admission: Admission,
        ticket: Ticket,
        exchange: Exchange,
        upstreams: Sequence[str],
    ) -> None:
        """Made by `Admission.place`."""
        self._admission = admission
        self._upstreams = upstreams
        self._exchange = exchange
        self.ticket = ticket

    async def __aenter__(self) -> Place:
        """Wait for a place.

        Raises:
            Problem: the gate refused.
        """
        await self._admission.submit(self.ticket, self._exchange)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the place back."""
        account = self._exchange.account
        self.ticket.told_tokens = account.input_tokens
        self.ticket.cached_tokens = account.cached_tokens
        self._admission.leave(self.ticket, finished=kind is None)

    @property
    def upstream(self) -> str:
        """The base URL of the engine that the ticket was admitted to."""
        assert self.ticket.engine is not None
        return self._upstreams[self.ticket.engine]

    async def again(self, *, connected: bool) -> bool:
        """The engine refused before a byte was relayed: park again, with the old place in line.

        Args:
            connected: False where not even a connection came about.

        Returns:
            True when admitted once more; False when the engine's own answer is to go on to the
            client.

        Raises:
            Problem: the gate refused (draining, or the park budget ended while parked).
        """
        return await self._admission.refused(self.ticket, self._exchange, connected=connected)

    def broken(self) -> None:
        """The engine's answer broke off: it may be dying."""
        self._admission.broken(self.ticket)

    def answered(self) -> None:
        """The head of an answer that is to be relayed has come: the wait was not in vain."""
        self._admission.answered(self.ticket)

    def comment(self) -> bytes:
        """The comment that keeps a silent stream alive; while parked it says where it stands."""
        return self._admission.comment(self.ticket)

    def content(self) -> None:
        """An event that bears content came; the first one ends the prefill."""
        ticket = self.ticket
        ticket.generated_tokens += 1
        if ticket.generated_tokens == 1:
            self._admission.first_content(ticket)

"""What this replica tells the others: one resource, on a listener of its own."""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.peerwire import PATH
from twisted_gateway.telemetry.tracing import NoTracing
from twisted_gateway.web.background import in_background
from twisted_gateway.web.cors import Cors
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.site import Bounds, Connections, GatewaySite
from twisted_gateway.web.target import routed_path

MAX_CONNECTIONS = 256
"""Four for each of as many replicas as are meant to ask each other."""

_BOUNDS = Bounds(max_body_bytes=0, body_seconds=5.0, cors=Cors(()))
_TRACING = NoTracing()


class PeerListener:
    """The listener of `peers.listen`: opened, moved and closed by what is in force.

    Args:
        reactor: IReactorTime, and whatever the endpoint needs.
        view: gives this replica's view, rendered.

    Attributes:
        token: what a replica must show. While it is empty nobody is told anything.
    """

    _log = Logger()

    def __init__(self, reactor: Any, view: Callable[[], bytes]) -> None:
        """Take what the class documents; nothing is opened."""
        self.token = b""
        self._reactor = reactor
        self._view = view
        self._open: _Opened | None = None
        self._wanted = ""

    def listen(self, place: str) -> None:
        """Listen at this endpoint, and then no longer where it listened before.

        The new place is opened before the old one is closed; where the old one itself may be in
        the way, on the same port, it is closed first, and opened again should the new one fail.

        Raises:
            CannotListenError: or what else the endpoint says; all is as it was before.
        """
        self._wanted = place
        before = self._open
        if before is not None and before.place == place and not before.failed:
            return
        if before is not None and not before.failed and _port(before.place) == _port(place):
            in_background(
                Deferred.fromCoroutine(self._replace(before.place, place)),
                self._log,
                "moving the replicas' listener",
            )
            return
        opened = self._opened(place)
        in_background(self._close(), self._log, "closing the replicas' listener")
        self._open = opened
        self._log.info("replicas are answered at {place}", place=place)

    def close(self) -> Deferred[None]:
        """Listen no more, and close what is connected.

        Returns:
            Fires when the port is free.
        """
        self._wanted = ""
        return self._close()

    def _close(self) -> Deferred[None]:
        opened, self._open = self._open, None
        return succeed(None) if opened is None else opened.close()

    def _opened(self, place: str) -> _Opened:
        return _Opened(self._reactor, place, PeerResource(lambda: self.token, self._view))

    async def _replace(self, before: str, place: str) -> None:
        await self._close()
        for one in (place, before):
            # Meanwhile another reload may have come, or the end.
            if self._wanted != place or self._open is not None:
                return
            try:
                self._open = self._opened(one)
            except (CannotListenError, OSError) as fault:
                self._log.error("cannot listen at {place}: {why}", place=one, why=str(fault))
            else:
                self._log.info("replicas are answered at {place}", place=one)
                return


def _port(place: str) -> str:
    """What an endpoint's description names first: of TCP and TLS the port."""
    return place.partition(":")[2].partition(":")[0]


class _Opened:
    """A port that is, or is being, listened on.

    Attributes:
        place: the endpoint's description.
        failed: whether it has turned out that nobody can listen there.
    """

    _log = Logger()

    def __init__(self, reactor: Any, place: str, resource: PeerResource) -> None:
        """Open it.

        Raises:
            Exception: what the endpoint says at once, as those of TCP do.
        """
        self.place = place
        self.failed = False
        self._crowded = False
        self._reactor = reactor
        self._site = GatewaySite(
            resource,
            reactor=reactor,
            bounds=lambda: _BOUNDS,
            held=HeldBytes(0),
            connections=Connections(MAX_CONNECTIONS),
            open_exchange=self._open_exchange,
            turned_away=self._turned_away,
        )
        endpoint: Any = cast(Any, serverFromString)(reactor, place)
        failures: list[Failure] = []
        self._opening: Deferred[Any] = endpoint.listen(self._site)
        self._opening.addErrback(failures.append)
        if failures:
            failures[0].raiseException()
        self._opening.addCallback(self._is_open, failures)

    def close(self) -> Deferred[None]:
        """Stop listening, and cut what is connected: an answer takes no time, so none is cut."""
        self._site.close_connections()
        self._site.cut_connections()
        return self._opening.addCallback(_stop)

    def _is_open(self, port: IListeningPort | None, failures: list[Failure]) -> Any:
        if failures:
            self.failed = True
            self._log.error(
                "cannot listen at {place}: {why}",
                place=self.place,
                why=failures[0].getErrorMessage(),
            )
        return port

    def _open_exchange(self, request: GatewayRequest) -> Exchange:
        # Several a second from each replica: they are neither logged nor counted.
        trace = _TRACING.request(request.requestHeaders, trusted=False)
        return Exchange(self._reactor, uuid.uuid4().hex, trace, lambda exchange: None)

    def _turned_away(self) -> None:
        if not self._crowded:
            self._crowded = True
            self._log.warn(
                "connections to {place} are turned away: {count} are open",
                place=self.place,
                count=MAX_CONNECTIONS,
            )


def _stop(port: IListeningPort | None) -> Deferred[None] | None:
    return None if port is None else port.stopListening()


class PeerResource(Resource):
    """`GET /v1/peer`: this replica's view, for who shows the token.

    Args:
        token: gives the token; an empty one nobody can show.
        view: gives the view, rendered.
    """

    isLeaf = True

    def __init__(self, token: Callable[[], bytes], view: Callable[[], bytes]) -> None:
        """Take what the class documents."""
        super().__init__()
        self._token = token
        self._view = view

    def render(self, request: Any) -> int:
        """Answer at once."""
        asked: GatewayRequest = request
        problem = self._refusal(asked)
        if problem is not None:
            asked.answer_problem(problem)
        else:
            no_store = [(b"Cache-Control", b"no-store")]
            asked.answer(200, b"application/json", self._view(), no_store)
        return NOT_DONE_YET

    def _refusal(self, request: GatewayRequest) -> Problem | None:
        if routed_path(request.path) != PATH.encode("ascii"):
            return Problem(
                "not_found",
                404,
                "This listener is for the replicas of the gateway alone.",
                outcome=Outcome.BAD_REQUEST,
            )
        if request.method != b"GET":
            return Problem(
                "method_not_allowed",
                405,
                f"{PATH} takes GET alone.",
                outcome=Outcome.BAD_REQUEST,
                headers={"Allow": "GET"},
            )
        if not self._is_known(request.requestHeaders.getRawHeaders(b"Authorization", [])):
            return Problem(
                "unauthorized",
                401,
                "A replica shows the token of the peers' section as its Bearer token.",
                outcome=Outcome.UNAUTHORIZED,
                headers={"WWW-Authenticate": 'Bearer realm="peers"'},
            )
        return None

    def _is_known(self, fields: Sequence[bytes]) -> bool:
        token = self._token()
        if not token or len(fields) != 1:
            return False
        scheme, _, shown = fields[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(b" "), token)

"""A simulated engine as an HTTP server that answers as vLLM 0.32 does.

A request's way: EngineSite, `Root.render`, the routes of `operations` and of `generating` or
`pooling`, and there its handler.
"""

from __future__ import annotations

import io
from ipaddress import ip_address
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from twisted_gateway.demo import generating, operations, pooling
from twisted_gateway.demo.ask import ApiError
from twisted_gateway.demo.host import Handler, Host, Routes, abort

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Past this a request's connection is cut. vLLM has no such bound; a demo's memory has."""

KEEP_ALIVE_SECONDS = 5.0
"""How long an idle connection is kept: as long as uvicorn, vLLM's server, keeps it."""


class Root(Resource):
    """Every path of one engine."""

    isLeaf = True

    def __init__(self, host: Host, *, pools: bool) -> None:
        """Serve `host`, whose model pools (embeds, scores) or generates."""
        super().__init__()
        self._routes: Routes = {
            **operations.routes(host),
            **(pooling.routes(host) if pools else generating.routes(host)),
        }
        self._host = host

    def render(self, request: Request) -> int:
        """Answer one request, now or later."""
        request.setHeader(b"server", b"uvicorn")
        request.setHeader(b"vary", b"Origin")
        path = request.path.decode("utf-8", "replace")
        try:
            self._route(request, path)(request)
        except ApiError as error:
            self._refuse(request, path, error)
        except RecursionError:  # a prompt of lists in lists in lists
            self._refuse(request, path, ApiError(400, "nested too deeply", "Bad Request"))
        return NOT_DONE_YET

    def _refuse(self, request: Request, path: str, error: ApiError) -> None:
        anthropic = path.startswith("/v1/messages")
        document = error.anthropic_document() if anthropic else error.document()
        self._host.reply(request, error.status, document)

    def _route(self, request: Request, path: str) -> Handler:
        methods = self._routes.get(path)
        if methods is None or (path.startswith("/demo/") and not _on_loopback(request)):
            return lambda request: self._host.reply(request, 404, {"detail": "Not Found"})
        handler = methods.get(request.method.decode("ascii", "replace"))
        if handler is None:
            request.setHeader(b"allow", ", ".join(sorted(methods)).encode("ascii"))
            return lambda request: self._host.reply(request, 405, {"detail": "Method Not Allowed"})
        return handler


def _on_loopback(request: Request) -> bool:
    try:
        return ip_address(request.getClientAddress().host).is_loopback
    except (AttributeError, ValueError):  # no IP address at all: a UNIX socket, say
        return False


class EngineRequest(Request):
    """A request whose body stays in memory, within bounds."""

    defaultContentType = None
    _received_bytes = 0

    def gotLength(self, length: int | None) -> None:
        """Take no temporary file, however long the body."""
        self.content = io.BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Take a part of the body in; cut the connection when it has grown too long."""
        self._received_bytes += len(data)
        if self._received_bytes > MAX_BODY_BYTES:
            abort(self)
        else:
            super().handleContentChunk(data)


class _Channel(HTTPChannel):
    # Like uvicorn: an idle connection is closed when what is written has been taken, not cut.
    abortTimeout: Any = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self.factory.channels.add(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.channels.discard(self)
        super().connectionLost(reason)


class EngineSite(Site):
    """The server of one engine.

    Attributes:
        host: the engine.
        channels: the connections that are open.
    """

    protocol: Any = _Channel

    def __init__(self, clock: IReactorTime, host: Host, *, pools: bool = False) -> None:
        """Serve `host`, whose model pools (embeds, scores) or generates."""
        super().__init__(
            Root(host, pools=pools),
            requestFactory=EngineRequest,
            timeout=KEEP_ALIVE_SECONDS,
            reactor=clock,
        )
        self.host = host
        self.channels: set[_Channel] = set()

    def startFactory(self) -> None:
        """Open no log, and keep no clock for one."""

    def stopFactory(self) -> None:
        """Nothing was started."""

    def log(self, request: object) -> None:
        """Keep no access log: the gateway in front has one."""

    def cut(self) -> None:
        """Stop the engine and cut every connection."""
        for channel in list(self.channels):
            transport: Any = channel.transport
            transport.abortConnection()
        self.host.engine.die()

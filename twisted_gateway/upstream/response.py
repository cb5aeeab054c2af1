"""The answer of an upstream, as treq and the relay see it."""

from __future__ import annotations

from typing import Any, Protocol, cast

from twisted.internet.interfaces import IProtocol, IPushProducer, ITransport
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IClientRequest, IResponse
from zope.interface import implementer


class BodySource(Protocol):
    """What a response needs of the connection that its body comes from."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read on."""

    def abort(self) -> None:
        """Drop the connection at once."""


@implementer(IClientRequest)
class SentRequest:
    """What was asked, for `IResponse.request`."""

    __slots__ = ("absoluteURI", "headers", "method")

    def __init__(self, method: bytes, absolute_uri: bytes, headers: Headers | None) -> None:
        """Take the parts as the caller gave them."""
        self.method = method
        self.absoluteURI = absolute_uri
        self.headers = headers if headers is not None else Headers()


@implementer(IResponse)
class UpstreamResponse:
    """The head of an answer, and the way to its body.

    Bytes of the body that come before `deliverBody` are held, with the socket paused. The protocol
    given to `deliverBody` gets one `dataReceived` for each read of the socket, and at the end one
    `connectionLost` with a Failure of

    * `twisted.web.client.ResponseDone`: all of the body has been delivered;
    * `twisted.web.http.PotentialDataLoss`: the server ended the body by closing the connection,
      so nobody knows whether it is whole (HTTP/1.0 and the like);
    * `upstream.errors.Truncated`, `BadResponse`, `BodyFailed` or `Aborted`: it is not whole.

    Its transport offers `pauseProducing`, `resumeProducing`, and `stopProducing`, `loseConnection`
    and `abortConnection`, which all three abort. After the end of the body they do nothing, for the
    connection may then serve someone else.

    Attributes:
        version: `(b"HTTP", 1, 0 or 1)`.
        code: the status.
        phrase: the reason phrase, perhaps empty.
        headers: all header fields as they came, the hop-by-hop ones and Content-Length included.
        length: bytes of the body, or UNKNOWN_LENGTH; 0 where the answer can have none (HEAD, 204,
            304), whatever its Content-Length says.
        request: the request that it answers.
        previousResponse: None, unless a redirect agent set it.
    """

    __slots__ = (
        "__weakref__",
        "_consumer_paused",
        "_end",
        "_held",
        "_protocol",
        "_source",
        "code",
        "headers",
        "length",
        "phrase",
        "previousResponse",
        "request",
        "version",
    )

    def __init__(
        self,
        source: BodySource,
        request: SentRequest,
        version: tuple[bytes, int, int],
        code: int,
        phrase: bytes,
        headers: Headers,
        length: Any,
    ) -> None:
        """Take the parts; see the attributes. `source` is where the body comes from."""
        self.request = request
        self.version = version
        self.code = code
        self.phrase = phrase
        self.headers = headers
        self.length = length
        self.previousResponse: IResponse | None = None
        self._source: BodySource | None = source
        self._protocol: IProtocol | None = None
        self._held: list[bytes] | None = []
        self._end: Failure | None = None
        self._consumer_paused = False

    def setPreviousResponse(self, response: IResponse) -> None:
        """Remember the answer that redirected here."""
        self.previousResponse = response

    def field(self, name: bytes) -> bytes:
        """Give a header field as it came, the first of several; b"" for none."""
        values = self.headers.getRawHeaders(name)
        return values[0] if values else b""

    @property
    def media_type(self) -> str:
        """Its `Content-Type`, with its parameters; "" for none."""
        return self.field(b"Content-Type").decode("latin-1")

    def abort(self) -> None:
        """Give the answer up: its connection is dropped at once.

        The body's protocol is told with `Aborted` when the socket is gone, and gets no more data.
        Nothing happens when the answer has ended already.
        """
        if self._source is not None:
            self._source.abort()

    def deliverBody(self, protocol: IProtocol) -> None:
        """Deliver the body to `protocol`; what has been held comes first, at once.

        Raises:
            RuntimeError: the body has been given to somebody already.
        """
        held, self._held = self._held, None
        if held is None:
            raise RuntimeError("the body has been delivered already")
        self._protocol = protocol
        protocol.makeConnection(cast(ITransport, BodyTransport(self)))
        if held and self._protocol is not None:
            protocol.dataReceived(held[0] if len(held) == 1 else b"".join(held))
        if self._end is not None:
            self._tell()
        elif not self._consumer_paused and self._source is not None:
            self._source.resume()

    def received(self, data: bytes, *, more: bool) -> None:
        """Take body bytes from the connection; `more` says whether others will come."""
        if self._protocol is not None:
            self._protocol.dataReceived(data)
        elif self._held is not None:
            self._held.append(data)
            if more and self._source is not None:
                self._source.pause()

    def ended(self, end: Exception) -> None:
        """Take the end of the body from the connection, which is not used from here on."""
        self._source = None
        self._end = Failure(end)
        self._tell()

    def _tell(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None and self._end is not None:
            protocol.connectionLost(self._end)

    def _pause(self) -> None:
        self._consumer_paused = True
        if self._source is not None:
            self._source.pause()

    def _resume(self) -> None:
        self._consumer_paused = False
        if self._source is not None:
            self._source.resume()


@implementer(IPushProducer)
class BodyTransport:
    """The transport of a body's protocol; see `UpstreamResponse`."""

    __slots__ = ("_response",)

    def __init__(self, response: UpstreamResponse) -> None:
        """Stand for the connection of `response`, as long as that is its."""
        self._response = response

    def pauseProducing(self) -> None:
        """Read no more from the upstream; at most what was read already still comes."""
        self._response._pause()

    def resumeProducing(self) -> None:
        """Read on."""
        self._response._resume()

    def stopProducing(self) -> None:
        """Give the answer up."""
        self._response.abort()

    loseConnection = stopProducing
    abortConnection = stopProducing

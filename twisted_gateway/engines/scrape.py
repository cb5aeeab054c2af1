"""Ask one engine over HTTP: `/metrics` for its gauges, `/v1/models` for its longest sequence.

Nothing of a browser's manners: no redirects, no cookies, no decoding. The agent's pool is the
observer's own, for the pools that carry inference may be full just when the gauges matter most.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from msgspec import DecodeError, Struct, json
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent, IResponse

from twisted_gateway.config.schema import Secret
from twisted_gateway.engines.exposition import MAX_PAGE_BYTES, Page

MAX_MODELS_BYTES: Final = 1024 * 1024
"""A longer answer of `/v1/models` is not read."""

_LONGEST_SEQUENCE: Final = 1 << 40


class Scraper:
    """Fetches what an `Observer` needs from one engine.

    Cancelling a Deferred that it returns gives the connection up at once.
    """

    def __init__(
        self,
        agent: IAgent,
        url: str,
        *,
        names: Collection[str],
        api_key: Secret | None = None,
    ) -> None:
        """Take what the class needs.

        Args:
            agent: does the requests; its connect timeout and pool hold.
            url: the engine's base URL, `http://host:port[/prefix]`.
            names: what the engine may call the model.
            api_key: sent to `/v1/models`, and never to `/metrics`, which engines leave open.
        """
        self._agent = agent
        self._base = url.rstrip("/").encode("ascii")
        self._names = frozenset(names)
        self._api_key = api_key

    def page(self) -> Deferred[Page]:
        """Fetch `/metrics`.

        Returns:
            The answer, whatever its status; with `too_long` when it passes `MAX_PAGE_BYTES`, as
            soon as that is known. Fails as `IAgent.request` does, and with the connection's error
            when it ends before the answer is whole.
        """
        headers = Headers({b"Accept": [b"text/plain;version=0.0.4, */*;q=0.1"]})
        return self._get(b"/metrics", headers, MAX_PAGE_BYTES)

    def model_len(self) -> Deferred[int | None]:
        """Ask `/v1/models` for the longest sequence of the model, in tokens.

        Returns:
            None where the engine does not say. Fails as `page` does.
        """
        headers = Headers({b"Accept": [b"application/json"]})
        if self._api_key is not None:
            headers.addRawHeader(b"Authorization", b"Bearer " + self._api_key.value.encode("utf-8"))
        return self._get(b"/v1/models", headers, MAX_MODELS_BYTES).addCallback(self._longest)

    def _longest(self, page: Page) -> int | None:
        if page.status != 200 or page.too_long:
            return None
        return read_model_len(page.body, self._names)

    def _get(self, path: bytes, headers: Headers, limit_bytes: int) -> Deferred[Page]:
        headers.addRawHeader(b"User-Agent", b"twisted-gateway")
        headers.addRawHeader(b"Accept-Encoding", b"identity")
        request: Deferred[IResponse] = self._agent.request(b"GET", self._base + path, headers, None)
        return request.addCallback(_read, limit_bytes)


def read_model_len(body: bytes, names: Collection[str]) -> int | None:
    """Read `max_model_len` out of an answer of `/v1/models`.

    Args:
        body: the answer, as vLLM and SGLang give it: `{"data": [{"id", "max_model_len"}]}`.
        names: what the engine may call the model; the smallest length of those named counts.

    Returns:
        Tokens; None when the model is not there (nor alone) or has no length that is one.
    """
    try:
        models = json.decode(body, type=_Models).data
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return None
    named = [one for one in models if one.id in names] or (models if len(models) == 1 else [])
    lengths = [one.max_model_len for one in named]
    good = [n for n in lengths if type(n) is int and 0 < n <= _LONGEST_SEQUENCE]
    return min(good, default=None)


class _Model(Struct):
    id: str
    max_model_len: Any = None


class _Models(Struct):
    data: list[_Model]


def _read(response: IResponse, limit_bytes: int) -> Deferred[Page]:
    """Read a body up to its bound; cancelling gives the connection up."""
    body = _Body(response.code, limit_bytes)
    if response.length is not UNKNOWN_LENGTH and response.length > limit_bytes:
        body.refuse()
    response.deliverBody(body)
    return body.page


class _Body(Protocol):
    """Gathers a body of at most so many bytes."""

    def __init__(self, status: int, limit_bytes: int) -> None:
        self.page: Deferred[Page] = Deferred(self._cancelled)
        self._status = status
        self._limit_bytes = limit_bytes
        self._received = bytearray()
        self._done = False

    def refuse(self) -> None:
        """Settle that the body is too long, and give the connection up."""
        if not self._done:
            self._done = True
            self._abort()
            body = bytes(self._received[: self._limit_bytes + 1])
            self.page.callback(Page(self._status, body, too_long=True))

    def connectionMade(self) -> None:
        if self._done:
            self._abort()

    def dataReceived(self, data: bytes) -> None:
        if self._done:
            return
        self._received += data
        if len(self._received) > self._limit_bytes:
            self.refuse()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._done:
            return
        self._done = True
        # An answer without length or chunks ends with its connection, cut or whole; the parser
        # does not trust a last line that is not ended.
        if isinstance(reason.value, (ResponseDone, PotentialDataLoss)):
            self.page.callback(Page(self._status, bytes(self._received)))
        else:
            self.page.errback(reason)

    def _cancelled(self, page: Deferred[Page]) -> None:
        self._done = True
        self._abort()

    def _abort(self) -> None:
        if self.transport is None:
            return
        # Losing it would wait, over TLS, for a peer that may have stalled.
        abort = getattr(self.transport, "abortConnection", self.transport.loseConnection)
        abort()

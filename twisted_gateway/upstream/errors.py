"""How a request to an upstream can fail, in types that tell a caller what it may still do.

    UpstreamError
    ├── InvalidRequest     never sent: the caller's own fault
    ├── ConnectFailed      never sent: no connection could be had (`refused`: nobody listens)
    │   ├── ConnectTimedOut
    │   └── HandshakeFailed
    ├── Disconnected       sent, perhaps served; no byte of an answer came
    ├── BadResponse        what came is not an HTTP answer, or not one that may be relayed
    ├── Truncated          an answer began and the connection ended before it was whole
    ├── BodyFailed         the caller's body producer failed or broke its promised length
    └── Aborted            the gateway itself gave the answer up, or the agent was closed

Every reason is a phrase for a log line and an error message: it names no header, no body, no
address and no credential.
"""

from __future__ import annotations


class UpstreamError(Exception):
    """A request to an upstream brought no whole answer.

    Attributes:
        reason: a short phrase that says why, fit for logs and error messages.
    """

    never_sent = False
    """Whether no byte of the request can have reached the upstream."""

    def __init__(self, reason: str) -> None:
        """Take the phrase that says why."""
        super().__init__(reason)
        self.reason = reason


class InvalidRequest(UpstreamError):
    """The request cannot be put on the wire: method, address, header or length is malformed."""

    never_sent = True


class ConnectFailed(UpstreamError):
    """No connection: refused, unreachable, name unknown, TLS handshake failed.

    Attributes:
        refused: whether the upstream's host answered that nobody listens there.
    """

    never_sent = True

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        """Take the phrase, and whether the connection was refused."""
        super().__init__(reason)
        self.refused = refused


class HandshakeFailed(ConnectFailed):
    """The upstream took the connection, and TLS came to nothing; waiting will not mend that."""


class ConnectTimedOut(ConnectFailed):
    """No connection within the time that the request gave."""


class AnswerTimedOut(UpstreamError):
    """No answer within the time that the request gave."""


class Disconnected(UpstreamError):
    """The connection ended after the request was begun and before any byte of an answer."""


class BadResponse(UpstreamError):
    """The answer is malformed, too large in its head, or framed in a way that is refused."""


class Truncated(UpstreamError):
    """The connection ended inside an answer."""


class BodyFailed(UpstreamError):
    """The request's body could not be produced as promised; `__cause__` has the fault, if any."""


class Aborted(UpstreamError):
    """The gateway gave the exchange up."""

"""An engine's small answer, read whole: a refusal, or an error behind a spent status."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES
from twisted_gateway.upstream.response import UpstreamResponse
from twisted_gateway.upstream.whole import read_whole

SMALL_ANSWER_SECONDS = 10.0
"""How long an engine's refusal may take to come whole."""


async def gather(answer: UpstreamResponse, clock: IReactorTime) -> tuple[bytes, bool]:
    """Read a small answer, and say whether what was read is all of it.

    What is longer than `MAX_ERROR_BODY_BYTES`, or takes longer than `SMALL_ANSWER_SECONDS`, is cut
    off, with its connection. Cancelling drops the connection.
    """
    return await read_whole(
        answer, clock, limit_bytes=MAX_ERROR_BODY_BYTES, seconds=SMALL_ANSWER_SECONDS
    )

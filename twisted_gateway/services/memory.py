"""The memory service: JSON is posted to it, and its JSON comes back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from twisted_gateway.auth.provider import OwnToken
from twisted_gateway.config.schema import MemoryAdapter
from twisted_gateway.services.adapter import Answer, Operation, Passed, ServiceRequest
from twisted_gateway.services.http import check, chosen

_REQUEST = (b"Accept", b"Content-Type", b"Content-Encoding")
_ANSWER = (b"Content-Type", b"Content-Encoding", b"Cache-Control")
_GOOD = range(200, 300)


class Memory:
    """`ingest` and `query`, each a POST of the client's body to the service's path.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration.
        token: the gateway's own towards the service; None: it needs none.
    """

    def __init__(self, adapter: MemoryAdapter, token: OwnToken | None) -> None:
        """Take what the class documents."""
        self._token = token
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            resource: {"POST": Operation(partial(self._post, adapter.upstream + path))}
            for resource, path in adapter.paths.items()
        }

    async def _post(self, url: str, request: ServiceRequest) -> Answer:
        headers = chosen(request.headers, _REQUEST)
        token = None if self._token is None else await self._token.get()
        if token is not None:
            headers.append((b"Authorization", b"Bearer " + token.encode("ascii")))
        answer = await request.upstream.send("POST", url, headers, request.body)
        if answer.code == 401 and self._token is not None and token is not None:
            self._token.refused(token)
        await check(request.upstream, answer, _GOOD)
        return Passed(answer, chosen(answer.headers, _ANSWER))

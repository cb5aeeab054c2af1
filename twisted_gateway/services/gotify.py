"""Messages to people's devices, through a Gotify server (https://gotify.net/api-docs)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted_gateway.config.adapters import NotificationAdapter
from twisted_gateway.services.adapter import (
    Answer,
    BodyUse,
    Document,
    Operation,
    Parameter,
    ServiceRequest,
)
from twisted_gateway.services.http import check, kept, members, read_json
from twisted_gateway.services.values import line, long_text, whole
from twisted_gateway.upstream.request_body import BytesProducer

_MAX_ANSWER_BYTES = 262_144
_SEND = (
    Parameter("title", form=line(1024)),
    Parameter("message", required=True, form=long_text(65_536)),
    Parameter("priority", form=whole(0, 10)),
)


class Gotify:
    """`send-message`.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration, with the token.
    """

    def __init__(self, adapter: NotificationAdapter) -> None:
        """Take what the class documents."""
        assert adapter.token is not None
        self._url = f"{adapter.upstream}/message"
        self._token = adapter.token.value.encode("ascii")
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "send-message": {"POST": Operation(self._send, _SEND, BodyUse.FIELDS)}
        }

    async def _send(self, request: ServiceRequest) -> Answer:
        tree: dict[str, Any] = dict(request.parameters)
        if "priority" in tree:
            tree["priority"] = int(tree["priority"])
        headers = [(b"Content-Type", b"application/json"), (b"X-Gotify-Key", self._token)]
        body = BytesProducer([json.dumps(tree).encode("ascii")])
        answer = await request.upstream.send("POST", self._url, headers, body)
        await check(request.upstream, answer, (200,))
        sent = members(await read_json(request.upstream, answer, _MAX_ANSWER_BYTES))
        return Document(kept(sent, ("id", "date", "title", "message", "priority")))

"""Answers of the gateway's own that are JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest


def answer_json(
    request: GatewayRequest,
    code: int,
    tree: object,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Answer with a tree as JSON, and end the request well."""
    request.answer(code, b"application/json", json.dumps(tree).encode("ascii"), headers)

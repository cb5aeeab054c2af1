"""A Gotify server that takes messages of one application, as its API documentation has it."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.fakes.web import Came, FakeService, Refusal, Said

TOKEN = "gotify-secret-token"
_TYPES: dict[str, type] = {"title": str, "message": str, "priority": int, "extras": dict}


class Gotify(FakeService):
    """Gotify.

    Attributes:
        messages: those that were taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []

    def answer(self, came: Came) -> Said:
        if came.path != "/message":
            raise _refusal(404, "page not found")
        if came.method != "POST":
            raise _refusal(405, "method not allowed")
        bearer = came.headers.get("authorization", "").removeprefix("Bearer ")
        token = came.headers.get("x-gotify-key") or came.query.get("token") or bearer
        if token != TOKEN:
            raise _refusal(401, "you need to provide a valid access token or user credentials")
        message = self._message(came)
        self.messages.append(message)
        return Said(200, message)

    def _message(self, came: Came) -> dict[str, Any]:
        if came.headers.get("content-type") != "application/json":
            raise _refusal(400, "unknown content type")
        tree = json.loads(came.body)
        for name, value in tree.items():
            # Go's decoder ignores what it does not know; nothing of ours is to be lost so.
            if not isinstance(value, _TYPES.get(name, type(None))):
                raise _refusal(400, f"cannot unmarshal {name}")
        if not tree.get("message"):
            raise _refusal(400, "Field 'message' is required")
        return {
            "id": len(self.messages) + 1,
            "appid": 5,
            "message": tree["message"],
            "title": tree.get("title") or "the application",
            "priority": tree.get("priority", 0),
            "date": "2026-11-30T04:00:00.000000001Z",
        }


def _refusal(status: int, why: str) -> Refusal:
    return Refusal(status, {"error": "refused", "errorCode": status, "errorDescription": why})

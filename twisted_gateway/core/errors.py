"""Where an error becomes bytes: problem documents and the in-stream error frame.

A `Problem` is what the gateway itself answers when it cannot serve a request: RFC 9457 members
for people and machines, plus an `error` object in OpenAI's form so that official clients print
the message. The same problem, once a stream's 200 is spent, becomes one `event: error` frame in
the only form on which the official OpenAI and Anthropic clients raise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted_gateway.core.outcome import Outcome

PROBLEM_TYPE = b"application/problem+json"
_URN = "urn:twisted-gateway:problem:"

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    416: "Range Not Satisfiable",
    426: "Upgrade Required",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Problem(Exception):
    """A request cannot be served, and this is what its client is told.

    Attributes:
        kind: the stable slug; its URI is `urn:twisted-gateway:problem:KIND`.
        status: HTTP status, where one can still be sent.
        detail: a sentence that says what was wrong and what was expected.
        outcome: how the request ends.
        members: further members of the document (`valid_models`, `reason`, ...).
        headers: response headers that go with it (`Retry-After`, `Allow`, ...).
        param: the request parameter at fault, for OpenAI's `error.param`.
    """

    def __init__(
        self,
        kind: str,
        status: int,
        detail: str,
        *,
        outcome: Outcome,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
    ) -> None:
        """Take what the class documents."""
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.status = status
        self.detail = detail
        self.outcome = outcome
        self.members = dict(members or {})
        self.headers = dict(headers or {})
        self.param = param

    @property
    def error_type(self) -> str:
        """OpenAI's word for the class of error."""
        if self.status == 401:
            return "authentication_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def error_object(self) -> dict[str, Any]:
        """The `error` member in OpenAI's form."""
        return {
            "message": self.detail,
            "type": self.error_type,
            "param": self.param,
            "code": self.members.get("reason", self.kind),
        }

    def document(self, request_id: str) -> dict[str, Any]:
        """The RFC 9457 document, as a tree."""
        return {
            "type": _URN + self.kind,
            "title": TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            "instance": f"urn:request:{request_id}",
            **self.members,
            "error": self.error_object(),
        }

    def body(self, request_id: str) -> bytes:
        """The RFC 9457 document, as bytes."""
        return _json(self.document(request_id))

    def frame(self, request_id: str) -> bytes:
        """The SSE event that official clients raise on (seen with openai 3.57, anthropic 2.14).

        It starts at an event boundary; the caller sees to it that the stream is at one.
        """
        return error_frame(
            self.error_object(),
            {"status": self.status, **self.members, "request_id": request_id},
        )


def error_frame(error: Mapping[str, Any], members: Mapping[str, Any]) -> bytes:
    """Frame an error as one `event: error`, on one data line.

    Args:
        error: `message`, `type`, `param`, `code`.
        members: further top-level members; must not name `type` or `error`.
    """
    tree = {"type": "error", "error": dict(error), **members}
    return b"event: error\ndata: " + _json(tree) + b"\n\n"


def _json(tree: object) -> bytes:
    # ASCII escapes keep every line break of a message out of the frame.
    return json.dumps(tree, ensure_ascii=True, separators=(",", ":")).encode("ascii")

"""Workflow executions of a Temporal server, listed by its visibility query.

https://docs.temporal.io/list-filter; the call itself is made in temporal.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from twisted_gateway.config.adapters import WorkflowAdapter
from twisted_gateway.services.adapter import (
    Answer,
    BadParameter,
    BodyUse,
    Document,
    Operation,
    Pairs,
    Parameter,
    ServiceRequest,
)
from twisted_gateway.services.values import line, long_text, whole

MAX_PAGE_SIZE = 1000
"""The most executions of one page, which is Temporal's own bound."""
DEFAULT_PAGE_SIZE = 100

_METHOD = "temporal.api.workflowservice.v1.WorkflowService/ListWorkflowExecutions"
_MAX_TOKEN_CHARACTERS = 8192


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for.

    Attributes:
        namespace: the Temporal namespace.
        query: a list filter; "" for all.
        page_size: how many executions at most.
        page_token: what the page before gave; b"" for the first.
    """

    namespace: str
    query: str
    page_size: int
    page_token: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """What Temporal answers.

    Attributes:
        executions: as clients are shown them.
        next_page_token: b"" behind the last page.
        size_bytes: the length of the message that it came in.
    """

    executions: Sequence[Mapping[str, Any]]
    next_page_token: bytes
    size_bytes: int


class Lister(Protocol):
    """The way to Temporal."""

    def list(self, listing: Listing, metadata: Pairs) -> Deferred[Page]:
        """Ask for a page; cancelling gives the call up.

        Returns:
            Fires with it; fails with `Refused` for Temporal's own error, with an `UpstreamError`
            where there is no answer.
        """

    def retire(self) -> None:
        """Close the connection, as soon as the calls under way have ended."""


def page_token(text: str) -> str:
    """Take the `next_page_token` of an earlier page.

    Raises:
        BadParameter: no page gives such a one.
    """
    try:
        if len(text) > _MAX_TOKEN_CHARACTERS or not _decoded(text):
            raise ValueError
    except (binascii.Error, ValueError):
        raise BadParameter("the next_page_token of an earlier page") from None
    return text


_LIST = (
    Parameter("namespace", required=True, form=line(1000)),
    Parameter("query", form=long_text(4096)),
    Parameter("page_size", form=whole(1, MAX_PAGE_SIZE)),
    Parameter("next_page_token", form=page_token),
)


class Workflow:
    """`list`.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration.
        lister: asks Temporal.
    """

    def __init__(self, adapter: WorkflowAdapter, lister: Lister) -> None:
        """Take what the class documents."""
        scheme = "https" if adapter.tls else "http"
        self._url = f"{scheme}://{adapter.upstream}/{_METHOD}"
        self._lister = lister
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "list": {"GET": Operation(self._list, _LIST, BodyUse.NONE)}
        }

    def retire(self) -> None:
        """See `Retiring`."""
        self._lister.retire()

    async def _list(self, request: ServiceRequest) -> Answer:
        asked = request.parameters
        listing = Listing(
            asked["namespace"],
            asked.get("query", ""),
            int(asked.get("page_size", DEFAULT_PAGE_SIZE)),
            _decoded(asked.get("next_page_token", "")),
        )
        page = await request.upstream.call(
            self._url, lambda metadata: self._lister.list(listing, metadata)
        )
        request.upstream.count(page.size_bytes)
        return Document(
            {
                "executions": [dict(one) for one in page.executions],
                "next_page_token": _encoded(page.next_page_token) or None,
            }
        )


def _encoded(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).decode("ascii").rstrip("=")


def _decoded(text: str) -> bytes:
    """Undo `_encoded`; raises ValueError for what it never gives."""
    if not text.isascii():
        raise ValueError("no base64url")
    padded = text.encode("ascii") + b"=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)

"""Packages and repositories of a Forgejo or Gitea server (its API, version 1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from twisted_gateway.config.adapters import RegistryAdapter
from twisted_gateway.services.adapter import (
    Answer,
    BadAnswer,
    BodyUse,
    Document,
    Operation,
    Parameter,
    ServiceRequest,
)
from twisted_gateway.services.http import check, first, kept, members, objects, read_json
from twisted_gateway.services.values import line, name, whole
from twisted_gateway.upstream.response import UpstreamResponse

MAX_ANSWER_BYTES = 8_388_608
"""The largest page that is read: fifty repositories, each with its owner and permissions."""

_DEFAULT_LIMIT = 30
# What a link is to this page: words (RFC 8288, section 3.3). No part can match what another does,
# so a search costs what the field has.
_RELATIONS = re.compile(rb'(?i);\s*rel\s*=\s*("[^"]*"|[^\s;,"]+)')
_PAGE = (
    Parameter("page", form=whole(1, 1_000_000)),
    Parameter("limit", form=whole(1, 50)),
    Parameter("q", form=line(256)),
)
_REPOS = (Parameter("owner", form=name(255)), *_PAGE)
_PACKAGES = (
    Parameter("owner", required=True, form=name(255)),
    Parameter("type", form=name(64)),
    *_PAGE,
)
# Their URLs, and those of their owners, would tell the server's address.
_REPO = (
    *("id", "name", "full_name", "description", "private", "archived", "fork", "default_branch"),
    *("language", "size", "stars_count", "created_at", "updated_at"),
)
_PACKAGE = ("id", "type", "name", "version", "created_at")


class Forgejo:
    """`list-packages` and `list-repos`.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration.
    """

    def __init__(self, adapter: RegistryAdapter) -> None:
        """Take what the class documents."""
        self._root = f"{adapter.upstream}/api/v1"
        self._headers = [(b"Accept", b"application/json")]
        if adapter.token is not None:
            token = b"token " + adapter.token.value.encode("ascii")
            self._headers.append((b"Authorization", token))
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "list-packages": {"GET": Operation(self._packages, _PACKAGES, BodyUse.NONE)},
            "list-repos": {"GET": Operation(self._repos, _REPOS, BodyUse.NONE)},
        }

    async def _packages(self, request: ServiceRequest) -> Answer:
        query = {one: request.parameters[one] for one in ("type", "q") if one in request.parameters}
        path = f"/packages/{quote(request.parameters['owner'], safe='')}"
        return await self._page(request, path, query, "packages", _package)

    async def _repos(self, request: ServiceRequest) -> Answer:
        asked = request.parameters
        query = {"q": asked["q"]} if "q" in asked else {}
        if "owner" in asked:
            # The search knows owners by number.
            owner = await self._get(request, f"/users/{quote(asked['owner'], safe='')}")
            tree = members(await read_json(request.upstream, owner, MAX_ANSWER_BYTES))
            query |= {"uid": str(_number(tree.get("id"))), "exclusive": "true"}
        return await self._page(request, "/repos/search", query, "repositories", _repository)

    async def _page(
        self,
        request: ServiceRequest,
        path: str,
        query: Mapping[str, str],
        what: str,
        shown: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> Answer:
        page = int(request.parameters.get("page", 1))
        limit = int(request.parameters.get("limit", _DEFAULT_LIMIT))
        text = urlencode({**query, "page": page, "limit": limit})
        answer = await self._get(request, f"{path}?{text}")
        total = _total(answer)
        tree = await read_json(request.upstream, answer, MAX_ANSWER_BYTES)
        # The search wraps its list, with `ok`; other lists come as they are.
        found = objects(tree.get("data") if isinstance(tree, dict) else tree)
        return Document(
            {
                what: [shown(one) for one in found],
                "page": page,
                "next_page": page + 1 if found and _is_more(answer, page, len(found)) else None,
                "total": total,
            }
        )

    async def _get(self, request: ServiceRequest, target: str) -> UpstreamResponse:
        answer = await request.upstream.send("GET", self._root + target, self._headers)
        await check(request.upstream, answer, (200,))
        return answer


def _repository(tree: dict[str, Any]) -> dict[str, Any]:
    return {**kept(tree, _REPO), "owner": _login(tree.get("owner"))}


def _package(tree: dict[str, Any]) -> dict[str, Any]:
    return {
        **kept(tree, _PACKAGE),
        "owner": _login(tree.get("owner")),
        "creator": _login(tree.get("creator")),
    }


def _login(tree: Any) -> str | None:
    login = tree.get("login") if isinstance(tree, dict) else None
    return login if isinstance(login, str) else None


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadAnswer("its answer names no owner")
    return value


def _is_more(answer: UpstreamResponse, page: int, found: int) -> bool:
    """Whether there is a page behind a page that is not empty.

    The server may have pages that are smaller than was asked for (`MAX_RESPONSE_ITEMS`), so only
    its own word counts (RFC 8288), or what was seen: without that there may be a last page that is
    empty, but nothing is left out.
    """
    links = answer.headers.getRawHeaders(b"Link")
    if links:
        return any(
            b"next" in relations.strip(b'"').lower().split()
            for link in links
            for relations in _RELATIONS.findall(link)
        )
    total = _total(answer)
    return total is None or page * found < total


def _total(answer: UpstreamResponse) -> int | None:
    text = first(answer, b"X-Total-Count").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None

"""The users of an authentik server (https://docs.goauthentik.io/developer-docs/api/)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from twisted_gateway.config.adapters import IamAdapter
from twisted_gateway.services.adapter import (
    Answer,
    BodyUse,
    Document,
    Operation,
    Parameter,
    ServiceRequest,
)
from twisted_gateway.services.http import check, kept, members, objects, read_json
from twisted_gateway.services.values import flag, line, whole

MAX_ANSWER_BYTES = 8_388_608
"""The largest page that is read: a hundred users with their groups and attributes."""

_PARAMETERS = (
    Parameter("page", form=whole(1, 1_000_000)),
    Parameter("page_size", form=whole(1, 100)),
    Parameter("search", form=line(256)),
    Parameter("username", form=line(256)),
    Parameter("email", form=line(256)),
    Parameter("is_active", form=flag),
)
# Attributes of users may hold anything, and so do not leave.
_SHOWN = (
    *("pk", "uuid", "username", "name", "email", "is_active", "is_superuser", "type"),
    *("groups", "last_login", "date_joined"),
)


class Authentik:
    """`list-users`.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration, with the token.
    """

    def __init__(self, adapter: IamAdapter) -> None:
        """Take what the class documents."""
        assert adapter.token is not None
        self._url = f"{adapter.upstream}/api/v3/core/users/"
        self._headers = (
            (b"Accept", b"application/json"),
            (b"Authorization", b"Bearer " + adapter.token.value.encode("ascii")),
        )
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "list-users": {"GET": Operation(self._list, _PARAMETERS, BodyUse.NONE)}
        }

    async def _list(self, request: ServiceRequest) -> Answer:
        # Whole groups and roles with each user would make a page many times as long.
        whole_objects = {"include_groups": "false", "include_roles": "false"}
        query = urlencode({"page": "1", "page_size": "20", **whole_objects, **request.parameters})
        answer = await request.upstream.send("GET", f"{self._url}?{query}", self._headers)
        await check(request.upstream, answer, (200,))
        tree = members(await read_json(request.upstream, answer, MAX_ANSWER_BYTES))
        paging = members(tree.get("pagination"))
        return Document(
            {
                "users": [kept(one, _SHOWN) for one in objects(tree.get("results"))],
                "page": _count(paging.get("current")),
                # authentik says 0 behind the last page.
                "next_page": _count(paging.get("next")) or None,
                "pages": _count(paging.get("total_pages")),
                "total": _count(paging.get("count")),
            }
        )


def _count(value: Any) -> int | None:
    # JSON numbers of authentik's come as floats too.
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**53 else None

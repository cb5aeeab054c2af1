"""An authentik server's list of users, as strict as its own client's models."""

from __future__ import annotations

import inspect
import uuid
from typing import Any

from tests.integration.fakes.web import Came, FakeService, Refusal, Said

TOKEN = "authentik-secret-token"


def user(number: int) -> dict[str, Any]:
    """A user as authentik shows it, secrets that its attributes may hold included."""
    return {
        "pk": number,
        "uuid": str(uuid.UUID(int=number)),
        "username": f"user{number:02}",
        "name": f"User {number}",
        "email": f"user{number:02}@example.com",
        "is_active": number % 5 != 0,
        "is_superuser": False,
        "last_login": None,
        "date_joined": "2026-01-01T00:00:00Z",
        "groups": [],
        "groups_obj": None,
        "roles": [],
        "roles_obj": None,
        "avatar": "https://inside.example/avatar.png",
        "attributes": {"api_key": "hidden-attribute"},
        "uid": "0" * 64,
        "path": "users",
        "type": "internal",
        "password_change_date": "2026-01-01T00:00:00Z",
        "last_updated": "2026-01-01T00:00:00Z",
    }


class Authentik(FakeService):
    """authentik, with so many users.

    Args:
        count: how many.
        client: the module `authentik_client`, whose models every page passes.
    """

    def __init__(self, count: int, client: Any) -> None:
        super().__init__()
        self._users = [user(number) for number in range(1, count + 1)]
        self._page_model = client.models.PaginatedUserList
        listing = inspect.signature(client.CoreApi.core_users_list)
        self._known = {
            spelt for name in listing.parameters for spelt in (name, name.replace("__", "_"))
        }

    def answer(self, came: Came) -> Said:
        if came.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Refusal(403, {"detail": "Token invalid/expired"})
        if came.path != "/api/v3/core/users/":
            # Without the slash Django redirects.
            raise Refusal(404, {"detail": "Not found."})
        if came.method != "GET":
            raise Refusal(405, {"detail": f'Method "{came.method}" not allowed.'})
        unknown = set(came.query) - self._known
        assert not unknown, f"authentik has no parameters {unknown}"
        return Said(200, self._page(came.query))

    def _page(self, query: dict[str, str]) -> dict[str, Any]:
        found = self._users
        if "search" in query:
            found = [one for one in found if query["search"].lower() in one["name"].lower()]
        if "is_active" in query:
            found = [one for one in found if one["is_active"] == (query["is_active"] == "true")]
        for exact in ("username", "email"):
            if exact in query:
                found = [one for one in found if one[exact] == query[exact]]
        size = min(int(query.get("page_size", 20)), 100)
        page = int(query.get("page", 1))
        pages = max(1, -(-len(found) // size))
        if page > pages:
            raise Refusal(404, {"detail": "Invalid page."})
        begin = (page - 1) * size
        results = found[begin : begin + size]
        tree = {
            "pagination": {
                "next": page + 1 if page < pages else 0,
                "previous": page - 1,
                "count": len(found),
                "current": page,
                "total_pages": pages,
                "start_index": begin + 1,
                "end_index": begin + len(results),
            },
            "results": results,
            "autocomplete": {},
        }
        self._page_model.from_dict(tree)
        return tree

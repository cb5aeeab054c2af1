"""A Forgejo server's lists of packages and repositories, and the webhooks that it sends.

Written by Forgejo's own sources: `routers/api/v1`, and `services/webhook/deliver.go`.
"""

from __future__ import annotations

import hmac
import json
import uuid
from typing import Any

from tests.integration.fakes.web import Came, FakeService, Refusal, Said
from tests.integration.wire import Answer, exchange

TOKEN = "forgejo-secret-token"
_MOST = 50
_OWNERS = {"ada": 1, "grace": 2}


def repository(number: int, owner: str = "ada") -> dict[str, Any]:
    """A repository as Forgejo shows it."""
    name = f"repo{number:02}"
    return {
        "id": number,
        "owner": {"id": _OWNERS[owner], "login": owner, "email": f"{owner}@inside.example"},
        "name": name,
        "full_name": f"{owner}/{name}",
        "description": "",
        "private": number % 2 == 0,
        "fork": False,
        "archived": False,
        "html_url": f"http://inside.example/{owner}/{name}",
        "clone_url": f"http://inside.example/{owner}/{name}.git",
        "default_branch": "main",
        "updated_at": "2026-01-01T00:00:00Z",
        "created_at": "2026-01-01T00:00:00Z",
    }


class Forgejo(FakeService):
    """Forgejo, with forty repositories of ada's, every second one private, and some packages."""

    def __init__(self) -> None:
        super().__init__()
        self._repositories = [repository(number) for number in range(1, 41)]
        self._packages: list[dict[str, Any]] = [
            {
                "id": number,
                "type": "pypi" if number % 2 else "container",
                "owner": {"id": 1, "login": "ada"},
                "creator": {"id": 1, "login": "ada"},
                "repository": None,
                "name": f"package{number}",
                "version": "1.0",
                "html_url": "http://inside.example/ada/-/packages",
                "created_at": "2026-01-01T00:00:00Z",
            }
            for number in range(1, 6)
        ]

    def answer(self, came: Came) -> Said:
        known = self._is_known(came)
        if came.method != "GET":
            raise Refusal(405, None)
        match came.path.split("/"):
            case ["", "api", "v1", "repos", "search"]:
                return self._search(came, known)
            case ["", "api", "v1", "users", owner] if owner in _OWNERS:
                return Said(200, {"id": _OWNERS[owner], "login": owner})
            case ["", "api", "v1", "packages", owner] if owner in _OWNERS:
                return self._owned(came, owner)
        raise Refusal(404, {"message": "The target couldn't be found.", "errors": []})

    def _is_known(self, came: Came) -> bool:
        """Whether a token came; a bad one is 401 also for what is public."""
        field = came.headers.get("authorization")
        if field not in (None, f"token {TOKEN}"):
            raise Refusal(401, {"message": "invalid username, password or token"})
        return field is not None

    def _search(self, came: Came, known: bool) -> Said:
        query = came.query
        found = [one for one in self._repositories if known or not one["private"]]
        if "q" in query:
            found = [one for one in found if query["q"] in one["name"]]
        if "uid" in query:
            found = [one for one in found if one["owner"]["id"] == int(query["uid"])]
        return self._page(came, found, lambda page: {"ok": True, "data": page})

    def _owned(self, came: Came, owner: str) -> Said:
        found = [one for one in self._packages if one["owner"]["login"] == owner]
        if "type" in came.query:
            found = [one for one in found if one["type"] == came.query["type"]]
        return self._page(came, found, lambda page: page)

    def _page(self, came: Came, found: list[dict[str, Any]], form: Any) -> Said:
        limit = min(int(came.query.get("limit", 30)), _MOST)
        begin = (int(came.query.get("page", 1)) - 1) * limit
        return Said(200, form(found[begin : begin + limit]), {"X-Total-Count": str(len(found))})


def deliver(
    url: str,
    secret: str,
    event: str,
    tree: Any,
    *,
    delivery: str | None = None,
    body: bytes | None = None,
) -> Answer:
    """Send a webhook as Forgejo does: with every one of its signature fields.

    Args:
        delivery: its id. Default: a new one.
        body: what is sent in place of what was signed.
    """
    # Forgejo indents its payloads.
    payload = json.dumps(tree, indent=2).encode()
    signature = hmac.digest(secret.encode(), payload, "sha256").hex()
    sha1 = hmac.digest(secret.encode(), payload, "sha1").hex()
    identity = delivery or str(uuid.uuid4())
    headers = {"Content-Type": "application/json", "User-Agent": "Go-http-client/1.1"}
    for name in ("Forgejo", "Gitea", "Gogs", "GitHub"):
        headers |= {
            f"X-{name}-Delivery": identity,
            f"X-{name}-Event": event,
            f"X-{name}-Event-Type": event,
        }
    headers |= {
        "X-Forgejo-Signature": signature,
        "X-Gitea-Signature": signature,
        "X-Gogs-Signature": signature,
        "X-Hub-Signature": f"sha1={sha1}",
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    return exchange(url, "POST", payload if body is None else body, headers)

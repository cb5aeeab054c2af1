"""A scripted gateway before services of every kind."""

from __future__ import annotations

from typing import Any

from tests.check.harness import ToolTestCase, service

KINDS: dict[str, dict[str, Any]] = {
    "memory": service("ingest", "query", method="POST", kind="memory"),
    "s3": service("list", "get", "put", "delete", kind="s3"),
    "sqs": service("list-queues", kind="sqs"),
    "workflow": service("list", kind="workflow"),
    "iam": service("list-users", kind="iam"),
    "notification": service("send-message", method="POST", kind="notification"),
    "registry": service("list-repos", kind="registry"),
    "sessions": service("sandbox", method="POST", kind="sessions"),
}


class ServicesTestCase(ToolTestCase):
    """A gateway before services, and a token for them."""

    token = True

    def check(self, *arguments: str, admin: bool = True, seconds: float = 0) -> int:
        given = ["--token-env", "TOKEN"] if self.token else []
        more = ["--models", "", "--bucket", "checks", *given]
        return super().check(*more, *arguments, admin=admin, seconds=seconds)

    def of_services(self) -> dict[str, str]:
        """The verdicts on services."""
        return {name: how for name, how in self.verdicts().items() if " " in name}

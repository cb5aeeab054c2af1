"""The checks by name: what each sees, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Check:
    """One check; it may be made of several models or services, one after the other.

    Attributes:
        name: by which the command line, the table and the JUnit report know it.
        about: what it sees, as a clause.
        refusal: whether it passes when the gateway refuses something: a bare `--accept` is for
            these, since releases differ in the status that they refuse with.
    """

    name: str
    about: str
    refusal: bool = False


_ALL = (
    Check("ready", "the gateway says that it is ready, and its public side answers"),
    Check("token", "POST /v1/auth/token gives a token for the client's credentials"),
    Check("health", "/health and /health/live say ok"),
    Check("metrics", "/metrics has the gateway's own series"),
    Check("models", "GET /v1/models lists models"),
    Check("services", "GET /v1/services lists services"),
    Check("request-id", "X-Request-ID comes back as it was sent"),
    Check("admin-not-public", "/health, /metrics and /status are not on the public side", True),
    Check("unknown-model", "a model that there is not is 400 with valid_models", True),
    Check("unknown-service", "a service that there is not is 404 with valid_services", True),
    Check("chat", "a model answers a chat"),
    Check("stream", "a model streams a chat to its end"),
    Check("embeddings", "a model embeds a text"),
    Check("rerank", "a model ranks two texts"),
    Check("no-token", "a service that takes a token is 401 without one", True),
    Check("memory-ingest", "the memory service takes a text, which stays there"),
    Check("memory-query", "the memory service answers a query"),
    Check("s3-list", "the bucket is listed"),
    Check("s3-put", "an object is put"),
    Check("s3-get", "the object comes back as it was put, and is in the listing"),
    Check("s3-delete", "the object is deleted, and then not there"),
    Check("sqs-list", "queues are listed"),
    Check("workflow-list", "workflow executions of a namespace are listed"),
    Check("workflow-namespace", "workflow executions of no namespace are 400", True),
    Check("iam-list", "users are listed"),
    Check("notification-send", "a notification is sent (only with --notify)"),
    Check("registry-list", "repositories are listed"),
    Check("sessions", "sandboxes are not made by a check, for each costs a pod"),
    Check("webhook-signature", "an event with a wrong signature is 401", True),
    Check("cleanup", "an object that was put, and not deleted by its check, is removed"),
)
CHECKS: Mapping[str, Check] = {check.name: check for check in _ALL}
"""Name -> check."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Statuses that are taken beside those that a check expects: what an older gateway says.

    Attributes:
        of_refusals: taken in every check that sees a refusal; 400 to 599.
        of_checks: by the name of a check; any.
    """

    of_refusals: frozenset[int] = frozenset()
    of_checks: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def by(self, check: Check) -> frozenset[int]:
        """Give those that this check takes."""
        own = self.of_checks.get(check.name, frozenset())
        return own | self.of_refusals if check.refusal else own

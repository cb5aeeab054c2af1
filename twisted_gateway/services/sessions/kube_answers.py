"""What the Kubernetes API answers: an object, a refusal of its own, or nothing to go by.

A 4xx counts as the API's word only as a `Status`, and a 404 as "there is none" only where that says
`NotFound`: a proxy or a load balancer in between has a 404, a 403 and a 409 of its own, and knows
nothing of what is in the cluster. Whatever else it says is told as a 5xx is, which is no word on
what was asked either.

See https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from twisted_gateway.core import strict_json
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES
from twisted_gateway.core.redaction import presentable
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.whole import WholeAnswer

Tree = dict[str, Any]

MOST_MESSAGE_CHARACTERS = 1000
"""How much of the API's own words is kept."""

_REASON = re.compile(r"[A-Za-z]{1,64}")


class KubeRefusal(Exception):
    """The API refuses: its own 4xx, but for 429.

    Attributes:
        status: its status.
        reason: its word for it (`AlreadyExists`, `Conflict`, `Forbidden` …); "" for none.
        message: its sentence, bounded, without addresses and credentials; "" where it gave none.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Take what the class documents."""
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def exists(self) -> bool:
        """Whether an object of that name is there already."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def changed(self) -> bool:
        """Whether the object is another one than that which was meant, or has changed since."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def absent(self) -> bool:
        """Whether there is no such object: a webhook that denies may do so with 404 as well."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def expired(self) -> bool:
        """Whether what was asked to go on is forgotten by now."""
        return self.status == 410 and self.reason in ("Expired", "Gone")

    @property
    def of_quota(self) -> bool:
        """Whether a ResourceQuota is full."""
        forbidden = self.status == 403 and self.reason == "Forbidden"
        return forbidden and "exceeded quota" in self.message


class KubeUnavailable(UpstreamError):
    """Nobody has said what becomes of a request, and it may be asked again.

    A 5xx, a 429, a quota that others write to, or a 4xx that is none of the API's own. What was
    asked may have been carried out all the same.

    Attributes:
        status: its status; 502 where it was none of the API's own.
        message: as in `KubeRefusal`.
        retry_after_seconds: how long it asks to be left alone; None where it does not say.
    """

    def __init__(
        self, status: int, why: str, message: str, retry_after_seconds: float | None
    ) -> None:
        """Take what the class documents, and a phrase that says why."""
        super().__init__(why)
        self.status = status
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """What tells a client of it."""
        seconds = self.retry_after_seconds
        return {} if seconds is None else {"Retry-After": f"{seconds:.0f}"}


class TooLong(BadAnswer):
    """A list has more pages than are read."""


def read_fault(answer: WholeAnswer, server: str, token: str) -> KubeRefusal | UpstreamError:
    """Say what an answer means that is not the one that was asked for.

    Args:
        answer: it.
        server: where it was asked.
        token: what it was asked with.
    """
    if answer.code < 400:
        return BadAnswer(f"the Kubernetes API answered with status {answer.code}")
    tree = _json(answer.body, strict_json.MOST_VALUES)
    status = tree if isinstance(tree, dict) and tree.get("kind") == "Status" else None
    hosts = [urlsplit(server).hostname or ""]
    words = _printable((status or {}).get("message"))
    message = presentable(words, MOST_MESSAGE_CHARACTERS, hosts=hosts, secrets=[token])
    reason = _reason((status or {}).get("reason"), token)
    # Two that are charged to one quota at once; the API has given up its own tries.
    contended = answer.code == 409 and reason == "Conflict" and "resourcequotas" in words
    if answer.code >= 500 or answer.code == 429 or contended:
        why = " ".join(f"the Kubernetes API answered {answer.code} {reason}".split())
        return KubeUnavailable(answer.code, why, message, _retry_after(answer))
    if status is None:
        why = f"something in front of the Kubernetes API answered {answer.code}, not the API"
        return KubeUnavailable(502, why, "", _retry_after(answer))
    return KubeRefusal(answer.code, reason, message)


def read_answer(answer: WholeAnswer, most_values: int) -> Tree:
    """Read an object, a list, or the Status of a success.

    Raises:
        BadAnswer: it is none of them.
    """
    tree = _json(answer.body, most_values)
    if not isinstance(tree, dict):
        raise BadAnswer("the Kubernetes API's answer is no object")
    if tree.get("kind") != "Status" and not isinstance(tree.get("metadata"), dict):
        raise BadAnswer("the Kubernetes API's answer is no object of its own")
    return tree


def read_list(page: Tree) -> tuple[list[Tree], str, str]:
    """Read a page of a list: its objects, its resource version, and what the next one goes on from.

    Raises:
        BadAnswer: it is none, or one of them is no object.
    """
    metadata, items = page.get("metadata"), page.get("items") or []
    if not isinstance(metadata, dict) or not isinstance(items, list):
        raise BadAnswer("the Kubernetes API's answer is no list")
    version, after = metadata.get("resourceVersion") or "", metadata.get("continue") or ""
    return [whole(one) for one in items], str(version), str(after)


def whole(tree: object, name: str | None = None) -> Tree:
    """Take an object which has what every object in a cluster has: a name and a uid.

    Args:
        tree: it.
        name: which it must have; None for any.

    Raises:
        BadAnswer: it is none, is called otherwise, or its labels or owners are none.
    """
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if (
        not isinstance(tree, dict)
        or not isinstance(metadata, dict)
        or not all(_is_text(metadata.get(one)) for one in ("name", "uid"))
        or not isinstance(metadata.get("labels") or {}, dict)
        or not _are_mappings(metadata.get("ownerReferences") or [])
    ):
        raise BadAnswer("the Kubernetes API's answer is no object of its own")
    if name is not None and metadata["name"] != name:
        raise BadAnswer("the Kubernetes API's answer is another object than the one asked for")
    return tree


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _are_mappings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _reason(value: object, token: str) -> str:
    """Take the API's one word; whatever else stands there is none of it."""
    is_word = isinstance(value, str) and _REASON.fullmatch(value) and value != token
    return str(value) if is_word else ""


def _printable(text: object) -> str:
    # What is beyond is far behind all that is shown.
    some = text[:MAX_ERROR_BODY_BYTES] if isinstance(text, str) else ""
    return "".join(one if one.isprintable() else " " for one in some)


def _json(body: bytes, most_values: int) -> Any:
    try:
        return strict_json.loads(body, most_values=most_values)
    except (ValueError, RecursionError):
        return None


def _retry_after(answer: WholeAnswer) -> float | None:
    values = answer.headers.getRawHeaders(b"Retry-After") or [b""]
    return float(values[0]) if values[0].isdigit() and len(values[0]) < 6 else None

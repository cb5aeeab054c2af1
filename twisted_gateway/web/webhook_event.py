"""An event as Forgejo or Gitea posts it: who has signed it, what it is, what it holds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from twisted.web.http_headers import Headers

from twisted_gateway.core import strict_json
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.web.signature import BadSignature, check_signature

_EVENT = (b"X-Forgejo-Event", b"X-Gitea-Event", b"X-GitHub-Event")
_DELIVERY = (b"X-Forgejo-Delivery", b"X-Gitea-Delivery", b"X-GitHub-Delivery")
_WORD = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Event(NamedTuple):
    """An event whose sender knows the secret.

    Attributes:
        name: what it is (`push`), as the sender says; not signed.
        delivery: the id of this delivery; not signed.
        digest: the SHA-256 of its body.
        tree: its body, a JSON object.
    """

    name: str
    delivery: str
    digest: bytes
    tree: dict[str, Any]


def read_event(headers: Headers, body: bytes, secret: bytes) -> Event:
    """Read an event; nothing of it is looked at before its signature.

    Args:
        headers: the request's.
        body: its body, byte for byte as it came.
        secret: what the sender knows.

    Raises:
        Problem: 401, the signature is not accepted; 400, it is no event.
    """
    try:
        check_signature(headers, body, secret)
    except BadSignature as fault:
        raise Problem(
            "bad_signature",
            401,
            f"The event's signature is not accepted: {fault}.",
            outcome=Outcome.UNAUTHORIZED,
            headers={"WWW-Authenticate": "HMAC-SHA256"},
        ) from None
    name, delivery = _word(headers, _EVENT), _word(headers, _DELIVERY)
    return Event(name, delivery, hashlib.sha256(body).digest(), _tree(body))


def _word(headers: Headers, names: Sequence[bytes]) -> str:
    """Give the value of the first of these fields that is there.

    Raises:
        Problem: 400, there is none, or it is no word.
    """
    for name in names:
        values = headers.getRawHeaders(name, [])
        if len(values) == 1 and _WORD.fullmatch(values[0]):
            return values[0].decode("ascii")
        if values:
            break
    raise Problem(
        "malformed_event",
        400,
        f"An event names itself once in {names[0].decode('ascii')}, in at most 128 letters, "
        "digits, '.', '_' and '-'.",
        outcome=Outcome.BAD_REQUEST,
    )


def _tree(body: bytes) -> dict[str, Any]:
    try:
        tree = strict_json.loads(body)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise Problem(
            "malformed_event",
            400,
            f"The event is not a JSON object in UTF-8 of at most {strict_json.MOST_VALUES} values; "
            "the webhook's content type is to be application/json.",
            outcome=Outcome.BAD_REQUEST,
        )
    return tree

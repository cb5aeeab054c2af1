"""Whether an event comes from who knows the webhook's secret. Pure.

Forgejo and Gitea sign the body as they send it with HMAC-SHA256, in hexadecimal, and send that
in several fields at once: `X-Forgejo-Signature`, `X-Gitea-Signature`, and, as GitHub does,
`X-Hub-Signature-256` with `sha256=` in front.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence

from twisted.web.http_headers import Headers

FIELDS: Mapping[bytes, bytes] = {
    b"X-Forgejo-Signature": b"",
    b"X-Gitea-Signature": b"",
    b"X-Hub-Signature-256": b"sha256=",
}
"""The fields that may bear a signature, and what stands in front of it there."""

# As the senders write it: whoever writes another way is none of them.
_DIGEST = re.compile(rb"[0-9a-f]{64}")


class BadSignature(Exception):
    """There is no signature that holds; the message says why, and nothing of what came."""


def check_signature(headers: Headers, body: bytes, secret: bytes) -> None:
    """See to it that a body is signed, by every field that says so.

    Args:
        headers: the request's.
        body: its body, byte for byte as it came.
        secret: what the sender knows.

    Raises:
        BadSignature: no field bears one, or one that does is malformed or wrong.
    """
    signatures = [
        _digest(headers.getRawHeaders(name, []), prefix)
        for name, prefix in FIELDS.items()
        if headers.hasHeader(name)
    ]
    if not signatures:
        raise BadSignature("there is none")
    expected = hmac.digest(secret, body, "sha256").hex().encode("ascii")
    # Each is compared, in constant time, before anything is said of any.
    good = [hmac.compare_digest(one, expected) for one in signatures]
    if not all(good):
        raise BadSignature("it is not that of this body with the secret of this webhook")


def _digest(values: Sequence[bytes], prefix: bytes) -> bytes:
    value = values[0].strip() if len(values) == 1 else b""
    found = value.removeprefix(prefix)
    if not value.startswith(prefix) or not _DIGEST.fullmatch(found):
        raise BadSignature("it is not the 64 lower-case hexadecimal digits of an HMAC-SHA256")
    return found

"""AWS Signature Version 4, as S3 has it: requests signed in their headers. Pure.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html; tests compare it with
botocore and with that page's own examples. For services other than S3 it holds as long as the path
needs no escapes, for S3 alone takes the path as it is.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
"""In place of the body's hash: the body is not signed, for it is not known yet."""

_ALGORITHM = "AWS4-HMAC-SHA256"

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A key, and what its signatures are good for.

    Attributes:
        access_key: the key's name, which is sent.
        secret_key: what is not.
        region: as the service knows its own.
        service: `s3`, `sqs`, ...
    """

    access_key: str
    secret_key: str
    region: str
    service: str


def escaped(text: str, safe: str = "") -> str:
    """Percent-encode as AWS has it: all but letters, digits, `-._~` and what is `safe`."""
    return quote(text, safe=safe + "-._~")


def query_string(parameters: Iterable[Pair]) -> str:
    """Give a query string in the canonical form, which is sent as it was signed."""
    return "&".join(
        f"{name}={value}"
        for name, value in sorted((escaped(name), escaped(value)) for name, value in parameters)
    )


def signature_headers(
    method: str,
    path: str,
    query: str,
    headers: Sequence[Pair],
    credentials: Credentials,
    now: float,
    payload_hash: str = UNSIGNED_PAYLOAD,
) -> list[Pair]:
    """Give the header fields to be added to a request: its date, payload hash and signature.

    Args:
        method: as it is sent.
        path: as it is sent, percent-encoded.
        query: as `query_string` gives it; "" for none.
        headers: the fields to be signed, `Host` among them; each name once.
        credentials: the key.
        now: seconds since the epoch; services bear a difference of 15 minutes.
        payload_hash: the body's SHA-256 in hex, or `UNSIGNED_PAYLOAD`.
    """
    moment = datetime.fromtimestamp(now, UTC)
    stamp, day = moment.strftime("%Y%m%dT%H%M%SZ"), moment.strftime("%Y%m%d")
    added = [("x-amz-content-sha256", payload_hash), ("x-amz-date", stamp)]
    fields = sorted((name.lower(), " ".join(value.split())) for name, value in [*headers, *added])
    signed = ";".join(name for name, _ in fields)
    lines = "".join(f"{name}:{value}\n" for name, value in fields)
    canonical = "\n".join((method, path, query, lines, signed, payload_hash))
    scope = f"{day}/{credentials.region}/{credentials.service}/aws4_request"
    to_sign = "\n".join((_ALGORITHM, stamp, scope, _sha256(canonical)))
    signature = hmac.new(_key(credentials, day), to_sign.encode("utf-8"), "sha256").hexdigest()
    authorization = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={signed}, Signature={signature}"
    )
    return [*added, ("Authorization", authorization)]


def _key(credentials: Credentials, day: str) -> bytes:
    key = b"AWS4" + credentials.secret_key.encode("utf-8")
    for part in (day, credentials.region, credentials.service, "aws4_request"):
        key = hmac.digest(key, part.encode("utf-8"), "sha256")
    return key


def _sha256(text: str) -> str:
    # A field's bytes that are no UTF-8 are signed as they are sent.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

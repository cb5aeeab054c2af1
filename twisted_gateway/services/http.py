"""What adapters of services over HTTP have in common: which fields pass, what a refusal says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from twisted.web.http_headers import Headers

from twisted_gateway.core import strict_json
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES, upstream_words
from twisted_gateway.core.headers import tokens
from twisted_gateway.core.redaction import redacted
from twisted_gateway.services.adapter import BadAnswer, Pairs, Refused, Upstream
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.response import UpstreamResponse

_PLAIN = (str, int, float, bool, type(None))
_CREDENTIALS = (b"Authorization", b"X-Gotify-Key")
# Seconds, or a date in the one form that is to be written.
_RETRY_AFTER = re.compile(
    "[0-9]{1,9}|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep"
    "|Oct|Nov|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
)


def chosen(headers: Headers, names: Iterable[bytes]) -> Pairs:
    """Give the fields that are named, in that order, but for those that `Connection` names."""
    dropped = tokens(headers.getRawHeaders(b"Connection", []))
    return [
        (name, value)
        for name in names
        if name.lower() not in dropped
        for value in headers.getRawHeaders(name, [])
    ]


def first(answer: UpstreamResponse, name: bytes) -> str:
    """Give a field of an answer, the first of several; "" for none."""
    return answer.field(name).decode("latin-1")


async def error_body(upstream: Upstream, answer: UpstreamResponse) -> bytes:
    """Read the body of a refusal; b"" for one that is too long or broke off."""
    try:
        return await upstream.read(answer, MAX_ERROR_BODY_BYTES)
    except UpstreamError:
        return b""


async def check(upstream: Upstream, answer: UpstreamResponse, good: Collection[int]) -> None:
    """See to it that an answer has one of these statuses.

    Raises:
        Refused: it has another, from 400 on.
        BadAnswer: it has another, below 400; a redirect is not followed.
    """
    if answer.code in good:
        return
    if answer.code < 400:
        answer.abort()
        raise BadAnswer(f"it answered with status {answer.code}")
    body = await error_body(upstream, answer)
    raise refused(answer, upstream_words(body, answer.media_type))


def refused(
    answer: UpstreamResponse,
    said: str,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
) -> Refused:
    """Make a refusal of an answer, its `Retry-After` with it.

    Args:
        answer: its status is from 400 on.
        said: the service's own words, whole. Some services repeat what they were sent.
        headers: further fields for the client.
        secrets: the gateway's credentials there, beside those that the request bore in the open.
    """
    words = redacted(said, (*_sent_credentials(answer), *secrets))
    return Refused(answer.code, words, {**retry_after(answer), **(headers or {})})


def _sent_credentials(answer: UpstreamResponse) -> Iterator[str]:
    """Give the gateway's own credentials in the request that this answers: scheme and word."""
    for name in _CREDENTIALS:
        for value in answer.request.headers.getRawHeaders(name, []):
            text = value.decode("latin-1")
            yield from (text, text.rpartition(" ")[2])


def retry_after(answer: UpstreamResponse) -> dict[str, str]:
    """Give the answer's Retry-After, if it is one (RFC 9110, section 10.2.3), for the client's."""
    value = first(answer, b"Retry-After").strip()
    return {"Retry-After": value} if _RETRY_AFTER.fullmatch(value) else {}


async def read_json(upstream: Upstream, answer: UpstreamResponse, limit_bytes: int) -> Any:
    """Read an answer that is JSON, whole.

    Raises:
        BadAnswer: it is no JSON, or as for `Upstream.read`.
    """
    return parsed(await upstream.read(answer, limit_bytes))


def parsed(body: bytes) -> Any:
    """Read JSON.

    Raises:
        BadAnswer: it is none, or has more values than `strict_json.MOST_VALUES`.
    """
    try:
        return strict_json.loads(body)
    except strict_json.TooManyValues:
        raise BadAnswer("its answer has too many values") from None
    except (ValueError, RecursionError):
        raise BadAnswer("its answer is not JSON") from None


def members(tree: Any) -> dict[str, Any]:
    """Take a JSON object.

    Raises:
        BadAnswer: it is none.
    """
    if not isinstance(tree, dict):
        raise BadAnswer("its answer is not the JSON object that it should be")
    return tree


def objects(tree: Any) -> list[dict[str, Any]]:
    """Take a JSON array of objects.

    Raises:
        BadAnswer: it is none.
    """
    if not isinstance(tree, list):
        raise BadAnswer("its answer is not the JSON array that it should be")
    return [members(one) for one in tree]


def kept(tree: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Give those members of an object that clients are to see; null for what is absent.

    And for what is no plain value, or list of such: no service has anything else there, and it
    would be written again whatever it is.
    """
    return {name: _flat(tree.get(name)) for name in names}


def text(value: Any) -> str | None:
    """Give a member that is text; None for anything else."""
    return value if isinstance(value, str) else None


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        return value if all(isinstance(one, _PLAIN) for one in value) else None
    return value if isinstance(value, _PLAIN) else None

"""Objects in a store that speaks S3, signed with the gateway's own key.

Requests are path-style, their bodies unsigned (`UNSIGNED-PAYLOAD`), so that an object passes as it
comes, in bounded memory. A body whose length is not known goes in parts, for S3 takes none such.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH

from twisted_gateway.config.schema import S3Adapter
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.redaction import redacted
from twisted_gateway.services import s3_names, s3_xml
from twisted_gateway.services.adapter import (
    Answer,
    BadAnswer,
    BodyUse,
    Document,
    Operation,
    Pairs,
    Parameter,
    Passed,
    Refused,
    RequestBody,
    ServiceRequest,
)
from twisted_gateway.services.http import chosen, error_body, first, refused
from twisted_gateway.services.sigv4 import Credentials, escaped, query_string, signature_headers
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse

MAX_LISTING_BYTES = 8_388_608
"""The largest listing that is read: 1000 keys of 1024 bytes, each escaped, and room."""
PART_BYTES = 8_388_608
"""The size of the parts of a body whose length is not known; S3 wants 5 MiB at least."""

_SMALL_BYTES = 65_536
_META = b"X-Amz-Meta-"
_MAX_META_BYTES = 2048

# What a 416 says (RFC 9110, section 14.4).
_BEYOND = re.compile(r"bytes \*/[0-9]{1,20}")

_CONDITIONS = (b"If-Match", b"If-None-Match", b"If-Modified-Since", b"If-Unmodified-Since")
_ABOUT = (
    *(b"Content-Type", b"Content-Encoding", b"Content-Language", b"Content-Disposition"),
    *(b"Cache-Control", b"Expires"),
)
_OF_ANSWER = (*_ABOUT, b"ETag", b"Last-Modified", b"Accept-Ranges", b"Content-Range")

_BUCKET = Parameter("bucket", required=True, form=s3_names.bucket)
_OBJECT = (_BUCKET, Parameter("key", required=True, form=s3_names.key))
_LIST = (
    _BUCKET,
    Parameter("prefix", form=s3_names.prefix),
    Parameter("delimiter", form=s3_names.prefix),
    Parameter("max_keys", form=s3_names.max_keys),
    Parameter("continuation_token", form=s3_names.continuation_token),
)


class S3:
    """`list`, `get`, `put` and `delete`.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration, with both keys.
        clock: tells the time of day.
    """

    def __init__(self, adapter: S3Adapter, clock: IReactorTime) -> None:
        """Take what the class documents."""
        assert adapter.access_key is not None
        assert adapter.secret_key is not None
        base = urlsplit(adapter.upstream)
        self._origin = f"{base.scheme}://{base.netloc}"
        self._root = base.path
        self._host = base.netloc
        self._credentials = Credentials(
            adapter.access_key.value, adapter.secret_key.value, adapter.region, "s3"
        )
        self._secrets = (adapter.access_key.value, adapter.secret_key.value)
        self._clock = clock
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "list": {"GET": Operation(self._list, _LIST, BodyUse.NONE)},
            "get": {"GET": Operation(self._get, _OBJECT, BodyUse.NONE)},
            "put": {"PUT": Operation(self._put, _OBJECT, BodyUse.STREAMED)},
            "delete": {"DELETE": Operation(self._delete, _OBJECT, BodyUse.NONE)},
        }

    async def _list(self, request: ServiceRequest) -> Answer:
        asked = request.parameters
        query = {"list-type": "2", "encoding-type": "url"}
        for ours, theirs in (
            ("prefix", "prefix"),
            ("delimiter", "delimiter"),
            ("max_keys", "max-keys"),
            ("continuation_token", "continuation-token"),
        ):
            if asked.get(ours):
                query[theirs] = asked[ours]
        answer = await self._send(request, "GET", query, of_bucket=True)
        await self._check(request, answer, (200,))
        body = await request.upstream.read(answer, MAX_LISTING_BYTES)
        return Document(s3_xml.listing(body, asked["bucket"]))

    async def _get(self, request: ServiceRequest) -> Answer:
        headers = chosen(request.headers, (b"Range", b"If-Range", *_CONDITIONS))
        answer = await self._send(request, request.method, headers=headers)
        await self._check(request, answer, (200, 206, 304))
        return Passed(answer, [*chosen(answer.headers, _OF_ANSWER), *_meta(answer.headers)])

    async def _delete(self, request: ServiceRequest) -> Answer:
        answer = await self._send(request, "DELETE", headers=chosen(request.headers, _CONDITIONS))
        await self._check(request, answer, (200, 204))
        await request.upstream.read(answer, _SMALL_BYTES)
        return Document(None, 204)

    # Putting an object

    async def _put(self, request: ServiceRequest) -> Answer:
        body = request.body
        about = [*chosen(request.headers, _ABOUT), *_bounded(_meta(request.headers))]
        conditions = chosen(request.headers, _CONDITIONS)
        digest = chosen(request.headers, (b"Content-MD5",))
        if body.length is UNKNOWN_LENGTH:
            begin = await body.read(PART_BYTES)
            if len(begin) == PART_BYTES:
                check = _Digest(digest)
                return await self._put_parts(request, begin, about, conditions, check)
            body = BytesProducer([begin])
        headers = [*about, *conditions, *digest]
        answer = await self._send(request, "PUT", headers=headers, body=body)
        await self._check(request, answer, (200,))
        await request.upstream.read(answer, _SMALL_BYTES)
        return _stored(request, first(answer, b"ETag"))

    async def _put_parts(
        self,
        request: ServiceRequest,
        part: bytes,
        about: Pairs,
        conditions: Pairs,
        digest: _Digest,
    ) -> Answer:
        """Put an object of unknown length (CreateMultipartUpload and what follows)."""
        upload = await request.upstream.to_its_end(
            self._begin_upload(request, about), lambda begun: self._remove_parts(request, begun)
        )
        try:
            etags: list[str] = []
            while part:
                digest.update(part)
                etags.append(await self._put_part(request, upload, len(etags) + 1, part))
                # Else there would be two of them while the next one comes.
                part = b""
                part = await request.body.read(PART_BYTES)
            digest.check()
            body = BytesProducer([s3_xml.completion(etags)])
            ended = await self._send(request, "POST", upload, headers=conditions, body=body)
            tree = await self._document(request, ended)
        except Exception:
            self._remove_parts(request, upload)
            raise
        return _stored(request, s3_xml.text(tree, "ETag"))

    async def _begin_upload(self, request: ServiceRequest, about: Pairs) -> Mapping[str, str]:
        """Begin an upload (CreateMultipartUpload); gives what names it in what follows."""
        begun = await self._send(request, "POST", {"uploads": ""}, headers=about)
        upload = {"uploadId": s3_xml.text(await self._document(request, begun), "UploadId")}
        if not upload["uploadId"]:
            raise BadAnswer("its answer names no upload")
        return upload

    def _remove_parts(self, request: ServiceRequest, upload: Mapping[str, str]) -> None:
        """Give an upload up (AbortMultipartUpload).

        Its parts would lie there, and be paid for, until somebody looked.
        """
        url, headers = self._signed(request, "DELETE", upload, [], of_bucket=False)
        request.upstream.afterwards("DELETE", url, headers)

    async def _put_part(
        self, request: ServiceRequest, upload: Mapping[str, str], number: int, part: bytes
    ) -> str:
        """Put one part (UploadPart); gives its ETag."""
        query, body = {"partNumber": str(number), **upload}, BytesProducer([part])
        try:
            answer = await self._send(request, "PUT", query, body=body)
            await self._check(request, answer, (200,))
            await request.upstream.read(answer, _SMALL_BYTES)
        finally:
            body.release()
        return first(answer, b"ETag")

    async def _document(self, request: ServiceRequest, answer: UpstreamResponse) -> s3_xml.Element:
        """Read an answer that is XML; S3 may also fail behind a 200."""
        await self._check(request, answer, (200,))
        body = await request.upstream.read(answer, _SMALL_BYTES)
        message = s3_xml.refusal(body, answer.media_type)
        if message:
            raise Refused(500, redacted(message, self._secrets))
        return s3_xml.parse(body)

    # To the store

    async def _check(
        self, request: ServiceRequest, answer: UpstreamResponse, good: Collection[int]
    ) -> None:
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
        content_range = first(answer, b"Content-Range")
        headers = {"Content-Range": content_range} if _BEYOND.fullmatch(content_range) else {}
        said = s3_xml.refusal(await error_body(request.upstream, answer), answer.media_type)
        raise refused(answer, said, headers, self._secrets)

    async def _send(
        self,
        request: ServiceRequest,
        method: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: RequestBody | None = None,
        of_bucket: bool = False,
    ) -> UpstreamResponse:
        url, signed = self._signed(request, method, query or {}, headers, of_bucket=of_bucket)
        return await request.upstream.send(method, url, signed, body)

    def _signed(
        self,
        request: ServiceRequest,
        method: str,
        query: Mapping[str, str],
        headers: Sequence[tuple[bytes, bytes]],
        *,
        of_bucket: bool,
    ) -> tuple[str, Pairs]:
        """Give the URL and the header fields of a request to a bucket, or to an object in it."""
        asked = request.parameters
        path = f"{self._root}/{asked['bucket']}"
        if not of_bucket:
            path += "/" + escaped(asked["key"], safe="/")
        # One value each: a client that repeats a field has the last one signed and sent.
        fields = {_text(name): _text(value) for name, value in headers}
        text = query_string(query.items())
        own = signature_headers(
            method,
            path,
            text,
            [("Host", self._host), *_to_sign(fields)],
            self._credentials,
            self._clock.seconds(),
        )
        every = [("Host", self._host), *fields.items(), *own]
        return (
            f"{self._origin}{path}" + (f"?{text}" if text else ""),
            [(_bytes(name), _bytes(value)) for name, value in every],
        )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _to_sign(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    """S3 wants its own fields signed, and some stores Content-Type and Content-MD5 too."""
    return [
        (name, value)
        for name, value in fields.items()
        if name.lower().startswith("x-amz-") or name in ("Content-Type", "Content-MD5")
    ]


def _meta(headers: Headers) -> Pairs:
    """Give the object's own metadata (`x-amz-meta-*`)."""
    return [
        (name, values[-1])
        for name, values in headers.getAllRawHeaders()
        if name.lower().startswith(_META.lower()) and values
    ]


def _bounded(meta: Pairs) -> Pairs:
    """Take metadata as far as S3 does: 2 kB in all, names without what they all begin with.

    Raises:
        Problem: 400, it is more.
    """
    size = sum(len(name) - len(_META) + len(value) for name, value in meta)
    if size > _MAX_META_BYTES:
        raise Problem(
            "metadata_too_large",
            400,
            f"The x-amz-meta- fields hold {size} bytes; S3 takes {_MAX_META_BYTES}.",
            outcome=Outcome.BAD_REQUEST,
        )
    return meta


class _Digest:
    """Checks the Content-MD5 of an object that goes in parts, for S3 looks at parts alone."""

    def __init__(self, fields: Pairs) -> None:
        self._expected = fields[-1][1].strip() if fields else None
        self._digest = hashlib.md5(usedforsecurity=False)

    def update(self, part: bytes) -> None:
        if self._expected is not None:
            self._digest.update(part)

    def check(self) -> None:
        """See to it that what came is what was announced.

        Raises:
            Problem: 400, it is not.
        """
        if self._expected not in (None, base64.b64encode(self._digest.digest())):
            raise Problem(
                "bad_digest",
                400,
                "The object that came is not the one that Content-MD5 describes.",
                outcome=Outcome.BAD_REQUEST,
                param="Content-MD5",
            )


def _stored(request: ServiceRequest, etag: str) -> Document:
    tree: dict[str, Any] = {name: request.parameters[name] for name in ("bucket", "key")}
    return Document({**tree, "etag": etag})

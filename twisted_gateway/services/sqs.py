"""Queues of a service that speaks SQS, in its JSON protocol, signed with the gateway's own key.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/

Clients name queues; the URLs by which the service itself knows them hold its address, so no client
sees one, and none can give one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.adapters import SqsAdapter
from twisted_gateway.core import strict_json
from twisted_gateway.core.charset import decoded
from twisted_gateway.services import s3_xml
from twisted_gateway.services.adapter import (
    Answer,
    BadAnswer,
    BadParameter,
    BodyUse,
    Document,
    Operation,
    Parameter,
    ServiceRequest,
)
from twisted_gateway.services.http import error_body, first, members, objects, parsed, refused, text
from twisted_gateway.services.sigv4 import Credentials, signature_headers
from twisted_gateway.services.values import line, long_text, whole
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse

MAX_ANSWER_BYTES = 16_777_216
"""The largest answer that is read: ten messages of 1 MiB, and their escapes."""
MAX_MESSAGE_CHARACTERS = 1_048_576
"""The longest message; SQS takes 1 MiB."""
MAX_WAIT_SECONDS = 20
"""How long SQS lets a receiver wait for a message."""
MAX_QUEUES = 1000
"""How many queues' URLs are remembered, and the most that one page lists."""

_JSON = "application/x-amz-json-1.0"
_QUEUE_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def queue_name(text: str) -> str:
    """Take the name of a queue.

    Raises:
        BadParameter: it is none.
    """
    stem = text.removesuffix(".fifo")
    if not stem or len(text) > 80 or not set(stem) <= _QUEUE_LETTERS:
        raise BadParameter("at most 80 letters, digits, '_' and '-', of a FIFO queue with .fifo")
    return text


_QUEUE = Parameter("queue", required=True, form=queue_name)
_LIST = (
    Parameter("prefix", form=queue_name),
    Parameter("max_results", form=whole(1, MAX_QUEUES)),
    Parameter("next_token", form=line(4096)),
)
_SEND = (
    _QUEUE,
    Parameter("message", required=True, form=long_text(MAX_MESSAGE_CHARACTERS)),
    Parameter("delay_seconds", form=whole(0, 900)),
    Parameter("message_group_id", form=line(128)),
    Parameter("message_deduplication_id", form=line(128)),
)
_DELETE = (_QUEUE, Parameter("receipt_handle", required=True, form=line(4096)))


def _receive(timeout_seconds: float) -> tuple[Parameter, ...]:
    """Give what a receiver may ask for: it waits for less than the service may be silent."""
    most_seconds = min(MAX_WAIT_SECONDS, math.ceil(timeout_seconds) - 1)
    return (
        _QUEUE,
        Parameter("max_messages", form=whole(1, 10)),
        Parameter("wait_seconds", form=whole(0, most_seconds)),
        Parameter("visibility_timeout_seconds", form=whole(0, 43_200)),
    )


class Sqs:
    """`list-queues`, `send-message`, `receive-message` and `delete-message`.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration, with both keys.
        clock: tells the time of day.
    """

    def __init__(self, adapter: SqsAdapter, clock: IReactorTime) -> None:
        """Take what the class documents."""
        assert adapter.access_key is not None
        assert adapter.secret_key is not None
        base = urlsplit(adapter.upstream)
        self._url = adapter.upstream + ("" if base.path else "/")
        self._path = base.path or "/"
        self._host = base.netloc
        self._credentials = Credentials(
            adapter.access_key.value, adapter.secret_key.value, adapter.region, "sqs"
        )
        self._clock = clock
        self._queues: OrderedDict[str, str] = OrderedDict()
        self._secrets = (adapter.access_key.value, adapter.secret_key.value)
        fields, receive = BodyUse.FIELDS, _receive(adapter.timeout_seconds)
        # Receiving hides messages from others for a while, so it is no GET.
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "list-queues": {"GET": Operation(self._list, _LIST, BodyUse.NONE)},
            "send-message": {"POST": Operation(self._send, _SEND, fields)},
            "receive-message": {"POST": Operation(self._receive, receive, fields)},
            "delete-message": {"POST": Operation(self._delete, _DELETE, fields)},
        }

    async def _list(self, request: ServiceRequest) -> Answer:
        asked = request.parameters
        # Without MaxResults there is no token for the rest.
        body: dict[str, Any] = {"MaxResults": int(asked.get("max_results", MAX_QUEUES))}
        body |= _given(asked, {"prefix": "QueueNamePrefix", "next_token": "NextToken"})
        tree = await self._ask(request, "ListQueues", body)
        urls = tree.get("QueueUrls") or []
        if not (isinstance(urls, list) and all(isinstance(url, str) for url in urls)):
            raise BadAnswer("its answer lists no queues")
        return Document(
            {
                "queues": [name for name in map(_name, urls) if name],
                "next_token": text(tree.get("NextToken")) or None,
            }
        )

    async def _send(self, request: ServiceRequest) -> Answer:
        asked = request.parameters
        body: dict[str, Any] = {
            "QueueUrl": await self._queue_url(request),
            "MessageBody": asked["message"],
            **_given(
                asked,
                {
                    "message_group_id": "MessageGroupId",
                    "message_deduplication_id": "MessageDeduplicationId",
                },
            ),
            **_numbers(asked, {"delay_seconds": "DelaySeconds"}),
        }
        tree = await self._ask(request, "SendMessage", body)
        message_id = tree.get("MessageId")
        if not (isinstance(message_id, str) and message_id):
            raise BadAnswer("its answer does not say that the message was taken")
        return Document(
            {
                "message_id": message_id,
                "body_md5": text(tree.get("MD5OfMessageBody")),
                "sequence_number": text(tree.get("SequenceNumber")),
            }
        )

    async def _receive(self, request: ServiceRequest) -> Answer:
        body: dict[str, Any] = {
            "QueueUrl": await self._queue_url(request),
            "MessageSystemAttributeNames": ["SentTimestamp", "ApproximateReceiveCount"],
            **_numbers(
                request.parameters,
                {
                    "max_messages": "MaxNumberOfMessages",
                    "wait_seconds": "WaitTimeSeconds",
                    "visibility_timeout_seconds": "VisibilityTimeout",
                },
            ),
        }
        tree = await self._ask(request, "ReceiveMessage", body)
        return Document(
            {"messages": [_message(one) for one in objects(tree.get("Messages") or [])]}
        )

    async def _delete(self, request: ServiceRequest) -> Answer:
        body = {
            "QueueUrl": await self._queue_url(request),
            "ReceiptHandle": request.parameters["receipt_handle"],
        }
        await self._ask(request, "DeleteMessage", body)
        return Document(None, 204)

    # To the service

    async def _queue_url(self, request: ServiceRequest) -> str:
        """Give the URL by which the service knows a queue; it is asked for once."""
        name = request.parameters["queue"]
        url = self._queues.get(name)
        if url is None:
            tree = await self._ask(request, "GetQueueUrl", {"QueueName": name})
            url = tree.get("QueueUrl")
            if not isinstance(url, str):
                raise BadAnswer("its answer names no queue")
            self._queues[name] = url
        self._queues.move_to_end(name)
        if len(self._queues) > MAX_QUEUES:
            self._queues.popitem(last=False)
        return url

    async def _ask(
        self, request: ServiceRequest, action: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Have one action done.

        Raises:
            Refused: the service's own 4xx or 5xx.
        """
        content = json.dumps(body).encode("ascii")
        fields = [
            ("Host", self._host),
            ("Content-Type", _JSON),
            ("X-Amz-Target", f"AmazonSQS.{action}"),
        ]
        fields += signature_headers(
            "POST",
            self._path,
            "",
            fields,
            self._credentials,
            self._clock.seconds(),
            hashlib.sha256(content).hexdigest(),
        )
        headers = [(name.encode("ascii"), value.encode("utf-8")) for name, value in fields]
        answer = await request.upstream.send("POST", self._url, headers, BytesProducer([content]))
        if answer.code != 200:
            await self._refuse(request, answer)
        said = await request.upstream.read(answer, MAX_ANSWER_BYTES)
        if action == "DeleteMessage" and not said:
            # It has nothing to say: some do so without a body, some with `{}`.
            return {}
        return members(parsed(said))

    async def _refuse(self, request: ServiceRequest, answer: UpstreamResponse) -> None:
        if answer.code < 400:
            answer.abort()
            raise BadAnswer(f"it answered with status {answer.code}")
        body = await error_body(request.upstream, answer)
        code, words = _said(decoded(body, answer.media_type))
        code = code or first(answer, b"x-amzn-query-error").partition(";")[0]
        if "NonExistentQueue" in code or "QueueDoesNotExist" in code:
            self._queues.pop(request.parameters.get("queue", ""), None)
        said = ": ".join(part for part in (code, words) if part)
        # Who is refused at the door is told so in XML.
        raise refused(
            answer,
            said or s3_xml.refusal(body, answer.media_type),
            secrets=self._secrets,
        )


def _message(tree: Mapping[str, Any]) -> dict[str, Any]:
    attributes = members(tree.get("Attributes") or {})
    return {
        "message_id": text(tree.get("MessageId")),
        "receipt_handle": text(tree.get("ReceiptHandle")),
        "body": text(tree.get("Body")),
        "body_md5": text(tree.get("MD5OfBody")),
        "sent_at_milliseconds": _number(attributes.get("SentTimestamp")),
        "receive_count": _number(attributes.get("ApproximateReceiveCount")),
    }


def _name(url: str) -> str:
    """Give a queue's name, the last segment of its URL; "" where it has no path."""
    return url.partition("://")[2].partition("/")[2].rpartition("/")[2]


def _number(value: Any) -> int | None:
    digits = str(value) if isinstance(value, int) else text(value) or ""
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None


def _given(asked: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {theirs: asked[ours] for ours, theirs in names.items() if ours in asked}


def _numbers(asked: Mapping[str, str], names: Mapping[str, str]) -> dict[str, int]:
    return {theirs: int(asked[ours]) for ours, theirs in names.items() if ours in asked}


def _said(said: str) -> tuple[str, str]:
    """Give a refusal's code, the word of its `__type`, and what it says; "" for what is not there.

    Of the words only the first line is taken: SQS has what it would have signed itself follow, with
    the host that it was asked by.
    """
    try:
        tree = strict_json.loads(said.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(tree, dict):
        return "", ""
    code, words = tree.get("__type"), tree.get("message") or tree.get("Message")
    word = code.rpartition("#")[2] if isinstance(code, str) else ""
    line = words.strip().partition("\n")[0] if isinstance(words, str) else ""
    fit = word.isascii() and word.isprintable() and len(word) <= 128
    return word if fit else "", " ".join(line.split())

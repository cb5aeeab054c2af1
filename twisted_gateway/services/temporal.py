"""Temporal's ListWorkflowExecutions over gRPC (the extra `workflow`).

gRPC has threads of its own; answers come to the reactor's by `callFromThread`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads

from twisted_gateway.config.adapters import WorkflowAdapter
from twisted_gateway.services.adapter import BadAnswer, Pairs, Refused
from twisted_gateway.services.workflow import Listing, Page
from twisted_gateway.upstream.errors import AnswerTimedOut, ConnectFailed, UpstreamError

MAX_ANSWER_BYTES = 4_194_304
"""The largest page that is read, which is what gRPC takes by default, and Temporal counts on.

https://docs.temporal.io/self-hosted-guide/defaults: who shows much in few executions (memos go up
to 2 MiB) asks for fewer of them.
"""

_METHOD = "/temporal.api.workflowservice.v1.WorkflowService/ListWorkflowExecutions"
# ASCII-Value of gRPC's protocol over HTTP/2.
_PRINTABLE = re.compile(rb"[ -~]+")
# How gRPC's core says that there is no connection, or that it has ended.
_NO_CONNECTION = re.compile(
    r"(?i)\b(ipv[46]|unix|dns):|failed to connect|connect failed|connection (refused|reset|closed)"
    r"|connections to all backends|socket closed|resolution fail|address list|recvmsg|sendmsg"
    r"|broken pipe|goaway|stream removed|transport (is )?clos|endpoint (clos|read|write)"
    r"|(keepalive|ping|settings).*time|channel (is )?(shut|clos)|handshake"
)
_TOO_LARGE = "eceived message larger than max"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # A proxy of the environment is none of the gateway's configuration.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.keepalive_time_ms", 60_000),
)

STATUSES: Mapping[grpc.StatusCode, int] = MappingProxyType(
    {
        grpc.StatusCode.INVALID_ARGUMENT: 400,
        grpc.StatusCode.FAILED_PRECONDITION: 400,
        grpc.StatusCode.OUT_OF_RANGE: 400,
        grpc.StatusCode.UNAUTHENTICATED: 401,
        grpc.StatusCode.PERMISSION_DENIED: 403,
        grpc.StatusCode.NOT_FOUND: 404,
        grpc.StatusCode.ABORTED: 409,
        grpc.StatusCode.ALREADY_EXISTS: 409,
        grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
        grpc.StatusCode.UNKNOWN: 500,
        grpc.StatusCode.INTERNAL: 500,
        grpc.StatusCode.DATA_LOSS: 500,
        grpc.StatusCode.UNIMPLEMENTED: 501,
        grpc.StatusCode.UNAVAILABLE: 503,
    }
)
"""The HTTP status of Temporal's own errors, as google.rpc.Code has it."""


class Call(Protocol):
    """What is asked of a gRPC call that has ended."""

    def code(self) -> grpc.StatusCode:
        """How."""

    def details(self) -> str | None:
        """Why, in words."""


class Temporal:
    """Asks a Temporal frontend.

    Args:
        adapter: its configuration.
        reactor: whose thread answers come to.
    """

    def __init__(self, adapter: WorkflowAdapter, reactor: Any) -> None:
        """Take what the class documents; the connection comes with the first call."""
        self._adapter = adapter
        self._channel: Any = None
        self._method: Any = None
        self._reactor = cast(IReactorFromThreads, reactor)
        self._under_way = 0
        self._retired = False

    def list(self, listing: Listing, metadata: Pairs) -> Deferred[Page]:
        """See `Lister.list`."""
        asked = ListWorkflowExecutionsRequest(
            namespace=listing.namespace,
            query=listing.query,
            page_size=listing.page_size,
            next_page_token=listing.page_token,
        )
        if self._method is None:
            # Also when it is retired: whoever was let in before that may ask only now.
            self._open()
        seconds = self._adapter.timeout_seconds
        call = self._method.future(asked, timeout=seconds, metadata=metadata_of(metadata))
        answered: Deferred[Any] = Deferred(lambda _: call.cancel())
        self._under_way += 1
        call.add_done_callback(
            lambda done: self._reactor.callFromThread(self._ended, done, answered)
        )
        # As its callback: whatever it raises comes to whoever waits.
        return answered.addCallback(page_of)

    def retire(self) -> None:
        """See `Lister.retire`."""
        self._retired = True
        self._close_if_idle()

    def _ended(self, call: Any, answered: Deferred[Any]) -> None:
        self._under_way -= 1
        self._close_if_idle()
        if answered.called:
            return
        try:
            result: bytes = call.result()
        except (grpc.RpcError, grpc.FutureCancelledError):
            answered.errback(fault_of(call))
        else:
            answered.callback(result)

    def _open(self) -> None:
        upstream = self._adapter.upstream
        if self._adapter.tls:
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.secure_channel(upstream, credentials, _OPTIONS)
        else:
            self._channel = grpc.insecure_channel(upstream, _OPTIONS)
        self._method = self._channel.unary_unary(
            _METHOD,
            request_serializer=ListWorkflowExecutionsRequest.SerializeToString,
            # Pages that wait for the reactor are not to be trees, which are larger, until it is
            # their turn.
            response_deserializer=None,
        )

    def _close_if_idle(self) -> None:
        if self._retired and not self._under_way and self._channel is not None:
            self._channel.close()
            self._channel = self._method = None


def metadata_of(fields: Pairs) -> list[tuple[str, str]]:
    """Give header fields as gRPC takes them.

    Those whose values are no printable ASCII are left out: gRPC would refuse the whole call, and
    what they are (the trace context, as the client sent it) is not worth that.
    """
    return [
        (name.decode("ascii").lower(), value.decode("ascii"))
        for name, value in fields
        if _PRINTABLE.fullmatch(value)
    ]


def fault_of(call: Call) -> Refused | UpstreamError:
    """Say what a call's failure is: Temporal's own refusal, or that there is no answer."""
    code, words = call.code(), " ".join((call.details() or "").split())
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return AnswerTimedOut("no answer came in time")
    # gRPC gives no other mark of what it says itself; those words may hold addresses.
    if code is grpc.StatusCode.UNAVAILABLE and _NO_CONNECTION.search(words):
        return ConnectFailed("the connection failed")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in words:
        return BadAnswer(f"its page is over {MAX_ANSWER_BYTES} bytes; ask for a smaller page_size")
    status = STATUSES.get(code)
    if status is None:
        return BadAnswer(f"the call ended with {code.name}")
    # gRPC bounds them: they come in a trailer.
    return Refused(status, f"{code.name}: {words}")


def page_of(message: bytes) -> Page:
    """Give an answer as clients are shown it.

    Raises:
        BadAnswer: it is no such message, or holds what protobuf takes from the wire and refuses to
            show, as a time that is none.
    """
    try:
        answer = ListWorkflowExecutionsResponse.FromString(message)
    except DecodeError:
        raise BadAnswer("its answer is not the message that it should be") from None
    try:
        executions = [_execution(one) for one in answer.executions]
        return Page(executions, answer.next_page_token, len(message))
    except (ValueError, OverflowError):
        # The latter is what protobuf 4.25 says of a time beyond all calendars.
        raise BadAnswer("its answer has values that it cannot have") from None


def _execution(info: WorkflowExecutionInfo) -> dict[str, Any]:
    """Give what there is to see of an execution; memos and search attributes may hold anything."""
    return {
        "workflow_id": info.execution.workflow_id,
        "run_id": info.execution.run_id,
        "type": info.type.name,
        "status": _status(info.status),
        "start_time": _moment(info, "start_time"),
        "close_time": _moment(info, "close_time"),
        "execution_time": _moment(info, "execution_time"),
        "history_length": info.history_length,
        "task_queue": info.task_queue,
        "parent_workflow_id": info.parent_execution.workflow_id or None,
    }


def _status(number: int) -> str:
    """Give the word for a status; later releases of Temporal may have others."""
    if number not in WorkflowExecutionStatus.values():
        return "unknown"
    name = WorkflowExecutionStatus.Name(cast(Any, number))
    return name.removeprefix("WORKFLOW_EXECUTION_STATUS_").lower()


def _moment(info: WorkflowExecutionInfo, name: str) -> str | None:
    """Give a time as RFC 3339 has it; None for one that has not come."""
    if not info.HasField(cast(Any, name)):
        return None
    moment: Timestamp = getattr(info, name)
    return moment.ToJsonString()

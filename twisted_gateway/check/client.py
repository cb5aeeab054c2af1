"""Requests to the gateway, each with an id of its own, bounded in size and time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.check.redactor import CUT, nothing_known
from twisted_gateway.check.stream import Stream, read_stream
from twisted_gateway.core import strict_json
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES, upstream_words
from twisted_gateway.core.sse import EVENT_STREAM
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import AnswerTimedOut, UpstreamError
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse
from twisted_gateway.upstream.whole import read_whole, within

MAX_BODY_BYTES = 1024 * 1024
"""The longest answer that is read where nothing else is said. As JSON it may take 30 times that."""
MAX_WORDS_CHARS = 300
"""Of a server's own account of an error."""
_PROBLEM = "application/problem+json"
_PROBLEMS = "urn:twisted-gateway:problem:"
# That the body is given where the head has taken all the time there was.
_LEAST_SECONDS = 0.001

Fields = Mapping[str, str]


class NoAnswer(Exception):
    """There is no whole answer; the text says why.

    Attributes:
        late: whether that is for want of time.
    """

    def __init__(self, why: str, *, late: bool = False) -> None:
        """Take what the class documents."""
        super().__init__(why)
        self.late = late


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, all of it.

    Attributes:
        status: its status.
        headers: its header fields.
        body: its body; b"" where it was an event stream.
        stream: what came of the event stream; None where it was none.
        redact: masks the credentials in a text.
    """

    status: int
    headers: Headers
    body: bytes = b""
    stream: Stream | None = None
    redact: Callable[[str], str] = nothing_known

    @property
    def tree(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return strict_json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def field(self, name: str) -> str:
        """Give a header field, "" where it is not there."""
        values = self.headers.getRawHeaders(name.encode("ascii"), [b""])
        return values[0].decode("latin-1").strip()

    @property
    def members(self) -> Mapping[str, Any]:
        """The members of a problem document (RFC 9457), none where it is none."""
        if self.field("Content-Type").partition(";")[0].strip().lower() != _PROBLEM:
            return {}
        tree = self.tree
        return tree if isinstance(tree, dict) else {}

    @property
    def problem(self) -> str:
        """The kind of problem that a gateway of ours says this is; "" for any other answer."""
        kind = self.members.get("type")
        if not isinstance(kind, str) or not kind.startswith(_PROBLEMS):
            return ""
        return kind.removeprefix(_PROBLEMS)

    @property
    def words(self) -> str:
        """What it says, in short: the status, and its account of an error, or where it leads."""
        said = ""
        if 300 <= self.status < 400 and self.field("Location"):
            said = f"it leads to {self.field('Location')}, and is not followed"
        elif self.status >= 400:
            detail = self.members.get("detail")
            said = detail if isinstance(detail, str) else self._account
        # Before it is cut: half a credential would not be known for one.
        said = " ".join(self.redact(said).split())
        if len(said) > MAX_WORDS_CHARS:
            said = said[: MAX_WORDS_CHARS - 1] + CUT
        return f"status {self.status}: {said}" if said else f"status {self.status}"

    @property
    def _account(self) -> str:
        """What an engine or a proxy says of an error, in whatever form."""
        said = upstream_words(self.body, self.field("Content-Type"))
        return said + CUT if len(self.body) > MAX_ERROR_BODY_BYTES else said


class Client:
    """Sends requests to one gateway.

    Attributes:
        public: its base URL.
        admin: the base URL of its operations endpoints.
    """

    def __init__(
        self,
        agent: UpstreamAgent,
        clock: IReactorTime,
        run_id: str,
        public: str,
        admin: str = "",
        redact: Callable[[str], str] = nothing_known,
    ) -> None:
        """Take the way to it.

        Args:
            agent: does the requests.
            clock: for the bounds on their time.
            run_id: with which every request's id begins.
            public: see the class.
            admin: see the class; "" where that is the public one.
            redact: masks the credentials in a text.
        """
        self.public = public
        self.admin = admin or public
        self._agent = agent
        self._clock = clock
        self._run_id = run_id
        self._redact = redact
        self._count = 0

    def next_id(self) -> str:
        """Give a new request's id: letters, digits, '.', '_' and '-', as the gateway keeps it."""
        self._count += 1
        return f"{self._run_id}-{self._count}"

    async def ask(
        self,
        method: str,
        url: str,
        request_id: str,
        *,
        seconds: float,
        headers: Fields | None = None,
        body: bytes | None = None,
        limit_bytes: int = MAX_BODY_BYTES,
    ) -> Answer:
        """Send a request, and read its answer to its end.

        Args:
            method: a token.
            url: absolute, in visible ASCII.
            request_id: its id.
            seconds: the bound on all of it.
            headers: further fields.
            body: its body.
            limit_bytes: the bound on the answer's body.

        Returns:
            The answer, whatever its status. Cancelling it drops the connection.

        Raises:
            NoAnswer: there was none, or it was too long, too late, or broke off.
        """
        fields = _fields({"Accept": "*/*", "X-Request-ID": request_id, **(headers or {})})
        producer = None if body is None else BytesProducer([body])
        until = self._clock.seconds() + seconds
        late = NoAnswer(f"no whole answer within {seconds:g} s", late=True)
        try:
            asked: Deferred[Any] = self._agent.request(
                method.encode("ascii"), url.encode("ascii"), fields, producer
            )
            answer: UpstreamResponse = await within(asked, self._clock, seconds)
            left = max(_LEAST_SECONDS, until - self._clock.seconds())
            if _is_stream(answer):
                stream = await read_stream(answer, self._clock, left)
                return self._answer(answer, stream=stream)
            content, whole = await read_whole(
                answer, self._clock, limit_bytes=limit_bytes, seconds=left
            )
        except AnswerTimedOut:
            raise late from None
        except UpstreamError as fault:
            raise NoAnswer(fault.reason) from None
        if whole:
            return self._answer(answer, body=content)
        if self._clock.seconds() >= until:
            raise late
        long = len(content) >= limit_bytes
        raise NoAnswer(
            f"an answer of status {answer.code} that "
            + (f"is longer than {limit_bytes} bytes" if long else "broke off")
        )

    def _answer(
        self, answer: UpstreamResponse, *, body: bytes = b"", stream: Stream | None = None
    ) -> Answer:
        return Answer(
            status=answer.code,
            headers=answer.headers,
            body=body,
            stream=stream,
            redact=self._redact,
        )


def _is_stream(answer: UpstreamResponse) -> bool:
    values = answer.headers.getRawHeaders(b"Content-Type", [b""])
    return answer.code == 200 and values[0].partition(b";")[0].strip().lower() == EVENT_STREAM


def _fields(pairs: Fields) -> Headers:
    fields = Headers()
    for name, value in pairs.items():
        # A name that a gateway lists may be no text at all; it is then told that there is no such.
        fields.addRawHeader(name.encode("ascii"), value.encode("utf-8", "replace"))
    return fields


def one_line(text: str, limit_chars: int) -> str:
    """Give a text in one line of printable characters, of at most so many."""
    shown = "".join(char if char.isprintable() else " " for char in text).strip()
    return shown if len(shown) <= limit_chars else shown[: limit_chars - 1] + CUT


def json_body(tree: Any) -> bytes:
    """Give a JSON body."""
    return json.dumps(tree).encode("ascii")


def listed(values: Iterable[str], most: int = 10) -> str:
    """Name some of these, whole: whoever shows it makes it short, and masks credentials before."""
    names = list(values)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""One simulated engine as its HTTP paths see it: what they share, and how they answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.web.server import Request

from twisted_gateway.demo.ask import ApiError, Limits, decode
from twisted_gateway.demo.dialects import DIED, to_json
from twisted_gateway.demo.engine import Engine
from twisted_gateway.demo.faults import Faults
from twisted_gateway.demo.scheduler import Profile
from twisted_gateway.demo.statistics import Statistics

Handler = Callable[[Request], None]
"""Answers a request, now or later; may raise ApiError as long as it has written nothing."""

Routes = Mapping[str, Mapping[str, Handler]]
"""Path -> method -> handler."""

_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)
_NOT_JSON = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"


def abort(request: Request) -> None:
    """Cut a request's connection, whatever is still to be written."""
    transport: Any = request.transport
    transport.abortConnection()


class Host:
    """An engine under a model's name.

    Attributes:
        limits: the model's name and context.
        engine: the engine as it runs; another one after a restart.
        statistics: what it publishes; new ones after a restart.
        faults: what it does wrong.
        started_at: Unix time in whole seconds.
        new_id: makes the part of an id that differs.
    """

    def __init__(
        self,
        clock: IReactorTime,
        model: str,
        profile: Profile,
        *,
        speed: float = 1.0,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """Start an engine.

        Args:
            clock: where time comes from.
            model: the name to serve.
            profile: what the engine can do at speed 1.
            speed: its time runs this many times as fast.
            new_id: makes the part of an id that differs.

        Raises:
            ValueError: `speed` is not above zero.
        """
        self.limits = Limits(model=model, max_model_tokens=profile.max_model_tokens)
        self.faults = Faults()
        self.started_at = int(clock.seconds())
        self.new_id = new_id
        self._clock = clock
        self._profile = profile
        self._speed = speed
        self._boot()

    def now(self) -> int:
        """Unix time in whole seconds."""
        return int(self._clock.seconds())

    def change_faults(self, wanted: Mapping[str, Any]) -> None:
        """Change what the engine does wrong.

        Raises:
            ValueError: an unknown name, or a value that is none; nothing has changed.
        """
        before, self.faults = self.faults, self.faults.changed(wanted)
        if self.faults.die and not before.die:
            self.engine.die()
        elif before.die and not self.faults.die:
            self._boot()

    def admit(self) -> None:
        """See to it that the engine takes one more request.

        Raises:
            ApiError: 503, it has been told to refuse; 500, it is dead.
        """
        if self.faults.refuse_next:
            self.faults = self.faults.changed({"refuse_next": self.faults.refuse_next - 1})
            raise ApiError(503, _BUSY, "Service Unavailable")
        if self.engine.dead:
            raise ApiError(500, DIED, "InternalServerError")

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON object that a request brings.

        Raises:
            ApiError: 400.
        """
        kind = (request.getHeader(b"content-type") or b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            raise ApiError(400, _NOT_JSON, "Bad Request")
        return decode(request.content.read() if request.content is not None else b"")

    def reply(self, request: Request, status: int, document: object) -> None:
        """Answer with JSON, and finish."""
        self.send(request, status, b"application/json", to_json(document))

    def send(self, request: Request, status: int, kind: bytes | None, body: bytes) -> None:
        """Answer with `body`, of the content type `kind`, and finish."""
        request.setResponseCode(status)
        if kind is not None:
            request.setHeader(b"content-type", kind)
        request.setHeader(b"content-length", b"%d" % len(body))
        request.write(body)
        request.finish()

    def _boot(self) -> None:
        self.statistics = Statistics(self.limits.model, self._profile)
        self.engine = Engine(
            self._clock, self._profile, speed=self._speed, on_step=self.statistics.record
        )

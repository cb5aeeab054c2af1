"""The status endpoints: the page, its table, its stream, its files, and the JSON behind them.

Once a second what is in the engines and parked is noted, and whoever watches is sent the board.
The board is rendered once for all; where that takes long (a queue of thousands) or it is large
(dozens of models), it is done less often, so that watching takes at most a twentieth of the
reactor's time and brings each watcher at most `BYTES_A_TICK` a second, down to a board in ten.
Whoever asks for the page or the JSON then gets it as it was up to a second ago.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.telemetry.history import History
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.background import in_background
from twisted_gateway.web.exchange import Exchanges
from twisted_gateway.web.fleet import Fleet
from twisted_gateway.web.status import page, text
from twisted_gateway.web.status.assets import Asset, Assets
from twisted_gateway.web.status.facts import NO_MODEL, Facts, Tree
from twisted_gateway.web.status.lately import REST, Lately
from twisted_gateway.web.status.negotiation import best
from twisted_gateway.web.status.streams import Streams
from twisted_gateway.web.status.tables import MOST_PARKED_SHOWN
from twisted_gateway.web.status.words import line_of

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

Handler = Callable[["GatewayRequest"], Deferred[None] | None]

MOST_FAULTS = 20
TICK_SECONDS = 1.0
BYTES_A_TICK = 100_000
MOST_RESTED_TICKS = 9

_HTML, _TEXT, _JSON = "text/html", "text/plain", "application/json"
_PRIVATE = [
    (b"Cache-Control", b"no-store"),
    (b"Vary", b"Accept"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
]
_FOR_EVER = b"public, max-age=31536000, immutable"


class Status(Service):
    """All of `/status*`.

    Attributes:
        history: to be told what the metrics count.

    Args:
        fleet: the engines and the configuration in force.
        exchanges: the requests under way.
        clock: for ages and the one timer.
        shown: what may be shown of a tenant's name.
    """

    _log = Logger()

    def __init__(
        self,
        fleet: Fleet,
        exchanges: Exchanges,
        clock: IReactorTime,
        shown: Callable[[str], str],
    ) -> None:
        """Take what the class documents; nothing is noted before `startService`."""
        self._fleet = fleet
        self._clock = clock
        self.history = History(clock.seconds)
        self.facts = Facts(fleet, exchanges, self.history, clock, shown)
        self._shown = Lately(clock, lambda: self.facts(MOST_PARKED_SHOWN))
        self._json = Lately(clock, lambda: json.dumps(self.facts()).encode("ascii"))
        self._boards = Lately(clock, lambda: self._board())
        self._repeats = Repeats(clock)
        self._streams = Streams(clock)
        self._assets = Assets()
        self._loop = LoopingCall(self._tick)
        self._loop.clock = clock
        self._rest = 0

    def routes(self) -> Mapping[str, Handler]:
        """Path -> handler, all for GET."""
        return {
            "/status": self.status,
            "/status.json": self.as_json,
            "/status/events": self.events,
            **{
                f"/status/{name}": self._serves(asset)
                for name, asset in self._assets.by_name.items()
            },
        }

    def configured(self, faults: Sequence[str] = ()) -> None:
        """The configuration was read: it is in force, or refused.

        Args:
            faults: why it is not in force, a line each; none where it is.
        """
        self.facts.refused_configuration = [line_of(line) for line in faults[:MOST_FAULTS]]

    def startService(self) -> None:
        """Begin to note and to send."""
        super().startService()
        in_background(self._loop.start(TICK_SECONDS), self._log, "noting the status")

    def stopService(self) -> None:
        """End the timer and all streams."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        self._streams.end()

    # Handlers

    def status(self, request: GatewayRequest) -> None:
        """The page; as a table or JSON for who prefers that."""
        request.exchange.route = "/status"
        wanted = best(request.getHeader("accept"), (_HTML, _TEXT, _JSON))
        if wanted == _JSON:
            self.as_json(request)
        elif wanted == _TEXT:
            body = text.render(self._shown.get()).encode("utf-8")
            request.answer(200, b"text/plain; charset=utf-8", body, _PRIVATE)
        else:
            facts = self._shown.get()
            html = page.render(facts, self._frame(facts, _up(request.uri)))
            policy = (b"Content-Security-Policy", page.CONTENT_SECURITY_POLICY)
            body = html.encode("utf-8", "replace")
            request.answer(200, b"text/html; charset=utf-8", body, [*_PRIVATE, policy])

    def as_json(self, request: GatewayRequest) -> None:
        """What runs, what waits and why, as JSON."""
        request.exchange.route = "/status.json"
        request.answer(200, b"application/json", self._json.get(), _PRIVATE)

    def events(self, request: GatewayRequest) -> Deferred[None]:
        """A stream of boards; while draining one board, for the drain waits for no watcher.

        Raises:
            Problem: 503, too many watch.
        """
        request.exchange.route = "/status/events"
        goes_on = self.running and not self._fleet.draining
        return self._streams.open(
            request, lambda: self._boards.get(TICK_SECONDS), goes_on=bool(goes_on)
        )

    def _serves(self, asset: Asset) -> Handler:
        def serve(request: GatewayRequest) -> None:
            request.exchange.route = "/status/assets"
            # The page names files with their build: under that name they never change.
            named = request.uri.endswith(b"?" + self._assets.build.encode("ascii"))
            headers = [
                (b"ETag", asset.etag),
                (b"Cache-Control", _FOR_EVER if named else b"no-cache"),
                (b"X-Content-Type-Options", b"nosniff"),
            ]
            if asset.matches(request.getHeader("if-none-match")):
                request.send_head(304, b"Not Modified", headers)
                request.exchange.status = 304
                request.finish()
            else:
                request.answer(200, asset.content_type, asset.body, headers)

        return serve

    # The timer

    def _tick(self) -> None:
        # A LoopingCall stops for good after one exception.
        try:
            self._note()
            self._send()
        except Exception:  # noqa: BLE001 -- it is logged; the next second may fare better.
            self._repeats.say(
                "tick",
                self._log.failure,
                "a second of the status was left out",
                failure=Failure(),
            )
        if self._fleet.draining:
            # Also those for whom there was no last board: a drain waits for no watcher.
            self._streams.end()

    def _note(self) -> None:
        now = self._clock.seconds()
        groups = self._fleet.groups
        self.history.watch({NO_MODEL: [""]} | {key: one.models for key, one in groups.items()})
        for key, group in groups.items():
            if group.admission is not None:
                seen = group.admission.gate.summary(now)
                self.history.gauges(
                    key,
                    in_engine=sum(one.in_engine for one in seen.engines),
                    parked=sum(one.parked for one in seen.models.values()),
                )

    def _send(self) -> None:
        if not len(self._streams):
            return
        if self._rest and not self._fleet.draining:
            self._rest -= 1
            return
        board = self._boards.renew()
        rest = max(0, int(REST * self._boards.spent_seconds), len(board) // BYTES_A_TICK)
        self._rest = min(MOST_RESTED_TICKS, rest)
        self._streams.send(board)

    def _board(self) -> bytes:
        """The board as an event: ASCII JSON on one line, so that nothing in it breaks the frame."""
        facts = self.facts(MOST_PARKED_SHOWN)
        frame = self._frame(facts)
        tree = {
            "build": frame.build,
            "settings": frame.settings,
            "title": page.title(facts),
            "board": page.board(facts),
        }
        return b"event: board\ndata: %s\n\n" % json.dumps(tree).encode("ascii")

    def _frame(self, facts: Tree, up: str = "") -> page.Frame:
        said = repr(facts["settings"]).encode("utf-8", "backslashreplace")
        settings = hashlib.sha256(said).hexdigest()[:12]
        return page.Frame(build=self._assets.build, settings=settings, up=up)


def _up(uri: bytes) -> str:
    """What leads from a page to where `/status` is: it may have been asked for as `/status/`."""
    path = uri.partition(b"?")[0]
    return "../" * (len(path) - len(path.rstrip(b"/")))

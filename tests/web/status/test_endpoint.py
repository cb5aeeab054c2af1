from __future__ import annotations

import configparser
import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.stack import CONFIG, ROLE, Client, Stack, dechunked, token
from tests.support import TestCase
from twisted_gateway.web.status.streams import MOST_STREAMS, STALL_SECONDS

SHARED = """
models:
  reasoning: &chat
    upstream: http://10.0.0.1:8000
    engine: vllm
    apiKey: sesame-open
    admission: {maxInflight: 1}
  patient: *chat
  embeddings: {upstream: "http://10.0.0.2:8000"}
"""


def boards(client: Client) -> list[dict[str, Any]]:
    """The boards that a stream has brought so far."""
    events = client.body.decode().split("\n\n")
    return [
        json.loads(line[6:])
        for event in events
        if event.startswith("event: board\n") or event.startswith("retry:")
        for line in event.splitlines()
        if line.startswith("data: ")
    ]


def slow_down(case: TestCase, stack: Stack, seconds: float) -> list[int | None]:
    """Let the status take so long to make; gives what grows with each making."""
    status, made = stack.gateway.operations.status, []
    facts = status.facts

    def slow(most_parked: int | None = None) -> Any:
        made.append(most_parked)
        stack.reactor.rightNow += seconds
        return facts(most_parked)

    case.patch(status, "facts", slow)
    return made


class FormTests(TestCase):
    """`/status` in its forms."""

    def test_negotiated(self) -> None:
        """A page, a table or JSON, as the client prefers; a cache keeps them apart, or none."""
        stack = Stack(self)
        for accept, content_type, begin in (
            ("*/*", "text/html; charset=utf-8", b"<!doctype html>"),
            ("text/plain", "text/plain; charset=utf-8", b"twisted-gateway "),
            ("application/json", "application/json", b"{"),
        ):
            client = stack.client().get("/status", Accept=accept)
            self.assertEqual(client.headers["content-type"], content_type)
            self.assertTrue(client.body.startswith(begin))
            self.assertEqual(client.headers["vary"], "Accept")
            self.assertEqual(client.headers["cache-control"], "no-store")
            self.assertEqual(client.headers["x-content-type-options"], "nosniff")

    def test_head(self) -> None:
        """HEAD has the same head and nothing else."""
        client = Stack(self).client().get("/status", method="HEAD")
        self.assertEqual((client.status, client.received.endswith(b"\r\n\r\n")), (200, True))
        self.assertGreater(int(client.headers["content-length"]), 1000)

    def test_with_a_slash(self) -> None:
        """Relative references lead from `/status/` to the same places."""
        body = Stack(self).client().get("/status//").body
        self.assertIn(b'src="../../status/status.js', body)

    def test_secrets_and_prompts(self) -> None:
        """No form has a credential, a prompt or a tenant in clear."""
        stack = Stack(self, "tenants: {trustedProxies: [192.0.2.7]}\n" + SHARED)
        for _ in range(3):
            stack.client().chat(
                headers={"X-Tenant": "alice", "Authorization": "Bearer hush"},
                messages=[{"role": "user", "content": "SECRET"}],
            )
        for accept in ("text/html", "text/plain", "application/json"):
            body = stack.client().get("/status", Accept=accept).body.decode()
            self.assertIn("2 wait", body)
            for word in ("sesame", "SECRET", "alice", "hush", "192.0.2.7:"):
                self.assertNotIn(word, body)

    def test_facts(self) -> None:
        """`/status.json` has the groups, their sentences and trends, and the settings."""
        stack = Stack(self, SHARED)
        for model in ("reasoning", "patient", "embeddings"):
            stack.client().chat(model=model)
        stack.advance(1)
        tree = stack.client().get("/status.json").json
        shared, free = sorted(tree["groups"], key=lambda one: -len(one["models"]))
        self.assertEqual(shared["models"], ["patient", "reasoning"])
        self.assertEqual(shared["upstreams"], ["http://10.0.0.1:8000"])
        self.assertEqual((shared["state"], free["state"]), ("waiting", "no gate"))
        self.assertEqual(shared["trend"]["parked"][-1], 1)
        self.assertEqual(free["why"], "No gate: requests go straight to the engine; 1 under way.")
        self.assertEqual(tree["models"]["patient"]["requests"]["parked"], 1)
        self.assertEqual(tree["models"]["reasoning"]["requests"]["in_engine"], 1)
        self.assertEqual(tree["requests_in_flight"], 3)
        sources = {one["key"]: one["source"] for one in tree["settings"]}
        self.assertEqual(sources["models.reasoning.admission.maxInflight"], "config.yaml line 7")
        self.assertEqual(sources["drainSeconds"], "default")

    def test_a_long_queue(self) -> None:
        """JSON has all of it; page and table have its head and its true length."""
        stack = Stack(self)
        for _ in range(64):
            stack.client().chat()
        facts = stack.client().get("/status.json").json["models"]["reasoning"]
        self.assertEqual((facts["parked_requests"], len(facts["parked"])), (60, 60))
        for accept in ("text/html", "text/plain"):
            body = stack.client().get("/status", Accept=accept).body.decode()
            self.assertIn("60 wait: the engine runs 4 of 4", body)
            self.assertIn("and 35 more behind them", body)
            self.assertEqual(body.count("its turn") - body.count("its turn in"), 24, accept)

    def test_settings_follow_a_reload(self) -> None:
        """After a reload the new values are shown."""
        stack = Stack(self)
        before = stack.gateway.operations.facts()["settings"]
        self.assertIs(stack.gateway.operations.facts()["settings"], before)
        stack.text = "drainSeconds: 7\n" + CONFIG
        stack.gateway.reload()
        after = stack.gateway.operations.facts()["settings"]
        self.assertIn({"key": "drainSeconds", "value": "7", "source": "config.yaml line 1"}, after)

    def test_retired(self) -> None:
        """What a reload has put out of force and still serves is said."""
        stack = Stack(self)
        stack.client().chat()
        stack.text = CONFIG.replace("10.0.0.1", "10.0.0.9")
        stack.gateway.reload()
        retired = stack.gateway.operations.facts()["retired"]
        self.assertEqual(retired, [{"models": ["reasoning"], "in_engine": 1, "parked": 0}])

    def test_history_is_fed(self) -> None:
        """First tokens, refusals and ends of requests reach the trends."""
        stack = Stack(self)
        stack.client().chat(stream=True)
        stack.advance(3)
        stack.engine().last.stream(ROLE, token("a"))
        for _ in range(3):
            stack.client().chat()
        stack.client().chat(headers={"Prefer": "wait=0"})
        trend = stack.gateway.operations.facts()["groups"][0]["trend"]
        self.assertEqual(trend["refused_by_reason"], {"park_timeout": 1})
        self.assertEqual(trend["ended"], {"rejected": 1})
        stack.engine().asked[0].die()
        notes = stack.gateway.operations.facts()["groups"][0]["notes"]
        self.assertEqual(notes, ["1 request failed in the last 15 minutes: 1 upstream_incomplete."])
        self.assertLess(abs(trend["ttft_p50_seconds"][-1] - 3), 0.2)

    def test_admin_listener(self) -> None:
        """With adminListen page, files and stream are there and nowhere else."""
        stack = Stack(self, "adminListen: [tcp:9090]\n" + CONFIG)
        for path in ("/status", "/status/status.css", "/status/status.js", "/status/events"):
            self.assertEqual(stack.client().get(path).status, 404, path)
            self.assertEqual(stack.client(site=1).get(path).status, 200, path)

    def test_a_fault_costs_one_second(self) -> None:
        """When noting fails, it is logged and goes on with the next second."""
        stack = Stack(self)
        note, calls = stack.gateway.operations.status._note, []

        def fails() -> None:
            calls.append(1)
            raise ValueError("of the test")

        self.patch(stack.gateway.operations.status, "_note", fails)
        stack.advance(3)
        self.assertEqual(len(calls), 3)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.patch(stack.gateway.operations.status, "_note", note)


class AssetTests(TestCase):
    """Style, script and icon."""

    def test_served(self) -> None:
        """Each has its type and tag; with the tag a cache learns that nothing has changed."""
        stack = Stack(self)
        for name, content_type in (
            ("status.css", "text/css; charset=utf-8"),
            ("status.js", "text/javascript; charset=utf-8"),
            ("icon.svg", "image/svg+xml"),
        ):
            client = stack.client().get(f"/status/{name}")
            self.assertEqual((client.status, client.headers["content-type"]), (200, content_type))
            self.assertEqual(client.headers["cache-control"], "no-cache")
            tag = client.headers["etag"]
            for sent in (tag, f'W/{tag}, "other"', "*"):
                again = stack.client().get(f"/status/{name}", If_None_Match=sent)
                self.assertEqual((again.status, again.body), (304, b""), sent)
                self.assertEqual(again.headers["etag"], tag)
            self.assertEqual(stack.client().get(f"/status/{name}", If_None_Match='"x"').status, 200)

    def test_under_their_build(self) -> None:
        """As the page names them they may be kept for ever."""
        stack = Stack(self)
        build = stack.gateway.operations.status._assets.build
        client = stack.client().get(f"/status/status.js?{build}")
        self.assertIn("immutable", client.headers["cache-control"])

    def test_small(self) -> None:
        """Page, style and script together are well under 100 kB."""
        stack = Stack(self)
        for _ in range(40):
            stack.client().chat()
        sizes = [
            len(stack.client().get(path).body)
            for path in ("/status", "/status/status.css", "/status/status.js", "/status/icon.svg")
        ]
        self.assertLess(sum(sizes), 50_000)

    def test_packaged(self) -> None:
        """Every file beside the code is named in setup.cfg, or a wheel would lack it."""
        top = Path(__file__).parents[3]
        setup = configparser.ConfigParser()
        setup.read(top / "setup.cfg")
        patterns = setup["options.package_data"]["twisted_gateway.web.status"].split(", ")
        here = top / "twisted_gateway" / "web" / "status"
        found = [path for path in here.rglob("*") if path.is_file() and path.suffix != ".py"]
        found = [path for path in found if path.suffix != ".pyc"]
        self.assertGreaterEqual(len(found), 3)
        for path in found:
            name = path.relative_to(here).as_posix()
            self.assertTrue(any(fnmatch(name, pattern) for pattern in patterns), name)


class StreamTests(TestCase):
    """`/status/events`."""

    def test_boards(self) -> None:
        """A board at once and one a second, which shows a request park and pass."""
        stack = Stack(self, CONFIG.replace("maxInflight: 4", "maxInflight: 1"))
        stack.client().chat()
        watcher = stack.client().get("/status/events")
        self.assertEqual(watcher.headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual(watcher.headers["x-accel-buffering"], "no")
        self.assertTrue(watcher.body.startswith(b"retry: 2000\n\n"))
        self.assertIn("Nobody waits: the engine runs 1 of 1.", boards(watcher)[0]["board"])
        stack.client().chat()
        stack.advance(1)
        self.assertIn("1 waits: the engine runs 1 of 1", boards(watcher)[-1]["board"])
        self.assertIn("1 wait: reasoning", boards(watcher)[-1]["title"])
        stack.engine().last.answer()
        stack.advance(1)
        self.assertIn("Nobody waits: the engine runs 1 of 1.", boards(watcher)[-1]["board"])
        self.assertEqual(len(boards(watcher)), 3)

    def test_one_line_each(self) -> None:
        """Whatever is in a board, its event has one line of data, in ASCII."""
        stack = Stack(self, CONFIG.replace("gpt-4o", "'Größe \\N'"))
        watcher = stack.client().get("/status/events")
        data = watcher.body.partition(b"data: ")[2]
        self.assertTrue(data.isascii())
        self.assertEqual(data.count(b"\n"), 2)

    def test_settings_are_named(self) -> None:
        """A reload changes what the board says of the settings, so that the page fetches them."""
        stack = Stack(self)
        watcher = stack.client().get("/status/events")
        stack.text = "drainSeconds: 7\n" + CONFIG
        stack.gateway.reload()
        stack.advance(1)
        before, after = boards(watcher)
        self.assertNotEqual(before["settings"], after["settings"])
        self.assertEqual(before["build"], after["build"])
        self.assertIn(after["settings"].encode(), stack.client().get("/status").body)

    def test_too_many(self) -> None:
        """The one that is too many is refused clearly; when one leaves there is room again."""
        stack = Stack(self)
        watchers = [stack.client().get("/status/events") for _ in range(MOST_STREAMS)]
        self.assertEqual({watcher.status for watcher in watchers}, {200})
        refused = stack.client().get("/status/events")
        self.assertEqual(refused.status, 503)
        self.assertEqual(refused.headers["content-type"], "application/problem+json")
        self.assertIn("20 streams of the status page are open", refused.json["detail"])
        self.assertEqual(refused.headers["retry-after"], "10")
        self.assertEqual(stack.client().get("/status").status, 200)
        watchers[3].leave()
        self.assertEqual(stack.client().get("/status/events").status, 200)

    def test_who_leaves(self) -> None:
        """A watcher that leaves has ended well, and is forgotten."""
        stack = Stack(self)
        watcher = stack.client().get("/status/events")
        watcher.leave()
        self.assertEqual([one.outcome.value for one in stack.entries], ["ok"])
        self.assertEqual(len(stack.gateway.operations.status._streams), 0)
        self.assertEqual(len(stack.gateway.exchanges), 0)

    def test_watchers_are_no_requests_under_way(self) -> None:
        """Who watches does not count among what is watched."""
        stack = Stack(self)
        stack.client().get("/status/events")
        self.assertEqual(stack.client().get("/status.json").json["requests_in_flight"], 0)

    def test_slow_reader(self) -> None:
        """One that takes nothing is sent no more than what waits already, then dropped."""
        stack = Stack(self)
        watcher, other = (stack.client().get("/status/events") for _ in range(2))
        watcher.wire.congested = True
        stack.advance(2)
        stuck = len(watcher.received)
        stack.advance(STALL_SECONDS - 2)
        self.assertEqual(len(watcher.received), stuck)
        self.assertFalse(watcher.wire.closed)
        stack.advance(2)
        self.assertTrue(watcher.wire.aborted)
        self.assertEqual([one.outcome.value for one in stack.entries], ["client_stalled"])
        self.assertGreater(len(boards(other)), STALL_SECONDS)

    def test_a_slow_reader(self) -> None:
        """One that takes 500 bytes a second keeps its stream, however long a board takes it."""
        stack = Stack(self)
        watcher = stack.client().get("/status/events")
        watcher.wire.congested = True
        stack.advance(2)
        waiting = len(watcher.wire.dataBuffer)
        seconds = int(2 * STALL_SECONDS)
        self.assertGreater(waiting, 0)
        for _ in range(seconds):
            watcher.wire.take(500)
            stack.advance(1)
        self.assertFalse(watcher.wire.aborted)
        self.assertEqual(len(watcher.wire.dataBuffer), waiting)
        stack.advance(STALL_SECONDS + 2)
        self.assertTrue(watcher.wire.aborted)

    def test_a_reader_that_catches_up(self) -> None:
        """One that was slow for a while goes on with the board of then."""
        stack = Stack(self)
        watcher = stack.client().get("/status/events")
        watcher.wire.congested = True
        stack.advance(STALL_SECONDS - 5)
        watcher.wire.relieve()
        before = len(watcher.received)
        stack.advance(STALL_SECONDS - 5)
        self.assertGreater(len(watcher.received), before)
        self.assertFalse(watcher.wire.aborted)

    def test_drain(self) -> None:
        """A drain ends streams with a last board, and is not held up by who comes again."""
        stack = Stack(self, "drainSeconds: 30\nadminListen: [tcp:9090]\n" + CONFIG)
        stack.client().chat()
        watcher = stack.client(site=1).get("/status/events")
        drained = stack.gateway.drain()
        stack.advance(2)
        self.assertTrue(watcher.whole)
        self.assertIn("Draining: newcomers are refused", boards(watcher)[-1]["board"])
        again = stack.client(site=1).get("/status/events")
        self.assertTrue(again.whole)
        self.assertIn("Draining", boards(again)[0]["board"])
        self.assertFalse(drained.called)
        stack.engine().last.answer()
        stack.advance(12)
        self.assertTrue(drained.called)

    def test_stop(self) -> None:
        """The end of the process ends them, and leaves no timer."""
        stack = Stack(self)
        watcher = stack.client().get("/status/events")
        stack.gateway.operations.status.stopService()
        self.assertTrue(watcher.whole)
        self.assertTrue(dechunked(watcher.received.partition(b"\r\n\r\n")[2])[1])
        late = stack.client().get("/status/events")
        self.assertTrue(late.whole)

    def test_head(self) -> None:
        """HEAD has a head, and takes no place among the streams."""
        stack = Stack(self)
        client = stack.client().get("/status/events", method="HEAD")
        self.assertEqual((client.status, client.received.endswith(b"\r\n\r\n")), (200, True))
        self.assertEqual(len(stack.gateway.operations.status._streams), 0)

    def test_drain_without_a_board(self) -> None:
        """A board that can't be made keeps nobody from ending; that is said once a minute."""
        stack = Stack(self, "drainSeconds: 30\n" + CONFIG)
        watcher = stack.client().get("/status/events")
        self.patch(stack.gateway.operations.status, "_board", lambda: 1 / 0)
        stack.advance(30)
        self.assertFalse(watcher.whole)
        drained = stack.gateway.drain()
        stack.advance(4)
        self.assertTrue(watcher.whole)
        self.assertTrue(drained.called)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_http_1_0(self) -> None:
        """An old proxy gets the events without chunks."""
        stack = Stack(self)
        client = stack.client().send(b"GET /status/events HTTP/1.0\r\n\r\n")
        self.assertNotIn("transfer-encoding", client.headers)
        self.assertEqual(len(boards(client)), 1)

    def test_boards_that_take_long(self) -> None:
        """Where a board takes 100 ms to make it comes every third second; at worst every tenth."""
        for took_seconds, apart_seconds in ((0.101, 3), (2.0, 10)):
            stack = Stack(self)
            watcher = stack.client().get("/status/events")
            slow_down(self, stack, took_seconds)
            stack.advance(120, step=1)
            self.assertLessEqual(abs(len(boards(watcher)) - 1 - 120 / apart_seconds), 2)

    def test_tenants_of_a_queue(self) -> None:
        """How a tenant is shown is worked out once, however many of its requests wait."""
        stack = Stack(self)
        for number in range(12):
            stack.client(f"192.0.2.{number % 2}").chat()
        facts = stack.gateway.operations.status.facts
        shown, asked = facts._shown, []

        def counted(tenant: str) -> str:
            asked.append(tenant)
            return shown(tenant)

        self.patch(facts, "_shown", counted)
        self.assertEqual(len(facts()["models"]["reasoning"]["parked"]), 8)
        self.assertEqual(sorted(asked), sorted(set(asked)))

    def test_newcomers_to_boards_that_take_long(self) -> None:
        """They get the one that there is; those who are refused have none made for them."""
        stack = Stack(self)
        made = slow_down(self, stack, 0.05)
        watchers = [stack.client().get("/status/events") for _ in range(MOST_STREAMS + 3)]
        self.assertEqual([one.status for one in watchers], [200] * MOST_STREAMS + [503] * 3)
        self.assertEqual(len(made), 1)

    def test_pages_that_take_long(self) -> None:
        """Whoever asks again at once gets the same again; a second later a fresh one."""
        stack = Stack(self)
        made = slow_down(self, stack, 0.1)
        for path in ("/status", "/status.json"):
            del made[:]
            first, second = (stack.client().get(path) for _ in range(2))
            self.assertEqual((len(made), first.body), (1, second.body))
            stack.advance(1)
            stack.client().get(path)
            self.assertEqual(len(made), 2)

    def test_pages_that_take_no_time(self) -> None:
        """They are always what is so now."""
        stack = Stack(self)
        made = slow_down(self, stack, 0)
        for _ in range(3):
            stack.client().get("/status.json")
        self.assertEqual(len(made), 3)

    def test_large_boards(self) -> None:
        """A board of 250 kB comes every third second."""
        stack = Stack(self)
        watcher = stack.client().get("/status/events")
        before = len(watcher.received)
        event = b"data: " + b"x" * 250_000 + b"\n\n"
        self.patch(stack.gateway.operations.status, "_board", lambda: event)
        stack.advance(30)
        self.assertLessEqual(abs((len(watcher.received) - before) / len(event) - 10), 1)

    def test_nobody_watches(self) -> None:
        """Then no board is made."""
        stack = Stack(self)
        made: list[int] = []
        self.patch(stack.gateway.operations.status, "_board", lambda: made.append(1))
        stack.advance(10)
        self.assertEqual(made, [])

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.web.status import page

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def parked(position: int = 1, **changes: Any) -> dict[str, Any]:
    """One parked request, as `/status.json` has it."""
    return {
        "position": position,
        "model": "reasoning",
        "waited_seconds": 3.25,
        "priority": "interactive",
        "stream": True,
        "prompt_tokens": 12_345,
        "reparked": False,
    } | changes


def engine(**changes: Any) -> dict[str, Any]:
    """One engine, as `/status.json` has it."""
    return {
        "number": 0,
        "running": 3,
        "waiting": 1,
        "kv_usage": 0.42,
        "kv_tokens": 152_432,
        "sample_age_seconds": 1.5,
        "max_inflight": 4,
        "learned": False,
        "drift": False,
        "own": 3,
        "foreign": 0,
        "in_engine": 3,
        "judged_by": "fresh",
        "hold": None,
    } | changes


def model(**changes: Any) -> dict[str, Any]:
    """One gated model, as `/status.json` has it."""
    return {
        "engine": "vllm",
        "aliases": [],
        "observed": True,
        "gated": True,
        "degraded": False,
        "stale": False,
        "reason": "",
        "running": 3,
        "waiting": 1,
        "kv_usage": 0.42,
        "sample_age_seconds": 1.5,
        "max_inflight": 4,
        "in_engine": 3,
        "own": 3,
        "parked": [],
        "parked_bytes": 0,
        "engines": [engine()],
        "max_park_seconds": 540.0,
        "max_queue_depth": 256,
    } | changes


def facts(models: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The whole tree of `/status.json`."""
    return {
        "version": "0.1.0",
        "uptime_seconds": 12.0,
        "draining": False,
        "requests_in_flight": 2,
        "models": models,
    } | changes


class Reader(HTMLParser):
    """Reads a page as a browser does.

    Attributes:
        tags: names of all elements.
        attributes: names of all attributes.
        text: what is shown.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.pieces: list[str] = []
        self._in_style = False
        self.feed(html)
        self.close()
        self.text = " ".join("".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self._in_style = tag == "style"
        self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False
        self.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._in_style:
            self.pieces.append(data)


def shown(models: dict[str, Any], **changes: Any) -> str:
    """The text that a reader sees."""
    return Reader(page.render(facts(models, **changes))).text


OWN_TAGS = Reader(
    page.render(
        facts({"a": model(aliases=["b"], stale=True, parked=[parked()], engines=[engine()] * 2)})
    )
).tags


class PageTests(TestCase):
    """The status page."""

    def test_no_script(self) -> None:
        """The page has no script and asks the browser to run none."""
        reader = Reader(page.render(facts({"a": model(parked=[parked()])})))
        self.assertFalse(reader.tags & {"script", "iframe", "object", "embed", "form"})
        self.assertFalse([name for name in reader.attributes if name.startswith("on")])
        self.assertIn(b"default-src 'none'", page.CONTENT_SECURITY_POLICY)
        self.assertNotIn(b"script", page.CONTENT_SECURITY_POLICY)

    def test_loads_itself_again(self) -> None:
        """Without script it stays current: the browser loads it again."""
        self.assertIn("<meta http-equiv=refresh content=2>", page.render(facts({})))

    def test_hostile_names(self) -> None:
        """Names from configuration and engine are text, whatever they look like."""
        html = page.render(
            facts(
                {
                    HOSTILE: model(
                        engine=HOSTILE,
                        aliases=[HOSTILE],
                        reason=HOSTILE,
                        parked=[parked(model=HOSTILE, priority=HOSTILE)],
                    )
                },
                version=HOSTILE,
            )
        )
        reader = Reader(html)
        self.assertLessEqual(reader.tags, OWN_TAGS)
        self.assertEqual(reader.text.count("<script>alert(1)</script>"), 7)

    @given(st.text(min_size=1, max_size=40))
    @examples(50)
    def test_any_name_is_text(self, name: str) -> None:
        """No name brings an element that the page itself does not have."""
        html = page.render(facts({name: model(aliases=[name], parked=[parked(model=name)])}))
        self.assertLessEqual(Reader(html).tags, OWN_TAGS)

    def test_figures(self) -> None:
        """What is in the engine, parked, running, waiting and in its cache stands there."""
        text = shown({"reasoning": model(aliases=["gpt-4o"], parked=[parked()])})
        for words in (
            "reasoning vllm, also gpt-4o",
            "in the engine 3 of 4",
            "parked here 1",
            "engine: running 3",
            "engine: waiting 1",
            "engine: KV cache 42 %",
            "gauges read 1.5 s ago",
            "1 reasoning interactive 3.2 s 12,345 stream",
        ):
            self.assertIn(words, text)

    def test_unknown_is_not_zero(self) -> None:
        """A value that is not known is said to be unknown, and has no bar."""
        known = model(running=None, waiting=None, kv_usage=None, sample_age_seconds=None)
        html = page.render(facts({"a": known}))
        text = Reader(html).text
        for words in ("running unknown", "waiting unknown", "KV cache unknown", "read not yet"):
            self.assertIn(words, text)
        self.assertEqual(html.count("class=bar>"), 1)

    def test_nothing_observed(self) -> None:
        """A gate without gauges (Ollama) shows its own count and claims nothing of the engine."""
        text = shown({"a": model(engine="ollama", observed=False, running=None, waiting=None)})
        self.assertIn("in the engine 3 of 4", text)
        self.assertNotIn("running", text)
        self.assertNotIn("unknown", text)

    def test_no_gate(self) -> None:
        """A model without a gate says so, and claims neither places nor a queue."""
        free = {"gated": False, "max_inflight": None, "in_engine": None}
        text = shown({"a": model(engine="none", observed=False, **free)})
        self.assertIn("no gate: requests go straight to the engine", text)
        self.assertNotIn("unknown", text)
        self.assertNotIn("parked", text)
        text = shown({"a": model(engine="tei", running=None, **free)})
        self.assertIn("engine: running unknown engine: waiting 1", text)
        self.assertNotIn("in the engine", text)

    def test_long_queue_is_bounded(self) -> None:
        """Of many parked requests the head is shown, and how many more there are."""
        few = [parked(position) for position in range(1, page.MOST_PARKED_SHOWN + 1)]
        self.assertNotIn("more behind", shown({"a": model(parked=few)}))
        many = [parked(position) for position in range(1, 10_001)]
        html = page.render(facts({"a": model(parked=many)}))
        self.assertLess(len(html), 12_000)
        self.assertIn("parked here 10000", Reader(html).text)
        self.assertIn("and 9,975 more behind them", Reader(html).text)

    def test_long_names_are_bounded(self) -> None:
        """Long names, and many aliases, are cut with a sign that they go on."""
        name = "n" * 5000
        html = page.render(
            facts({name: model(aliases=[name] * 300, parked=[parked(model=name)] * 3)})
        )
        self.assertLess(len(html), 6_000)
        self.assertIn("n…", html)
        self.assertIn("and 295 more", html)

    def test_troubles_in_words(self) -> None:
        """What is wrong is said in words, not by colour."""
        text = shown(
            {
                "a": model(
                    stale=True,
                    degraded=True,
                    reason="connection refused",
                    engines=[engine(judged_by="ledger", hold="refused_connection", drift=True)],
                )
            },
            draining=True,
        )
        for words in (
            "Draining: newcomers are refused.",
            "have not been readable",
            "not with all gauges of its kind",
            "Last poll: connection refused.",
            "Engine 0 is judged by the gateway's own requests alone.",
            "Engine 0 refused a connection",
            "Engine 0 publishes gauges that contradict maxInflight.",
        ):
            self.assertIn(words, text)

    def test_all_well_says_nothing(self) -> None:
        """Without trouble there is no warning."""
        self.assertNotIn("class=why", page.render(facts({"a": model(parked=[parked()])})))

    def test_several_engines(self) -> None:
        """Of several engines each has its row; a single one has none."""
        two = [engine(), engine(number=1, in_engine=0, running=None, kv_usage=0.004)]
        self.assertIn("1 0 of 4 unknown 1 0.4 % 1.5 s ago", shown({"a": model(engines=two)}))
        self.assertNotIn("in it", shown({"a": model()}))

    def test_bar_stays_in_its_box(self) -> None:
        """More in the engine than it has places for fills the bar and no more."""
        html = page.render(facts({"a": model(in_engine=9, kv_usage=None)}))
        self.assertIn("<i style=width:100%>", html)

    def test_sent_back(self) -> None:
        """A request that the engine itself refused , or one that streams nothing, is told apart."""
        text = shown({"a": model(parked=[parked(reparked=True), parked(2, stream=False)])})
        self.assertIn("sent back by the engine", text)
        self.assertIn("whole answer", text)

    def test_durations(self) -> None:
        """Times are in the unit that a person would use."""
        for seconds, words in ((0.04, "0.0 s"), (89.9, "89.9 s"), (150, "2 min 30 s")):
            self.assertIn(f"up {words} ", shown({}, uptime_seconds=seconds))
        self.assertIn("up 25 h 01 min ", shown({}, uptime_seconds=90_061))

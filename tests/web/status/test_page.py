from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from tests.web.status.facts import (
    HOSTILE,
    engine,
    facts,
    full,
    model,
    observer,
    parked,
    trend,
    ungated,
)
from twisted_gateway.web.status import page, tables

FRAME = page.Frame(build="b1", settings="s1")
VOID = {"meta", "link"}


class Reader(HTMLParser):
    """Reads a page as a browser does.

    Attributes:
        tags: names of all elements.
        attributes: names and values of all attributes.
        text: what is shown.
        unclosed: elements that were opened and not closed, or closed in another order.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self._pieces: list[str] = []
        self.feed(html)
        self.close()
        self.unclosed += self._open
        self.text = " ".join("".join(self._pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(attrs)
        self._pieces.append(" ")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(attrs)

    def handle_endtag(self, tag: str) -> None:
        self._pieces.append(" ")
        if self._open.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        self._pieces.append(data)


def read(models: dict[str, Any], **changes: Any) -> Reader:
    """The whole page, read."""
    return Reader(page.render(facts(models, **changes), FRAME))


OWN_TAGS = read({"a": full(aliases=["b"], engines=[engine(peers=1, foreign=1)])}).tags


class PageTests(TestCase):
    """The status page."""

    def test_policy(self) -> None:
        """Nothing is inline, nothing is from elsewhere, and nobody may frame it."""
        reader = read({"a": full(), "b": ungated()}, draining=True)
        names = {name for name, _ in reader.attributes}
        self.assertFalse([name for name in names if name.startswith("on") or name == "style"])
        self.assertFalse(reader.tags & {"style", "iframe", "object", "embed", "form", "img"})
        html = page.render(facts({"a": full()}), FRAME)
        self.assertIn('<script src="status/status.js?b1" defer></script>', html)
        self.assertEqual(html.count("<script"), 1)
        links = {value or "" for name, value in reader.attributes if name in ("href", "src")}
        self.assertFalse([link for link in links if "//" in link or ":" in link])
        policy = page.CONTENT_SECURITY_POLICY.split(b"; ")
        self.assertIn(b"default-src 'none'", policy)
        self.assertIn(b"script-src 'self'", policy)
        self.assertIn(b"style-src 'self'", policy)
        self.assertNotIn(b"unsafe", page.CONTENT_SECURITY_POLICY)

    def test_without_script(self) -> None:
        """It loads itself again then, and has a link to do so by hand."""
        html = page.render(facts({}), FRAME)
        self.assertIn("<noscript><meta http-equiv=refresh content=5></noscript>", html)
        self.assertIn('<a href="">load again</a>', html)

    def test_asked_for_with_a_slash(self) -> None:
        """`/status/` finds its files, the stream and the other forms too."""
        frame = page.Frame(build="b1", settings="s1", up="../")
        html = page.render(facts({"a": full()}), frame)
        self.assertIn('href="../status/status.css?b1"', html)
        self.assertIn('data-up="../"', html)
        self.assertIn('href="../status.json"', html)

    def test_well_formed(self) -> None:
        """Every element that is opened is closed, so that the script can replace what is inside."""
        for models in ({}, {"a": full()}, {"a": ungated(), "b": model(), "c": full()}):
            self.assertEqual(read(models).unclosed, [])

    def test_hostile_names(self) -> None:
        """Names from configuration and engine are text, whatever they look like."""
        bad = engine(address=HOSTILE, observer=observer(degraded=True, reason=HOSTILE))
        nasty = full(
            engine=HOSTILE,
            aliases=[HOSTILE],
            engines=[bad],
            parked=[parked(model=HOSTILE, priority=HOSTILE, tenant=HOSTILE), parked(2)],
            tenants=[
                {"tenant": HOSTILE, "parked": 1, "parked_work_seconds": 1.0, "used_seconds": 1.0}
            ],
            peers=[{"address": HOSTILE, "heard_seconds": 1.0}],
        )
        reader = read(
            {HOSTILE: nasty},
            version=HOSTILE,
            settings=[{"key": HOSTILE, "value": HOSTILE, "source": HOSTILE}],
            retired=[{"models": [HOSTILE], "in_engine": 1, "parked": 1}],
        )
        self.assertLessEqual(reader.tags, OWN_TAGS)
        self.assertNotIn("onerror", {name for name, _ in reader.attributes})
        self.assertEqual(reader.unclosed, [])
        self.assertEqual(reader.text.count("<script>alert(1)</script>"), 18)

    @given(st.text(min_size=1, max_size=40))
    @examples(50)
    def test_any_name_is_text(self, name: str) -> None:
        """No name brings an element that the page itself does not have."""
        reader = read({name: full(aliases=[name], parked=[parked(model=name), parked(2)])})
        self.assertLessEqual(reader.tags, OWN_TAGS)
        self.assertEqual(reader.unclosed, [])

    def test_the_worst_on_top(self) -> None:
        """A sentence for each set of engines, the worst first, each leading to its figures."""
        shut = full(engines=[engine(hold="refused_connection")])
        html = page.board(facts({"a": model(), "b": full(), "c": shut}))
        lines = html.partition("</ul>")[0].split("<li>")[1:]
        self.assertEqual(
            [line.partition("#")[2].partition('"')[0] for line in lines],
            ["engines-3", "engines-2", "engines-1"],
        )
        self.assertIn("1 waits: the engine runs 4 of 4; next place in about 40 s.", lines[1])
        for number in (1, 2, 3):
            self.assertIn(f"<section id=engines-{number} ", html)

    def test_states_are_words_and_shapes(self) -> None:
        """No two states look alike to who sees no colour."""
        self.assertEqual(len(set(page.SHAPES.values())), len(page.SHAPES))
        self.assertIn("◆ waiting", read({"a": full()}).text)

    def test_figures(self) -> None:
        """What is in the engine, parked, running, waiting and in its cache stands there."""
        text = read({"reasoning": full(aliases=["gpt-4o"])}).text
        for words in (
            "reasoning vllm, also called gpt-4o",
            "in the engine 4 of 4",
            "parked 1 of 256",
            "time to first token 3.2 s p95 9.1 s",
            "refused 3",
            "1 deadline, 2 queue_full, of 83 requests that ended",
            "http://10.0.0.1:8000 4 of 4 4 1 42 % 1.5 s ago nothing due its gauges",
            "1 3.2 s ≈ 40 s interactive 12,345 3fa9c1d20b77 stream the next place",
            "reads 525 tokens a second of a prompt alone (learned) and writes 25",
            "Settings in force (1 of 2 are not defaults)",
            "drainSeconds 5 config.yaml line 1",
        ):
            self.assertIn(words, text)

    def test_charts_have_words(self) -> None:
        """What a chart shows is said to who cannot see it."""
        labels = {value for name, value in read({"a": full()}).attributes if name == "aria-label"}
        for words in (
            "In the engine in the last 15 minutes: now 4 of 4, at most 4",
            "Parked in the last 15 minutes: now 1, at most 7",
            "Time to first token in the last 15 minutes: median now 3.2 s, 95th percentile 9.1 s, "
            "at most 12 s",
            "Refused in the last 15 minutes: 1 deadline, 2 queue_full",
        ):
            self.assertIn(words, labels)

    def test_shared_engines_stand_once(self) -> None:
        """Models that share their engines have one section, with what each has of its own."""
        one = full(parked=[parked(), parked(2, model="patient")])
        both = {"patient": one, "reasoning": one}
        tree = facts(both)
        tree["groups"] = [tree["groups"][0] | {"models": ["patient", "reasoning"]}]
        text = Reader(page.render(tree, FRAME)).text
        self.assertIn("patient, reasoning vllm", text)
        self.assertIn("patient none 4 3 1", text)
        self.assertIn("12,345 3fa9c1d20b77", text)
        self.assertIn("interactive patient 12,345", text)
        self.assertEqual(text.count("in the engine 4 of 4"), 1)

    def test_title(self) -> None:
        """A tab says how many wait, else how the worst of all fares; at a bounded length."""
        self.assertEqual(page.title(facts({"a": full()})), "1 wait: a · twisted-gateway")
        self.assertEqual(page.title(facts({"a": model()})), "serving · twisted-gateway")
        self.assertEqual(page.title(facts({})), "no models · twisted-gateway")
        self.assertLess(len(page.title(facts({"n" * 500: full()}))), 90)

    def test_unknown_is_not_zero(self) -> None:
        """A value that is not known is said to be unknown, and has no bar."""
        known = engine(running=None, waiting=None, kv_usage=None, sample_age_seconds=None)
        html = page.render(facts({"a": model(engines=[known], kv_usage=None)}), FRAME)
        self.assertIn("3 of 4 unknown unknown unknown not yet", Reader(html).text)
        self.assertNotIn("class=level", html)

    def test_nothing_observed(self) -> None:
        """A gate without gauges (Ollama) shows its own count and claims nothing of the engine."""
        one = engine(observer=None, judged_by="unobserved", running=None, kv_usage=None)
        text = read({"a": model(engine="ollama", observed=False, engines=[one])}).text
        self.assertIn("http://10.0.0.1:8000 3 of 4 nothing due our own count", text)
        self.assertNotIn("unknown", text)

    def test_no_gate(self) -> None:
        """A model without a gate says so, and claims neither places nor a queue."""
        text = read({"a": ungated(engine="tei")}).text
        self.assertIn("No gate: requests go straight to the engine", text)
        self.assertIn("engine running waiting KV cache gauges read", text)
        for word in ("places", "parked", "judged", "Tenants", "in the engine"):
            self.assertNotIn(word, text.partition("Ended in")[0])

    def test_long_queue_is_bounded(self) -> None:
        """Of many parked requests the head is shown, and how many more there are."""
        few = [parked(position) for position in range(1, tables.MOST_PARKED_SHOWN + 1)]
        self.assertNotIn("more behind", read({"a": full(parked=few)}).text)
        many = [parked(position) for position in range(1, 10_001)]
        html = page.render(facts({"a": full(parked=many)}), FRAME)
        self.assertLess(len(html), 20_000)
        self.assertIn("10,000 wait: the engine runs 4 of 4", Reader(html).text)
        self.assertIn("and 9,975 more behind them", Reader(html).text)

    def test_long_names_are_bounded(self) -> None:
        """Long names, and many aliases, are cut with a sign that they go on."""
        name = "n" * 5000
        html = page.render(
            facts({name: full(aliases=[name] * 300, parked=[parked(model=name)] * 3)}), FRAME
        )
        self.assertLess(len(html), 12_000)
        self.assertIn("n…", html)
        self.assertIn("and 295 more", html)

    def test_many_tenants_are_bounded(self) -> None:
        """Of tenants those most concerned are shown, and how many more there are."""
        one = {"tenant": "", "parked": 0, "parked_work_seconds": 0.0, "used_seconds": 1.0}
        text = read({"a": full(tenants=[one] * 100)}).text
        self.assertEqual(
            text.partition("Tenants tenant")[2].count("unknown 0"), tables.MOST_TENANTS_SHOWN
        )
        self.assertIn("and 90 more", text)

    def test_of_the_process(self) -> None:
        """What concerns no model, or models of a configuration gone by, has its sentence."""
        text = read(
            {"a": model()},
            draining=True,
            refused_without_model={"queue_full": 2},
            retired=[{"models": ["old"], "in_engine": 2, "parked": 1}],
        ).text
        for words in (
            "Draining: newcomers are refused",
            "2 requests were refused in the last 15 minutes before their model was known",
            "no longer in force still serves old: 2 in the engine, 1 parked.",
        ):
            self.assertIn(words, text)

    def test_notes(self) -> None:
        """What else is amiss stands with its engines."""
        html = page.render(facts({"a": model(engines=[engine(drift=True)])}), FRAME)
        self.assertIn("<p class=note>http://10.0.0.1:8000 publishes gauges that", html)
        self.assertNotIn("class=note", page.render(facts({"a": full()}), FRAME))

    def test_replicas(self) -> None:
        """Who else was heard is said where there is anybody else."""
        heard = [{"address": "10.0.0.9:8081", "heard_seconds": 0.4}]
        text = read({"a": model(replicas=2, peers=heard)}).text
        self.assertIn("that count: 2; heard: 10.0.0.9:8081 0.4 s ago.", text)
        self.assertNotIn("Replicas of", read({"a": model()}).text)

    def test_kinds_of_answers(self) -> None:
        """Who wants a stream, and who a whole answer, is told apart."""
        text = read({"a": full(parked=[parked(), parked(2, stream=False)])}).text
        self.assertIn("stream the next place", text)
        self.assertIn("whole answer its turn", text)

    def test_no_history(self) -> None:
        """Just after the start there is nothing to draw, and the page is whole."""
        gap = [None] * 90
        none = trend(
            in_engine=gap,
            parked=gap,
            ttft_p50_seconds=gap,
            ttft_p95_seconds=gap,
            refused=gap,
            refused_by_reason={},
            ended={},
        )
        tree = facts({"a": full()})
        tree["groups"][0]["trend"] = none
        reader = Reader(page.render(tree, FRAME))
        self.assertIn("no stream in the last 15 minutes", reader.text)
        self.assertEqual(reader.unclosed, [])

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from tests.web.status.facts import engine, facts, full, model, observer, parked, ungated
from twisted_gateway.web.status import text
from twisted_gateway.web.status.text import blocks


def table(models: dict[str, Any], **changes: Any) -> str:
    return text.render(facts(models, **changes))


class TextTests(TestCase):
    """The status for terminals."""

    def test_what_it_says(self) -> None:
        """The sentence, engines and queue in columns, the last quarter of an hour."""
        lines = table({"reasoning": full(parked=[parked(), parked(2, stream=False)])}).splitlines()
        self.assertEqual(
            lines[0],
            "twisted-gateway 0.1.0, up 12 s, 2 requests under way, 2026-11-30 03:10:02 UTC",
        )
        for line in (
            "WAITING  reasoning",
            "  2 wait: the engine runs 4 of 4; next place in about 40 s.",
            "  engine                in it   running  waiting    KV  gauges read   silent for  "
            "judged by",
            "  http://10.0.0.1:8000  4 of 4        4        1  42 %  1.5 s ago    nothing due  "
            "its gauges",
            "  #  waited  in about  class        tokens  tenant        wants   waits for",
            "  1   3.2 s      40 s  interactive  12,345  3fa9c1d20b77  stream  the next place",
            "  2   3.2 s      40 s  interactive  12,345  3fa9c1d20b77  whole   its turn",
        ):
            self.assertIn(line, lines)
        self.assertIn("p50 3.2 s, p95 9.1 s now", "\n".join(lines))
        self.assertIn("1 deadline, 2 queue_full", "\n".join(lines))

    def test_width(self) -> None:
        """Lines fit a hundred columns, and the usual ones eighty."""
        usual = table({"reasoning": full(parked=[parked(n) for n in range(1, 30)])})
        rows = [line for line in usual.splitlines() if "interactive" in line]
        self.assertEqual(len(rows), 25)
        self.assertLessEqual(max(map(len, rows)), 84)
        name = "n" * 300
        long = parked(model=name, tenant="t" * 200, long_prefill=True, priority="interactive")
        bad = engine(address=f"http://{name}:8000", observer=observer(degraded=True, reason=name))
        wide = table({name: full(aliases=[name], parked=[long], engines=[bad])})
        lines = wide.splitlines()
        self.assertLessEqual(
            max(len(line) for line in lines if "  judged by" not in line and "http" not in line),
            text.COLUMNS,
        )
        self.assertLessEqual(max(map(len, lines)), text.COLUMNS + text.MOST_ADDRESS_COLUMNS)

    def test_the_worst_first(self) -> None:
        """Several sets of engines have a line each on top, with the whole of their reason."""
        bad = full(engines=[engine(hold="refused_connection", unreached="r" * 90)])
        said = table({"a": model(), "b": bad})
        head, _, rest = said.partition("\n\n")[2].partition("\n\n")
        first, *more, last = head.splitlines()
        self.assertTrue(first.startswith("  SHUT     b  The engine cannot be reached"), first)
        self.assertIn("one request at a time goes to try. 1 waits.", " ".join(map(str.strip, more)))
        self.assertEqual(last, "  SERVING  a  Nobody waits: the engine runs 3 of 4.")
        self.assertLess(rest.index("SHUT  b"), rest.index("SERVING  a"))
        self.assertNotIn("…", said)

    @given(st.text(max_size=60))
    @examples(60)
    def test_no_control_characters(self, nasty: str) -> None:
        """Nothing from outside moves a terminal's cursor, colours it or adds a line."""
        bad = engine(address=nasty, observer=observer(degraded=True, reason=nasty))
        said = table({nasty: full(engines=[bad])}, version=nasty)
        self.assertFalse([char for char in said if not (char.isprintable() or char == "\n")])
        self.assertEqual(len(said.splitlines()), len(said.split("\n")) - 1)

    def test_other_kinds(self) -> None:
        """Without gate, without gauges, draining: nothing is claimed that is not known."""
        free = table({"a": ungated()}, draining=True)
        self.assertIn("Draining: newcomers are refused", free)
        self.assertIn("NO GATE  a", free)
        self.assertNotIn(" parked ", free.partition("last 15")[0])
        blind = model(observed=False, engines=[engine(observer=None, judged_by="unobserved")])
        self.assertIn("our own count", table({"a": blind}))
        self.assertIn("unknown", table({"a": full(parked=[parked(eta_seconds=None)])}))

    def test_several_replicas(self) -> None:
        """They are named where there are any."""
        heard = [{"address": "10.0.0.9:8081", "heard_seconds": 0.4}]
        self.assertIn("10.0.0.9:8081 0.4 s ago", table({"a": model(replicas=2, peers=heard)}))
        self.assertNotIn("Replicas", table({"a": model()}))

    def test_blocks(self) -> None:
        """The highest of three points each, on a scale up to the highest of all."""
        self.assertEqual(blocks([None, 0, 0, 8, 1, 1, None, 4, None]), " █▄")
        self.assertEqual(blocks([None] * 90), " " * 30)
        self.assertEqual(blocks([0.001, 0, 0, 1000.0, 0, 0]), "▁█")

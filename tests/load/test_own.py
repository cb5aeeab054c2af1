"""Workloads in YAML: what they draw, and what is said of one that is wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from tests.support import TestCase
from twisted_gateway.config.faults import ConfigError
from twisted_gateway.load import own
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.own import read, read_file

LENGTHS = "prompt: {tokens: 100}, answer: {tokens: 10}"


class Drawing(TestCase):
    """What a valid file comes to."""

    def draw(
        self, text: str, seed: int = 1, environ: Mapping[str, str] | None = None
    ) -> list[Arrival]:
        return read(text, "w.yaml", random.Random(seed), environ or {})

    def one(self, stream: str, top: str = "") -> list[Arrival]:
        """The arrivals of a file with one stream of these keys."""
        return self.draw(f"{top}\nstreams: [{{name: s, {stream}}}]")

    def test_at(self) -> None:
        """`at` names the moments, the same one twice if need be."""
        drawn = self.one(f"arrivals: {{at: [7, 0, 7]}}, {LENGTHS}")
        self.assertEqual([each.at for each in drawn], [0.0, 7.0, 7.0])

    def test_burst(self) -> None:
        """`burst` comes at each moment, within so long."""
        drawn = self.one(f"arrivals: {{at: [0, 100], burst: 5, within: 2}}, {LENGTHS}")
        self.assertEqual([each.at // 50 for each in drawn], [0.0] * 5 + [2.0] * 5)
        self.assertLess(max(each.at for each in drawn), 102.0)

    def test_every(self) -> None:
        """`every` goes on until the end that the stream or the file names."""
        drawn = self.one(f"arrivals: {{every: 2.5, from: 5}}, {LENGTHS}", "seconds: 10")
        self.assertEqual([each.at for each in drawn], [5.0, 7.5, 10.0])

    def test_per_minute(self) -> None:
        """`perMinute` is an average of times at random."""
        drawn = self.one(f"arrivals: {{perMinute: 60, until: 1000}}, {LENGTHS}")
        self.assertTrue(900 < len(drawn) < 1100, len(drawn))

    def test_lengths(self) -> None:
        """Lengths are fixed, uniform, or log-normal and cut."""
        drawn = self.one(
            "arrivals: {at: [0], burst: 2000}, prompt: {from: 10, to: 20}, "
            "answer: {median: 100, sigma: 0.5, most: 300}"
        )
        self.assertEqual({each.prompt_tokens for each in drawn}, set(range(10, 21)))
        answers = sorted(each.answer_tokens for each in drawn)
        self.assertTrue(90 < answers[1000] < 110)
        self.assertEqual(answers[-1], 300)

    def test_defaults(self) -> None:
        """What is left out has the default that docs/load.md names."""
        (drawn,) = self.one(f"arrivals: {{at: [3]}}, {LENGTHS}")
        self.assertEqual(
            drawn,
            Arrival(
                at=3.0,
                tenant="load",
                prompt_tokens=100,
                answer_tokens=10,
                max_tokens=10,
                tries=1,
                patience_seconds=600.0,
                kind="s",
            ),
        )

    def test_everything(self) -> None:
        """Every key goes where it belongs."""
        drawn = self.one(
            f"tenants: [a, b], arrivals: {{at: [3], burst: 3}}, {LENGTHS}, maxTokens: 50, "
            "patience: 90, tries: 4, stream: false, direct: true, priority: batch, "
            "prefix: {tokens: 60, group: burst}"
        )
        self.assertEqual([each.tenant for each in drawn], ["a", "b", "a"])
        self.assertEqual(
            drawn[0],
            Arrival(
                at=3.0,
                tenant="a",
                prompt_tokens=100,
                answer_tokens=10,
                max_tokens=50,
                group="s/0",
                prefix_tokens=60,
                stream=False,
                direct=True,
                tries=4,
                patience_seconds=90.0,
                priority="batch",
                kind="s",
            ),
        )

    def test_shares(self) -> None:
        """`stream` may be a share."""
        drawn = self.one(f"arrivals: {{at: [0], burst: 1000}}, {LENGTHS}, stream: 0.25")
        self.assertTrue(200 < sum(each.stream for each in drawn) < 300)

    def test_deterministic(self) -> None:
        """The same seed draws the same, another one does not."""
        text = f"streams: [{{name: s, arrivals: {{perMinute: 9, until: 600}}, {LENGTHS}}}]"
        self.assertEqual(self.draw(text), self.draw(text))
        self.assertNotEqual(self.draw(text), self.draw(text, seed=2))

    def test_environment(self) -> None:
        """`${NAME}` is taken from the environment."""
        text = f"streams: [{{name: s, arrivals: {{at: [1], burst: '${{N}}'}}, {LENGTHS}}}]"
        self.assertEqual(len(self.draw(text, environ={"N": "4"})), 4)


class Documented(TestCase):
    """docs/load.md."""

    PAGE = (Path(__file__).parent.parent.parent / "docs" / "load.md").read_text(encoding="utf-8")

    def test_example(self) -> None:
        """The example is a workload."""
        text = self.PAGE.split("```yaml\n")[1].split("```")[0]
        drawn = read(text, "load.md", random.Random(1), {})
        self.assertEqual({each.kind for each in drawn}, {"agents", "chat"})

    def test_keys(self) -> None:
        """Every key that a file may have is there."""
        for key in own.key_names():
            self.assertIn(key, self.PAGE)


class Faults(TestCase):
    """What is said, with line and key."""

    def faults(self, text: str) -> list[str]:
        fault = self.assertRaises(ConfigError, read, text, "w.yaml", random.Random(1), {})
        return str(fault).split("\n")

    def test_all_at_once(self) -> None:
        """Every fault is named with its line and key, in the order of the lines."""
        text = """\
seconds: 0
streams:
  - name: a
    tenant: x
    tenants: [y]
    arrivals: {every: 5, perMinute: 3}
    prompt: {from: 10}
    answer: {from: 10, to: 5, tokns: 4}
  - name: b
    arrivals: {perMinute: 3}
    answer: {}
    prefix: {group: burst}
"""
        self.assertEqual(
            [fault.split(": expected")[0].split(": unknown")[0] for fault in self.faults(text)],
            [
                "w.yaml: line 1: seconds",
                "w.yaml: line 5: streams[0].tenants",
                "w.yaml: line 6: streams[0].arrivals",
                "w.yaml: line 7: streams[0].prompt.to",
                "w.yaml: line 8: streams[0].answer.tokns",
                "w.yaml: line 8: streams[0].answer.to",
                "w.yaml: line 9: streams[1].prompt",
                "w.yaml: line 10: streams[1].arrivals.until",
                "w.yaml: line 11: streams[1].answer",
                "w.yaml: line 12: streams[1].prefix.tokens",
            ],
        )

    def test_ways(self) -> None:
        """Of several ways only one may be named; of none, those that there are are."""
        for arrivals, words in (
            ("{every: 5, perMinute: 3}", "expected only one of every, perMinute"),
            ("{burst: 5}", "expected one of at, every, perMinute"),
        ):
            stream = f"{{name: s, arrivals: {arrivals}, {LENGTHS}}}"
            self.assertEqual(
                self.faults(f"streams: [{stream}]"),
                [f"w.yaml: line 1: streams[0].arrivals: {words}"],
            )

    def test_unknown_key(self) -> None:
        """An unknown key is told apart from the one that was meant."""
        self.assertEqual(
            self.faults("streems: []"),
            [
                "w.yaml: line 1: streems: unknown key, did you mean streams?",
                "w.yaml: line 1: streams: expected a list of streams",
            ],
        )

    def test_empty(self) -> None:
        """A file without streams is none."""
        self.assertEqual(
            self.faults("# nothing"), ["w.yaml: line 1: streams: expected a list of streams"]
        )

    def test_no_yaml(self) -> None:
        """A file that is no YAML is said to be none, with the line."""
        self.assertIn("w.yaml: line 1", self.faults("streams: [")[0])

    def test_until_before_from(self) -> None:
        """An end before its beginning is a fault."""
        stream = f"{{name: s, arrivals: {{every: 1, from: 9, until: 8}}, {LENGTHS}}}"
        self.assertEqual(
            self.faults(f"streams: [{stream}]"),
            ["w.yaml: line 1: streams[0].arrivals.until: expected no less than from"],
        )

    def test_key_of_another_way(self) -> None:
        """A key that means nothing beside the one that says which way it is, is a fault."""
        stream = f"{{name: s, arrivals: {{at: [1], until: 8}}, {LENGTHS}}}"
        self.assertEqual(
            self.faults(f"streams: [{stream}]"),
            ["w.yaml: line 1: streams[0].arrivals.until: expected no such key beside at"],
        )

    def test_too_many(self) -> None:
        """A file cannot come to more clients than are bearable."""
        self.patch(own, "MAX_ARRIVALS", 20)
        stream = f"{{name: s, arrivals: {{every: 0.001, until: 604800}}, {LENGTHS}}}"
        self.assertEqual(
            self.faults(f"streams: [{stream}]"),
            ["w.yaml: line 1: streams: expected at most 20 clients in all"],
        )

    def test_no_file(self) -> None:
        """A file that cannot be read is named."""
        fault = self.assertRaises(
            ConfigError, read_file, Path("/nowhere/w.yaml"), random.Random(1), {}
        )
        self.assertIn("/nowhere/w.yaml: expected a readable file", str(fault))

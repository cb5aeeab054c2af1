from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core import template
from twisted_gateway.core.template import BadTemplate, Unfilled, parse, render

EVENT: dict[str, Any] = {
    "ref": "refs/heads/main",
    "repository": {"full_name": "ada/gate", "private": True, "id": 7, "size": 1.5, "x": None},
    "commits": [{"id": "c0"}, {"id": "c1"}],
    "__class__": "a member like any other",
    "a-b_C9": "odd",
}


class RenderTests(TestCase):
    """Texts that events fill in."""

    def test_places(self) -> None:
        """A place is filled with what the event has there."""
        for text, expected in (
            ("", ""),
            ("no place", "no place"),
            ("push to {repository[full_name]}", "push to ada/gate"),
            ("{ref}{ref}", "refs/heads/mainrefs/heads/main"),
            ("{commits[1][id]}", "c1"),
            ("{repository[private]} {repository[id]} {repository[size]}", "true 7 1.5"),
            ("[{repository[x]}]", "[]"),
            ("{{ref}} {{{ref}}}", "{ref} {refs/heads/main}"),
            ("{a-b_C9}", "odd"),
            ("{__class__}", "a member like any other"),
        ):
            self.assertEqual(render(parse(text), EVENT), expected, text)

    def test_no_templates(self) -> None:
        """What is no place is no template, whatever `str.format` would make of it."""
        for text in (
            *("{", "}", "{}", "{a", "a}", "{a.b}", "{a!r}", "{a:>9}", "{a[}", "{a[b}", "{a]}"),
            *("{a[b].c}", "{ a}", "{a[]}", "{[a]}", "{a}}", "{é}", "{a[b c]}", "{0.__class__}"),
        ):
            self.assertRaises(BadTemplate, parse, text)

    def test_not_there(self) -> None:
        """What the event does not have, or not as a single value, is an error that names it."""
        for text, words in (
            ("{absent}", "the event has no absent"),
            ("{repository[absent]}", "the event has no repository[absent]"),
            ("{ref[x]}", "the event has no ref[x]"),
            ("{commits[2]}", "the event has no commits[2]"),
            ("{commits[-1]}", "the event has no commits[-1]"),
            ("{commits[99999999999999999999]}", "the event has no commits["),
            ("{repository}", "repository of the event is no single value"),
            ("{commits}", "commits of the event is no single value"),
        ):
            fault = self.assertRaises(Unfilled, render, parse(text), EVENT)
            self.assertIn(words, str(fault))

    def test_surrogates(self) -> None:
        """Half of a surrogate pair, which JSON's escapes may hold, is no text to send."""
        self.assertEqual(render(parse("{a}"), json.loads('{"a": "\\ud83d\\ude00"}')), "\U0001f600")
        for escape in ("\\ud83d", "\\ude00", "x\\udfffy"):
            event = json.loads(f'{{"a": "{escape}"}}')
            fault = self.assertRaises(Unfilled, render, parse("{a}"), event)
            self.assertIn("surrogate", str(fault))

    def test_attributes_are_out_of_reach(self) -> None:
        """No place leads to what Python's objects have, as with `str.format`."""
        for name in ("__class__", "__init__", "keys", "items", "mro", "__globals__"):
            for text in (f"{{ref[{name}]}}", f"{{repository[{name}]}}", f"{{commits[{name}]}}"):
                self.assertRaises(Unfilled, render, parse(text), EVENT)

    def test_bounded(self) -> None:
        """No text becomes longer than the bound."""
        self.patch(template, "MAX_RENDERED_CHARACTERS", 10)
        self.assertEqual(render(parse("{a}"), {"a": "x" * 10}), "x" * 10)
        self.assertRaises(Unfilled, render, parse("{a}"), {"a": "x" * 11})

    @given(st.text(max_size=40))
    @examples(100)
    def test_any_text(self, text: str) -> None:
        """Any text is a template or a fault; braces that are doubled come out single."""
        escaped = text.replace("{", "{{").replace("}", "}}")
        self.assertEqual(render(parse(escaped), {}), text)
        with contextlib.suppress(BadTemplate):
            self.assertEqual(str(parse(text)), text)

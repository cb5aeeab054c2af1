from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.config.source import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Entries,
    Items,
    Scalar,
    Unreadable,
    parse,
)


class ParseTests(TestCase):
    """YAML text as nodes with lines."""

    def fault(self, text: str) -> tuple[int, str]:
        fault = self.assertRaises(Unreadable, parse, text)
        return fault.line, str(fault)

    def test_lines(self) -> None:
        """Every node knows the line at which it begins."""
        root = parse("# first\na: 1\nb:\n  - x\n  - 'y'\n")
        assert isinstance(root, Entries)
        (a, one), (b, items) = root.pairs
        assert isinstance(items, Items)
        self.assertEqual([a.line, one.line, b.line, items.line], [2, 2, 3, 4])
        self.assertEqual([node.line for node in items.nodes], [4, 5])

    def test_scalars_are_texts(self) -> None:
        """No scalar is guessed to be anything else; whether it was quoted is kept."""
        root = parse("[on, 1_000, '5', 1:30]")
        assert isinstance(root, Items)
        texts = [(node.text, node.plain) for node in root.nodes if isinstance(node, Scalar)]
        self.assertEqual(texts, [("on", True), ("1_000", True), ("5", False), ("1:30", True)])

    def test_nothing(self) -> None:
        """A text of comments only has no root."""
        for text in ("", "# only\n", "\n\n", "\ufeff"):
            self.assertIsNone(parse(text))

    def test_alias(self) -> None:
        """An alias stands for its anchor's node."""
        root = parse("a: &x {k: v}\nb: *x\n")
        assert isinstance(root, Entries)
        self.assertIs(root.pairs[0][1], root.pairs[1][1])

    def test_recursive_alias(self) -> None:
        """An alias within its own anchor is refused at its line."""
        self.assertEqual(
            self.fault("a: &x\n  b: *x\n"), (2, "expected an alias that does not contain itself")
        )

    def test_undefined_alias(self) -> None:
        """An alias without anchor is refused."""
        self.assertEqual(self.fault("\na: *x\n")[0], 2)

    def test_alias_bomb(self) -> None:
        """Aliases count as all that they stand for."""
        bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
        )
        self.assertIn("aliases resolved", self.fault(bomb)[1])

    def test_depth(self) -> None:
        """Nesting is bounded, at any depth, without recursion."""
        parse("[" * MAX_DEPTH + "]" * MAX_DEPTH)
        for depth in (MAX_DEPTH + 1, 100_000):
            self.assertIn("levels of nesting", self.fault("[" * depth)[1])

    def test_size(self) -> None:
        """A text that is too long is refused before it is parsed."""
        self.assertIn("characters", self.fault("#" * (MAX_CHARACTERS + 1))[1])

    def test_second_document(self) -> None:
        """A second document is refused at its line."""
        self.assertEqual(
            self.fault("a: 1\n---\nb: 1\n"), (2, "expected one YAML document, not another one")
        )

    def test_tab(self) -> None:
        """A tab as indentation is called by its name."""
        self.assertEqual(
            self.fault("a:\n\tb: 1\n"), (2, "expected spaces: YAML allows no tab here")
        )

    def test_a_colon_is_missing(self) -> None:
        """A colon that was forgotten is looked for where it belongs, at or above the fault."""
        above = "expected no key here: line {} may lack its colon, or the blank behind it"
        quotes = "expected quotes round a value that has a colon with a blank behind it"
        after = "expected a colon, with a blank behind it, after the key"
        for text, line, said in (
            ("models:\n  chat\n    upstream: http://x\n", 3, above.format(2)),
            ("models\n  chat:\n    upstream: http://x\n", 2, above.format(1)),
            ("models:\n  c:\n    upstream http://x\n\n    a: b\n", 5, above.format(3)),
            ("models:\n  c:\n    upstream:http://x\n    a: b\n", 4, above.format(3)),
            ("a: 1\nb 3\nc: {}\n", 2, after),
            ("a: 1\nb\n\n\n# c\nc: {}\n", 2, after),
            ("a: b: c\n", 1, quotes),
            ("a: 'b': c\n", 1, quotes),
            (
                "a: b\n  c: d\n",
                2,
                "expected a line less far in: line 1 has a value already",
            ),
            (
                "a: 1\nb: 'it's'\n",
                2,
                "expected nothing more behind the value: a ' within '…' is written twice",
            ),
            ("a: {b: 1} c\n", 1, "expected nothing more behind the value"),
            ("a:\n    b: 1\n  c: 2\n", 3, "expected a line as far in as those around it"),
            (
                "models # ours\n  open:\n    upstream: http://a\n",
                2,
                "expected a line as far in as those around it; line 1 may lack its colon",
            ),
            (
                "a:\n  b\n    # c\n    c: d\n",
                4,
                "expected a line as far in as those around it; line 2 may lack its colon",
            ),
        ):
            self.assertEqual(self.fault(text), (line, said), text)

    def test_reference_without_quotes(self) -> None:
        """A reference within braces or brackets that has no quotes is called by its name."""
        said = 'expected quotes round a reference within braces or brackets: "${NAME}"'
        for text in (
            "a: {b: http://x, c: ${KEY}}",
            "a: {c: ${KEY:-x}, b: 1}",
            "a: {c: x${KEY}}",
            "a: [${KEY}, b]",
            "a: {\n  b: 1,\n  c: ${KEY}\n}",
        ):
            self.assertEqual(self.fault(f"\n{text}"), (2 + text.count("\n  "), said), text)
        parse("a: ${KEY}\nb: x${KEY}\nc: {d: '${KEY}'}")
        for text in ("a: {b: $ {c: 1}}", "a: {b: {c}} }", "{"):
            self.assertNotIn("quotes", self.fault(text)[1])

    def test_unprintable(self) -> None:
        """A character that YAML does not allow is refused at its line."""
        self.assertEqual(self.fault("a: 1\nb: \0\n"), (2, "expected printable characters"))

    def test_bad_escapes_and_directives(self) -> None:
        """What makes PyYAML itself stumble is a fault like any other."""
        for text in (
            '"\\UFFFFFFFF"',
            f"%YAML {'9' * 5000}.1\n---\na",
            "%YAML 3.0\n---\na",
            "a: 'b",
        ):
            self.assertIn("expected YAML", self.fault(text)[1])

    @examples(60)
    @given(st.text(st.sampled_from("a:- \n\t[]{},&*!|>'\"%@#?~<\\$0x\u2028\ud800"), max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text gives nodes or one fault with a line within the text."""
        try:
            parse(text)
        except Unreadable as fault:
            self.assertGreaterEqual(fault.line, 1)
            self.assertLessEqual(fault.line, len(text) + 1)

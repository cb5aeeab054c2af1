"""JSON bodies: the model that is found is the model that the engine will see."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.body import (
    MOST_SEQUENCES,
    MOST_TOKENS,
    BodyError,
    BodyFacts,
    read_json,
    rewrite,
)


def refused(test: TestCase, body: bytes) -> BodyError:
    """The error with which a body is refused."""
    return test.assertRaises(BodyError, read_json, body)  # type: ignore[no-any-return]


def reference(body: bytes) -> str | None:
    """The model by `json.loads` held to RFC 8259, or None for a body that is to be refused."""

    def constant(name: str) -> None:
        raise ValueError(name)

    try:
        pairs = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=tuple,
            parse_constant=constant,
            parse_int=float,
        )
    except ValueError:
        return None
    # Arrays come as lists, so that a tuple is an object.
    if not isinstance(pairs, tuple):
        return None
    found = [(key, value) for key, value in pairs if key.casefold() == "model"]
    if len(found) != 1 or found[0][0] != "model" or not isinstance(found[0][1], str):
        return None
    stream = [value for key, value in pairs if key == "stream"][-1:]
    if stream and not any(stream[0] is value for value in (True, False, None)):
        return None
    try:
        found[0][1].encode("utf-8")
    except UnicodeEncodeError:
        return None
    return found[0][1] or None


def found(body: bytes) -> str | None:
    """The model by the scanner, None when it refuses."""
    try:
        facts = read_json(body)
    except BodyError:
        return None
    start, end = facts.model_span
    assert json.loads(body[start:end]) == facts.model
    return facts.model


def escaped(text: str, which: int) -> str:
    """A JSON string in which the characters at the bits of `which` are escapes."""
    units = []
    for place, character in enumerate(text):
        if which >> place & 1:
            code = character.encode("utf-16-be", "surrogatepass")
            units += [f"\\u{code[i : i + 2].hex()}" for i in range(0, len(code), 2)]
        else:
            units.append(json.dumps(character, ensure_ascii=False)[1:-1])
    return f'"{"".join(units)}"'


NAMES = ("model", "model", "model", "Model", "mode", "models", '"model', 'model"', "\\model", "")
KEYS = st.sampled_from((*NAMES, "stream", "n", '"model":', "{", "]", "\\", "\u212aelvin"))
TEXT = st.one_of(
    KEYS, st.text(max_size=6), st.text(st.sampled_from('"\\{}[]:,model\n\U0001f600\ud800'))
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)


@st.composite
def literals(draw: st.DrawFn, text: st.SearchStrategy[str] = TEXT) -> str:
    """A string as JSON, with any of its characters escaped."""
    return escaped(draw(text), draw(st.integers(0, 2**12)))


def spaced(parts: list[str], space: str) -> str:
    return space.join(parts)


SPACE = st.sampled_from(("", "", " ", "\n\t ", "\r\n"))


def arrays(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, space: f"[{space}{f'{space},'.join(items)}{space}]",
        st.lists(value, max_size=4),
        SPACE,
    )


def objects(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, space: (
            "{" + space + f"{space},{space}".join(f"{k}{space}:{space}{v}" for k, v in items) + "}"
        ),
        st.lists(st.tuples(literals(KEYS), value), max_size=5),
        SPACE,
    )


VALUES = st.recursive(
    st.one_of(
        SCALARS.map(lambda value: json.dumps(value, ensure_ascii=True)),
        literals(),
        st.sampled_from(("1e999", "-0.0", "1E+2", '"model"')),
    ),
    lambda inner: st.one_of(arrays(inner), objects(inner)),
    max_leaves=8,
)
NOISE = st.one_of(
    st.binary(max_size=2),
    st.sampled_from(
        b'" \\ { } [ ] : , "model":"x" \xed\xa0\x80 \0 NaN -Infinity 01 1. \\ud800 \\u006d '
        b"\xef\xbb\xbf \x01".split(b" ")
    ),
)


class Agreement(TestCase):
    """The scanner against a strict reading by the standard library."""

    @examples(100)
    @given(objects(VALUES), SPACE)
    @example('{"model":"a","x":{"model":"b"},"model":"a"}', "")
    @example('{"model":"model","x":{"model":1}}', "")
    @example('{"x":{"model":"b"},"\\u006dodel":"a","y":"\\\\\\"model\\":"}', "")
    def test_any_object(self, text: str, space: str) -> None:
        """Of any object it finds the model that json.loads finds, and refuses where that must."""
        body = (space + text + space).encode("utf-8", "replace")
        self.assertEqual(found(body), reference(body))

    @examples(60)
    @given(
        st.dictionaries(TEXT.filter(lambda key: key.casefold() != "model"), SCALARS, max_size=6),
        st.text(min_size=1, max_size=8),
        st.booleans(),
        st.sampled_from(((",", ":"), (", ", ": "), (" ,\n", "\t:\r\n"))),
        st.integers(0, 6),
    )
    def test_any_dump(
        self,
        others: dict[str, Any],
        model: str,
        ascii_only: bool,
        separators: tuple[str, str],
        place: int,
    ) -> None:
        """However a client writes an object with one model, that model is found."""
        others.pop("stream", None)
        items = list(others.items())
        items.insert(place, ("model", model))
        items.append(("tools", [{"model": {"model": model}}, '"model":', "}"]))
        text = json.dumps(dict(items), ensure_ascii=ascii_only, separators=separators)
        body = text.encode("utf-8", "replace")
        self.assertEqual(found(body), model)

    @examples(100)
    @given(objects(VALUES), st.lists(st.tuples(st.integers(0), NOISE, st.integers(0, 3))))
    def test_mutations(self, text: str, noise: list[tuple[int, bytes, int]]) -> None:
        """Of damaged objects it refuses what a strict reader refuses, and no other."""
        body = text.replace("{", '{"model":"m",', 1).replace(",}", "}").encode("utf-8", "replace")
        for place, piece, dropped in noise:
            place %= len(body) + 1
            body = body[:place] + piece + body[place + dropped :]
        self.assertEqual(found(body), reference(body))

    @examples(40)
    @given(objects(VALUES), st.text(min_size=1).filter(lambda name: name.isprintable()))
    def test_rewriting(self, text: str, name: str) -> None:
        """Rewriting changes the model and leaves every other byte."""
        body = (
            ('{"model" : "old",' + text[1:].lstrip()).replace(",}", "}").encode("utf-8", "replace")
        )
        if found(body) is None:
            return
        facts = read_json(body)
        changed = b"".join(rewrite(body, facts, name))
        again = read_json(changed)
        self.assertEqual(again.model, name)
        self.assertEqual(changed[: again.model_span[0]], body[: facts.model_span[0]])
        self.assertEqual(changed[again.model_span[1] :], body[facts.model_span[1] :])

    def test_folding(self) -> None:
        """No character outside ASCII folds to letters of `model` (beyond plane 1 none has case)."""
        rest = "".join(map(chr, range(0x80, 0x20000)))
        folds = {*map(str.casefold, rest), *map(str.lower, rest), *map(str.upper, rest)}
        self.assertEqual([fold for fold in folds if fold.lower() in "model"], [])


class Reading(TestCase):
    """What is read of a JSON body."""

    def test_facts(self) -> None:
        """Model, span, stream, tokens and sequences come out together."""
        body = b' {"model": "a/b:c", "stream": true, "max_tokens": 7, "n": 2} '
        self.assertEqual(read_json(body), BodyFacts("a/b:c", (11, 18), True, 7, 2, "json"))
        self.assertEqual(body[11:18], b'"a/b:c"')

    def test_defaults(self) -> None:
        """A body that names only a model asks for no stream, no bound and one sequence."""
        self.assertEqual(read_json(b'{"model":"m"}'), BodyFacts("m", (9, 12)))

    def test_escapes(self) -> None:
        """Key and value are compared and read after unescaping."""
        facts = read_json(rb'{"m\u006fd\u0065l":"\ud83d\ude00\/\u00e9"}')
        self.assertEqual(facts.model, "\U0001f600/\u00e9")

    def test_nested(self) -> None:
        """A nested `model`, or one within a string, is not the model."""
        for other in (
            b'"tools":[{"model":"b"}]',
            b'"x":{"model":"b"}',
            b'"x":"\\"model\\":"',
            b'"x":["model"]',
            b'"x":"model"',
            b'"\\"model":1',
            b'"x\\\\":{"model":[]}',
            b'"x":["]]","[\\"{"],"y":{"Model":{"model":"}"}}',
        ):
            for body in (b'{"model":"a",' + other + b"}", b"{" + other + b',"model":"a"}'):
                self.assertEqual(read_json(body).model, "a", body)
                self.assertEqual(read_json(body[:1] + b'"\\u006d":0,' + body[1:]).model, "a")

    def test_nested_alone(self) -> None:
        """A `model` that is only nested does not count."""
        self.assertEqual(refused(self, b'{"x":{"model":"b"}}').param, "model")

    def test_surrogates_elsewhere(self) -> None:
        """Half a surrogate pair passes where it is not the model's, as RFC 8259 lets it."""
        body = b'{"\\udc00":["\\ud83d"],"model":"a"}'
        self.assertEqual(read_json(body).model_span, (29, 32))

    def test_stream(self) -> None:
        """`stream` is true, false, null or absent; of duplicates the last counts."""
        for value, expected in ((b"true", True), (b"false", False), (b"null", False)):
            body = b'{"model":"m","stream":' + value + b"}"
            self.assertIs(read_json(body).stream, expected)
        self.assertTrue(read_json(b'{"stream":false,"model":"m","stream":true}').stream)

    def test_stream_of_another_type(self) -> None:
        """Any other `stream` is refused, for engines read it differently."""
        for value in (b'"true"', b"1", b"0", b"[]", b'""', b'"' + b"x" * 99 + b'"'):
            fault = refused(self, b'{"model":"m","stream":' + value + b"}")
            self.assertEqual((fault.detail, fault.param), ("`stream` must be a boolean.", "stream"))

    def test_tokens(self) -> None:
        """The largest of the three bounds counts; what is no number counts as absent."""
        for members, expected in (
            (b'"max_tokens":5,"max_completion_tokens":9,"max_output_tokens":7', 9),
            (b'"max_output_tokens":7', 7),
            (b'"max_tokens":" 12 "', 12),
            (b'"max_tokens":1.5e1', 15),
            (b'"max_tokens":1e999', MOST_TOKENS),
            (b'"max_tokens":99999999999', MOST_TOKENS),
            (b'"max_tokens":' + b"9" * 5000, None),
            (b'"max_tokens":0', None),
            (b'"max_tokens":-1', None),
            (b'"max_tokens":1.5', None),
            (b'"max_tokens":null', None),
            (b'"max_tokens":true', None),
            (b'"max_tokens":{"a":1}', None),
            (b'"max_tokens":"many"', None),
        ):
            body = b'{"model":"m",' + members + b"}"
            self.assertEqual(read_json(body).max_tokens, expected, members[:40])

    def test_sequences(self) -> None:
        """The larger of `n` and `best_of` counts, within its bound; at least one is run."""
        for members, expected in (
            (b'"n":3', 3),
            (b'"n":2,"best_of":4', 4),
            (b'"n":"5"', 5),
            (b'"n":0', 1),
            (b'"n":[]', 1),
            (b'"n":1000000', MOST_SEQUENCES),
        ):
            self.assertEqual(read_json(b'{"model":"m",' + members + b"}").n, expected, members)


class Refusing(TestCase):
    """What is refused, and what is said of it."""

    def test_empty(self) -> None:
        """An empty body and one of white space are refused as such."""
        self.assertIn("empty", refused(self, b"").detail)
        self.assertIn("truncated", refused(self, b" \n").detail)

    def test_other_encodings(self) -> None:
        """A byte order mark, UTF-16 and UTF-32 are refused with a word about UTF-8."""
        text = '{"model":"m"}'
        for encoding in ("utf-8-sig", "utf-16", "utf-32"):
            self.assertIn("byte order mark", refused(self, text.encode(encoding)).detail)
        self.assertIn("mark", refused(self, codecs.BOM_UTF16_BE + b"\0{").detail)
        self.assertIn("mark", refused(self, b"\0\0\xfe\xff\0\0\0{").detail)
        for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
            self.assertIn("NUL", refused(self, text.encode(encoding)).detail)

    def test_invalid_utf8(self) -> None:
        """Invalid UTF-8 is refused wherever it stands, and its place is told."""
        for head, bad in (
            (b'{"model":"m","x":"', b"\xff"),
            (b'{"model":"m","', b"\xc3\x28"),
            (b'{"model":"', b"\xed\xa0\x80"),
            (b'{"model":"m","x":"' + "\u65e5".encode() * 30_000, b"\xe6\x97"),
        ):
            self.assertIn(f"at byte {len(head)};", refused(self, head + bad + b'":1}').detail)

    def test_long_utf8(self) -> None:
        """Characters that straddle the blocks of the check are whole."""
        for shift in range(4):
            text = "x" * shift + "\U0001f600" * 40_000
            self.assertEqual(read_json(f'{{"x":"{text}","model":"m"}}'.encode()).model, "m")

    def test_grammar(self) -> None:
        """What RFC 8259 does not allow is refused, in what is skipped too."""
        values = (
            b"NaN -Infinity Infinity 01 1. .5 +1 0x1 tru nul 'a' [1,] {a:1} {'a':1} [1 {,} /**/1"
        )
        for value in (*values.split(), b'"\x01"', b'"\\x"', b'"\\u12g4"', b'"a\nb"', b"1 2", b""):
            body = b'{"model":"m","x":' + value + b"}"
            self.assertIn("RFC 8259", refused(self, body).detail, value)
        for body in (b'{"model":"m"}x', b'{"model":"m"}{}', b'{"model":"m"', b'{"model":"m",}'):
            self.assertIn("RFC 8259", refused(self, body).detail, body)

    def test_not_an_object(self) -> None:
        """Another value than an object is refused as such."""
        for body in (b'["model"]', b'"model"', b"null", b"1"):
            self.assertIn("not an object", refused(self, body).detail)

    def test_depth(self) -> None:
        """Hundreds of levels pass; what is deeper is an error like any."""
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            for depth, passes in ((256, True), (100_000, False)):
                nest = opening * depth + b"1" + closing * depth
                for body in (b'{"model":"m","x":' + nest + b"}", b'{"model":' + nest + b"}"):
                    if passes and b'"m"' in body:
                        self.assertEqual(read_json(body).model, "m")
                    elif passes:
                        self.assertIn("string", refused(self, body).detail)
                    else:
                        self.assertIn("deeply", refused(self, body).detail)

    def test_nested_deep_beside_another(self) -> None:
        """Where levels are counted, any depth that passes is counted right."""
        nest = b"[" * 300 + b'{"model":1}' + b"]" * 300
        body = b'{"x":' + nest + b',"model":"m","y":' + nest + b"}"
        self.assertEqual(read_json(body).model, "m")

    def test_duplicates(self) -> None:
        """Two top-level keys `model` are refused, however they are written."""
        for other in (b'"model":"m"', b'"model" :1', b'"m\\u006fdel":"n"', b'"\\u006dodel"\n:"m"'):
            for body in (
                b'{"model":"m",' + other + b"}",
                b"{" + other + b',"x":[{"model":1}],"model":"m"}',
            ):
                fault = refused(self, body)
                self.assertIn("more than one", fault.detail)
                self.assertEqual(fault.param, "model")

    def test_other_case(self) -> None:
        """A top-level key that is `model` but for case is refused, beside the true one or alone."""
        for key in (b"Model", b"MODEL", b"modeL", b"mOd\\u0045l", b"\\u004dodel"):
            for body in (
                b'{"model":"m","' + key + b'":"m"}',
                b'{"' + key + b'":1,"model":"m"}',
                b'{"' + key + b'":"m"}',
            ):
                self.assertIn("but for case", refused(self, body).detail)

    def test_model(self) -> None:
        """A model that is absent, no string, empty or no text is refused."""
        for body, word in (
            (b"{}", "no top-level"),
            (b'{"models":"m"}', "no top-level"),
            (b'{"model":""}', "empty"),
            (b'{"model":1}', "string"),
            (b'{"model":null}', "string"),
            (b'{"model":["m"]}', "string"),
            (b'{"model":"\\ud800"}', "surrogate"),
            (b'{"model":"\\udc00\\ud800"}', "surrogate"),
        ):
            fault = refused(self, body)
            self.assertIn(word, fault.detail)
            self.assertEqual(fault.param, "model")

    def test_nothing_is_quoted(self) -> None:
        """What is said never holds any of the body."""
        for body in (
            b'{"model":"sesame","model":"sesame"}',
            b'{"model":"sesame"',
            b'{"sesame":1}',
            b'{"model":"m","stream":"sesame"}',
        ):
            fault = refused(self, body)
            self.assertNotIn("sesame", f"{fault} {fault.detail}")


class Rewriting(TestCase):
    """Another name in the place of the model's."""

    def test_json(self) -> None:
        """The name is escaped, the rest is views of the same body."""
        body = b'{ "model" :  "gpt\\u002d4o" , "x": "gpt-4o" }'
        pieces = rewrite(body, read_json(body), 'Qwen/"\\\n3')
        self.assertEqual(b"".join(pieces), b'{ "model" :  "Qwen/\\"\\\\\\n3" , "x": "gpt-4o" }')
        views = [piece.obj for piece in pieces if isinstance(piece, memoryview)]
        self.assertEqual(len(views), 2)
        self.assertTrue(all(view is body for view in views))

    def test_multipart(self) -> None:
        """In a part the name stands as it is."""
        facts = BodyFacts("m", (2, 3), encoding="multipart")
        self.assertEqual(b"".join(rewrite(b"abmcd", facts, "x\u00e9")), "abx\u00e9cd".encode())

    def test_injection(self) -> None:
        """A name that could end its part is refused; so is one that is none."""
        facts = BodyFacts("m", (2, 3), encoding="multipart")
        for name in ("a\r\n--b", "a\nb", "a\0", "--b", "a\x7f"):
            self.assertRaises(ValueError, rewrite, b"abmcd", facts, name)
        for encoding in ("json", "multipart"):
            facts = BodyFacts("m", (2, 3), encoding=encoding)
            for name in ("", "\ud800"):
                self.assertRaises(ValueError, rewrite, b"abmcd", facts, name)


class Strictness(TestCase):
    """The reference of these tests."""

    def test_reference(self) -> None:
        """It can tell: it finds, and it refuses what is to be refused."""
        self.assertEqual(reference(b'{"model":"m","x":{"Model":1}}'), "m")
        for body in (b'{"model":"m","MODEL":1}', b"[]", b'{"model":NaN}', b'{"model":"m"}x'):
            self.assertIsNone(reference(body))
        self.assertIsNotNone(re.fullmatch(r'"\\u006do"', escaped("mo", 1)))

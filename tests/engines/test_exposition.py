"""Picking series out of exposition text."""

from __future__ import annotations

import gzip
import math

from hypothesis import example, given, reject
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.engines.pages import body, fixture
from tests.support import TestCase, examples
from twisted_gateway.engines.exposition import MAX_LINES, MAX_PAGE_BYTES, MAX_SERIES, parse

Plain = tuple[str, tuple[tuple[str, str], ...], str]

WANTED = frozenset({"a", "a_b", "vllm:kv_cache_usage_perc", "hits_total"})
_NAMES = st.sampled_from(["a", "a_b", "a_bc", "vllm:kv_cache_usage_perc", "hits_total", "b"])
_LABEL_NAMES = st.sampled_from(["engine", "model_name", "le", "_x", "A9"])
_TEXT = st.text(
    st.characters(codec="utf-8") | st.sampled_from(list('\\"{}=, #\t')), max_size=12
).filter(lambda text: "\r" not in text)
_VALUES = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e3", "2.5E-7", "+4", "1.", ".5", "0012"]),
)
_EITHER: st.SearchStrategy[bool] = st.booleans()
_SPACES = st.sampled_from([" ", "  ", "\t"])
_ENDS = st.sampled_from(["\n", "\r\n", " \n"])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def lines(draw: st.DrawFn) -> str:
    """One valid sample line of the text format."""
    labels = draw(st.dictionaries(_LABEL_NAMES, _TEXT, max_size=3))
    comma: bool = draw(_EITHER)
    braces: bool = draw(_EITHER)
    inner = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    if labels and comma:
        inner += ","
    block = f"{{{inner}}}" if labels or braces else ""
    stamp = draw(st.sampled_from(["", " 1795978495506", "\t-3"]))
    return f"{draw(_NAMES)}{block}{draw(_SPACES)}{draw(_VALUES)}{stamp}{draw(_ENDS)}"


_NOISE = st.sampled_from(
    ["\n", "# HELP a What a is: a 5\n", "# TYPE a gauge\n", "#a 7\n", "# a comment\n"]
)


def plain(name: str, labels: dict[str, str], value: float) -> Plain:
    """A series as something that can be compared, NaN included."""
    return name, tuple(sorted(labels.items())), repr(float(value))


def parsed(text: bytes, wanted: frozenset[str] = WANTED) -> list[Plain]:
    """What the parser under test finds."""
    return [plain(one.name, dict(one.labels), one.value) for one in parse(text, wanted)]


def reference(text: str, wanted: frozenset[str] = WANTED) -> list[Plain]:
    """What prometheus-client's parser finds."""
    return [
        plain(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in wanted
    ]


def one(line: bytes) -> tuple[dict[str, str], float, bool]:
    """Parse a page of one wanted line."""
    (series,) = parse(line + b"\n", frozenset({"a"}))
    return dict(series.labels), series.value, series.garbled


class AgainstThePrometheusParserTests(TestCase):
    @examples(60)
    @given(st.lists(lines() | _NOISE, max_size=8))
    @example(['a{model_name="}{\\\\",engine="a\\"b"} 1\n'])
    def test_it_finds_the_same_series(self, page: list[str]) -> None:
        """On any valid page the wanted series are those that prometheus-client finds."""
        text = "".join(page)
        try:
            expected = reference(text)
        except ValueError:
            # Old releases of the library refuse a tab before the value.
            reject()
        self.assertEqual(parsed(text.encode()), expected)

    def test_it_finds_the_same_series_on_recorded_pages(self) -> None:
        """On the pages of real engines, for every sample name that they have, one at a time."""
        pages = [fixture("vllm_dp2_loaded.prom"), body("llamacpp_loaded.http")]
        for text in pages:
            every = {
                sample.name
                for family in text_string_to_metric_families(text.decode())
                for sample in family.samples
            }
            wanted = frozenset(sorted(every)[::7])
            self.assertEqual(parsed(text, wanted), reference(text.decode(), wanted))
            self.assertTrue(parsed(text, wanted))

    @examples(40)
    @given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode), st.booleans())
    def test_no_bytes_raise(self, noise: bytes, started: bool) -> None:
        """Whatever bytes come, alone or behind a wanted name, nothing is raised."""
        parse((b"a" if started else b"") + noise + b"\n", WANTED)


class HostileTests(TestCase):
    def test_lines_without_end(self) -> None:
        """A quadratic pattern would take hours over these; each is one garbled series."""
        for rest in (
            b' {m="' + b"\\" * 2_000_000,
            b" " + b"1" * 2_000_000 + b"x",
            b" " + b"1" * 60_000 + b"x",
            b" 1" + b" " * 2_000_000 + b"x",
            b' {m="1"} ' + b"." * 60_000,
            b"{" + b'm="1",' * 10_000 + b"x",
        ):
            (series,) = parse(b"a" + rest + b"\n", frozenset({"a"}))
            self.assertTrue(series.garbled)


class LineTests(TestCase):
    def test_label_values_are_unescaped(self) -> None:
        """Braces, quotes, commas, escapes and line feeds inside values are the values' own."""
        labels, value, _ = one(rb'a{x="}{,= \" \\ \n #",y=""} 3')
        self.assertEqual(labels, {"x": '}{,= " \\ \n #', "y": ""})
        self.assertEqual(value, 3)

    def test_values(self) -> None:
        """Exponents, signs, infinities and NaN are read as they are."""
        for text, value in [
            (b"1.79e+09", 1.79e9),
            (b"-4", -4),
            (b"+Inf", math.inf),
            (b"-Inf", -math.inf),
            (b"4.0", 4),
        ]:
            self.assertEqual(one(b"a " + text)[1:], (value, False))
        self.assertTrue(math.isnan(one(b"a NaN")[1]))
        self.assertFalse(one(b"a NaN")[2])

    def test_what_follows_the_value_is_passed_over(self) -> None:
        """A timestamp and an exemplar are allowed behind the value."""
        for tail in [b" 1795978495", b" 1.5e9", b' # {trace_id="a b"} 0.67 1.5e9', b" 1 # {} 9"]:
            self.assertEqual(one(b'a{x="1"} 5' + tail), ({"x": "1"}, 5, False))

    def test_openmetrics(self) -> None:
        """An OpenMetrics page is read; `_created` is another name, `# EOF` a comment."""
        text = (
            b"# TYPE a counter\n# UNIT a seconds\n"
            b'a_total{x="1"} 17.0 1520879607.789 # {id="q"} 0.5\n'
            b'a_created{x="1"} 1.7959784955066e+09\n# EOF'
        )
        (series,) = parse(text, frozenset({"a_total", "a"}))
        self.assertEqual((series.name, series.value), ("a_total", 17))

    def test_garbled_lines_are_told_from_absent_ones(self) -> None:
        """A wanted name on a line that cannot be parsed is a garbled series with value NaN."""
        for rest in [
            b"",
            b" ",
            b" x",
            b" 1_000",
            b" 0x10",
            b" 1 x",
            b' {x="1"}',
            b'{x="1" 5',
            b"{x=1} 5",
            b'{x="1"y="2"} 5',
            b'{x="1",x="2"} 5',
            b'{x="1"} 5 6 7',
            b"{,} 5",
            b" - 5",
            b"\x00 5",
        ]:
            labels, value, garbled = one(b"a" + rest)
            self.assertTrue(garbled, rest)
            self.assertTrue(math.isnan(value), rest)
            self.assertEqual(labels, {}, rest)

    def test_longer_names_are_other_names(self) -> None:
        """A name that only begins with a wanted one is not it."""
        self.assertEqual(parse(b"a_b 1\na:c 2\na1 3\nxa 4\n# a 5\n", frozenset({"a"})), [])


class PageTests(TestCase):
    def test_a_cut_page_yields_no_wrong_number(self) -> None:
        """Wherever a page breaks off, every series found is one of the whole page, in order."""
        text = b'a{x="1"} 1234\na{x="22"} 5678\nhits_total 90 1234\na_b 12.5\n'
        whole = parsed(text)
        for cut in range(len(text)):
            found = parsed(text[:cut])
            self.assertEqual(found, whole[: len(found)], cut)
        self.assertEqual(len(whole), 4)

    def test_pages_that_are_none(self) -> None:
        """HTML, compressed and empty pages have no series."""
        for text in [
            b"",
            b"\n",
            b"<!DOCTYPE html><html><body>a 5</body></html>\n",
            gzip.compress(fixture("vllm_idle.prom")),
        ]:
            self.assertEqual(parse(text, WANTED), [])

    def test_oversize_pages_are_refused(self) -> None:
        """A page that would block the reactor is not parsed: too many bytes, lines or series."""
        for text, word in [
            (b"x" * MAX_PAGE_BYTES + b"\n", "bytes"),
            (b"\n" * (MAX_LINES + 1), "lines"),
            (b"a 1\n" * (MAX_SERIES + 1), "series"),
        ]:
            with self.assertRaises(ValueError) as caught:
                parse(text, WANTED)
            self.assertIn(word, str(caught.exception))

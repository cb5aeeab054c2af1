"""multipart/form-data: the part that is read is the part that every parser reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.body import BodyError, BodyFacts, rewrite
from twisted_gateway.core.multipart import (
    MOST_HEADER_BYTES,
    MOST_HEADER_LINES,
    MOST_PARTS,
    read_multipart,
)

TYPE = b"multipart/form-data; boundary=B"


def part(name: bytes, content: bytes, *more: bytes) -> bytes:
    """A part after its delimiter line."""
    head = b'Content-Disposition: form-data; name="' + name + b'"'
    return b"\r\n".join((head, *more, b"", content))


def form(*parts: bytes, boundary: bytes = b"B") -> bytes:
    """A whole body."""
    lines = b"".join(b"--" + boundary + b"\r\n" + one + b"\r\n" for one in parts)
    return lines + b"--" + boundary + b"--\r\n"


MODEL = part(b"model", b"m")
AUDIO = part(b'file"; filename="a.wav', b"RIFF\r\n\0\xff--B\n", b"Content-Type: audio/wav")
NOISE = b'\r\n|\n|\r|--B|--B--|\r\n--B\r\n|\r\n\r\n|"|;|\\|name=|model|\xff|:|*|=| '.split(b"|")


class Agreement(TestCase):
    """Against bodies whose parts are known."""

    @examples(60)
    @given(
        st.text("abcXYZ019'+_-", min_size=1, max_size=70),
        st.lists(
            st.tuples(
                st.sampled_from(("file", "prompt", "models", "a b", "language", 'x\\"y')),
                st.one_of(
                    st.binary(max_size=20),
                    st.sampled_from((b"\r\n--", b"\r\n-", b"\r\n\r\n", b"--", b"\n", b"\r")),
                ),
            ),
            max_size=4,
        ),
        st.text(max_size=9),
        st.integers(0, 4),
        st.sampled_from((b"", b"preamble\r\n")),
        st.sampled_from((b"", b"epilogue")),
    )
    def test_any_form(
        self,
        boundary: str,
        others: list[tuple[str, bytes]],
        model: str,
        place: int,
        preamble: bytes,
        epilogue: bytes,
    ) -> None:
        """In any form with one model part that part is found, and rewriting changes it alone."""
        delimiter = b"--" + boundary.encode()
        value = model.encode("utf-8")
        parts = [part(name.encode(), content) for name, content in others]
        contents = [value, *(content for _, content in others)]
        ambiguous = any(
            line in b"\n" + content for content in contents for line in (b"\n" + delimiter,)
        ) or any(b"\r" + delimiter in content for content in contents)
        parts.insert(place, part(b"model", value))
        body = preamble + form(*parts, boundary=boundary.encode()) + epilogue
        header = b'multipart/form-data; charset=utf-8; boundary="' + boundary.encode() + b'"'
        if ambiguous or not model or model.startswith("\ufeff"):
            self.assertRaises(BodyError, read_multipart, body, header)
            return
        facts = read_multipart(body, header)
        self.assertEqual(facts.model, model)
        start, end = facts.model_span
        self.assertEqual(body[start:end], value)
        changed = b"".join(rewrite(body, facts, "Qwen/3"))
        self.assertEqual(changed, body[:start] + b"Qwen/3" + body[end:])
        self.assertEqual(read_multipart(changed, header).model, "Qwen/3")

    @examples(60)
    @given(
        st.lists(
            st.tuples(
                st.integers(0),
                st.sampled_from(NOISE),
                st.integers(0, 4),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def test_any_damage(self, damage: list[tuple[int, bytes, int]]) -> None:
        """Of a damaged form it takes a model that stands there as a part, or refuses it."""
        body = form(AUDIO, MODEL, part(b"stream", b"true"))
        for place, piece, dropped in damage:
            place %= len(body) + 1
            body = body[:place] + piece + body[place + dropped :]
        try:
            facts = read_multipart(body, TYPE)
        except BodyError:
            return
        start, end = facts.model_span
        self.assertEqual(body[start:end].decode(), facts.model)
        self.assertEqual(body[start - 4 : start], b"\r\n\r\n")
        self.assertEqual(body[end : end + 5], b"\r\n--B")
        self.assertRegex(body[:start], rb'(?i)name="?model"?[^\n]*\r\n([^\n]+\r\n)*\r\n$')


class Reading(TestCase):
    """What is read of a form."""

    def test_facts(self) -> None:
        """Model, its span, stream and the bound of tokens come out together."""
        body = form(AUDIO, MODEL, part(b"stream", b"True"), part(b"max_completion_tokens", b"9"))
        start = body.index(b"\r\n\r\nm\r\n") + 4
        expected = BodyFacts("m", (start, start + 1), True, 9, 1, "multipart")
        self.assertEqual(read_multipart(body, TYPE), expected)

    def test_defaults(self) -> None:
        """A form of a model alone asks for no stream and no bound; nor do `false` and `many`."""
        facts = read_multipart(form(MODEL), TYPE)
        self.assertEqual((facts.stream, facts.max_tokens, facts.n), (False, None, 1))
        body = form(MODEL, part(b"stream", b"false"), part(b"max_tokens", b"many"))
        facts = read_multipart(body, TYPE)
        self.assertEqual((facts.stream, facts.max_tokens), (False, None))

    def test_content_types(self) -> None:
        """The boundary is read quoted or not, with other parameters, in any case of the names."""
        for header, boundary in (
            (b"Multipart/Form-Data;BOUNDARY=B", b"B"),
            (b'multipart/form-data ; charset=UTF-8; boundary="B" ;', b"B"),
            (b"multipart/form-data; boundary=----=_Part_1_2.3", b"----=_Part_1_2.3"),
            (b'multipart/form-data; boundary="a b:c/d?"', b"a b:c/d?"),
            (b"multipart/form-data; boundary=" + b"x" * 70, b"x" * 70),
        ):
            body = form(MODEL, boundary=boundary)
            self.assertEqual(read_multipart(body, header).model, "m", header)

    def test_disposition(self) -> None:
        """The name of a part may be unquoted, and other parameters and fields may be there."""
        for head in (
            b"content-disposition:form-data;name=model",
            b'CONTENT-DISPOSITION: Form-Data; NAME="model"; x="\\"; name=y"',
            b'Content-Disposition: form-data; name="model"\r\nContent-Transfer-Encoding: 8BIT',
            b'Content-Type: text/plain; charset="UTF-8"\r\n'
            b'Content-Disposition: form-data; name="model"',
            b'Content-Disposition: form-data; name="model"\r\n'
            b"Content-Type: text/plain; charset=ISO-8859-1",
        ):
            self.assertEqual(read_multipart(form(head + b"\r\n\r\nm"), TYPE).model, "m", head)

    def test_ends(self) -> None:
        """What stands before the first boundary and after the last is passed over."""
        body = form(MODEL)
        for before, after in (
            (b"", b""),
            (b"\r\n", b""),
            (b"This is --B\r\n", b"see --B and more"),
            (b"", b"\r\n\r\n"),
        ):
            self.assertEqual(read_multipart(before + body + after, TYPE).model, "m")
        self.assertEqual(read_multipart(body[:-2], TYPE).model, "m")

    def test_other_text(self) -> None:
        """Text that is not ASCII is UTF-8, in the value and in other parts' names."""
        body = form(part("\u540d".encode(), b"x"), part(b"model", "\u6a21".encode()))
        self.assertEqual(read_multipart(body, TYPE).model, "\u6a21")
        body = form(part(b"_charset_", b"UTF-8"), MODEL)
        self.assertEqual(read_multipart(body, TYPE).model, "m")


class Refusing(TestCase):
    """What is refused, and what is said of it."""

    def refused(self, body: bytes, word: str, header: bytes = TYPE) -> BodyError:
        """Check that a body is refused with a word about why."""
        fault: BodyError = self.assertRaises(BodyError, read_multipart, body, header)
        self.assertIn(word, fault.detail, body)
        return fault

    def test_content_type(self) -> None:
        """A Content-Type of another kind, or without one plain boundary, is refused."""
        for header, word in (
            (b"", "multipart/form-data was expected"),
            (b"multipart/mixed; boundary=B", "multipart/form-data was expected"),
            (b"multipart/form-data; boundary", "malformed"),
            (b"multipart/form-data; boundary=B; boundary=C", "malformed"),
            (b'multipart/form-data; boundary="B', "malformed"),
            (b"multipart/form-data; boundary=B, text/plain", "malformed"),
            (b"multipart/form-data", "boundary"),
            (b"multipart/form-data; boundary*=utf-8''B", "boundary"),
            (b'multipart/form-data; boundary=""', "boundary"),
            (b'multipart/form-data; boundary="B "', "boundary"),
            (b'multipart/form-data; boundary="B\\"', "malformed"),
            (b'multipart/form-data; boundary="a@b"', "boundary"),
            (b"multipart/form-data; boundary=" + b"x" * 71, "boundary"),
            (b"multipart/form-data; boundary=B; charset=utf-7", "charset"),
        ):
            self.refused(form(MODEL), word, header)

    def test_empty(self) -> None:
        """An empty body is refused as such."""
        self.refused(b"", "empty")

    def test_no_end(self) -> None:
        """A form without its closing boundary is refused as cut short."""
        body = form(MODEL)
        for cut in (b"x", body[:-5], body[:-7], body[:20], b"\r\n"):
            self.refused(cut, "cut short")
        self.refused(b"--", "cut short")

    def test_boundary_lines(self) -> None:
        """A line that begins like a boundary and is none is refused: parsers differ there."""
        body = form(MODEL, AUDIO)
        for malformed in (
            body.replace(b"\r\n--B\r\n", b"\n--B\r\n"),
            body.replace(b"\r\n--B\r\n", b"\r--B\r\n"),
            body.replace(b"\r\n--B\r\n", b"\r\n--B \r\n"),
            body.replace(b"\r\n--B\r\n", b"\r\n--B\n"),
            body.replace(b"\r\n--B\r\n", b"\r\n--Bx\r\n"),
            body.replace(b"--B--\r\n", b"--B--x\r\n"),
            body.replace(b"--B--\r\n", b"--B-\r\n"),
            body + b"\r\n--B\r\n" + MODEL,
            body + b"--\n--B",
            b"\n" + body,
            b"\n" + body + b"\r",
            b"x\n" + body,
            b"\r" + body,
            b"--Bx",
        ):
            self.refused(malformed, "boundary line")

    def test_headers(self) -> None:
        """A part's header that is malformed, or that parsers read differently, is refused."""
        disposition = b'Content-Disposition: form-data; name="model"'
        for head in (
            b"",
            b"\r\n" + disposition,
            b"Content-Type: text/plain",
            disposition + b"\r\n" + disposition,
            disposition + b"\r\n folded",
            disposition + b"\nX: y",
            disposition + b"\r\nX : y",
            disposition + b"\r\nX",
            disposition + b"\r\nX: \0",
            b'Content-Disposition: attachment; name="model"',
            b"Content-Disposition: form-data",
            b'Content-Disposition: form-data; name="model',
            b'Content-Disposition: form-data; name="model"; name="x"',
            b'Content-Disposition: form-data; name = "model"',
            b"Content-Disposition: form-data; name=<model>",
            b'Content-Disposition: form-data; x="\\\\"; name="model"',
            b"Content-Disposition: form-data; name*=utf-8''model",
            b"Content-Disposition: form-data; name*0=mo; name*1=del; name=x",
        ):
            self.refused(form(MODEL, head + b"\r\n\r\nm"), "header of the part")
        self.refused(b"--B\r\n--B--", "header of the part")
        self.refused(b"--B\r\n" + disposition + b"\r\n\r\n--B--", "header of the part")

    def test_bounds(self) -> None:
        """Parts, header lines and header bytes are bounded, and the bounds themselves pass."""
        lines = [b"X-%d: y" % i for i in range(MOST_HEADER_LINES - 1)]
        read_multipart(form(part(b"model", b"m", *lines)), TYPE)
        self.refused(form(part(b"model", b"m", *lines, b"Z: y")), "lines")
        rest = MOST_HEADER_BYTES - len(b'Content-Disposition: form-data; name="model"\r\nX: ')
        read_multipart(form(part(b"model", b"m", b"X: " + b"y" * rest)), TYPE)
        self.refused(form(part(b"model", b"m", b"X: " + b"y" * (rest + 1))), "4096 bytes")
        others = [part(b"x", b"")] * (MOST_PARTS - 2)
        read_multipart(form(MODEL, *others), TYPE)
        self.refused(form(MODEL, *others, part(b"x", b""), part(b"x", b"")), "1000 parts")

    def test_names(self) -> None:
        """A second model, and a name that some parser could take for it, are refused."""
        self.assertEqual(self.refused(form(MODEL, MODEL), "more than once").param, "model")
        for name in (b"Model", b"MODEL", b" model", b"model\t", b"mod%65l", b"mo\\del", b"%4Dodel"):
            for parts in ((MODEL, part(name, b"x")), (part(name, b"x"),)):
                self.assertEqual(self.refused(form(*parts), "nearly").param, "model")

    def test_no_model(self) -> None:
        """A form without a model, or with an empty one, is refused."""
        self.assertEqual(self.refused(form(AUDIO), "no part").param, "model")
        self.assertEqual(self.refused(form(part(b"model", b"")), "empty").param, "model")

    def test_no_plain_text(self) -> None:
        """A model that is a file, or not plain UTF-8, is refused."""
        latin = b"Content-Type: text/plain; charset=iso-8859-1"
        for one, word in (
            (part(b'model"; filename="x', b"m"), "filename"),
            (part(b"model\"; filename*=utf-8''x; y=\"", b"m"), "filename"),
            (part(b"model", b"bQ==", b"Content-Transfer-Encoding: base64"), "Transfer-Encoding"),
            (part(b"model", b"m", b"Content-Type: text/plain; charset=utf-16"), "charset"),
            (part(b"model", b"m", b"Content-Type: text/plain; charset"), "charset"),
            (part(b"model", "\u00e9".encode(), latin), "charset"),
            (part(b"model", b"\xe9"), "UTF-8"),
            (part(b"model", b"\xef\xbb\xbfm"), "byte order mark"),
            (part(b"_charset_", b"utf-7"), "charset"),
        ):
            self.refused(form(one) if b"model" in one else form(one, MODEL), word)

    def test_stream(self) -> None:
        """A `stream` that is neither true nor false, or there twice, is refused."""
        for value in (b"", b"1", b"yes", b"true "):
            fault = self.refused(form(MODEL, part(b"stream", value)), "`true` or `false`")
            self.assertEqual(fault.param, "stream")
        stream = part(b"stream", b"true")
        self.assertEqual(self.refused(form(MODEL, stream, stream), "once").param, "stream")

    def test_nothing_is_quoted(self) -> None:
        """What is said never holds any of the body."""
        for body in (
            form(part(b"sesame", b"x")),
            form(b"sesame"),
            form(MODEL, part(b"stream", b"sesame")),
        ):
            fault: BodyError = self.assertRaises(BodyError, read_multipart, body, TYPE)
            self.assertNotIn("sesame", fault.detail)

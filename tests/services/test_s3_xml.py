from __future__ import annotations

from urllib.parse import unquote_plus

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.services import s3_names, s3_xml
from twisted_gateway.services.adapter import BadAnswer, BadParameter


class RefusalTests(TestCase):
    """What a store says when it refuses."""

    def test_code_and_message(self) -> None:
        """Code and message come on one line."""
        body = b"<Error xmlns='urn:x'><Code>A</Code><Message> b\n c </Message><Key>k</Key></Error>"
        self.assertEqual(s3_xml.refusal(body), "A: b c")

    @examples(100)
    @given(st.binary(max_size=60))
    def test_anything(self, body: bytes) -> None:
        """Whatever it is, there are words or none."""
        self.assertIsInstance(s3_xml.refusal(body), str)

    def test_entities(self) -> None:
        """Entities are not resolved, for a document type is refused."""
        bomb = (
            b"<!DOCTYPE l [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><Error><Code>&b;</Code></Error>"
        )
        self.assertEqual(s3_xml.refusal(bomb), "")
        with self.assertRaises(BadAnswer):
            s3_xml.parse(bomb)

    def test_bounded(self) -> None:
        """What nests deep, or has very many elements, is given up at once."""
        for body in (
            b"<a>" * 17 + b"</a>" * 17,
            b"<a>" * 1_000_000,
            b"<a>" + b"<b/>" * s3_xml.MAX_ELEMENTS + b"</a>",
            b"<a>" + b"<!---->" * s3_xml.MAX_ELEMENTS + b"</a>",
            b"<a>" + b"<?b c?>" * s3_xml.MAX_ELEMENTS + b"</a>",
            b"<a " + b" ".join(b'a%d="1"' % number for number in range(40)) + b"/>",
            b"<a " + b" ".join(b"xmlns:a%d='>'" % number for number in range(40)) + b"/>",
        ):
            with self.assertRaisesRegex(BadAnswer, "too many"):
                s3_xml.parse(body)
        self.assertEqual(len(s3_xml.parse(b"<a>" + b"<b/>" * 20_000 + b"</a>")), 20_000)

    def test_white_space_before(self) -> None:
        """White space before the declaration is none of the document."""
        body = b" \n<?xml version='1.0'?><Error><Code>A</Code></Error>"
        self.assertEqual(s3_xml.refusal(body), "A")


class ListingTests(TestCase):
    """Pages of keys."""

    def listing(self, *contents: str, coded: bool = True) -> list[str]:
        text = "".join(f"<Contents><Key>{one}</Key></Contents>" for one in contents)
        coding = "<EncodingType>url</EncodingType>" if coded else ""
        body = f"<ListBucketResult>{coding}{text}</ListBucketResult>".encode()
        return [one["key"] for one in s3_xml.listing(body, "b")["objects"]]

    def test_escapes(self) -> None:
        """Escapes are undone, as forms have them, and what is none stays."""
        for coded, key in (
            ("a%20b+c%2Bd", "a b c+d"),
            ("%E4%BD%A0x%c3%A4", "\u4f60x\xe4"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
            ("%ff", "\ufffd"),
            ("\xe4%C3%A4", "\xe4\xe4"),
        ):
            self.assertEqual(self.listing(coded), [key])
        self.assertEqual(self.listing("a%20b+c", coded=False), ["a%20b+c"])

    @examples(200)
    @given(st.text("%+aA4fFéz ", max_size=12))
    def test_as_forms_have_it(self, text: str) -> None:
        """It is what `urllib.parse` makes of it, which takes a hundred times as long."""
        self.assertEqual(self.listing(f"-{text}-"), [unquote_plus(f"-{text}-")])

    def test_bounds(self) -> None:
        """A key that is too long to be one, or a page of more than S3 gives, is no listing."""
        self.assertEqual(self.listing("%41" * 1024), ["A" * 1024])
        self.assertEqual(len(self.listing(*["a"] * 1000)), 1000)
        for contents in (["%41" * 1025], ["a"] * 1001):
            with self.assertRaises(BadAnswer):
                self.listing(*contents)

    def test_encoding(self) -> None:
        """A document is UTF-8, whatever it calls itself: else its tags could not be found."""
        body = "<ListBucketResult><Prefix>\xe4</Prefix></ListBucketResult>"
        declared = "<?xml version='1.0' encoding='latin-1'?>" + body
        self.assertEqual(s3_xml.listing(declared.encode(), "b")["prefix"], "\xe4")
        for other in (body.encode("latin-1"), body.encode("utf-16")):
            with self.assertRaises(BadAnswer):
                s3_xml.parse(other)


class NamesTests(TestCase):
    """Keys and buckets."""

    @examples(200)
    @given(st.text(max_size=30))
    def test_keys_stay_in_their_bucket(self, text: str) -> None:
        """No key that passes has a segment of dots, whatever slash somebody takes for one."""
        try:
            passed = s3_names.key(text)
        except BadParameter:
            return
        segments = passed.replace("\\", "/").split("/")
        self.assertNotIn("..", segments)
        self.assertNotIn(".", segments)

    @examples(200)
    @given(st.text("aA0.-_/\\%:@?#\r\n é", max_size=10))
    def test_buckets_are_one_segment(self, text: str) -> None:
        """No bucket that passes needs an escape, or is more or less than one segment."""
        try:
            passed = s3_names.bucket(text)
        except BadParameter:
            return
        self.assertRegex(passed, r"\A[A-Za-z0-9._-]+\Z")
        self.assertNotIn(passed, (".", ".."))

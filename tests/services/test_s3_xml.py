from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.services import s3_names, s3_xml
from twisted_gateway.services.adapter import BadAnswer, BadParameter


class RefusalTests(TestCase):
    """What a store says when it refuses."""

    def test_code_and_message(self) -> None:
        """Code and message come on one line, bounded."""
        body = b"<Error xmlns='urn:x'><Code>A</Code><Message> b\n c </Message><Key>k</Key></Error>"
        self.assertEqual(s3_xml.refusal(body), "A: b c")
        long = b"<Error><Code>A</Code><Message>" + b"x" * 10_000 + b"</Message></Error>"
        self.assertLess(len(s3_xml.refusal(long)), 2000)

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
        ):
            with self.assertRaisesRegex(BadAnswer, "too many"):
                s3_xml.parse(body)
        self.assertEqual(len(s3_xml.parse(b"<a>" + b"<b/>" * 20_000 + b"</a>")), 20_000)

    def test_white_space_before(self) -> None:
        """White space before the declaration is none of the document."""
        body = b" \n<?xml version='1.0'?><Error><Code>A</Code></Error>"
        self.assertEqual(s3_xml.refusal(body), "A")


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

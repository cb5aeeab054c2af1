from __future__ import annotations

import itertools
from urllib.parse import unquote_plus
from xml.etree import ElementTree

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
        self.assertIsInstance(s3_xml.refusal(body, "text/xml; charset=latin-1"), str)

    @examples(200)
    @given(st.text("<>\"'!-?[]CDAT a=/", max_size=40))
    def test_any_markup(self, text: str) -> None:
        """No text is taken for a tag of many attributes that the parser takes for another."""
        body = f"<Error><Code>A</Code><x>{text}</x></Error>".encode()
        try:
            ElementTree.fromstring(body)
        except ElementTree.ParseError:
            self.assertRaises(BadAnswer, s3_xml.parse, body)
        else:
            self.assertEqual(s3_xml.refusal(body), "A")

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
            b"<a " + b" ".join(b'a%d="1"' % number for number in range(5)) + b"/>",
            b"<a " + b" ".join(b"xmlns:a%d='>'" % number for number in range(5)) + b"/>",
            b"<a>" + b"<![CDATA[x]]>" * 1_000_000 + b"</a>",
        ):
            with self.assertRaisesRegex(BadAnswer, "too many"):
                s3_xml.parse(body)
        self.assertEqual(len(s3_xml.parse(b"<a>" + b"<b/>" * 20_000 + b"</a>")), 20_000)

    def test_long_tags(self) -> None:
        """What the parser would have to buffer for long is given up before it has all of it."""
        long = b"x" * 100_000
        for inside in (
            b"<" + long + b"/>",
            b"<b a='" + long + b"'/>",
            b"<b " + b" ".join(b"a%d=''" % number for number in range(90_000)) + b"/>",
            b"<!--" + long + b"-->",
            b"<?b " + long + b"?>",
        ):
            with self.assertRaisesRegex(BadAnswer, "too long a tag"):
                s3_xml.parse(b"<a>" + inside + b"<b/></a>")
        for inside in (long, b"<![CDATA[" + long + b"]]>", b"\n" * 100_000, b"&lt;" * 30_000):
            self.assertGreater(
                len(s3_xml.text(s3_xml.parse(b"<a><b>" + inside + b"</b></a>"), "b")), 9999
            )

    def test_long_namespace(self) -> None:
        """Its name is in no element's name: else a megabyte made two thousand."""
        tree = s3_xml.parse(
            b"<a xmlns='"
            + b"u" * 10_000
            + b"'>"
            + b"".join(b"<b%d/>" % n for n in range(9))
            + b"</a>"
        )
        self.assertEqual({len(one.tag) for one in tree.iter()}, {1, 2})

    def test_quotation_marks(self) -> None:
        """They count where they are those of attributes, and nowhere else."""
        many = "\"'" * 500
        for inside, said in (
            (many, many),
            (f"<![CDATA[<a {many}>]]>", f"<a {many}>"),
            (f"<!--<a {many}-->x<?p <a {many}?>", "x"),
        ):
            error = f"<ErrorResponse><Error><Message>{inside}</Message></Error></ErrorResponse>"
            self.assertEqual(s3_xml.refusal(error.encode()), said)
        for count, attribute in itertools.product((4, 5), ("a{}='\">'", '\n a{} = ">"', "a{}=''")):
            tag = " ".join(attribute.format(number) for number in range(count))
            body = f"<Error {tag}><Code>A</Code></Error>".encode()
            self.assertEqual(s3_xml.refusal(body), "A" if count == 4 else "")

    def test_encodings(self) -> None:
        """What is said in ISO-8859-1 is read, as the field or the declaration has it."""
        error = "<Error><Message>kein Schl\xfcssel</Message></Error>"
        said = "kein Schl\xfcssel"
        for declaration, content_type, encoding, shown in (
            ("<?xml version='1.0' encoding='ISO-8859-1'?>", "", "latin-1", said),
            ("<?xml version='1.0' encoding='US-ASCII'?>", "application/xml", "latin-1", said),
            ("", "application/xml; charset=iso-8859-1", "latin-1", said),
            ("", "", "latin-1", "kein Schl\ufffdssel"),
            ("", "text/xml; charset=klingon", "latin-1", "kein Schl\ufffdssel"),
            ("<?xml version='1.0' encoding='latin-1'?>", "", "utf-8", said),
            ("<?xml version='1.0' encoding='klingon'?>", "", "utf-8-sig", said),
        ):
            body = (declaration + error).encode(encoding)
            self.assertEqual(s3_xml.refusal(body, content_type), shown)

    def test_prefixes(self) -> None:
        """Names are taken without their prefix."""
        body = b"<s:Error xmlns:s='urn:s'><s:Code>A</s:Code><s:Message>b</s:Message></s:Error>"
        self.assertEqual(s3_xml.refusal(body), "A: b")

    def test_document_types(self) -> None:
        """One is refused wherever it can stand, and is text where it is none."""
        kind = "<!DOCTYPE a [<!ENTITY b 'c'>]>"
        for before in (
            "",
            "<?xml version='1.0'?>\n",
            "<!-- <a> --> <?b >?>",
            " <!---->",
            "\ufeff\ufeff",
        ):
            self.assertEqual(s3_xml.refusal(f"{before}{kind}<Error/>".encode()), "")
            with self.assertRaisesRegex(BadAnswer, "document type"):
                s3_xml.parse(f"{before}{kind}<a/>".encode())
        for inside in (f"<!--{kind}-->", f"<![CDATA[{kind}]]>"):
            tree = s3_xml.parse(f"<!--{kind}--><a><b>{inside}</b></a>".encode())
            self.assertEqual(s3_xml.text(tree, "b"), kind if "CDATA" in inside else "")
        with self.assertRaisesRegex(BadAnswer, "not XML"):
            s3_xml.parse(f"<a>{kind}</a>".encode())

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

    def test_sizes(self) -> None:
        """What is no size is none."""
        for size, shown in (("5", 5), ("", None), ("-1", None), ("x", None), ("1" * 5000, None)):
            body = f"<ListBucketResult><Contents><Key>k</Key><Size>{size}</Size></Contents>"
            listing = s3_xml.listing(f"{body}</ListBucketResult>".encode(), "b")
            self.assertEqual(listing["objects"][0]["size"], shown)

    def test_bounds(self) -> None:
        """A key that is too long to be one, or a page of more than S3 gives, is no listing."""
        self.assertEqual(self.listing("%41" * 1024), ["A" * 1024])
        self.assertEqual(len(self.listing(*["a"] * 1000)), 1000)
        for contents in (["%41" * 1025], ["a"] * 1001):
            with self.assertRaises(BadAnswer):
                self.listing(*contents)

    def test_encoding(self) -> None:
        """A listing in UTF-8 is that whatever it calls itself; no key is guessed in another one."""
        body = "<ListBucketResult><Prefix>\xe4</Prefix></ListBucketResult>"
        declared = "<?xml version='1.0' encoding='latin-1'?>" + body
        self.assertEqual(s3_xml.listing(declared.encode(), "b")["prefix"], "\xe4")
        self.assertEqual(s3_xml.listing(declared.encode("latin-1"), "b")["prefix"], "\xe4")
        other_name = declared.replace("latin-1", "koi8-r")
        for other in (
            body.encode("latin-1"),
            body.encode("utf-16"),
            other_name.encode("latin-1"),
        ):
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

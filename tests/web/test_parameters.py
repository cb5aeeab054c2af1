from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from twisted.web.http_headers import Headers

from tests.support import TestCase, examples
from twisted_gateway.core.errors import Problem
from twisted_gateway.services.adapter import BadParameter, Parameter
from twisted_gateway.web import parameters
from twisted_gateway.web.parameters import MOST_MEMBERS, read_fields, read_parameters


def number(text: str) -> str:
    if not text.isdecimal():
        raise BadParameter("a number")
    return text.lstrip("0")


KNOWN = (Parameter("name", required=True), Parameter("size", form=number))


class ReadTests(TestCase):
    """Query strings."""

    def test_empty_parts(self) -> None:
        """An ampersand too many means nothing."""
        self.assertEqual(read_parameters(b"&name=a&&size=1&", KNOWN), {"name": "a", "size": "1"})

    def test_very_many(self) -> None:
        """Of very many bad ones some are named, and the rest counted."""
        query = b"&".join(b"x%d=" % number for number in range(3000))
        with self.assertRaises(Problem) as caught:
            read_parameters(query, KNOWN)
        problem = caught.exception
        self.assertEqual(len(problem.members["invalid"]), 20)
        self.assertIn("2980 more", problem.detail)
        self.assertLess(len(problem.body("-")), 10_000)

    def problem(self, query: bytes) -> Mapping[str, object]:
        with self.assertRaises(Problem) as caught:
            read_parameters(query, KNOWN)
        self.assertEqual(caught.exception.status, 400)
        members: Mapping[str, object] = caught.exception.members
        return members

    def test_words(self) -> None:
        """It names each, and claims of none that it stood in the query string."""
        with self.assertRaises(Problem) as caught:
            read_parameters(b"", KNOWN, {"size": "x"})
        self.assertEqual(
            caught.exception.detail,
            "The parameters of the request are not what is needed: name is missing; "
            "size: expected a number.",
        )

    def test_good(self) -> None:
        """Values come decoded, in their forms; an empty one is as good as none."""
        for query, values in (
            (b"name=a", {"name": "a"}),
            (b"name=a+b%20c%2B&size=007", {"name": "a b c+", "size": "7"}),
            (b"name=%C3%A4&size=", {"name": "ä"}),
            (b"na%6De=a%3D=b%26", {"name": "a==b&"}),
        ):
            self.assertEqual(read_parameters(query, KNOWN), values)
        self.assertEqual(read_parameters(b"", ()), {})

    def test_missing_and_bad(self) -> None:
        """All that is wrong is named at once."""
        self.assertEqual(self.problem(b""), {"missing": ["name"], "invalid": {}})
        self.assertEqual(
            self.problem(b"size=x"), {"missing": ["name"], "invalid": {"size": "a number"}}
        )
        self.assertEqual(self.problem(b"name=")["missing"], ["name"])
        self.assertEqual(
            self.problem(b"name=a&name=b&x=1"),
            {"missing": [], "invalid": {"name": "it once", "x": "name, size, and no other"}},
        )
        self.assertEqual(self.problem(b"name=%FF")["invalid"], {"name": "percent-encoded UTF-8"})
        self.assertEqual(self.problem(b"%FF=a")["missing"], ["name"])
        self.assertEqual(
            self.problem(b"name=a&=&size=1")["invalid"], {"": "name, size, and no other"}
        )

    @examples(200)
    @given(st.binary(max_size=40))
    def test_anything(self, query: bytes) -> None:
        """Whatever stands there is values or a problem of bounded size."""
        try:
            values = read_parameters(query, KNOWN)
        except Problem as problem:
            self.assertLess(len(problem.body("x")), 8000)
        else:
            self.assertLessEqual(set(values), {"name", "size"})


class FieldsTests(TestCase):
    """Parameters in a body."""

    HEADERS = Headers({b"Content-Type": [b"application/json"]})

    def read(self, text: str) -> Mapping[str, object]:
        return read_fields(self.HEADERS, text.encode())

    def test_very_many(self) -> None:
        """A body of very many members or objects is refused as a whole, none of them looked at."""
        members = [f'"{number}": 1' for number in range(MOST_MEMBERS + 1)]
        self.assertEqual(len(self.read("{" + ",".join(members[:-1]) + "}")), MOST_MEMBERS)
        for body in (
            "{" + ",".join(members) + "}",
            '{"name": {' + ",".join(members) + "}}",
            '{"name": [' + ",".join(["{}"] * (MOST_MEMBERS + 1)) + "]}",
        ):
            with self.assertRaises(Problem) as caught:
                self.read(body)
            self.assertEqual(
                (caught.exception.status, caught.exception.kind), (400, "malformed_body")
            )
            self.assertIn("at most 100 members", caught.exception.detail)

    def test_unknown(self) -> None:
        """Of a member that there is not the name alone is looked at."""
        asked: list[object] = []

        def as_text(value: object) -> str:
            asked.append(value)
            return str(value)

        self.patch(parameters, "as_text", as_text)
        with self.assertRaises(Problem) as caught:
            read_parameters(b"", KNOWN, {"name": "a", "other": [1]})
        self.assertEqual(asked, ["a"])
        self.assertEqual(caught.exception.members["invalid"], {"other": "name, size, and no other"})

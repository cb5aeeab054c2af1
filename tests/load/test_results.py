"""The JSON file: what goes in comes out, and what is none is said to be none."""

from __future__ import annotations

import json
from pathlib import Path

from tests.load.harness import request, result, tried
from tests.support import TestCase
from twisted_gateway.load.figures import summarize
from twisted_gateway.load.results import SCHEMA, Ending, Gate, Place, Unreadable, as_json, read


class File(TestCase):
    """Written and read."""

    def setUp(self) -> None:
        super().setUp()
        self.path = Path(self.mktemp())

    def test_there_and_back(self) -> None:
        """A result that was written is read as it was."""
        run = result(
            request(0, tried(kept=3.5, position=2, eta=4.0, reason="x")),
            request(1, ending=Ending.GAVE_UP, priority="batch"),
            places=[Place(1.0, 0, 3, 4.0)],
            gate=Gate(max_queue_depth=8),
        )
        self.path.write_bytes(as_json(run, summary=summarize(run)))
        self.assertEqual(read(self.path), run)

    def test_schema_first(self) -> None:
        """The file begins with its schema and settings, and has the summary for other readers."""
        tree = json.loads(as_json(result(), summary=summarize(result())))
        self.assertEqual(list(tree)[:3], ["schema", "settings", "summary"])
        self.assertEqual(tree["schema"], SCHEMA)

    def test_rounded(self) -> None:
        """Numbers go no further than a tenth of a millisecond."""
        tree = json.loads(as_json(result(took=1 / 3)))
        self.assertEqual(tree["took"], 0.3333)

    def refuses(self, content: bytes | None, words: str) -> None:
        if content is not None:
            self.path.write_bytes(content)
        fault = str(self.assertRaises(Unreadable, read, self.path))
        self.assertIn(str(self.path), fault)
        self.assertIn(words, fault)

    def test_no_file(self) -> None:
        """A file that is not there is said not to be readable."""
        self.refuses(None, "expected a readable file")

    def test_no_json(self) -> None:
        """A file that is no JSON names the schema that was expected."""
        self.refuses(b"<html>", f"expected a file of schema {SCHEMA}")

    def test_other_schema(self) -> None:
        """A file of another schema is refused."""
        other = as_json(result()).replace(SCHEMA.encode(), b"llm-gateway-load/99")
        self.refuses(other, "schema")

    def test_contradictions(self) -> None:
        """A file that contradicts itself is refused too, and breaks no figure."""
        no_try = request(0)
        no_try.tries.clear()
        told = [Place(1.0, 5, 3, 4.0)]
        for run, words in (
            (result(request(1)), "request 1 is in the place of 0"),
            (result(no_try), "request 0 completed without a try"),
            (result(request(0), places=told), "told to request 5"),
            (result(request(0), places=[Place(1.0, -1, 3)]), "told to request -1"),
            (result(took=-1.0), "time goes backwards"),
            (result(speed=0.0), "time goes backwards"),
        ):
            self.refuses(as_json(run), words)

    def test_other_json(self) -> None:
        """Other JSON is refused, with what it lacks."""
        self.refuses(b'{"x": 1}', "missing required field")

"""That no credential is in any text, whoever repeats it and wherever the text is cut."""

from __future__ import annotations

import json
from pathlib import Path

from tests.check.harness import CHAT, TOKEN, Came, Says, ToolTestCase, problem, service, stream
from tests.support import TestCase
from twisted_gateway.check.redactor import Redactor
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES, MAX_MESSAGE_CHARS

BEGUN = TOKEN[:8]


class RedactorTests(TestCase):
    """Texts."""

    def test_whole(self) -> None:
        """A credential is masked, also one that is a part of another, and one that came later."""
        redactor = Redactor(["part-of-it", "the-part-of-it-and-more", ""])
        redactor.add("later-one")
        text = "the-part-of-it-and-more, part-of-it, later-one, else"
        self.assertEqual(redactor(text), "***, ***, ***, else")

    def test_cut(self) -> None:
        """The beginning of one is masked where the text was cut, in each form that it may have."""
        redactor = Redactor(["secret/of mine"])
        for whole in ("secret/of mine", "secret%2Fof%20mine", "secret%2Fof+mine"):
            for length in range(4, len(whole)):
                self.assertEqual(redactor(f"a {whole[:length]}…"), "a ***…", whole[:length])
        # What many begin with tells nothing, and words are words.
        self.assertEqual(redactor("a sec…"), "a sec…")
        self.assertEqual(redactor("a secret"), "a secret")
        self.assertEqual(redactor("nothing of it…"), "nothing of it…")


class ToolTests(ToolTestCase):
    """Whatever a server repeats, wherever it stands."""

    def run_(self, *arguments: str) -> str:
        """Run the check with a token; gives all that it wrote."""
        path = Path(self.mktemp())
        self.check("--token-env", "TOKEN", "--junit", str(path), *arguments)
        written = path.read_text(encoding="utf-8")
        return self.printed.getvalue() + self.said.getvalue() + written

    def hidden(self, *arguments: str) -> None:
        """See to it that not even the beginning of the token is in what is written."""
        written = self.run_(*arguments)
        self.assertIn("***", written)
        self.assertNotIn(BEGUN, written)

    def test_where_it_is_cut(self) -> None:
        """Half a token stands in no text, wherever that ends."""
        self.gateway.serve(iam=service("list-users", kind="iam"))
        for before in (230, 260, 280, 295, 470, 490):
            self.again()
            self.gateway.serve(iam=service("list-users", kind="iam"))
            # Of a 4xx something is said behind it.
            said = problem(403, "x")
            said.body["detail"] = f"{'x' * before} {TOKEN} and more"
            self.gateway.says["iam/list-users"] = said
            written = self.run_("--models", "")
            self.assertNotIn(BEGUN, written, before)

    def test_cut_by_whoever_read_it(self) -> None:
        """What is masked makes a text shorter: what was cut far behind then comes to be shown."""
        self.gateway.serve(iam=service("list-users", kind="iam"))
        many = f"{TOKEN} " * (MAX_MESSAGE_CHARS // (len(TOKEN) + 1))
        message = f"{many}{'x' * (MAX_MESSAGE_CHARS - len(many) - 25)} {TOKEN}"
        self.gateway.says["iam/list-users"] = Says(403, {"error": {"message": message}})
        self.hidden("--models", "")

    def test_cut_of_a_long_answer(self) -> None:
        """Nor what was cut because nobody reads further."""
        self.environ["TOKEN"] = token = "t0ken-" * 300
        self.gateway.serve(iam=service("list-users", kind="iam"))
        many = f"{token} " * (MAX_ERROR_BODY_BYTES // (len(token) + 1) + 1)
        self.gateway.says["iam/list-users"] = Says(403, many.encode(), "text/plain")
        written = self.run_("--models", "")
        self.assertIn("***", written)
        self.assertNotIn("t0ken-", written)

    def test_in_a_stream(self) -> None:
        """Nor does an error event have it."""
        many = f"{TOKEN} " * (MAX_MESSAGE_CHARS // (len(TOKEN) + 1))
        message = f"{many}{'x' * (MAX_MESSAGE_CHARS - len(many) - 25)} {TOKEN}"
        error = json.dumps({"error": {"message": message}})
        self.gateway.says["/v1/chat/completions"] = lambda came: (
            stream(error) if came.tree.get("stream") else CHAT
        )
        self.hidden("--models", "m")

    def test_as_a_name(self) -> None:
        """A model or a service that is called so is checked, and not shown."""
        self.gateway.serve(**{TOKEN: {"kind": "other"}})
        self.gateway.says["/v1/models"] = Says(200, {"data": [{"id": "x" * 90 + f" {TOKEN}"}]})
        self.hidden()

    def test_while_it_waits(self) -> None:
        """A reason not to be ready is shown before anything is recorded."""
        reasons = {"status": "unavailable", "reasons": ["x" * 480 + f" {TOKEN}"]}
        self.gateway.says["/health/ready"] = self.gateway.admin(Says(503, reasons))
        made = self.begin("--token-env", "TOKEN", "--wait", "2")
        self.advance(3)
        self.assertEqual(self.status(made), 3)
        written = self.said.getvalue() + self.printed.getvalue()
        self.assertIn("waiting: ", written)
        self.assertNotIn(BEGUN, written)

    def test_refused_by_the_provider(self) -> None:
        """What a provider says of a client's secret is cut after it was masked."""
        self.environ["S"] = "s3cret-of-the-client"
        said = {"error": "invalid_client", "error_description": "x" * 455 + " s3cret-of-the-client"}
        self.gateway.says["/v1/auth/token"] = Says(401, said)
        self.check("--client-id", "me", "--client-secret-env", "S")
        self.assertEqual(self.rows()["token"][0], "FAILED")
        self.assertNotIn("s3cret", self.printed.getvalue())

    def test_touching_other_characters(self) -> None:
        """A letter or a digit before it does not let it pass."""

        def repeat(came: Came) -> Says:
            return Says(403, {"detail": f"tok_{TOKEN}, a{TOKEN}1"})

        self.gateway.says["/v1/services"] = repeat
        self.hidden()

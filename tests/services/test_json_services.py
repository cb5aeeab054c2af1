from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.services.stack import ServicesTestCase
from tests.stack import Asked, Client
from twisted_gateway.core.strict_json import MOST_VALUES

CONFIG = """
adapters:
  notification: {upstream: "http://10.5.0.1/gotify", token: gotify-token, requireAuth: false}
  iam: {upstream: "http://10.5.0.2:9000", token: authentik-token, requireAuth: false}
  registry: {upstream: "http://10.5.0.3:3000", token: forgejo-token, requireAuth: false}
  public: {kind: registry, upstream: "http://10.5.0.3:3000", requireAuth: false}
"""
OUT_OF_RANGE = b'{"data": [], "results": [], "pagination": {"count": 1e999}}'
BRIEF = {"include_groups": "false", "include_roles": "false"}
USER = {
    "pk": 7,
    "username": "ada",
    "name": "Ada",
    "email": "ada@example.com",
    "is_active": True,
    "avatar": "https://inside.example/a.png",
    "attributes": {"password_hash": "x"},
    "uid": "secret-uid",
}
PAGING = {"next": 3, "previous": 1, "count": 42.0, "current": 2, "total_pages": 5}


class JsonServicesTestCase(ServicesTestCase):
    """A gateway before Gotify, authentik and Forgejo."""

    config = CONFIG
    host, port = "10.5.0.1", 80

    @property
    def there(self) -> Asked:
        """What the service was asked last."""
        return self.stack.engine(self.host, self.port).last

    @property
    def count(self) -> int:
        return len(self.stack.engine(self.host, self.port).asked)

    @property
    def query(self) -> dict[str, str]:
        """The query that the service was asked last."""
        pairs = parse_qs(urlsplit(self.there.path).query, keep_blank_values=True)
        return {name: values[-1] for name, values in pairs.items()}

    def get(self, service: str, resource: str, query: str = "") -> Client:
        return self.ask(service, resource, method="GET", path=f"/?{query}", body=b"", token=None)

    def check_refusals(self, ask: Any, secret: str) -> None:
        """Whatever the service answers, its token is in nothing that the client gets."""
        for status in (401, 403, 404, 500):
            client = ask()
            self.there.answer(status, {"detail": "no"})
            self.assertEqual(client.status, 502 if status == 401 else status)
            self.assertEqual(client.json["upstream_status"], status)
            self.assertNotIn(secret.encode(), client.received)
        for body in (b"<html>", b"[5]", b"5", b"{}", b"[" * 9999, OUT_OF_RANGE):
            client = ask()
            self.there.answer(body=body)
            self.assertEqual(client.status, 502, body)
        client = ask()
        self.there.answer(body=b"[" + b"0," * MOST_VALUES + b"0]")
        self.assertEqual(client.status, 502)
        self.assertIn("its answer has too many values", client.json["detail"])
        client = ask()
        self.there.answer(500, {"detail": f"http://{self.host}/x, db.svc:54, [::1]:80"})
        self.assertEqual(client.json["upstream_message"], "http://***/x, ***, ***")
        moment = "Fri, 01 Jan 2027 00:00:00 GMT"
        for given, passed in (
            ("7", "7"),
            (moment, moment),
            ("-1", None),
            ("7.5", None),
            ("soon", None),
            (f"{moment}X", None),
        ):
            client = ask()
            self.there.answer(503, b"", extra=f"retry-after: {given}\r\n")
            self.assertEqual(client.headers.get("retry-after"), passed)
        client = ask()
        self.there.answer(302, b"", extra="location: http://inside.example/\r\n")
        self.assertEqual(client.status, 502)
        self.assertNotIn(b"inside.example", client.received)
        self.assertNotIn(secret, repr(self.stack.entries))


class NotificationTests(JsonServicesTestCase):
    """Gotify."""

    def send(self, **members: Any) -> Client:
        return self.ask(
            "notification",
            "send-message",
            body=json.dumps(members).encode(),
            token=None,
            headers={"Content-Type": "application/json"},
        )

    def test_send(self) -> None:
        """A message is sent as Gotify has it, and the answer says what became of it."""
        client = self.send(title="Hä", message="a\nb", priority=7)
        asked = self.there
        self.assertEqual((asked.method, asked.path), ("POST", "/gotify/message"))
        self.assertEqual(asked.headers["x-gotify-key"], "gotify-token")
        self.assertEqual(asked.headers["content-type"], "application/json")
        self.assertEqual(json.loads(asked.body), {"title": "Hä", "message": "a\nb", "priority": 7})
        asked.answer(body={"id": 5, "appid": 3, "title": "Hä", "message": "a\nb", "priority": 7})
        self.assertEqual(
            client.json,
            {"id": 5, "date": None, "title": "Hä", "message": "a\nb", "priority": 7},
        )

    def test_message_alone(self) -> None:
        """A message is all that it takes."""
        self.send(message="x")
        self.assertEqual(json.loads(self.there.body), {"message": "x"})
        self.there.answer()

    def test_bad(self) -> None:
        """What no message has is refused, a title of two lines among it."""
        for members, names in (
            ({}, ["message"]),
            ({"message": ""}, ["message"]),
            ({"message": "x", "title": "a\r\nX-Gotify-Key: b"}, ["title"]),
            ({"message": "x", "priority": 11}, ["priority"]),
            ({"message": "x", "priority": 1.5}, ["priority"]),
            ({"message": "x", "extras": {}}, ["extras"]),
            ({"message": "\0"}, ["message"]),
        ):
            client = self.send(**members)
            self.assertEqual(client.status, 400, members)
            self.assertEqual([*client.json["missing"], *client.json["invalid"]], names)
        self.assertEqual(self.count, 0)

    def test_refusals(self) -> None:
        """Gotify's refusals come through, without its token."""
        for status in (400, 401):
            client = self.send(message="x")
            why = "no such token: gotify-token"
            said = {"error": "Unauthorized", "errorCode": status, "errorDescription": why}
            self.there.answer(status, said)
            self.assertEqual(client.json["upstream_status"], status)
            self.assertEqual(client.json["upstream_message"], "no such token: ***")
            self.assertNotIn(b"gotify-token", client.received)


class IamTests(JsonServicesTestCase):
    """authentik."""

    host, port = "10.5.0.2", 9000

    def test_list(self) -> None:
        """A page of users comes without what is nobody's business, and says what is next."""
        client = self.get("iam", "list-users", "page=2&page_size=10&search=a%26b&is_active=true")
        asked = self.there
        self.assertEqual(urlsplit(asked.path).path, "/api/v3/core/users/")
        self.assertEqual(
            self.query,
            {"page": "2", "page_size": "10", "search": "a&b", "is_active": "true", **BRIEF},
        )
        self.assertEqual(asked.headers["authorization"], "Bearer authentik-token")
        asked.answer(body={"pagination": PAGING, "results": [USER]})
        page = client.json
        self.assertEqual(page["users"][0]["username"], "ada")
        for hidden in ("avatar", "attributes", "uid"):
            self.assertNotIn(hidden, page["users"][0])
        del page["users"]
        self.assertEqual(page, {"page": 2, "next_page": 3, "pages": 5, "total": 42})

    def test_nested(self) -> None:
        """What is no plain value or list of such is left out: it would be written as it came."""
        client = self.get("iam", "list-users")
        user = {"pk": 1, "name": {"a": 1}, "email": [[1]], "groups": ["a", "b"]}
        self.there.answer(body={"pagination": PAGING, "results": [user]})
        shown = client.json["users"][0]
        self.assertEqual((shown["pk"], shown["groups"]), (1, ["a", "b"]))
        self.assertEqual((shown["name"], shown["email"]), (None, None))

    def test_last_page(self) -> None:
        """Behind the last page there is none."""
        client = self.get("iam", "list-users")
        self.assertEqual(self.query, {"page": "1", "page_size": "20", **BRIEF})
        self.there.answer(body={"pagination": {**PAGING, "next": 0}, "results": []})
        self.assertIsNone(client.json["next_page"])

    def test_bad(self) -> None:
        """No parameter gets out of its place."""
        for query in (
            *("page=0", "page=x", "page_size=101", "is_active=yes", "search=a%0d%0ab"),
            *("username=%00", "password=x", "page=1&page=2", "email=" + "a" * 257),
        ):
            client = self.get("iam", "list-users", query)
            self.assertEqual(client.status, 400, query)
        self.assertEqual(self.count, 0)

    def test_refusals(self) -> None:
        """authentik's refusals come through, without its token."""
        self.check_refusals(lambda: self.get("iam", "list-users"), "authentik-token")


class WordsTests(JsonServicesTestCase):
    """What a service says of itself is cleaned before it is cut."""

    def notify(self) -> Client:
        return self.ask("notification", "send-message", path="/?message=m", body=b"", token=None)

    def test_latin_1(self) -> None:
        """Words are read in the encoding that the answer says."""
        client = self.notify()
        self.there.answer(400, b"Refus\xe9", content_type="text/plain; charset=iso-8859-1")
        self.assertEqual(client.json["upstream_message"], "Refusé")

    def test_secret_at_the_end(self) -> None:
        """A credential that the end of what is shown goes through is none of it."""
        for before in range(1970, 2001, 5):
            client = self.notify()
            self.there.answer(400, {"errorDescription": "x" * before + " gotify-token!"})
            self.assertEqual(client.status, 400)
            self.assertNotIn("got", client.json["upstream_message"])
            self.assertLessEqual(len(client.json["upstream_message"]), 2000)

    def test_secret_in_a_word(self) -> None:
        """Nor is one that touches other letters, or is percent-encoded."""
        client = self.notify()
        self.there.answer(400, {"errorDescription": "token%20gotify-token tok_gotify-token1"})
        self.assertEqual(client.json["upstream_message"], "token%20*** tok_***1")

    def test_address_at_the_end(self) -> None:
        """So it is with addresses, however many stand in front of it."""
        for words in ("x" * 1990 + " db.inside.svc", "http://" + "a" * 7991 + " db.inside.svc"):
            client = self.notify()
            self.there.answer(400, {"errorDescription": words})
            self.assertNotIn("db", client.json["upstream_message"])


class RegistryTests(JsonServicesTestCase):
    """Forgejo."""

    host, port = "10.5.0.3", 3000

    def test_repositories(self) -> None:
        """A page of repositories comes without addresses, and says what is next."""
        client = self.get("registry", "list-repos", "q=gate%26x&page=2&limit=2")
        self.assertEqual(urlsplit(self.there.path).path, "/api/v1/repos/search")
        self.assertEqual(self.query, {"q": "gate&x", "page": "2", "limit": "2"})
        self.assertEqual(self.there.headers["authorization"], "token forgejo-token")
        repository = {
            "id": 1,
            "full_name": "ada/gate",
            "owner": {"login": "ada", "email": "ada@inside.example"},
            "clone_url": "http://inside.example/ada/gate.git",
        }
        self.there.answer(
            body={"ok": True, "data": [repository, {"id": 2}]}, extra="x-total-count: 5\r\n"
        )
        page = client.json
        self.assertEqual(page["repositories"][0]["owner"], "ada")
        self.assertEqual((page["page"], page["next_page"], page["total"]), (2, 3, 5))
        self.assertNotIn(b"inside.example", client.received)

    def test_smaller_pages(self) -> None:
        """A server that gives less than was asked for is asked for the rest all the same."""
        end = '<http://inside.example/?page=1>; rel="first",<http://inside.example/>; rel="prev"'
        on = '<http://inside.example/?page=9>; rel="last", <http://inside.example/>; rel="next"'
        for page, count, extra, following in (
            (1, 10, f"x-total-count: 25\r\nlink: {on}\r\n", 2),
            (2, 10, f"x-total-count: 25\r\nlink: {end}\r\nlink: {on}\r\n", 3),
            (3, 5, f"x-total-count: 25\r\nlink: {end}\r\n", None),
            (1, 30, f"link: {end}\r\n", None),
            (1, 10, "x-total-count: 25\r\n", 2),
            (2, 10, "x-total-count: 25\r\n", 3),
            (1, 10, "x-total-count: 10\r\n", None),
            (1, 10, "", 2),
            (3, 0, "x-total-count: 25\r\n", None),
        ):
            client = self.get("registry", "list-repos", f"page={page}&limit=30")
            self.there.answer(body={"ok": True, "data": [{"id": 1}] * count}, extra=extra)
            self.assertEqual(client.json["next_page"], following, (page, count, extra))
            self.assertNotIn(b"inside.example", client.received)

    def test_link_relations(self) -> None:
        """`next` is one of the words of `rel`, whatever case they are in."""
        for link, following in (
            ('<x>; rel="last next"', 2),
            ("<x>;REL = Next, <y>; rel=last", 2),
            ('<x>; rel="nextish"; title="; rel=other"', None),
            ('<x>; rel="a-next"', None),
            ('<x>; rel="next', None),
        ):
            client = self.get("registry", "list-repos")
            self.there.answer(body={"data": [{"id": 1}]}, extra=f"link: {link}\r\n")
            self.assertEqual(client.json["next_page"], following, link)

    def test_of_an_owner(self) -> None:
        """Those of one owner are searched by the owner's number."""
        client = self.get("registry", "list-repos", "owner=ada&q=x")
        self.assertEqual(self.there.path, "/api/v1/users/ada")
        self.there.answer(body={"id": 77, "login": "ada"})
        self.assertEqual(
            self.query, {"q": "x", "uid": "77", "exclusive": "true", "page": "1", "limit": "30"}
        )
        self.there.answer(body={"ok": True, "data": []}, extra="x-total-count: 0\r\n")
        self.assertEqual(client.json["next_page"], None)
        for body in ({"id": "77&uid=1"}, {"id": True}, {}):
            client = self.get("registry", "list-repos", "owner=ada")
            self.there.answer(body=body)
            self.assertEqual(client.status, 502)

    def test_packages(self) -> None:
        """Packages are an owner's."""
        client = self.get("public", "list-packages", "owner=ada&type=pypi&limit=2")
        self.assertEqual(urlsplit(self.there.path).path, "/api/v1/packages/ada")
        self.assertEqual(self.query, {"type": "pypi", "page": "1", "limit": "2"})
        self.assertNotIn("authorization", self.there.headers)
        package = {
            "id": 3,
            "type": "pypi",
            "name": "p",
            "version": "1",
            "owner": {"login": "ada"},
            "creator": None,
            "html_url": "http://inside.example/",
        }
        self.there.answer(body=json.dumps([package, package]).encode())
        page = client.json
        self.assertEqual(page["packages"][0]["owner"], "ada")
        self.assertIsNone(page["packages"][0]["creator"])
        # Without a total there may be another.
        self.assertEqual((page["next_page"], page["total"]), (2, None))
        self.assertNotIn(b"inside.example", client.received)

    def test_bad(self) -> None:
        """No owner is a path."""
        for query in (
            *("", "owner=", "owner=..", "owner=a/b", "owner=a%2f..%2fb", "owner=.git"),
            *("owner=a%3fb", "owner=a%23b", "owner=a&type=../x", "owner=a&limit=51"),
            *("owner=a%0d%0ab", "owner=http://evil.example", "owner=a&page=9999999"),
        ):
            client = self.get("registry", "list-packages", query)
            self.assertEqual(client.status, 400, query)
        self.assertEqual(self.count, 0)

    def test_refusals(self) -> None:
        """Forgejo's refusals come through, without the token."""
        self.check_refusals(lambda: self.get("registry", "list-repos"), "forgejo-token")

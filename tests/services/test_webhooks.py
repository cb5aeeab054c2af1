from __future__ import annotations

import hmac
import json
from typing import Any

from tests.services.stack import ServicesTestCase, said
from tests.stack import Asked, Client
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.strict_json import MOST_VALUES
from twisted_gateway.services import gotify
from twisted_gateway.web import webhooks

SECRET = "hook-secret"
PATH = "/v1/webhooks/forgejo"
ADAPTERS = """
drainSeconds: 3
adapters:
  memory: {upstream: "http://10.2.0.1:8080", requireAuth: false, timeoutSeconds: 8}
  notification: {upstream: "http://10.5.0.1", token: gotify-token, timeoutSeconds: 8}
  iam: {upstream: "http://10.5.0.2", token: authentik-token}
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK}
auth: {issuer: "https://issuer.example", audience: gateway, jwksUrl: "http://10.9.0.1/jwks"}
"""
CONFIG = (
    ADAPTERS
    + """
webhooks:
  forgejo:
    secret: hook-secret
    targets:
      - {event: push, service: notification, resource: send-message,
         parameters: {title: "push to {repository[full_name]}", message: "{ref}", priority: "5"}}
      - {event: "*", service: memory, resource: ingest,
         parameters: {text: "{ref} in {{{repository[full_name]}}}"}}
"""
)
PUSH = {"ref": "refs/heads/main", "repository": {"full_name": "ada/gate"}, "secret": "in-the-event"}


def sign(body: bytes, secret: str = SECRET) -> str:
    return hmac.digest(secret.encode(), body, "sha256").hex()


class WebhooksTestCase(ServicesTestCase):
    """A gateway that Forgejo sends events to."""

    config = CONFIG

    def setUp(self) -> None:
        super().setUp()
        self.lines = said(self)

    @property
    def gotify(self) -> list[Asked]:
        return self.stack.engine("10.5.0.1", 80).asked

    @property
    def memory(self) -> list[Asked]:
        return self.stack.engine("10.2.0.1", 8080).asked

    def send(
        self,
        tree: Any = PUSH,
        *,
        event: str = "push",
        delivery: str | None = "d1",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Client:
        """Send an event, signed as Forgejo does it, but for what is said otherwise."""
        content = json.dumps(tree, indent=2).encode() if body is None else body
        lines = {"X-Forgejo-Event": event, "X-Forgejo-Signature": sign(content), **(headers or {})}
        if delivery is not None:
            lines["X-Forgejo-Delivery"] = delivery
        return self.stack.client().post(
            PATH, content, {name: value for name, value in lines.items() if value != "absent"}
        )

    def answer_all(self, status: int = 200) -> None:
        """The services answer what they have been asked."""
        for asked in [*self.gotify, *self.memory]:
            if not getattr(asked, "done", False):
                asked.done = True  # type: ignore[attr-defined]
                asked.answer(status)

    def count(self, service: str, resource: str, outcome: str) -> float | None:
        return self.stack.metric(
            "webhook_target_requests_total", service=service, resource=resource, outcome=outcome
        )


class SignatureTests(WebhooksTestCase):
    """Who may send events."""

    def refused(self, client: Client, why: str) -> None:
        self.assertEqual(client.status, 401, why)
        self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:bad_signature")
        self.assertIn("www-authenticate", client.headers)
        self.assertEqual([*self.gotify, *self.memory], [])
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UNAUTHORIZED)
        self.assertEqual(self.stack.entries[-1].route, PATH)

    def with_signature(self, value: str, body: bytes | None = None) -> Client:
        return self.send(headers={"X-Forgejo-Signature": value}, body=body)

    def test_any_field(self) -> None:
        """Each of the three fields alone is enough."""
        body = json.dumps(PUSH).encode()
        digest = sign(body)
        for number, (name, value) in enumerate(
            (
                ("X-Forgejo-Signature", digest),
                ("X-Gitea-Signature", digest),
                ("X-Hub-Signature-256", f"sha256={digest}"),
            )
        ):
            headers = {"X-Forgejo-Signature": "absent", name: value}
            client = self.send(body=body, delivery=f"d{number}", headers=headers)
            self.answer_all()
            self.assertEqual(client.status, 200, name)

    def test_none(self) -> None:
        """Without a signature nothing is accepted, nor with one of SHA-1, or of another field."""
        self.refused(self.with_signature("absent"), "none")
        body = json.dumps(PUSH).encode()
        sha1 = hmac.digest(SECRET.encode(), body, "sha1").hex()
        headers = {"X-Forgejo-Signature": "absent", "X-Hub-Signature": f"sha1={sha1}"}
        self.refused(self.send(body=body, headers=headers), "SHA-1")
        headers = {"X-Forgejo-Signature": "absent", "X-Gogs-Signature": sign(body)}
        self.refused(self.send(body=body, headers=headers), "Gogs")

    def test_malformed(self) -> None:
        """What is not the sender's spelling of a digest is refused, whatever it would decode to."""
        body = json.dumps(PUSH).encode()
        good = sign(body)
        for value in (
            *("", "x", good[:-1], good + "0", good[:-2], good.upper(), f"sha256={good}", good[1:]),
            *(f"0x{good}", f"{good[:32]} {good[32:]}", f"{good},{good}", "0" * 63, "g" * 64),
            *("\u0660" * 64, f"{good[:-1]}\xe9"),
        ):
            client = self.with_signature(value.encode().decode("latin-1"), body)
            self.refused(client, value)
            self.assertIn("lower-case hexadecimal digits", client.json["detail"])
        headers = {"X-Forgejo-Signature": "absent", "X-Hub-Signature-256": good}
        self.refused(self.send(body=body, headers=headers), "no prefix")
        lines = f"X-Forgejo-Signature: {good}\r\n" * 2
        client = self.stack.client().send(
            f"POST {PATH} HTTP/1.1\r\nHost: g\r\n{lines}X-Forgejo-Event: push\r\n"
            f"X-Forgejo-Delivery: d\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        self.refused(client, "twice")

    def test_wrong(self) -> None:
        """Another secret's, another body's, and one wrong among right ones are refused."""
        body = json.dumps(PUSH).encode()
        good = sign(body)
        self.refused(self.with_signature(sign(body, "another"), body), "another secret")
        self.refused(self.with_signature(sign(body, ""), body), "no secret")
        self.refused(self.with_signature(sign(b""), body), "another body")
        # The same event, written in another way.
        self.refused(self.with_signature(good, json.dumps(PUSH, indent=1).encode()), "rewritten")
        self.refused(self.with_signature(good, body + b"\n"), "one byte more")
        wrong = {"X-Hub-Signature-256": f"sha256={'0' * 64}"}
        self.refused(self.send(body=body, headers=wrong), "one of two")

    def test_nothing_is_told(self) -> None:
        """Neither the secret nor the right signature is in an answer or the log."""
        body = json.dumps(PUSH).encode()
        client = self.with_signature("0" * 64, body)
        told = client.received.decode() + repr(self.stack.entries) + "\n".join(self.lines)
        for secret in (SECRET, sign(body), "in-the-event"):
            self.assertNotIn(secret, told)

    def test_no_secret(self) -> None:
        """Without a secret nothing is accepted, and that is not the sender's fault."""
        self.stack.text = CONFIG.replace("secret: hook-secret", "secret: ''")
        self.assertTrue(self.stack.gateway.reload())
        client = self.send(body=b"{}", headers={"X-Forgejo-Signature": sign(b"{}", "")})
        self.assertEqual(client.status, 503)
        self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:webhook_not_configured")

    def test_method(self) -> None:
        """Events are posted."""
        client = self.stack.client().get(PATH)
        self.assertEqual(client.status, 405)
        self.assertIn("POST", client.headers["allow"])


class EventTests(WebhooksTestCase):
    """What an event leads to."""

    def test_targets(self) -> None:
        """An event leads to the operations of its targets, with parameters from it, at once."""
        client = self.send()
        (message,), (ingested,) = self.gotify, self.memory
        self.assertEqual(
            json.loads(message.body),
            {"title": "push to ada/gate", "message": "refs/heads/main", "priority": 5},
        )
        self.assertEqual(message.headers["x-gotify-key"], "gotify-token")
        self.assertEqual(ingested.path, "/ingest")
        self.assertEqual(ingested.headers["content-type"], "application/json")
        self.assertEqual(json.loads(ingested.body), {"text": "refs/heads/main in {ada/gate}"})
        self.assertEqual(client.status, 0)
        self.answer_all()
        self.assertEqual(client.status, 200)
        self.assertEqual(
            client.json,
            {
                "delivery": "d1",
                "event": "push",
                "targets": [
                    {"service": "notification", "resource": "send-message", "outcome": "ok"},
                    {"service": "memory", "resource": "ingest", "outcome": "ok"},
                ],
            },
        )
        self.assertEqual(self.count("notification", "send-message", "ok"), 1)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.OK)

    def test_another_event(self) -> None:
        """An event goes to the targets that want it alone."""
        client = self.send(event="issues")
        self.assertEqual((len(self.gotify), len(self.memory)), (0, 1))
        self.answer_all()
        self.assertEqual(client.status, 200)

    def test_no_target(self) -> None:
        """An event that nobody wants is taken all the same."""
        self.stack.text = CONFIG.replace('event: "*"', "event: release")
        self.assertTrue(self.stack.gateway.reload())
        client = self.send(event="issues")
        self.assertEqual((client.status, client.json["targets"]), (200, []))

    def test_gitea(self) -> None:
        """Gitea's own fields do as well."""
        body = json.dumps(PUSH).encode()
        client = self.stack.client().post(
            PATH,
            body,
            {"X-Gitea-Event": "fork", "X-Gitea-Delivery": "g", "X-Gitea-Signature": sign(body)},
        )
        self.answer_all()
        self.assertEqual(client.status, 200)

    def test_malformed(self) -> None:
        """An event without a name, an id or a JSON object is refused, once its sender is known."""
        for options in (
            {"event": "absent"},
            {"event": "a b"},
            {"event": "x" * 129},
            {"delivery": None},
            {"delivery": "a/b"},
            {"delivery": "\xe9"},
            {"body": b"payload=%7B%7D"},
            {"body": b"[]"},
            {"body": b"\xff"},
            {"body": b"[" * 9999},
            {"body": b'{"a": [' + b"0," * MOST_VALUES + b"0]}"},
            {"body": b""},
        ):
            client = self.send(**options)
            self.assertEqual(client.status, 400, options)
            self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:malformed_event")
        self.assertEqual([*self.gotify, *self.memory], [])

    def test_not_filled(self) -> None:
        """What the event does not have fails that target alone, and the log says what it was."""
        client = self.send({"ref": "x"})
        self.answer_all()
        self.assertEqual(client.status, 502)
        self.assertEqual([one["outcome"] for one in client.json["targets"]], ["bad_request"] * 2)
        self.assertEqual(self.count("memory", "ingest", "bad_request"), 1)
        self.assertTrue(any("has no repository[full_name]" in line for line in self.lines))

    def test_no_text(self) -> None:
        """Half of a surrogate pair is told as what it is; no target is sent it."""
        client = self.send({"ref": "r", "repository": {"full_name": "\ud800"}})
        self.assertEqual([*self.gotify, *self.memory], [])
        self.assertEqual(client.status, 502)
        self.assertEqual([one["outcome"] for one in client.json["targets"]], ["bad_request"] * 2)

    def test_bound(self) -> None:
        """An event has a bound of its own, whatever the models take."""
        self.stack.text = (
            CONFIG.replace("secret: hook-secret", "secret: hook-secret\n    maxBodyBytes: 600")
            + "models: {m: {upstream: 'http://10.0.0.1:8000', maxBodyBytes: 1000000}}\n"
        )
        self.assertTrue(self.stack.gateway.reload())
        client = self.send({**PUSH, "text": "x" * 600})
        self.assertEqual((client.status, client.json["max_body_bytes"]), (413, 600))
        self.stack.advance(6)
        self.send()
        self.answer_all()
        self.stack.text = self.stack.text.replace("    maxBodyBytes: 600\n", "")
        self.assertTrue(self.stack.gateway.reload())
        client = self.send({**PUSH, "text": "x" * 1_048_576}, delivery="d2")
        self.assertEqual((client.status, client.json["max_body_bytes"]), (413, 1_048_576))
        self.stack.advance(6)

    def test_injection(self) -> None:
        """What an event holds stays in the parameter that it is put into."""
        name = 'x", "priority": 9, "a": "\r\nX-Gotify-Key: evil'
        client = self.send({"ref": "r", "repository": {"full_name": name}})
        # A title is one line.
        self.assertEqual(self.gotify, [])
        self.assertEqual(json.loads(self.memory[0].body), {"text": f"r in {{{name}}}"})
        self.answer_all()
        self.assertEqual(client.status, 502)


class FailureTests(WebhooksTestCase):
    """What is not well."""

    def test_a_refusal(self) -> None:
        """A target that fails is told, logged and counted; the others are done."""
        client = self.send()
        self.gotify[0].answer(500, {"errorDescription": "database of refs/heads/main"})
        self.memory[0].answer()
        self.assertEqual(client.status, 502)
        problem = client.json
        self.assertEqual(problem["type"], "urn:twisted-gateway:problem:webhook_target_failed")
        self.assertEqual([one["outcome"] for one in problem["targets"]], ["upstream_status", "ok"])
        self.assertIn("notification/send-message", problem["detail"])
        self.assertEqual(self.count("notification", "send-message", "upstream_status"), 1)
        self.assertEqual(self.count("memory", "ingest", "ok"), 1)
        said_so = [line for line in self.lines if "target notification/send-message:" in line]
        self.assertIn("The service notification answered 500.", said_so[0])
        # Its words quote what the event held, so they are in no log.
        self.assertNotIn("refs/heads/main", "\n".join(self.lines))

    def test_unreachable_and_silent(self) -> None:
        """So is one that cannot be reached, or is silent."""
        self.stack.engine("10.5.0.1", 80).up = False
        client = self.send()
        self.stack.advance(9)
        self.assertEqual(client.status, 502)
        outcomes = [one["outcome"] for one in client.json["targets"]]
        self.assertEqual(outcomes, ["upstream_error", "upstream_timeout"])
        self.assertTrue(self.memory[0].gone)

    def test_dripping(self) -> None:
        """One that never ends its answer is given up after the adapter's time, silent or not."""
        client = self.send()
        again = self.send(delivery="again")
        self.memory[0].answer()
        self.gotify[0].send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(9):
            self.stack.advance(1)
            self.gotify[0].send(b"x")
        self.assertTrue(self.gotify[0].gone)
        for one in (client, again):
            self.assertEqual(one.status, 502)
            outcomes = [target["outcome"] for target in one.json["targets"]]
            self.assertEqual(outcomes, ["upstream_timeout", "ok"])
        self.assertTrue(any("had not answered whole after 8 s" in line for line in self.lines))

    def test_a_fault_of_ours(self) -> None:
        """A fault of the gateway's own ends that target alone."""
        self.patch(gotify.Gotify, "_send", lambda *_: 1 / 0)
        self.stack.gateway.reload()
        client = self.send()
        self.answer_all()
        self.assertEqual(
            [one["outcome"] for one in client.json["targets"]], ["internal_error", "ok"]
        )
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_what_can_never_go_well(self) -> None:
        """Targets that can never go well are in the log from the start."""
        self.stack.text = (
            ADAPTERS
            + """
webhooks:
  forgejo:
    secret: hook-secret
    targets:
      - {event: a, service: notification, resource: send-message, parameters: {titel: x}}
      - {event: b, service: s3, resource: put, parameters: {bucket: b, key: k}}
      - {event: c, service: iam, resource: list-users}
"""
        )
        self.assertTrue(self.stack.gateway.reload())
        said = [line for line in self.lines if "will fail" in line]
        self.assertEqual(len(said), 2)
        self.assertIn("no such parameters: titel; not given: message", said[0])
        self.assertIn("s3/put will fail: The operation takes a body", said[1])
        for event in ("a", "b"):
            client = self.send({"of": event}, event=event, delivery=event)
            self.assertEqual(client.json["targets"][0]["outcome"], "bad_request")
        client = self.send({"of": "c"}, event="c", delivery="c")
        users = self.stack.engine("10.5.0.2", 80).last
        users.answer(body={"pagination": {}, "results": []})
        self.assertEqual(client.status, 200)

    def test_reload(self) -> None:
        """An adapter that is no target any more has no series as one."""
        client = self.send()
        self.stack.text = CONFIG.replace(
            "service: memory, resource: ingest", "service: iam, resource: list-users"
        )
        self.assertTrue(self.stack.gateway.reload())
        self.answer_all()
        self.assertEqual(client.status, 200)
        self.assertIsNone(self.count("memory", "ingest", "ok"))
        self.assertEqual(self.count("notification", "send-message", "ok"), 1)


class OnceTests(WebhooksTestCase):
    """Deliveries are acted on once."""

    def how_often(self) -> tuple[int, int]:
        return len(self.gotify), len(self.memory)

    def test_duplicate(self) -> None:
        """A delivery that comes again is answered, and not acted on."""
        self.send()
        self.answer_all()
        again = self.send()
        self.assertEqual(
            (again.status, again.json),
            (200, {"delivery": "d1", "event": "push", "targets": [], "duplicate": True}),
        )
        self.assertEqual(self.how_often(), (1, 1))
        self.send({**PUSH, "another": 1}, delivery="d2")
        self.assertEqual(self.how_often(), (2, 2))

    def test_duplicate_under_way(self) -> None:
        """While it is acted on who sends it again waits, and is told what has become of it."""
        for status, answered in ((200, 200), (500, 502)):
            tree = {**PUSH, "number": status}
            first = self.send(tree, delivery=f"d{status}")
            again = [self.send(tree, delivery=f"d{status}"), self.send(tree, delivery="other")]
            self.send(tree, delivery="leaves").leave()
            self.assertEqual([one.status for one in again], [0, 0])
            self.assertEqual(self.how_often(), (len(self.gotify), len(self.gotify)))
            self.gotify[-1].answer(status)
            self.memory[-1].answer()
            self.assertEqual([one.status for one in (first, *again)], [answered] * 3)
            self.assertNotIn("duplicate", first.json)
            for one in again:
                self.assertTrue(one.json["duplicate"])
                self.assertEqual(one.json["targets"], first.json["targets"])
        self.assertEqual(self.how_often(), (2, 2))
        self.assertEqual(self.stack.gateway._service_side.webhooks._waiting, {})

    def test_replay(self) -> None:
        """What was seen on its way does nothing under another id, nor as another event."""
        self.send()
        self.answer_all()
        again = self.send(delivery="seen")
        self.assertEqual((again.status, again.json["duplicate"]), (200, True))
        for event, delivery in (("issues", "seen"), ("release", "d3")):
            client = self.send(event=event, delivery=delivery)
            self.assertEqual(client.status, 409)
            self.assertTrue(client.json["type"].endswith(":conflicting_delivery"))
        said_so = [line for line in self.lines if "may be replaying" in line]
        self.assertEqual(len(said_so), 1)
        self.assertIn("delivery seen of event issues is refused", said_so[0])
        self.assertEqual(self.how_often(), (1, 1))
        # The id that was made up is still anybody's.
        self.send({**PUSH, "another": 1}, delivery="seen")
        self.assertEqual(self.how_often(), (2, 2))

    def test_another_body(self) -> None:
        """Under an id of which all is done nothing else is: that is a duplicate, and logged."""
        self.send()
        self.answer_all()
        self.assertFalse(any("another body" in line for line in self.lines))
        for number in (1, 2):
            again = self.send({**PUSH, "another": number})
            self.assertEqual((again.status, again.json["duplicate"]), (200, True))
        said_so = [line for line in self.lines if "come again with another body" in line]
        self.assertEqual(len(said_so), 1)
        self.assertIn("delivery d1 of event push", said_so[0])
        self.assertEqual(self.how_often(), (1, 1))

    def test_redelivery(self) -> None:
        """Forgejo delivers again under a new id: what had failed is tried again, and that alone."""
        self.send()
        self.gotify[0].answer(500)
        self.memory[0].answer()
        again = self.send(delivery="redelivered")
        self.assertEqual(self.how_often(), (2, 1))
        self.gotify[1].answer()
        self.assertEqual((again.status, len(again.json["targets"])), (200, 1))
        self.assertTrue(self.send(delivery="redelivered-again").json["duplicate"])
        self.assertEqual(self.how_often(), (2, 1))

    def test_forged_duplicate(self) -> None:
        """Who does not know the secret cannot use up an id."""
        self.send(headers={"X-Forgejo-Signature": "0" * 64})
        self.send()
        self.assertEqual(self.how_often(), (1, 1))

    def test_again_after_a_failure(self) -> None:
        """One that failed in part is acted on for the rest, when it comes again."""
        self.send()
        self.gotify[0].answer(500)
        self.memory[0].answer()
        again = self.send()
        self.assertEqual(self.how_often(), (2, 1))
        self.gotify[1].answer()
        self.assertEqual([one["service"] for one in again.json["targets"]], ["notification"])
        self.assertTrue(self.send().json["duplicate"])

    def test_moved_targets(self) -> None:
        """What was done for a target is known wherever that stands after a reload."""
        self.send()
        self.gotify[0].answer(500)
        self.memory[0].answer()
        before, listed = CONFIG.split("    targets:\n")
        first, second = listed.split("      - ")[1:]
        again = f"      - {second}      - {first}"
        self.stack.text = f"{before}    targets:\n{again}      - {first}"
        self.assertTrue(self.stack.gateway.reload())
        self.send()
        # The target that now stands there twice is two.
        self.assertEqual(self.how_often(), (3, 1))

    def test_reload(self) -> None:
        """A reload forgets nothing."""
        self.send()
        self.answer_all()
        self.assertTrue(self.stack.gateway.reload())
        self.assertTrue(self.send().json["duplicate"])

    def test_bounded(self) -> None:
        """No more than so many are remembered."""
        self.assertLessEqual(webhooks.MOST_DELIVERIES, 100_000)
        remembered = self.stack.gateway._service_side.webhooks._deliveries
        remembered._most = 2
        for name in ("a", "b", "c"):
            self.send({**PUSH, "of": name}, delivery=name)
            self.answer_all()
        self.assertEqual(len(remembered), 2)


class LeavingTests(WebhooksTestCase):
    """The sender may not wait, and the gateway may stop."""

    def test_sender_leaves(self) -> None:
        """What an event leads to is done to its end, whoever waits for it."""
        client = self.send()
        client.leave()
        self.assertFalse(self.gotify[0].gone or self.memory[0].gone)
        self.assertEqual(len(self.stack.gateway.exchanges), 1)
        self.answer_all()
        self.assertEqual(len(self.stack.gateway.exchanges), 0)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(self.count("notification", "send-message", "ok"), 1)
        self.assertTrue(self.send().json["duplicate"])
        self.assertEqual(self.stack.metric("gateway_inflight", model=""), 0)

    def test_sender_leaves_and_nobody_answers(self) -> None:
        """But not for longer than the adapter's bound."""
        self.send().leave()
        self.stack.advance(9)
        self.assertTrue(self.gotify[0].gone and self.memory[0].gone)
        self.assertEqual(len(self.stack.gateway.exchanges), 0)
        self.assertEqual(self.count("memory", "ingest", "upstream_timeout"), 1)

    def test_drain(self) -> None:
        """While the process drains no event is taken, and those under way are done."""
        client = self.send()
        drained = self.stack.gateway.drain()
        self.assertEqual(self.send(delivery="d2").status, 503)
        self.answer_all()
        self.assertEqual(client.status, 200)
        self.stack.advance(15)
        self.successResultOf(drained)

    def test_end_of_drain(self) -> None:
        """What is not done when the drain ends is given up, its sender told so if it is there."""
        for leave in (False, True):
            self.tearDown()
            self.setUp()
            client = self.send()
            if leave:
                client.leave()
            drained = self.stack.gateway.drain()
            self.stack.advance(4)
            self.assertTrue(self.gotify[0].gone and self.memory[0].gone)
            self.assertEqual(client.status, 0 if leave else 503)
            self.assertEqual(len(self.stack.gateway.exchanges), 0)
            self.assertEqual(self.count("memory", "ingest", "rejected"), 1)
            self.stack.advance(14)
            client.leave()
            self.successResultOf(drained)

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.services.stack import AUTH, ServicesTestCase
from tests.stack import Asked, Client
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.strict_json import MOST_VALUES
from twisted_gateway.services import sqs

CONFIG = (
    """
adapters:
  sqs: {upstream: "http://10.4.0.1:9324", accessKey: AK, secretKey: SK, region: eu-1,
        timeoutSeconds: 8}
"""
    + AUTH
)
URL = "http://inside.example:9324/000000000000/jobs"


class SqsTests(ServicesTestCase):
    """Queues."""

    config = CONFIG

    @property
    def requests(self) -> list[Asked]:
        return self.stack.engine("10.4.0.1", 9324).asked

    def sqs(self, resource: str, body: Any = None, *, query: str = "", **options: Any) -> Client:
        """Send a request: a POST with a JSON body, a GET without."""
        content = b"" if body is None else json.dumps(body).encode()
        json_type = {"Content-Type": "application/json"} if content else {}
        return self.ask(
            "sqs",
            resource,
            method="GET" if body is None else "POST",
            path=f"/?{query}",
            body=content,
            headers=json_type,
            **options,
        )

    def expect(self, action: str, **body: Any) -> Asked:
        """The latest request is for this action."""
        asked = self.requests[-1]
        self.assertEqual((asked.method, asked.path), ("POST", "/"))
        self.assertEqual(asked.headers["x-amz-target"], f"AmazonSQS.{action}")
        self.assertEqual(asked.headers["content-type"], "application/x-amz-json-1.0")
        self.assertEqual(json.loads(asked.body), body)
        return asked

    def resolved(self, resource: str, body: Any) -> Client:
        """Send a request about a queue, and let the service name its URL."""
        client = self.sqs(resource, body)
        self.expect("GetQueueUrl", QueueName="jobs").answer(body={"QueueUrl": URL})
        return client

    def test_list(self) -> None:
        """Queues are listed by name, and no address of the service's is told."""
        client = self.sqs("list-queues", query="prefix=jo&max_results=7&next_token=abc")
        self.expect("ListQueues", QueueNamePrefix="jo", MaxResults=7, NextToken="abc").answer(
            body={"QueueUrls": [URL, URL + ".fifo"], "NextToken": "def"}
        )
        self.assertEqual(client.json, {"queues": ["jobs", "jobs.fifo"], "next_token": "def"})
        client = self.sqs("list-queues")
        self.expect("ListQueues", MaxResults=1000).answer(body={})
        self.assertEqual(client.json, {"queues": [], "next_token": None})

    def test_hostile_lists(self) -> None:
        """What is no queue's URL, and no text where that belongs, goes no further."""
        client = self.sqs("list-queues")
        urls = ["http://10.1.2.3:9324", "10.1.2.3:9324", "http://[", "http://h/1/a", "h/b", ""]
        self.requests[-1].answer(body={"QueueUrls": urls, "NextToken": {"a": [1]}})
        self.assertEqual(client.json, {"queues": ["a"], "next_token": None})
        client = self.resolved("receive-message", {"queue": "jobs"})
        self.requests[-1].answer(
            body={
                "Messages": [{"Body": [1.5], "Attributes": {"SentTimestamp": [5]}}, {"Body": "b"}]
            }
        )
        self.assertEqual([one["body"] for one in client.json["messages"]], [None, "b"])
        self.assertIsNone(client.json["messages"][0]["sent_at_milliseconds"])

    def test_send(self) -> None:
        """A message is sent to the queue of that name, whose URL is asked for once."""
        client = self.resolved(
            "send-message", {"queue": "jobs", "message": "hä\n", "delay_seconds": 5}
        )
        self.expect("SendMessage", QueueUrl=URL, MessageBody="hä\n", DelaySeconds=5).answer(
            body={"MessageId": "m1", "MD5OfMessageBody": "d"}
        )
        self.assertEqual(
            client.json, {"message_id": "m1", "body_md5": "d", "sequence_number": None}
        )
        self.sqs(
            "send-message",
            {
                "queue": "jobs",
                "message": "x",
                "message_group_id": "g",
                "message_deduplication_id": "d",
            },
        )
        self.expect(
            "SendMessage",
            QueueUrl=URL,
            MessageBody="x",
            MessageGroupId="g",
            MessageDeduplicationId="d",
        ).answer()
        self.assertEqual(len(self.requests), 3)

    def test_receive(self) -> None:
        """Messages come with what is needed to delete them."""
        client = self.resolved(
            "receive-message",
            {
                "queue": "jobs",
                "max_messages": 2,
                "wait_seconds": 3,
                "visibility_timeout_seconds": 9,
            },
        )
        self.expect(
            "ReceiveMessage",
            QueueUrl=URL,
            MaxNumberOfMessages=2,
            WaitTimeSeconds=3,
            VisibilityTimeout=9,
            MessageSystemAttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
        ).answer(
            body={
                "Messages": [
                    {
                        "MessageId": "m",
                        "ReceiptHandle": "r",
                        "Body": "b",
                        "MD5OfBody": "d",
                        "Attributes": {"SentTimestamp": "17", "ApproximateReceiveCount": "x"},
                    }
                ]
            }
        )
        self.assertEqual(
            client.json["messages"],
            [
                {
                    "message_id": "m",
                    "receipt_handle": "r",
                    "body": "b",
                    "body_md5": "d",
                    "sent_at_milliseconds": 17,
                    "receive_count": None,
                }
            ],
        )
        client = self.sqs("receive-message", {"queue": "jobs"})
        self.requests[-1].answer(body={})
        self.assertEqual(client.json, {"messages": []})

    def test_delete(self) -> None:
        """A message is deleted by its receipt handle; the service says nothing to that."""
        client = self.resolved("delete-message", {"queue": "jobs", "receipt_handle": "r"})
        self.expect("DeleteMessage", QueueUrl=URL, ReceiptHandle="r").answer(body=b"")
        self.assertEqual((client.status, client.body), (204, b""))

    def test_signature(self) -> None:
        """Each request is signed with its body, for the region and the service."""
        self.sqs("list-queues")
        asked = self.requests[-1]
        digest = hashlib.sha256(asked.body).hexdigest()
        self.assertEqual(asked.headers["x-amz-content-sha256"], digest)
        self.assertIn("/eu-1/sqs/aws4_request", asked.headers["authorization"])
        self.assertIn("x-amz-target", asked.headers["authorization"])
        self.assertEqual(asked.headers["host"], "10.4.0.1:9324")
        asked.answer()

    def test_token(self) -> None:
        """A token is needed, always."""
        client = self.sqs("list-queues", token=None)
        self.assertEqual(client.status, 401)
        self.assertEqual(self.requests, [])

    def test_refusals(self) -> None:
        """The service's refusal comes with its status, its code and its words."""
        client = self.sqs("receive-message", {"queue": "jobs"})
        self.requests[-1].answer(
            400,
            {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "No such queue."},
        )
        self.assertEqual((client.status, client.json["upstream_status"]), (400, 400))
        self.assertEqual(client.json["upstream_message"], "QueueDoesNotExist: No such queue.")
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_STATUS)
        client = self.sqs("list-queues")
        self.requests[-1].answer(
            403,
            b"<?xml version='1.0'?><ErrorResponse xmlns='x'><Errors><Error><Code>AccessDenied"
            b"</Code><Message>No.</Message></Error></Errors></ErrorResponse>",
            content_type="text/xml",
        )
        self.assertEqual(client.json["upstream_message"], "AccessDenied: No.")
        client = self.sqs("list-queues")
        self.requests[-1].answer(
            403,
            b"<Error><Code>Denied</Code><Message>Interdit \xe0 tous.</Message></Error>",
            content_type="text/xml; charset=ISO-8859-1",
        )
        self.assertEqual(client.json["upstream_message"], "Denied: Interdit à tous.")
        client = self.sqs("list-queues")
        latin = b'{"__type": "x#Denied", "message": "Interdit \xe0 tous."}'
        self.requests[-1].answer(403, latin, content_type="application/json; charset=latin1")
        self.assertEqual(client.json["upstream_message"], "Denied: Interdit à tous.")
        client = self.sqs("list-queues")
        self.requests[-1].answer(
            429, {"__type": "x#Throttled", "Message": "Slow  down."}, extra="retry-after: 3\r\n"
        )
        self.assertEqual(client.json["upstream_message"], "Throttled: Slow down.")
        self.assertEqual(client.headers["retry-after"], "3")
        for body in (b"[1]", b'{"__type": 5}', b'{"__type": "a\\n#b\\u0000"}', b"\xff", b""):
            client = self.sqs("list-queues")
            self.requests[-1].answer(503, body)
            self.assertEqual(client.json["upstream_status"], 503)

    def test_wrong_key(self) -> None:
        """What SQS would have signed itself, and by which host it was asked, is told to nobody."""
        client = self.sqs("list-queues")
        words = (
            "The signature of AK does not match.\n\nThe Canonical String for this request should "
            "have been\n'POST\n/\n\nhost:10.4.0.1:9324\n'"
        )
        self.requests[-1].answer(403, {"__type": "a#InvalidSignatureException", "message": words})
        self.assertEqual(
            client.json["upstream_message"],
            "InvalidSignatureException: The signature of *** does not match.",
        )
        self.assertNotIn(b"10.4.0.1", client.received)
        self.assertNotIn(b"Canonical", client.received)

    def test_wait(self) -> None:
        """A receiver waits for less than the service may be silent, else nobody would hear it."""
        for timeout, most in (("8", 7), ("2.5", 2), ("0.5", 0), ("30", 20), ("20.5", 20)):
            self.stack.text = CONFIG.replace("timeoutSeconds: 8", f"timeoutSeconds: {timeout}")
            self.assertTrue(self.stack.gateway.reload())
            client = self.sqs("receive-message", {"queue": "jobs", "wait_seconds": most + 1})
            self.assertEqual(client.status, 400)
            expected = f"a whole number from 0 to {most}"
            self.assertEqual(client.json["invalid"], {"wait_seconds": expected})
            client = self.sqs("receive-message", {"queue": "jobs", "wait_seconds": most})
            self.assertEqual(client.status, 0)
            client.leave()

    def test_a_queue_that_is_gone(self) -> None:
        """The URL of a queue that is there no more is asked for anew."""
        client = self.resolved("delete-message", {"queue": "jobs", "receipt_handle": "r"})
        self.requests[-1].answer(400, {"__type": "com.amazonaws.sqs#QueueDoesNotExist"})
        self.assertEqual(client.status, 400)
        self.resolved("delete-message", {"queue": "jobs", "receipt_handle": "r"})
        self.requests[-1].answer()

    def test_answers_that_are_none(self) -> None:
        """What is not the protocol's answer is 502."""
        for body in (b"<xml/>", b"[]", b'{"QueueUrls": 5}', b'{"QueueUrls": [5]}', b"[" * 9999):
            client = self.sqs("list-queues")
            self.requests[-1].answer(body=body)
            self.assertEqual(client.status, 502, body)
        client = self.sqs("receive-message", {"queue": "jobs"})
        self.requests[-1].answer(body={"QueueUrl": None})
        self.assertEqual(client.status, 502)
        client = self.resolved("receive-message", {"queue": "jobs"})
        self.requests[-1].answer(body={"Messages": [5]})
        self.assertEqual(client.status, 502)
        for body in (b"", b"{}", b'{"MessageId": 5}', b'{"MessageId": ""}', b'{"ok": true}'):
            client = self.sqs("send-message", {"queue": "jobs", "message": "x"})
            self.requests[-1].answer(body=body)
            self.assertEqual(client.status, 502, body)
        for resource, more in (("list-queues", None), ("receive-message", {"queue": "jobs"})):
            client = self.sqs(resource, more)
            self.requests[-1].answer(body=b"")
            self.assertEqual(client.status, 502, resource)
        client = self.sqs("list-queues")
        self.requests[-1].answer(302, b"", extra="location: http://inside.example/\r\n")
        self.assertEqual(client.status, 502)
        self.assertNotIn(b"inside.example", client.received)

    def test_bad_parameters(self) -> None:
        """What no queue or message can have is refused before the service is asked."""
        for resource, body, names in (
            ("send-message", {}, ["queue", "message"]),
            ("send-message", {"queue": "a/b", "message": "x"}, ["queue"]),
            ("send-message", {"queue": "http://evil.example/0/jobs", "message": "x"}, ["queue"]),
            ("send-message", {"queue": "é", "message": "x"}, ["queue"]),
            ("send-message", {"queue": "a" * 81, "message": "x"}, ["queue"]),
            ("send-message", {"queue": "a", "message": "x", "QueueUrl": "u"}, ["QueueUrl"]),
            ("send-message", {"queue": "a", "message": {"x": 1}}, ["message"]),
            ("send-message", {"queue": "a", "message": "\ud800"}, ["message"]),
            ("receive-message", {"queue": "a", "max_messages": 11}, ["max_messages"]),
            ("receive-message", {"queue": "a", "wait_seconds": -1}, ["wait_seconds"]),
            ("delete-message", {"queue": "a"}, ["receipt_handle"]),
        ):
            client = self.sqs(resource, body)
            self.assertEqual(client.status, 400, body)
            self.assertEqual([*client.json["missing"], *client.json["invalid"]], names)
        self.assertEqual(self.requests, [])

    def test_leaving(self) -> None:
        """A client may leave while either of two requests is under way."""
        for ask in (self.sqs, self.resolved):
            client = ask("receive-message", {"queue": "jobs"})
            client.leave()
            self.assertTrue(self.requests[-1].gone)
            self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(len(self.stack.gateway.exchanges), 0)

    def test_described(self) -> None:
        """`GET /v1/services` says what parameters there are, and where they may stand."""
        client = self.stack.client().get("/v1/services")
        resources = client.json["services"]["sqs"]["resources"]
        method = resources["delete-message"]["methods"]["POST"]
        self.assertEqual(
            method["parameters"],
            [{"name": "queue", "required": True}, {"name": "receipt_handle", "required": True}],
        )
        self.assertTrue(method["json_body"])
        self.assertFalse(resources["list-queues"]["methods"]["GET"]["json_body"])

    def test_memory_is_bounded(self) -> None:
        """No more than so many queues' URLs are remembered."""
        self.patch(sqs, "MAX_QUEUES", 2)
        for name in ("a", "b", "c", "a"):
            self.sqs("receive-message", {"queue": name})
            self.requests[-1].answer(body={"QueueUrl": f"http://x/{name}"})
            self.requests[-1].answer()
        targets = [asked.headers["x-amz-target"] for asked in self.requests]
        self.assertEqual(targets.count("AmazonSQS.GetQueueUrl"), 4)


class FieldsTests(ServicesTestCase):
    """Parameters in a body."""

    config = CONFIG

    def refused(
        self, body: bytes, content_type: str = "application/json", query: str = ""
    ) -> Client:
        client = self.ask(
            "sqs",
            "send-message",
            path=f"/?{query}",
            body=body,
            headers={"Content-Type": content_type},
        )
        self.assertEqual(self.stack.engine("10.4.0.1", 9324).asked, [])
        return client

    def test_not_json(self) -> None:
        """A body that is no JSON object with each member once is refused as what it is."""
        self.assertEqual(self.refused(b"queue=a", "application/x-www-form-urlencoded").status, 415)
        for body in (
            b"[]",
            b"{",
            b'"a"',
            b"[" * 9999,
            b"\xff",
            b'{"queue": "a", "queue": "b"}',
            b'{"queue": NaN}',
            b'{"queue": [' + b"0," * MOST_VALUES + b"0]}",
        ):
            client = self.refused(body)
            self.assertEqual(client.status, 400, body)
            self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:malformed_body")

    def test_twice(self) -> None:
        """What stands in the query string and in the body is there twice."""
        client = self.refused(b'{"queue": "a", "message": "x"}', query="queue=b")
        self.assertEqual(list(client.json["invalid"]), ["queue"])

    def test_either(self) -> None:
        """A parameter may stand in either place."""
        self.ask("sqs", "send-message", path="/?queue=a&message=x", body=b"")
        self.assertEqual(len(self.stack.engine("10.4.0.1", 9324).asked), 1)

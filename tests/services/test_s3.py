from __future__ import annotations

import gc
import json
from base64 import b64encode
from hashlib import md5
from socket import socketpair
from typing import Any

from tests.services.stack import ServicesTestCase, said
from tests.stack import Asked, Client
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services import s3
from twisted_gateway.upstream.request_body import BytesProducer

PART_BYTES = 100_000
CONFIG = """
adapters:
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK, requireAuth: false,
       timeoutSeconds: 8}
"""
LISTING = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>b</Name><Prefix>a%2F</Prefix><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>
<NextContinuationToken>t/1=</NextContinuationToken>
<Contents><Key>a%2Fx+y%0A</Key><Size>3</Size><ETag>"e"</ETag><LastModified>2026-01-01</LastModified>
</Contents><CommonPrefixes><Prefix>a%2Fz%2F</Prefix></CommonPrefixes></ListBucketResult>"""
REFUSED = b"""<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>The request
signature does not match.</Message><AWSAccessKeyId>AK</AWSAccessKeyId><StringToSign>s</StringToSign>
</Error>"""


class S3TestCase(ServicesTestCase):
    """A gateway before a store."""

    config = CONFIG

    @property
    def store(self) -> Asked:
        """What the store was asked last."""
        return self.stack.engine("10.3.0.1", 9000).last

    @property
    def requests(self) -> list[Asked]:
        return self.stack.engine("10.3.0.1", 9000).asked

    def s3(self, resource: str, query: str, method: str = "GET", **headers: str) -> Client:
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask(
            "s3", resource, method=method, path=f"/?{query}", body=b"", token=None, headers=lines
        )


class ListTests(S3TestCase):
    """`list`."""

    def test_listing(self) -> None:
        """A listing comes as JSON, and what is asked for is what the store is asked for."""
        client = self.s3("list", "bucket=b&prefix=a/%26x&delimiter=/&max_keys=7")
        self.assertEqual(self.store.method, "GET")
        self.assertEqual(
            self.store.path,
            "/b?delimiter=%2F&encoding-type=url&list-type=2&max-keys=7&prefix=a%2F%26x",
        )
        self.store.answer(body=LISTING, content_type="application/xml")
        self.assertEqual(
            client.json,
            {
                "bucket": "b",
                "prefix": "a/",
                "objects": [
                    {
                        "key": "a/x y\n",
                        "size": 3,
                        "etag": '"e"',
                        "last_modified": "2026-01-01",
                        "storage_class": None,
                    }
                ],
                "prefixes": ["a/z/"],
                "truncated": True,
                "continuation_token": "t/1=",
            },
        )
        self.s3("list", "bucket=b&continuation_token=t/1%3D")
        self.assertIn("continuation-token=t%2F1%3D", self.store.path)

    def test_bad_parameters(self) -> None:
        """What is missing or bad is named, and the store not asked."""
        for query, missing, invalid in (
            ("", ["bucket"], []),
            ("bucket=", ["bucket"], []),
            ("bucket=..", [], ["bucket"]),
            ("bucket=a/../b", [], ["bucket"]),
            ("bucket=b%2Fc", [], ["bucket"]),
            ("bucket=b&max_keys=0", [], ["max_keys"]),
            ("bucket=b&max_keys=1001", [], ["max_keys"]),
            ("bucket=b&max_keys=%D9%A1", [], ["max_keys"]),
            ("bucket=b&prefix=%00", [], ["prefix"]),
            ("bucket=b&prefix=%FF", [], ["prefix"]),
            ("bucket=b&marker=x", [], ["marker"]),
            ("bucket=b&bucket=c", [], ["bucket"]),
        ):
            client = self.s3("list", query)
            self.assertEqual(client.status, 400, query)
            self.assertEqual(client.json["missing"], missing, query)
            self.assertEqual(list(client.json["invalid"]), invalid, query)
        self.assertEqual(self.requests, [])

    def test_slow_listing(self) -> None:
        """A listing may come slowly; silence in its middle is 504."""
        client = self.s3("list", "bucket=b")
        self.store.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LISTING))
        for byte in LISTING[:20]:
            self.stack.advance(5)
            self.store.send(bytes([byte]))
            self.assertEqual(client.status, 0)
        self.stack.advance(9)
        self.assertEqual(client.status, 504)

    def test_no_listing(self) -> None:
        """An answer that is no listing is 502."""
        for body in (
            b"",
            b"{}",
            b"<a/>",
            b"<!DOCTYPE x [<!ENTITY a 'b'>]><ListBucketResult>&a;</ListBucketResult>",
            '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x><ListBucketResult/>'.encode(
                "utf-16"
            ),
        ):
            client = self.s3("list", "bucket=b")
            self.store.answer(body=body)
            self.assertEqual(client.status, 502, body)


class GetTests(S3TestCase):
    """`get`."""

    def test_object(self) -> None:
        """An object passes with what is known about it."""
        client = self.s3("get", "bucket=b&key=a/%C3%A4%20%2B%3F.txt", Range="bytes=0-2")
        self.assertEqual(self.store.path, "/b/a/%C3%A4%20%2B%3F.txt")
        self.assertEqual(self.store.headers["range"], "bytes=0-2")
        self.assertEqual(self.store.headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD")
        self.assertTrue(
            self.store.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AK/1970")
        )
        self.store.answer(
            206,
            b"abc",
            "text/plain",
            'etag: "e"\r\ncontent-range: bytes 0-2/9\r\n'
            "x-amz-meta-colour: red\r\nx-amz-id-2: s\r\n",
        )
        self.assertEqual((client.status, client.body), (206, b"abc"))
        self.assertEqual(client.headers["etag"], '"e"')
        self.assertEqual(client.headers["content-range"], "bytes 0-2/9")
        self.assertEqual(client.headers["x-amz-meta-colour"], "red")
        self.assertNotIn("x-amz-id-2", client.headers)

    def test_conditions(self) -> None:
        """A condition goes on, and 304 comes back without a body."""
        client = self.s3("get", "bucket=b&key=k", If_None_Match='"e"')
        self.assertEqual(self.store.headers["if-none-match"], '"e"')
        self.store.send(b'HTTP/1.1 304 Not Modified\r\netag: "e"\r\n\r\n')
        self.assertEqual((client.status, client.body), (304, b""))

    def test_head(self) -> None:
        """HEAD asks the store so, and says the length of what would come."""
        client = self.s3("get", "bucket=b&key=k", "HEAD")
        self.assertEqual(self.store.method, "HEAD")
        self.store.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1234567\r\netag: x\r\n\r\n")
        self.assertEqual((client.status, client.headers["content-length"]), (200, "1234567"))
        self.assertTrue(client.received.endswith(b"\r\n\r\n"))

    def test_head_of_a_document(self) -> None:
        """HEAD of what comes as JSON says its length too, and so does that of an error."""
        for path, status in (("bucket=b", 200), ("bucket=b&max_keys=0", 400)):
            client = self.s3("list", path, "HEAD")
            if status == 200:
                self.assertEqual(self.store.method, "GET")
                self.store.answer(body=LISTING, content_type="application/xml")
            self.assertEqual(client.status, status)
            self.assertGreater(int(client.headers["content-length"]), 0)
            self.assertTrue(client.received.endswith(b"\r\n\r\n"))

    def test_wrong_key(self) -> None:
        """The store's refusal comes with its code and words, and nothing of what was signed."""
        client = self.s3("get", "bucket=b&key=k")
        self.store.answer(403, REFUSED)
        self.assertEqual((client.status, client.json["upstream_status"]), (403, 403))
        self.assertIn("SignatureDoesNotMatch: The request signature", client.json["detail"])
        self.assertNotIn(b"StringToSign", client.received)
        self.assertNotIn(b"AK", client.received)
        client = self.s3("get", "bucket=b&key=k")
        said_so = (
            b"<Error><Code>Busy</Code><Message>AK of http://10.3.0.1:9000/b, SK</Message></Error>"
        )
        self.store.answer(503, said_so, extra="retry-after: 7\r\n")
        self.assertEqual(client.json["upstream_message"], "Busy: *** of http://***/b, ***")
        self.assertEqual(client.headers["retry-after"], "7")
        client = self.s3("get", "bucket=b&key=k")
        latin = b"<Error><Code>Busy</Code><Message>Occup\xe9</Message></Error>"
        self.store.answer(503, latin, content_type="application/xml; charset=iso-8859-1")
        self.assertEqual(client.json["upstream_message"], "Busy: Occupé")

    def test_secret_at_the_end(self) -> None:
        """A credential goes before the words are cut."""
        for before in (*range(990, 998), *range(1990, 1998)):
            client = self.s3("get", "bucket=b&key=k")
            words = "x" * before + " SK SK"
            body = f"<Error><Code>Foo</Code><Message>{words}</Message></Error>"
            self.store.answer(400, body.encode())
            self.assertNotIn("S", client.json["upstream_message"])
            self.assertLessEqual(len(client.json["upstream_message"]), 2000)

    def test_beyond(self) -> None:
        """A range beyond the object is 416 with its size."""
        client = self.s3("get", "bucket=b&key=k", Range="bytes=10-")
        self.store.answer(416, b"", extra="content-range: bytes */9\r\n")
        self.assertEqual((client.status, client.headers["content-range"]), (416, "bytes */9"))

    def test_beyond_in_other_words(self) -> None:
        """What is no such size does not come with it."""
        for said_so in ("bytes */\xff", "bytes 0-1/9", "x" * 100):
            client = self.s3("get", "bucket=b&key=k", Range="bytes=10-")
            self.store.send(
                f"HTTP/1.1 416 No\r\ncontent-range: {said_so}\r\n".encode("latin-1")
                + b"content-length: 0\r\n\r\n"
            )
            self.assertEqual(client.status, 416)
            self.assertNotIn("content-range", client.headers)

    def test_keys_that_lead_elsewhere(self) -> None:
        """A key whose dots somebody might resolve is refused, however it is written."""
        for key in (
            "..",
            "../c/k",
            "a/../../c",
            "a/.",
            ".%2F..",
            "a%2F%2E%2E%2Fb",
            "..%5Cc",
            "%00",
        ):
            client = self.s3("get", f"bucket=b&key={key}")
            self.assertEqual(client.status, 400, key)
            self.assertEqual(list(client.json["invalid"]), ["key"])
        self.assertEqual(self.requests, [])

    def test_keys_that_are_odd(self) -> None:
        """Any other key is quoted, so that it stays one: no query, host or header comes of it.

        A listing may name each of them, so each can be had.
        """
        for key, path in (
            ("%0D%0AX-Evil:%201", "/b/%0D%0AX-Evil%3A%201"),
            ("%01%7F%C2%85", "/b/%01%7F%C2%85"),
            ("a?b=c", "/b/a%3Fb%3Dc"),
            ("%23", "/b/%23"),
            ("/etc", "/b//etc"),
            ("//evil.example", "/b///evil.example"),
            ("%2541", "/b/%2541"),
            ("a%26uploads", "/b/a%26uploads"),
            ("...", "/b/..."),
        ):
            before = len(self.requests)
            client = self.s3("get", f"bucket=b&key={key}")
            self.assertEqual(len(self.requests), before + 1, key)
            self.assertEqual(self.store.path, path)
            client.leave()


class DeleteTests(S3TestCase):
    """`delete`."""

    def test_delete(self) -> None:
        """It is 204, as with S3."""
        client = self.s3("delete", "bucket=b&key=k", "DELETE")
        self.assertEqual((self.store.method, self.store.path), ("DELETE", "/b/k"))
        self.store.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        self.assertEqual((client.status, client.body), (204, b""))
        self.assertIs(self.stack.entries[-1].outcome, Outcome.OK)
        client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
        self.assertIn(b"200 OK", client.received)

    def test_body(self) -> None:
        """A body means nothing here, so a large one is refused, however much `put` may take."""
        client = self.ask(
            "s3", "delete", method="DELETE", path="/?bucket=b&key=k", body=b"x" * 70_000, token=None
        )
        self.assertEqual(client.status, 413)
        self.assertEqual(self.requests, [])
        self.stack.advance(6)


class PuttingTestCase(S3TestCase):
    """Objects on their way to the store."""

    def begin(self, framing: str, query: str = "bucket=b&key=k", extra: str = "") -> Client:
        """Send the head of a request to put an object."""
        return self.stack.client().send(
            f"PUT /?{query} HTTP/1.1\r\nHost: g\r\nX-Service: s3\r\nX-Resource: put\r\n"
            f"{framing}\r\n{extra}\r\n".encode()
        )

    def raw(self) -> bytes:
        """All that the store's latest connection was sent."""
        engine = self.stack.engine("10.3.0.1", 9000)
        return bytes(engine._wires[-1][0].value())


class PutTests(PuttingTestCase):
    """`put`."""

    def test_whole(self) -> None:
        """An object that comes at once is put, and what the store calls it comes back."""
        client = self.begin("Content-Length: 3", extra="Content-Type: text/plain\r\n").send(b"abc")
        self.assertEqual((self.store.method, self.store.path), ("PUT", "/b/k"))
        self.assertEqual(self.store.body, b"abc")
        self.assertEqual(self.store.headers["content-type"], "text/plain")
        self.store.answer(body=b"", extra='etag: "e"\r\n')
        self.assertEqual(client.json, {"bucket": "b", "key": "k", "etag": '"e"'})
        client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 2)

    def test_as_it_comes(self) -> None:
        """What has come has gone on before the rest comes."""
        client = self.begin("Content-Length: 6").send(b"abc")
        self.assertTrue(self.raw().endswith(b"\r\n\r\nabc"))
        self.assertIn(b"Content-Length: 6\r\n", self.raw())
        client.send(b"def")
        self.assertEqual(self.store.body, b"abcdef")
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.store.answer(body=b"")
        self.assertEqual(client.status, 200)

    def test_empty(self) -> None:
        """An empty object is one."""
        client = self.begin("Content-Length: 0")
        self.assertEqual(self.store.headers["content-length"], "0")
        self.store.answer(body=b"")
        self.assertEqual(client.status, 200)

    def test_conditions_and_metadata(self) -> None:
        """Conditions and metadata go on; other fields of S3's own do not."""
        self.begin(
            "Content-Length: 1",
            extra="If-None-Match: *\r\nX-Amz-Meta-Colour: red\r\nx-amz-acl: public-read\r\n"
            "x-amz-copy-source: /other/k\r\nx-amz-security-token: t\r\nContent-MD5: m\r\n",
        ).send(b"a")
        headers = self.store.headers
        self.assertEqual(headers["if-none-match"], "*")
        self.assertEqual(headers["x-amz-meta-colour"], "red")
        self.assertEqual(headers["content-md5"], "m")
        for name in ("x-amz-acl", "x-amz-copy-source", "x-amz-security-token"):
            self.assertNotIn(name, headers)
        signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
        self.assertEqual(
            signed, "content-md5;host;x-amz-content-sha256;x-amz-date;x-amz-meta-colour"
        )

    def test_much_metadata(self) -> None:
        """More metadata than S3 takes is refused, not left out in silence."""
        fields = [f"X-Amz-Meta-K{n}: {'v' * 1000}\r\n" for n in range(3)]
        self.begin("Content-Length: 3", extra="".join(fields[:2]))
        self.assertIn(b"X-Amz-Meta-K1: vvv", self.raw())
        client = self.begin("Content-Length: 3", extra="".join(fields))
        self.assertEqual(client.status, 400)
        self.assertTrue(client.json["type"].endswith(":metadata_too_large"))
        self.stack.advance(6)

    def test_refused_before_the_body(self) -> None:
        """Who asks for what there is not is told before they send it, without 100 Continue."""
        for query, status in (("bucket=b", 400), ("bucket=b&key=..", 400)):
            client = self.begin("Content-Length: 1000000", query, "Expect: 100-continue\r\n")
            self.assertEqual(client.status, status)
            self.assertNotIn(b"100 Continue", client.received)
            self.assertTrue(client.wire.half_closed)
            client.send(b"x" * 100_000)
            self.stack.advance(6)
            self.assertTrue(client.wire.closed)
        self.assertEqual(self.requests, [])
        self.assertEqual(len(self.stack.gateway.exchanges), 0)

    def test_expect(self) -> None:
        """Who may is told to go on."""
        client = self.begin("Content-Length: 3", extra="Expect: 100-continue\r\n")
        self.assertTrue(client.received.startswith(b"HTTP/1.1 100 Continue\r\n"))

    def test_pace(self) -> None:
        """While the store takes nothing the client is not read, so nothing piles up."""
        client = self.begin("Content-Length: 1000000").send(b"a" * 1000)
        wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
        wire.congested = True
        client.send(b"b" * 1000)
        self.assertEqual(client.wire.producerState, "paused")
        for _ in range(50):
            client.send(b"c" * 1000)
        self.assertLess(len(wire.dataBuffer), 3000)
        self.assertEqual(self.stack.gateway._held.now, 0)
        wire.relieve()
        self.stack.settle()
        self.assertEqual(client.wire.producerState, "producing")
        self.assertTrue(self.raw().endswith(b"b" * 1000 + b"c" * 50_000))

    def test_store_refuses_early(self) -> None:
        """A refusal while the object still comes ends the upload, with the store's words."""
        client = self.begin("Content-Length: 1000000").send(b"a" * 1000)
        wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
        wire.deliver(
            b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n%s" % (len(REFUSED), REFUSED)
        )
        self.stack.settle()
        self.assertEqual(client.status, 403)
        self.assertIn("SignatureDoesNotMatch", client.json["detail"])
        self.assertTrue(wire.aborted or wire.closed)
        client.send(b"a" * 100_000)
        self.assertFalse(client.wire.producerState == "paused")
        self.stack.advance(6)
        self.assertTrue(client.wire.closed)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_STATUS)

    def test_store_is_content_early(self) -> None:
        """A store that says it has what it cannot have is not believed."""
        client = self.begin("Content-Length: 1000000").send(b"a" * 1000)
        wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
        wire.deliver(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        self.stack.settle()
        self.assertEqual(client.status, 502)
        self.stack.advance(6)

    def test_a_fault_of_ours(self) -> None:
        """A fault of ours while the object comes is 500, and the store gets nothing."""
        self.patch(s3, "chosen", lambda *_: 1 / 0)
        client = self.begin("Content-Length: 1000").send(b"a" * 500)
        self.assertEqual(client.status, 500)
        self.assertEqual(self.requests, [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(client.received.count(b"HTTP/1.1"), 1)
        self.stack.advance(6)

    def test_client_leaves(self) -> None:
        """When the client leaves in the middle the store gets no whole object."""
        client = self.begin("Content-Length: 1000").send(b"a" * 500)
        wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
        client.leave()
        self.assertTrue(wire.aborted)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(self.stack.gateway._held.now, 0)

    def test_client_stops_sending(self) -> None:
        """A client that sends nothing more is told 408; the store is not to blame."""
        client = self.begin("Content-Length: 1000").send(b"a" * 500)
        self.stack.advance(7)
        client.send(b"a")
        self.stack.advance(7)
        self.assertEqual(client.status, 0)
        self.stack.advance(2)
        self.assertEqual(client.status, 408)
        self.stack.advance(6)

    def check_leaving_unread(self, client: Client) -> None:
        """See to it that a client that is not read, and leaves, is missed within a second."""
        self.assertEqual(client.wire.producerState, "paused")
        far, near = socketpair()
        self.addCleanup(near.close)
        self.patch(client.wire, "getHandle", lambda: near)
        far.send(b"not read")
        self.stack.advance(3)
        self.assertFalse(client.wire.aborted)
        far.close()
        self.stack.advance(1)
        self.assertTrue(client.wire.aborted)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)

    def test_client_leaves_while_the_store_stalls(self) -> None:
        """While the client is not read its leaving is noticed all the same."""
        client = self.begin("Content-Length: 100000")
        wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
        wire.congested = True
        self.check_leaving_unread(client.send(b"a" * 1000).send(b"b"))
        self.assertTrue(wire.aborted)

    def test_client_leaves_while_a_part_is_put(self) -> None:
        """So it is while a part is on its way."""
        self.patch(s3, "PART_BYTES", 1000)
        client = self.begin("Transfer-Encoding: chunked")
        client.send(b"3e8\r\n" + b"a" * 1000 + b"\r\n1\r\nb\r\n")
        begun = self.store
        self.check_leaving_unread(client)
        begun.answer(body=b"<Begun><UploadId>u1</UploadId></Begun>")
        self.assertEqual(self.store.method, "DELETE")
        self.store.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    def test_store_stops_taking(self) -> None:
        """A store that takes nothing more is 504."""
        client = self.begin("Content-Length: 100000").send(b"a" * 500)
        self.stack.engine("10.3.0.1", 9000)._wires[-1][0].congested = True
        client.send(b"b" * 500)
        self.stack.advance(9)
        self.assertEqual(client.status, 504)
        self.stack.advance(6)

    def test_too_large(self) -> None:
        """The bound holds for what is announced, and for what comes."""
        self.stack.text = CONFIG.replace("timeoutSeconds", "maxBodyBytes: 100, timeoutSeconds")
        self.assertTrue(self.stack.gateway.reload())
        client = self.begin("Content-Length: 101")
        self.assertEqual(client.status, 413)
        client = self.begin("Transfer-Encoding: chunked")
        client.send(b"65\r\n" + b"x" * 101 + b"\r\n0\r\n\r\n")
        self.assertEqual(client.status, 413)
        self.assertEqual(self.requests, [])
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(6)

    def test_bad_chunks(self) -> None:
        """A body that breaks its framing is 400, and the store gets no object."""
        client = self.begin("Transfer-Encoding: chunked").send(b"zz\r\n")
        self.assertEqual(client.status, 400)
        self.assertEqual(self.requests, [])
        self.assertEqual(len(self.stack.gateway.exchanges), 0)


class ChunkedTests(PuttingTestCase):
    """Objects whose length nobody says."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(s3, "PART_BYTES", PART_BYTES)

    def test_small(self) -> None:
        """A small one is held, and put with its length."""
        client = self.begin("Transfer-Encoding: chunked").send(b"3\r\nabc\r\n")
        self.assertEqual(self.requests, [])
        self.assertEqual(self.stack.gateway._held.now, 3)
        client.send(b"3\r\ndef\r\n0\r\n\r\n")
        self.assertEqual((self.store.path, self.store.body), ("/b/k", b"abcdef"))
        self.assertEqual(self.stack.gateway._held.now, 6)
        self.store.answer(body=b"", extra="etag: e\r\n")
        self.assertEqual(client.json["etag"], "e")
        self.assertEqual(self.stack.gateway._held.now, 0)

    def upload(self, extra: str = "") -> Client:
        """Begin one of more than a part, up to the answer to its begin."""
        client = self.begin(
            "Transfer-Encoding: chunked",
            extra=f"Content-Type: a/b\r\nx-amz-meta-a: 1\r\nIf-None-Match: *\r\n{extra}",
        )
        client.send(b"%x\r\n" % (PART_BYTES + 5))
        client.send(b"x" * (PART_BYTES + 5) + b"\r\n")
        self.assertEqual((self.store.method, self.store.path), ("POST", "/b/k?uploads="))
        self.assertEqual(self.store.headers["content-type"], "a/b")
        self.assertEqual(self.store.headers["x-amz-meta-a"], "1")
        self.store.answer(
            body=b"<InitiateMultipartUploadResult><UploadId>u&amp;1</UploadId>"
            b"</InitiateMultipartUploadResult>"
        )
        return client

    def test_large(self) -> None:
        """A large one is put in parts."""
        client = self.upload()
        self.assertEqual(self.store.path, "/b/k?partNumber=1&uploadId=u%261")
        self.assertEqual(len(self.store.body), PART_BYTES)
        self.store.answer(body=b"", extra='etag: "1"\r\n')
        client.send(b"3\r\nend\r\n0\r\n\r\n")
        self.assertEqual(self.store.path, "/b/k?partNumber=2&uploadId=u%261")
        self.assertEqual(self.store.body, b"xxxxxend")
        self.store.answer(body=b"", extra='etag: "2"\r\n')
        self.assertEqual((self.store.method, self.store.path), ("POST", "/b/k?uploadId=u%261"))
        self.assertEqual(self.store.headers["if-none-match"], "*")
        self.assertEqual(
            self.store.body,
            b'<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"1"</ETag></Part>'
            b'<Part><PartNumber>2</PartNumber><ETag>"2"</ETag></Part></CompleteMultipartUpload>',
        )
        self.store.answer(
            body=b"<CompleteMultipartUploadResult><ETag>w</ETag></CompleteMultipartUploadResult>"
        )
        self.assertEqual(json.loads(client.body)["etag"], "w")

    def test_failure_behind_200(self) -> None:
        """S3 may fail an upload's completion behind a 200."""
        client = self.upload()
        self.store.answer(body=b"")
        client.send(b"0\r\n\r\n")
        self.store.answer(body=b"")
        self.store.answer(body=b"<Error><Code>InternalError</Code><Message>of AK</Message></Error>")
        self.assertEqual(client.status, 500)
        self.assertEqual(client.json["upstream_message"], "InternalError: of ***")

    def test_failure_in_latin_1(self) -> None:
        """Its words are read as the answer's fields say."""
        client = self.upload()
        self.store.answer(body=b"")
        client.send(b"0\r\n\r\n")
        self.store.answer(body=b"")
        latin = b"<Error><Code>Busy</Code><Message>Occup\xe9</Message></Error>"
        self.store.answer(body=latin, content_type="application/xml; charset=iso-8859-1")
        self.assertEqual(client.json["upstream_message"], "Busy: Occupé")
        self.assertEqual((self.store.method, self.store.path), ("DELETE", "/b/k?uploadId=u%261"))
        self.store.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    def test_parts_are_removed(self) -> None:
        """When the client leaves in the middle the parts are removed, as soon as that is known."""
        client = self.upload()
        self.store.answer(body=b"", extra="etag: 1\r\n")
        client.leave()
        self.assertEqual((self.store.method, self.store.path), ("DELETE", "/b/k?uploadId=u%261"))
        self.store.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        self.assertEqual(self.stack.gateway._held.now, 0)

    def create(self) -> Client:
        """Begin one, up to the question that begins it at the store."""
        client = self.begin("Transfer-Encoding: chunked")
        return client.send(b"%x\r\n%s\r\n" % (PART_BYTES, b"x" * PART_BYTES))

    def test_digest(self) -> None:
        """Content-MD5 is that of the whole object, which S3 is never sent as such."""
        whole = b64encode(md5(b"x" * (PART_BYTES + 5), usedforsecurity=False).digest()).decode()
        for digest, good in ((whole, True), ("A" * 22 + "==", False), ("nonsense", False)):
            client = self.upload(f"Content-MD5: {digest}\r\n")
            self.assertNotIn("content-md5", self.store.headers)
            self.store.answer(body=b"")
            client.send(b"0\r\n\r\n")
            self.store.answer(body=b"")
            if good:
                self.store.answer(body=b"<Done><ETag>w</ETag></Done>")
                self.assertEqual(client.status, 200)
            else:
                self.assertEqual(client.status, 400)
                self.assertTrue(client.json["type"].endswith(":bad_digest"))
                self.assertEqual(self.store.method, "DELETE")
                self.store.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    def test_slow_part(self) -> None:
        """A store may take as long as it likes for a part, as long as it goes on taking."""
        self.patch(s3, "PART_BYTES", 1_000_000)
        client = self.begin("Transfer-Encoding: chunked")
        client.send(b"%x\r\n%s\r\n0\r\n\r\n" % (1_000_000, b"x" * 1_000_000))
        wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
        wire.congested = True
        self.store.answer(body=b"<Begun><UploadId>u1</UploadId></Begun>")
        for _ in range(12):
            self.stack.advance(5)
            self.assertEqual(client.status, 0)
            wire.dataBuffer = b""
            producer: Any = wire.producer
            producer.resumeProducing()
        self.stack.advance(9)
        self.assertEqual(client.status, 504)
        self.stack.advance(12)

    def test_nothing_is_left_of_a_part(self) -> None:
        """A part that the store never took is let go at once, not when somebody cleans up."""
        self.patch(s3, "PART_BYTES", 1_000_000)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for end in (lambda client: client.leave(), lambda client: self.stack.advance(9)):
            client = self.begin("Transfer-Encoding: chunked")
            client.send(b"%x\r\n%s\r\n" % (1_000_000, b"x" * 1_000_000))
            wire = self.stack.engine("10.3.0.1", 9000)._wires[-1][0]
            wire.congested = True
            self.store.answer(body=b"<Begun><UploadId>u1</UploadId></Begun>")
            self.assertGreater(self.left(), 900_000)
            end(client)
            self.assertLess(self.left(), 1000)
            self.stack.advance(12)

    def left(self) -> int:
        """Bytes of bodies that may still be sent, whoever could reach them."""
        producers = [one for one in gc.get_objects() if isinstance(one, BytesProducer)]
        return sum(len(piece) for one in producers for piece in one.pieces)

    def test_slow_completion(self) -> None:
        """S3 sends white space while it puts the parts together; that is no silence."""
        client = self.upload()
        self.store.answer(body=b"")
        client.send(b"0\r\n\r\n")
        self.store.answer(body=b"")
        completion = self.store.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(20):
            self.stack.advance(5)
            completion.send(b"1\r\n \r\n")
            self.assertEqual(client.status, 0)
        document = b'<?xml version="1.0"?><Done><ETag>w</ETag></Done>'
        completion.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(document), document))
        self.assertEqual(client.status, 200, client.received)

    def test_leaving_while_it_begins(self) -> None:
        """An upload that the store begins for a client that has left is removed again."""
        for end in (lambda client: client.leave(), lambda client: self.stack.advance(9)):
            client = self.create()
            begun = self.store
            end(client)
            self.assertFalse(begun.gone)
            self.assertEqual(len(self.stack.gateway.exchanges), 0)
            self.assertEqual(self.stack.gateway._held.now, 0)
            begun.answer(body=b"<Begun><UploadId>u1</UploadId></Begun>")
            self.assertEqual((self.store.method, self.store.path), ("DELETE", "/b/k?uploadId=u1"))
            self.store.send(b"HTTP/1.1 204 No Content\r\n\r\n")
            self.stack.advance(6)

    def test_leaving_while_it_never_begins(self) -> None:
        """The store has ten seconds for that; the log says that something may be left there."""
        lines = said(self)
        client = self.create()
        begun = self.store
        client.leave()
        self.stack.advance(11)
        self.assertTrue(begun.gone)
        said_so = [line for line in lines if "left undone" in line]
        self.assertTrue(said_so[0].startswith("s3: "), said_so)
        client = self.create()
        begun, before = self.store, len(lines)
        client.leave()
        begun.answer(403, REFUSED)
        self.assertEqual([line for line in lines[before:] if "left undone" in line], [])

    def test_drain_waits(self) -> None:
        """A drain waits until the parts of uploads that were given up are removed."""
        self.upload().leave()
        drained = self.stack.gateway.drain()
        self.assertEqual(self.store.method, "DELETE")
        self.stack.advance(6)
        self.assertNoResult(drained)
        self.assertFalse(self.store.gone)
        lines = said(self)
        self.store.answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        self.stack.advance(6)
        self.successResultOf(drained)
        self.assertEqual([line for line in lines if "undone" in line], [])

    def test_pace_of_parts(self) -> None:
        """No more than a part is held, however fast the client sends."""
        client = self.upload()
        for _ in range(40):
            client.send(b"10000\r\n" + b"y" * 0x10000 + b"\r\n")
        self.assertLess(self.stack.gateway._held.now, 2 * PART_BYTES)
        self.assertEqual(client.wire.producerState, "paused")
        client.leave()

    def test_part_on_its_way(self) -> None:
        """A part counts as held until the store has it, so that many of them are too many."""
        self.stack.text = CONFIG + f"maxHeldBytes: {2 * PART_BYTES + 50_000}\nmaxBodyBytes: 1000\n"
        self.stack.gateway.reload()
        clients = [self.upload(), self.upload()]
        self.assertEqual(self.stack.gateway._held.now, 2 * PART_BYTES + 10)
        late = self.begin("Transfer-Encoding: chunked").send(b"10000\r\n" + b"z" * 0x10000)
        self.assertEqual((late.status, late.json["reason"]), (503, "queue_full"))
        self.store.answer(body=b"")
        clients[1].send(b"0\r\n\r\n")
        self.assertEqual(self.stack.gateway._held.now, PART_BYTES + 10)
        for client in clients:
            client.leave()
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(12)

    def test_too_much_held(self) -> None:
        """When the process holds too much, it is refused like any other body."""
        self.stack.text = CONFIG + "maxHeldBytes: 1000\nmaxBodyBytes: 1000\n"
        self.stack.gateway.reload()
        client = self.begin("Transfer-Encoding: chunked").send(b"7d0\r\n" + b"x" * 2000)
        self.assertEqual((client.status, client.json["reason"]), (503, "queue_full"))
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(6)

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

from tests.services.stack import AUTH, ServicesTestCase
from tests.stack import Asked
from tests.support import examples
from twisted_gateway.auth.token import MAX_TOKEN_CHARACTERS
from twisted_gateway.services.adapter import BodyUse, Operation

CONFIG = (
    AUTH
    + """
adapters:
  memory: {upstream: "http://10.2.0.1:8080", requireAuth: false}
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK, requireAuth: false}
  sqs: {upstream: "http://10.4.0.1:9324", accessKey: AK, secretKey: SK}
  notification: {upstream: "http://10.5.0.1:80", token: t, requireAuth: false}
  iam: {upstream: "http://10.5.0.2:9000", token: t, requireAuth: false}
  registry: {upstream: "http://10.5.0.3:3000", token: t, requireAuth: false}
"""
)
ADDRESSES = {
    "memory": "10.2.0.1:8080",
    "s3": "10.3.0.1:9000",
    "sqs": "10.4.0.1:9324",
    "notification": "10.5.0.1",
    "iam": "10.5.0.2:9000",
    "registry": "10.5.0.3:3000",
}
PATHS = {
    "memory": "/(query|ingest)",
    "s3": "/[A-Za-z0-9._-]+(/.*)?",
    "sqs": "/",
    "notification": "/message",
    "iam": "/api/v3/core/users/",
    "registry": "/api/v1/(repos/search|(users|packages)/[A-Za-z0-9._-]+)",
}
GOOD = {
    "bucket": "b",
    "key": "k",
    "queue": "q",
    "message": "m",
    "receipt_handle": "r",
    "owner": "ada",
}
EVIL = (
    "a\r\nX-Evil: 1",
    "a\nX-Evil: 1",
    "a\rX-Evil: 1",
    "a\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a HTTP/1.1\r\nX-Evil: 1",
    "http://evil.example/",
    "//evil.example/",
    "@evil.example/",
    "../../evil",
    "..\\..\\evil",
    "%2e%2e%2fevil",
    "a/../evil",
    "a?evil=1",
    "a&evil=1",
    "a#evil",
    "a;evil",
    "a\0evil",
    "\u2028\u010a\u560a evil",
    "\ufeffevil",
    "{evil}",
    "${evil}",
    '"}, "evil": {"',
)


class HostileTests(ServicesTestCase):
    """Whatever a parameter holds, it stays in its place."""

    config = CONFIG

    def operations(self) -> Iterator[tuple[str, str, str, Operation]]:
        catalogue = self.stack.gateway._service_side._catalogue
        for name, configured in catalogue.services.items():
            for resource, methods in configured.service.operations.items():
                for method, operation in methods.items():
                    yield name, resource, method, operation

    def came(self) -> list[Asked]:
        return [
            asked
            for (host, _), engine in self.stack.engines.items()
            for asked in engine.asked
            if host != "10.9.0.1"
        ]

    def send(self, service: str, resource: str, method: str, query: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json"} if body else {}
        token = "good" if service == "sqs" else None
        client = self.ask(
            service,
            resource,
            method=method,
            path=f"/?{query}",
            body=body,
            headers=headers,
            token=token,
        )
        client.leave()

    def check(self, service: str, evil: str) -> None:
        """What came at the service is one request to it, with its path and fields alone."""
        for asked in self.came():
            why = f"{service} {evil!r}: {asked.method} {asked.path}"
            self.assertEqual(asked.headers["host"], ADDRESSES[service], why)
            self.assertNotIn("x-evil", asked.headers, why)
            self.assertRegex(urlsplit(asked.path).path, rf"\A{PATHS[service]}\Z", why)
            segments = unquote(urlsplit(asked.path).path).replace("\\", "/").split("/")
            self.assertFalse({".", ".."} & set(segments), why)
            self.assertTrue(asked.path.isascii() and asked.path.isprintable(), why)
            head = asked.wire.value().partition(b"\r\n\r\n")[0]
            self.assertEqual(head.count(b" HTTP/1.1\r\n"), 1, why)
        hosts = {host for host, *_ in self.stack.reactor.tcpClients}
        allowed = {address.partition(":")[0] for address in ADDRESSES.values()}
        self.assertLessEqual(hosts, {*allowed, "10.9.0.1"})
        for engine in self.stack.engines.values():
            if engine is not self.issuer:
                engine.asked.clear()

    def test_every_parameter(self) -> None:
        """No parameter of any adapter makes a field, a request, a host or a way out of its path."""
        tried = parameters = 0
        # All of them at EXAMPLES_SCALE=1, else other ones for each parameter.
        most: int = examples(len(EVIL)).max_examples
        for service, resource, method, operation in self.operations():
            for parameter in operation.parameters:
                parameters += 1
                begin = parameters * most % len(EVIL)
                for evil in [*EVIL, *EVIL][begin : begin + most]:
                    given = {
                        one.name: GOOD[one.name] for one in operation.parameters if one.required
                    } | {parameter.name: evil}
                    query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
                    body = b"x" if operation.body is BodyUse.STREAMED else b""
                    self.send(service, resource, method, query, body)
                    self.check(service, evil)
                    tried += 1
        self.assertEqual(tried, parameters * most)
        self.assertGreater(parameters, 30)

    def test_header_fields(self) -> None:
        """Nor does a header field that an adapter passes on."""
        for name in ("Content-Type", "Accept", "Range", "If-Match", "X-Amz-Meta-a", "X-Request-ID"):
            for evil in ("a\rX-Evil: 1", "a\0b", "a\x0b", "\x85X-Evil: 1", "a" * 5000):
                for service, resource, method in (
                    ("memory", "query", "POST"),
                    ("s3", "list", "GET"),
                    ("s3", "get", "GET"),
                ):
                    parameters = {"list": "bucket=b", "get": "bucket=b&key=k"}.get(resource, "")
                    self.stack.client().send(
                        f"{method} /?{parameters} HTTP/1.1\r\nHost: g\r\nX-Service: {service}\r\n"
                        f"X-Resource: {resource}\r\n"
                        f"{name}: {evil}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
                    ).leave()
                    self.check(service, f"{name}: {evil}")

    def test_longest_token(self) -> None:
        """A token as long as any that is looked at gets past the bound of header lines."""
        token = max(
            (self.token(pad="x" * length) for length in range(11_500, 11_900)),
            key=lambda text: len(text) if len(text) <= MAX_TOKEN_CHARACTERS else 0,
        )
        self.assertGreater(len(token), MAX_TOKEN_CHARACTERS - 3)
        self.ask("sqs", "list-queues", method="GET", body=b"", token=token)
        self.give_keys()
        self.assertEqual([asked.headers["host"] for asked in self.came()], [ADDRESSES["sqs"]])

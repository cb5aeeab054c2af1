"""A whole gateway in memory before services, an issuer among its engines."""

from __future__ import annotations

from typing import Any

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from tests.auth import issuer
from tests.stack import Asked, Client, Engine, Stack
from tests.support import TestCase

AUTH = """
auth:
  issuer: https://issuer.example
  audience: gateway
  jwksUrl: http://10.9.0.1/jwks
"""

MEMORY = """
adapters:
  memory: {upstream: "http://10.2.0.1:8080"}
"""


def said(case: TestCase) -> list[str]:
    """The lines of the log, from here on to the end of a test."""
    lines: list[str] = []

    @implementer(ILogObserver)
    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    case.addCleanup(globalLogPublisher.removeObserver, observe)
    return lines


class ServicesTestCase(TestCase):
    """A test with a gateway before services.

    Attributes:
        stack: the gateway.
        keys: what the issuer publishes; None: it does not answer.
    """

    config = MEMORY + AUTH

    def setUp(self) -> None:
        super().setUp()
        self.keys: bytes | None = issuer.jwks(issuer.ec_jwk("ec-1"))
        self.stack = Stack(self, self.config)
        self.give_keys()

    @property
    def issuer(self) -> Engine:
        return self.stack.engine("10.9.0.1", 80)

    @property
    def service(self) -> Engine:
        """The memory service."""
        return self.stack.engine("10.2.0.1", 8080)

    def give_keys(self) -> None:
        """The issuer answers who has asked it for its keys."""
        if self.keys is not None:
            for asked in self.issuer.asked:
                if not asked.gone and not getattr(asked, "done", False):
                    asked.answer(body=self.keys)
                    asked.done = True  # type: ignore[attr-defined]

    def token(self, **members: Any) -> str:
        """A good token, or one that differs in its claims."""
        return issuer.token(now=self.stack.now, **members)

    def ask(
        self,
        service: str = "memory",
        resource: str | None = "query",
        *,
        method: str = "POST",
        path: str = "/",
        body: bytes = b"{}",
        token: str | None = "good",
        headers: dict[str, str] | None = None,
    ) -> Client:
        """Send a request to a service."""
        lines = {"Host": "gateway", "X-Service": service, **(headers or {})}
        if resource is not None:
            lines["X-Resource"] = resource
        if token is not None:
            lines["Authorization"] = f"Bearer {self.token() if token == 'good' else token}"
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        length = f"Content-Length: {len(body)}\r\n" if body or method in ("POST", "PUT") else ""
        return self.stack.client().send(
            f"{method} {path} HTTP/1.1\r\n{head}{length}\r\n".encode() + body
        )

    @property
    def asked(self) -> Asked:
        """What the memory service was asked last."""
        return self.service.last

"""What the tests of docs/nginx/nginx.conf share: a gateway with everything, and nginx before it."""

from __future__ import annotations

from typing import Any

from tests.integration import wire
from tests.integration.cache import Unavailable
from tests.integration.case import TestCase, unavailable
from tests.integration.fakes.authority import Authority
from tests.integration.fakes.serving import Handler, Server
from tests.integration.gateway import Gateway
from tests.integration.nginx import HOST, Published
from tests.integration.processes import NotReady, free_port
from tests.integration.store import ACCESS_KEY, SECRET_KEY, Store
from tests.integration.world import WORLD

ECHO = "echo"
"""A model whose engine answers at once, and keeps the header fields that it was sent."""


class Echo(Server):
    """An engine that keeps the header fields it is sent."""

    def __init__(self) -> None:
        self.came: list[dict[str, str]] = []
        super().__init__()

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        self.came.append(headers)
        handler.send(200, b'{"object": "chat.completion", "choices": []}')


class Parts:
    """The store, the gateway and nginx before it, started once, when first asked for."""

    def __init__(self) -> None:
        logs = WORLD.logs
        authority = Authority()
        wire.TLS.load_verify_locations(cadata=authority.certificate.decode())
        self.certificate = logs / "nginx-published.pem"
        authority.issue(self.certificate, HOST)
        (logs / "authority.pem").write_bytes(authority.certificate)
        self.store = Store(logs / "nginx-store", logs)
        self.echo = Echo()
        admin = free_port()
        self.gateway = Gateway("gateway-inside", self._config(admin), logs, admin_port=admin)
        self.nginx = self.another("nginx-published", {})
        self.store.start()
        self.gateway.start()
        self.nginx.start()

    def another(self, name: str, changes: dict[str, str]) -> Published:
        """An nginx of the same file but for these changes, not yet started."""
        upstream = f"127.0.0.1:{self.gateway.port}"
        return Published(upstream, WORLD.logs, self.certificate, name=name, changes=changes)

    def _config(self, admin_port: int) -> dict[str, Any]:
        config = WORLD.configuration()
        config["models"][ECHO] = {"upstream": self.echo.url}
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        config["adapters"] = {"s3": {"upstream": self.store.url, **keys, "requireAuth": False}}
        config["adminListen"] = [f"tcp:{admin_port}:interface=127.0.0.1"]
        config["tenants"] = {"trustedProxies": ["127.0.0.0/8"]}
        return config


class NginxTestCase(TestCase):
    """A test of the published file before a gateway that has `adminListen`."""

    own: Parts | None = None
    fault: Exception | None = None

    def parts(self) -> tuple[Gateway, str]:
        if NginxTestCase.own is None and NginxTestCase.fault is None:
            try:
                NginxTestCase.own = Parts()
            except (Unavailable, NotReady, AssertionError, OSError) as fault:
                # Each further try would take as long, and leave as much behind.
                NginxTestCase.fault = fault
        if isinstance(NginxTestCase.fault, Unavailable):
            raise unavailable(NginxTestCase.fault)
        if NginxTestCase.own is None:
            raise AssertionError("what these tests share did not start") from NginxTestCase.fault
        self.shared = NginxTestCase.own
        self.nginx = self.shared.nginx
        return self.shared.gateway, self.nginx.url

    def another(self, name: str, changes: dict[str, str]) -> Published:
        """Start another nginx, for this test alone."""
        nginx = self.shared.another(name, changes)
        nginx.start()
        self.addCleanup(nginx.stop)
        return nginx

    def logged(self, request_id: str, nginx: Published | None = None) -> dict[str, Any]:
        """The line of nginx's log about a request, once it is there."""

        def lines() -> list[dict[str, Any]]:
            logged = (nginx or self.nginx).logged()
            return [line for line in logged if line["request_id"] == request_id]

        self.wait(lines, 5, f"a line about {request_id}")
        (line,) = lines()
        return line

    def gateway_line(self, request_id: str) -> str:
        """The line of the gateway's log about a request, once it is there."""

        def lines() -> list[str]:
            text = self.gateway.process.log.read_text(errors="replace").splitlines()
            return [line for line in text if f"request_id={request_id} " in line]

        self.wait(lines, 5, f"a line about {request_id}")
        return lines()[0]

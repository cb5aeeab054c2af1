"""Waiting for the gateway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.check.harness import Came, Says, ToolTestCase, problem
from twisted_gateway.check.ready import OLDER, PUBLIC_ONLY, STRANGER

DRAINING = Says(503, {"status": "unavailable", "reasons": ["draining"]})


class ReadyTests(ToolTestCase):
    """Nothing is checked before the gateway is ready."""

    def not_ready(self, why: str, *arguments: str, admin: bool = True) -> None:
        """See it give up in its time, with status 3, and with the reason."""
        self.assertEqual(self.check("--wait", "10", *arguments, admin=admin, seconds=60), 3)
        verdict, said = self.rows()["ready"]
        self.assertEqual(verdict, "FAILED")
        self.assertIn(f"not ready after 10 s: {why}", said)
        self.assertEqual(list(self.verdicts()), ["ready"])

    def gone(self, *ports: int) -> dict[int, Any]:
        """Let nobody listen at these ports."""
        taken = {port: self.gateway.servers[port] for port in ports}
        self.gateway.servers.update(dict.fromkeys(ports))
        return taken

    def test_comes_up(self) -> None:
        """It waits for a gateway that starts, says why meanwhile, once for each reason, and goes
        on."""
        servers = self.gone(8080, 9090)
        made = self.begin("--wait", "60")
        self.advance(10)
        self.gateway.servers.update(servers)
        ready = self.gateway.says["/health/ready"]
        self.gateway.says["/health/ready"] = self.gateway.admin(DRAINING)
        self.advance(10)
        self.assertNoResult(made)
        self.gateway.says["/health/ready"] = ready
        self.advance(2)
        self.assertEqual(self.status(made), 0)
        lines = self.said.getvalue().splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("waiting: /health/ready: ", lines[0])
        self.assertIn("status 503: draining", lines[1])

    def test_nobody(self) -> None:
        """Where nobody listens it is not ready."""
        self.gone(8080, 9090)
        self.not_ready("/health/ready: the connection was refused")

    def test_draining(self) -> None:
        """A gateway that drains is not ready."""
        self.gateway.says["/health/ready"] = self.gateway.admin(DRAINING)
        self.not_ready("/health/ready: status 503: draining")

    def test_at_once(self) -> None:
        """Who does not want to wait is told at once."""
        self.gone(8080, 9090)
        self.assertEqual(self.check("--wait", "0"), 3)

    def test_admin_side_is_closed(self) -> None:
        """Where the public side answers and the admin side does not, it says which."""
        self.gone(9090)
        self.not_ready("the public side answers, the admin side that --admin names does not")

    def test_not_the_admin_side(self) -> None:
        """An address that is none of the admin side's is told of too."""
        self.gateway.servers[9090] = self.gateway.servers[8080]
        self.not_ready(
            "the public side answers, the admin side that --admin names does not: "
            "/health/ready: status 404: it is not_found"
        )

    def test_public_side_is_closed(self) -> None:
        """The gateway is ready, and clients do not reach it."""
        self.gone(8080)
        self.not_ready("the admin side is, the public side is not: /v1/models: the connection")

    def test_public_side_leads_elsewhere(self) -> None:
        """A public side that redirects is another one than was named."""
        self.gateway.says["/v1/models"] = Says(301, b"", headers=(("Location", "https://x/"),))
        self.not_ready("the admin side is, the public side is not: /v1/models: status 301: it le")

    def test_proxy_without_a_gateway(self) -> None:
        """A proxy's 404 and 503 are no gateway."""
        for said in (Says(404, b"default backend"), Says(503, b"<html>")):
            self.again()

            def proxy(came: Came, said: Says = said) -> Says:
                return said

            self.patch(self.gateway, "answer", proxy)
            self.not_ready(f"/health/ready: status {said.status}", admin=False)

    def test_redirect(self) -> None:
        """An address that leads elsewhere is told of: that one is to be named."""
        elsewhere = Says(308, b"", headers=(("Location", "https://gateway/health/ready"),))
        self.patch(self.gateway, "answer", lambda came: elsewhere)
        self.not_ready("/health/ready: status 308: it leads to https://gateway/health/ready")

    def test_hangs(self) -> None:
        """A gateway that takes the connection and says nothing is not ready either."""
        self.patch(self.gateway, "answer", lambda came: Says(None))
        self.not_ready("/health/ready: no whole answer within 5 s")

    def test_interrupted(self) -> None:
        """Ctrl-C ends the waiting."""
        self.gone(8080, 9090)
        made = self.begin()
        self.reactor.handlers[2](2, None)
        self.settle()
        self.assertEqual(self.status(made), 130)
        verdict, said = self.rows()["ready"]
        self.assertEqual(verdict, "FAILED")
        self.assertIn("under way when the run was interrupted", said)

    def test_older(self) -> None:
        """A gateway without /health/ready is taken by its list of models; it serves /health, so
        that nothing is said of another address."""
        self.gateway.says["/health/ready"] = problem(404, "not_found")
        self.gateway.servers[8080] = self.gateway.servers[9090]
        self.assertEqual(self.check(admin=False), 0)
        self.assertEqual(self.rows()["ready"], ("ok", OLDER))
        self.assertEqual(self.verdicts()["health"], "ok")
        self.assertEqual(self.verdicts()["admin-not-public"], "skipped")
        # Who serves no /health/ready need not be the gateway, and is not taken at its word.
        self.assertNotIn("/status.json", self.gateway.keys())

    def test_public_side_alone(self) -> None:
        """Where nothing serves /health, that is said, and that adminListen is a reason."""
        self.assertEqual(self.check(admin=False), 0)
        self.assertEqual(self.rows()["ready"], ("ok", PUBLIC_ONLY))
        self.assertEqual(self.verdicts()["health"], "skipped")
        self.assertEqual(self.verdicts()["admin-not-public"], "ok")

    def engine(self, *paths: str) -> None:
        """Let an engine answer there, which has these paths and a list of models."""

        def answer(came: Came) -> Says:
            self.gateway.came.append(came)
            if came.path == "/v1/models":
                said = Says(200, {"data": [{"id": "m"}]})
            else:
                said = Says(200, b"") if came.path in paths else Says(404, {"detail": "Not Found"})
            return replace(said, headers=(("X-Request-ID", ""),))

        self.patch(self.gateway, "answer", answer)

    def test_an_engine(self) -> None:
        """An engine's address has failed at once, whether it serves /health or, as the gateway's
        public side, does not; nothing more is asked of it, and no token is sent."""
        for paths in ("/health", "/metrics"), ():
            self.again()
            self.engine(*paths)
            self.assertEqual(self.check(admin=False), 3)
            verdict, said = self.rows()["ready"]
            self.assertEqual(verdict, "FAILED")
            self.assertTrue(said.startswith(STRANGER), said)
            self.assertEqual(list(self.verdicts()), ["ready"])
            self.assertEqual(self.gateway.keys(), ["/v1/models", "/health/ready", "/health"])
            for came in self.gateway.came:
                self.assertNotIn("authorization", came.headers)
            # No gateway has a log of them.
            self.assertRegex(self.printed.getvalue(), r"\n1 failed in 0\.\d s\.\n$")

    def test_an_engine_that_says_it_is_ready(self) -> None:
        """So has one that answers 200 to whatever it is asked, /health/ready included."""
        self.engine("/health", "/health/ready")
        self.assertEqual(self.check(admin=False), 3)
        verdict, said = self.rows()["ready"]
        self.assertEqual((verdict, said.startswith(STRANGER)), ("FAILED", True))
        self.assertEqual(self.gateway.keys(), ["/v1/models", "/health/ready"])
        for came in self.gateway.came:
            self.assertNotIn("authorization", came.headers)

    def test_no_ids(self) -> None:
        """Who does not ask for ids takes it for a gateway; no log is said to have them."""
        for paths, remark in ((("/health",), OLDER), ((), PUBLIC_ONLY)):
            self.again()
            self.engine(*paths)
            self.assertEqual(self.check("--skip", "request-id", admin=False), 1)
            self.assertEqual(self.rows()["ready"], ("ok", remark))
            self.assertNotIn("In the gateway's log", self.printed.getvalue())

    def test_an_engine_that_fails(self) -> None:
        """One whose /health is 503, or comes too late, is not ready."""
        for health, said in ((Says(503, b""), "status 503"), (Says(None), "no whole answer")):
            self.again()
            self.engine()
            other = self.gateway.answer

            def answer(came: Came, health: Says = health, other: Any = other) -> Says:
                return health if came.path == "/health" else other(came)

            self.patch(self.gateway, "answer", answer)
            self.assertEqual(self.check("--wait", "10", admin=False, seconds=60), 3)
            self.assertIn(f"/health: {said}", self.rows()["ready"][1])

    def test_the_time_is_the_time(self) -> None:
        """It waits as long as it says, also where the last look is slow."""
        self.gone(8080, 9090)
        for wait in ("3", "2.5"):
            self.assertEqual(self.check("--wait", wait, seconds=60), 3)
            self.assertIn(f"not ready after {wait} s: ", self.rows()["ready"][1])
            self.assertRegex(self.printed.getvalue(), rf"ready +{float(wait)} s")
            self.again()
            self.gone(8080, 9090)
        self.again()
        self.patch(self.gateway, "answer", lambda came: Says(None))
        self.assertEqual(self.check("--wait", "3", seconds=60), 3)
        self.assertIn("not ready after 10 s: ", self.rows()["ready"][1])

"""What is seen of the gateway itself, and that it is seen when it is not so."""

from __future__ import annotations

from typing import Any

from tests.check.harness import (
    NOTHING,
    PUBLIC,
    TOKEN,
    Answer,
    Came,
    Says,
    ToolTestCase,
    problem,
    service,
)

WITH_TOKEN = ("--token-env", "TOKEN")


class GoodTests(ToolTestCase):
    """A gateway that is as it should be."""

    def test_good(self) -> None:
        """Every check passes; the table names each once, and the exit status is 0."""
        self.assertEqual(self.check(), 0)
        names = [
            *("ready", "health", "metrics", "models", "services", "request-id"),
            *("admin-not-public", "unknown-model", "unknown-service", "webhook-signature"),
            *("chat m", "stream m"),
        ]
        self.assertEqual(self.verdicts(), dict.fromkeys(names, "ok"))
        self.assertIn("12 passed in 0.0 s.", self.printed.getvalue())

    def test_request_ids(self) -> None:
        """Every request has an id of its own, and the report says what all begin with."""
        self.check()
        ids = [came.headers["x-request-id"] for came in self.gateway.came]
        self.assertEqual(len(set(ids)), len(ids))
        run = ids[0].rpartition("-")[0]
        self.assertEqual(ids, [f"{run}-{number + 1}" for number in range(len(ids))])
        self.assertRegex(run, r"\Acheck-[0-9a-f]{8}\Z")
        self.assertIn(f"the requests are {run}-1 and on", self.printed.getvalue())

    def test_batch(self) -> None:
        """Models are asked as one who can wait: behind people, and not longer than we wait."""
        self.check("--timeout", "90")
        for came in self.gateway.came:
            if came.key == "/v1/chat/completions" and came.tree["model"] == "m":
                self.assertEqual(came.headers["x-priority"], "batch")
                self.assertEqual(came.headers["prefer"], "wait=85")

    def test_one_address(self) -> None:
        """Without adminListen one address serves both, and nothing is hidden from anybody."""
        self.gateway.servers[8080] = self.gateway.servers[9090]
        self.assertEqual(self.check(admin=False), 0)
        self.assertEqual(self.rows()["admin-not-public"][0], "skipped")
        self.assertEqual(self.verdicts()["health"], "ok")

    def test_public_side_alone(self) -> None:
        """Where only the public side is seen what is elsewhere is skipped, with a clear word."""
        self.assertEqual(self.check(admin=False), 0)
        rows = self.rows()
        for name in ("health", "metrics"):
            self.assertEqual(rows[name][0], "skipped")
        self.assertIn("only the public side is seen", rows["ready"][1])
        self.assertIn("--admin URL", rows["ready"][1])
        self.assertEqual(rows["admin-not-public"][0], "ok")
        # Who are aliases nobody said.
        self.assertEqual(rows["chat gpt-4o"][0], "ok")


class BadTests(ToolTestCase):
    """Each check is seen to fail."""

    def fails(self, name: str, key: str, said: Answer, why: str, *arguments: str) -> None:
        """See a check fail when something is answered otherwise, and say why."""
        self.gateway.says[key] = said
        self.assertEqual(self.check(*arguments), 1, self.printed.getvalue())
        verdict, told = self.rows()[name]
        self.assertEqual(verdict, "FAILED")
        self.assertIn(why, told)
        # By this one finds it in the gateway's log.
        self.assertRegex(told, r"\[check-[0-9a-f]{8}-\d+")
        self.assertIn(" 1 failed", self.printed.getvalue())

    def test_health(self) -> None:
        """The process says something else than that it is well."""
        said = self.gateway.admin(Says(200, {"status": "so-so"}))
        self.fails("health", "/health/live", said, "/health/live does")

    def test_health_fails(self) -> None:
        """The process does not answer well at all."""
        said = self.gateway.admin(Says(500, b"oops"))
        self.fails("health", "/health", said, "status 500: oops")

    def test_metrics(self) -> None:
        """Another program's metrics are there."""
        said = self.gateway.admin(Says(200, b"up 1\n"))
        self.fails("metrics", "/metrics", said, "no gateway_requests_total")

    def test_models(self) -> None:
        """The list of models is none."""
        for said, why in (
            (Says(200, {"models": []}), "no list of models"),
            (Says(200, b"<html>", "text/html"), "no list of models"),
            (Says(502, b"<html><title>Bad Gateway</title>", "text/html"), "502: Bad Gateway"),
        ):
            self.again()
            came = 0

            def later(request: Came, said: Says = said) -> Says:
                nonlocal came
                came += 1
                # The first is asked to see whether it is ready.
                return Says(200, {"data": []}) if came != 2 else said

            self.fails("models", "/v1/models", later, why)

    def test_services(self) -> None:
        """The list of services is none."""
        self.fails("services", "/v1/services", Says(200, []), "no list of services")

    def test_request_id(self) -> None:
        """Something in between makes an id of its own."""
        said = Says(200, {"data": [{"id": "m"}]}, headers=(("X-Request-ID", "other"),))
        self.fails("request-id", "/v1/models", said, "other came back: it will not be in the log")

    def test_admin_not_public(self) -> None:
        """What is for operators is served to everybody."""
        self.fails(
            "admin-not-public", "/metrics", Says(200, b"gateway_requests_total"), "to everybody"
        )

    def test_unknown_model(self) -> None:
        """A model that there is not is served all the same, or refused without a word."""
        said: Answer
        for said, why in (
            (lambda came: self.gateway._chat(_as("m", came)), "status 200 (400 was expected)"),
            (Says(404, {"error": {"message": "no such model"}}), "status 404: no such model (400"),
            (problem(400, "unknown_model"), "no valid_models"),
        ):
            self.again()
            self.fails("unknown-model", "/v1/chat/completions", said, why, "--models", "")

    def test_unknown_service(self) -> None:
        """X-Service does not reach the gateway."""
        self.gateway.says["no token"] = Says(404, b"default backend - 404", "text/plain")
        self.gateway.says["/v1/check"] = Says(404, b"default backend - 404", "text/plain")

        def lost(came: Came) -> Says:
            if "x-service" in came.headers:
                return Says(404, b"default backend - 404", "text/plain")
            return good(came)

        good = self.gateway.answer
        self.patch(self.gateway, "answer", lost)
        self.assertEqual(self.check(), 1)
        self.assertIn("does not reach the gateway", self.rows()["unknown-service"][1])

    def test_webhook(self) -> None:
        """An event with a wrong signature is taken."""
        self.fails("webhook-signature", "/v1/webhooks/forgejo", Says(200, {}), "status 200 (401")

    def test_webhook_not_configured(self) -> None:
        """Without a secret there is no webhook to check; another 503 is a failure."""
        self.gateway.says["/v1/webhooks/forgejo"] = problem(503, "webhook_not_configured")
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.rows()["webhook-signature"][0], "skipped")
        self.again()
        self.fails("webhook-signature", "/v1/webhooks/forgejo", Says(503, b""), "status 503")

    def test_hangs(self) -> None:
        """What does not answer fails in its time, and the others are checked."""
        self.gateway.says["/v1/services"] = NOTHING
        self.assertEqual(self.check("--timeout", "10", seconds=11), 1)
        self.assertIn("no whole answer within 10 s", self.rows()["services"][1])
        self.assertEqual(self.verdicts()["stream m"], "ok")

    def test_breaks_off(self) -> None:
        """An answer that never begins, or breaks off, is none."""
        self.gateway.says["/v1/services"] = Says(None, ends="cut")
        self.gateway.says["/metrics"] = self.gateway.admin(Says(200, b"x", ends="short"))
        self.assertEqual(self.check(), 1)
        self.assertIn("before", self.rows()["services"][1])
        self.assertIn("an answer of status 200 that broke off", self.rows()["metrics"][1])

    def test_endless(self) -> None:
        """An answer without an end is cut off."""
        self.gateway.says["/metrics"] = Says(200, b"x" * (8 * 1024 * 1024 + 1))
        self.gateway.says["/v1/services"] = Says(200, b"[],".ljust(1024 * 1024 + 1))
        self.assertEqual(self.check(), 1)
        self.assertIn("longer than 8388608 bytes", self.rows()["metrics"][1])
        # As objects it would take many times its length.
        self.assertIn("longer than 1048576 bytes", self.rows()["services"][1])

    def test_long_metrics(self) -> None:
        """A page of metrics may be longer: nothing is made of it."""
        page = b"gateway_requests_total 1\n".ljust(2 * 1024 * 1024)
        self.gateway.says["/metrics"] = self.gateway.admin(Says(200, page, "text/plain"))
        self.assertEqual(self.check(), 0)

    def test_odd_answers(self) -> None:
        """Whatever JSON is answered to anything, it is a failure at most, and never a crash."""
        odd: list[Any] = [
            *(None, 5, "text", [], [5], {}, [{}], {"data": 5}, {"data": [5, {"id": 5}]}),
            {"data": [{"id": "m"}, {"id": "\ud800"}], "choices": 5, "results": [5]},
            {"models": {"m": 5, "n": {"aliases": 5}, "o": {"aliases": [5, {}]}}},
            {"services": {"\ud800": 5, "x\r\ny": {"resources": 5}, "s3": {"kind": []}}},
            {"services": {"s3": {"resources": {"\ud800": {"methods": {"GET": 5}}, "put": 5}}}},
            {"choices": [{"message": 5}], "usage": 5, "objects": 5, "error": [5]},
            {"error": {"message": 5}, "error_description": 5, "access_token": 5, "reasons": 5},
            {"reasons": [5, {}], "valid_models": 5, "type": 5, "detail": 5},
        ]
        named = ("--services", "s3,memory,iam")
        for tree in odd:
            for status, services in ((200, named), (200, ()), (400, named), (503, ())):
                self.again()
                self.answer_all(status, tree)
                made = self.check(*WITH_TOKEN, "--bucket", "b", *services)
                self.assertEqual(made, 1)

    def answer_all(self, status: int, tree: Any) -> None:
        """Let everything be answered so, once the gateway has said that it is ready."""
        headers = (("Retry-After", "\xff"), ("Content-Type", "text/\xe9"))
        said = Says(status, tree, headers=headers)
        for key in set(self.gateway.says) - {"/health/ready", "s3/list"}:
            self.gateway.says[key] = said
        first = iter([Says(200, {"data": []})])
        self.gateway.says["/v1/models"] = lambda came: next(first, said)

    def test_steered_terminal(self) -> None:
        """A server's words do not steer the terminal, and are cut to a length."""
        words = "\x1b[2J\u202e evil " + "long " * 500
        self.gateway.says["/metrics"] = Says(500, {"error": {"message": words}})
        self.check()
        told = self.rows()["metrics"][1]
        self.assertLess(len(told), 600)
        self.assertTrue(told.isprintable())


class TokenTests(ToolTestCase):
    """Credentials."""

    def test_token(self) -> None:
        """A token goes to services and to no model that does not ask for one."""
        self.gateway.serve(iam=service("list-users", kind="iam"))
        self.assertEqual(self.check(*WITH_TOKEN), 0)
        bore = {one.key for one in self.gateway.came if "authorization" in one.headers}
        self.assertEqual(bore, {"/v1/services", "iam/list-users"})
        self.assertEqual(self.verdicts()["iam-list iam"], "ok")

    def guard(self, **about: Any) -> None:
        """Let chats be refused without the token, and say so of the model in /status.json."""

        def guarded(came: Came) -> Says:
            if came.headers.get("authorization") != f"Bearer {TOKEN}":
                return problem(401, "unauthorized")
            return self.gateway._chat(came)

        described = {"models": {"m": {"aliases": ["gpt-4o"], **about}}}
        self.gateway.says["/v1/chat/completions"] = guarded
        self.gateway.says["/status.json"] = self.gateway.admin(Says(200, described))

    def bore(self) -> list[str | None]:
        """What the requests to models bore."""
        return [one.headers.get("authorization") for one in self.gateway.came if "chat" in one.path]

    def test_model_with_token(self) -> None:
        """A model is asked with the token where the gateway says that it takes one for it."""
        for models in ((), ("--models", "gpt-4o")):
            self.again()
            self.guard(require_auth=True)
            self.assertEqual(self.check(*WITH_TOKEN, *models), 0, self.printed.getvalue())
            self.assertEqual(set(self.bore()), {f"Bearer {TOKEN}"})
        self.again()
        self.guard(require_auth=True)
        self.assertEqual(self.check(), 1)
        self.assertIn("status 401", self.rows()["chat m"][1])
        self.assertEqual(self.rows()["unknown-model"][0], "skipped")

    def test_engine_that_speaks_as_the_gateway(self) -> None:
        """An engine that answers in the gateway's own words is not sent the token."""
        for about, arguments in (
            ({"require_auth": False}, ()),
            ({"require_auth": False}, ("--token-to-models",)),
            ({}, ()),
            ({"require_auth": "yes"}, ()),
        ):
            self.again()
            self.guard(**about)
            self.assertEqual(self.check(*WITH_TOKEN, *arguments), 1)
            self.assertEqual(set(self.bore()), {None})
            verdict, said = self.rows()["chat m"]
            self.assertEqual(verdict, "FAILED")
            self.assertEqual("--token-to-models" in said, about.get("require_auth") is not False)

    def test_one_of_several(self) -> None:
        """Where models differ no token is needed to hear that there is no such model."""
        self.guard(require_auth=True)
        described: dict[str, Any] = {"m": {"require_auth": True}, "n": {"require_auth": False}}
        self.gateway.says["/status.json"] = self.gateway.admin(Says(200, {"models": described}))
        self.check(*WITH_TOKEN)
        unknown = next(one for one in self.gateway.came if "chat" in one.path)
        self.assertNotIn("authorization", unknown.headers)
        self.assertEqual(self.verdicts()["stream m"], "ok")

    def test_nobody_says(self) -> None:
        """Where only the public side is seen the user has to say that models may have the token."""
        self.guard(require_auth=True)
        self.assertEqual(self.check(*WITH_TOKEN, admin=False), 1)
        self.assertEqual(set(self.bore()), {None})
        self.assertIn("--token-to-models sends it", self.rows()["chat m"][1])
        self.assertEqual(self.rows()["unknown-model"][0], "skipped")
        self.again()
        self.guard()
        self.assertEqual(self.check(*WITH_TOKEN, "--token-to-models", admin=False), 0)
        # It is asked for first, all the same.
        self.assertEqual(self.bore()[:2], [None, f"Bearer {TOKEN}"])

    def test_engines_own_key(self) -> None:
        """The gateway's token is not for an engine that wants a key of its own; that key is."""
        wants = Says(401, {"error": "Unauthorized"})

        def guarded(came: Came) -> Says:
            if came.tree["model"] != "m":
                return self.gateway._chat(came)
            good = came.headers.get("authorization") == "Bearer engine-key"
            return self.gateway._chat(came) if good else wants

        self.gateway.says["/v1/chat/completions"] = guarded
        self.assertEqual(self.check(*WITH_TOKEN), 1)
        self.assertNotIn(
            f"Bearer {TOKEN}",
            [one.headers.get("authorization") for one in self.gateway.came if "chat" in one.path],
        )
        self.environ["KEY"] = "engine-key"
        self.assertEqual(self.check(*WITH_TOKEN, "--api-key-env", "KEY"), 0)

    def test_client_credentials(self) -> None:
        """A token is got by /v1/auth/token, and used from then on."""
        self.gateway.serve(iam=service("list-users", kind="iam"))
        self.environ["SECRET"] = "s3cret/%"
        arguments = ["--client-id", "tester", "--client-secret-env", "SECRET"]
        self.assertEqual(self.check(*arguments, "--token-parameter", "scope=a b"), 0)
        (came,) = (one for one in self.gateway.came if one.key == "/v1/auth/token")
        self.assertEqual(came.headers["authorization"], "Basic dGVzdGVyOnMzY3JldCUyRiUyNQ==")
        self.assertEqual(came.body, b"grant_type=client_credentials&scope=a+b")
        self.assertEqual(self.verdicts()["token"], "ok")
        self.assertEqual(self.verdicts()["iam-list iam"], "ok")

    def test_no_token_to_be_had(self) -> None:
        """The provider's refusal is told in its words; what needs a token is not checked."""
        self.gateway.serve(iam=service("list-users", kind="iam"))
        self.environ["SECRET"] = "s3cret"
        arguments = ["--client-id", "tester", "--client-secret-env", "SECRET"]
        for said, why in (
            (Says(401, {"error": "invalid_client", "error_description": "no s3cret"}), "no ***"),
            (Says(200, {"access_token": "a b"}), "cannot be sent"),
            (Says(200, {}), "no access_token"),
            (problem(404, "not_found"), "status 404"),
        ):
            self.gateway.says["/v1/auth/token"] = said
            self.printed.truncate(0)
            self.printed.seek(0)
            self.assertEqual(self.check(*arguments), 1)
            self.assertIn(why, self.rows()["token"][1])
            self.assertEqual(self.verdicts()["iam-list iam"], "skipped")

    def test_secrets_are_not_repeated(self) -> None:
        """What a server repeats of a credential is in no text."""
        self.gateway.says["/v1/services"] = Says(403, {"detail": f"Bearer {TOKEN} is not good"})
        self.check(*WITH_TOKEN, "--junit", "-")
        self.assertIn("Bearer *** is not good", self.rows()["services"][1])
        self.assertNotIn(TOKEN, self.printed.getvalue() + self.said.getvalue())
        self.assertIn(f'value="{PUBLIC}"', self.printed.getvalue())


def _as(model: str, came: Came) -> Came:
    came.body = came.body.replace(came.tree["model"].encode(), model.encode())
    return came

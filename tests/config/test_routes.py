from __future__ import annotations

from datetime import UTC, datetime

from tests.config.loading import LoadingTestCase
from tests.config.test_services import AUTH
from twisted_gateway.config.dump import dump
from twisted_gateway.config.effective import effective
from twisted_gateway.config.inbound import LegacyRoute, WebhookTarget
from twisted_gateway.config.inbound_keys import MOST_ROUTES, MOST_TARGETS
from twisted_gateway.config.schema import Secret
from twisted_gateway.core.template import parse

MEMORY = "adapters: {memory: {upstream: http://m}, sqs: {upstream: http://q, accessKey: a, \
secretKey: b}}\n"
GOOD = (
    AUTH
    + MEMORY
    + """
maxBodyBytes: 9
routes:
  - {path: /memory, upstream: "http://m:8080/", deprecation: 2026-06-01,
     sunset: "2027-01-01T12:00:00+02:00", successor: /v1/services, requireAuth: true}
  - {path: /old/one, upstream: http://o, stripPrefix: true, requireAuth: false, maxBodyBytes: 5,
     timeoutSeconds: 7, successor: "https://new.example/x?y"}
  - {path: /m, adapter: memory}
  - {path: /q, adapter: memory, resource: query}
webhooks:
  forgejo:
    secret: {file: /s}
    targets:
      - {event: push, service: memory, resource: ingest,
         parameters: {title: "push to {repository[full_name]}", cost: "5 $$"}}
      - {event: "*", service: memory, resource: query}
"""
)


class RoutesTestCase(LoadingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.files["/s"] = "hook-secret\n"

    def route(self, keys: str) -> str:
        """A file with this route alone."""
        return AUTH + MEMORY + f"routes:\n  - {{{keys}}}\n"


class RouteTests(RoutesTestCase):
    """`routes`."""

    def test_keys(self) -> None:
        """Every key has its place, and its default; dates are moments in UTC."""
        self.assertEqual(
            self.load(GOOD).routes,
            (
                LegacyRoute(
                    path="/memory",
                    upstream="http://m:8080",
                    deprecation=datetime(2026, 6, 1, tzinfo=UTC),
                    sunset=datetime(2027, 1, 1, 10, tzinfo=UTC),
                    successor="/v1/services",
                    max_body_bytes=9,
                ),
                LegacyRoute(
                    path="/old/one",
                    upstream="http://o",
                    strip_prefix=True,
                    require_auth=False,
                    max_body_bytes=5,
                    timeout_seconds=7,
                    successor="https://new.example/x?y",
                ),
                LegacyRoute(path="/m", adapter="memory", max_body_bytes=9),
                LegacyRoute(path="/q", adapter="memory", resource="query", max_body_bytes=9),
            ),
        )

    def test_dump(self) -> None:
        """What is shown loads again as the same."""
        config = self.load(GOOD)
        shown = dump(config)
        self.assertNotIn("hook-secret", shown + repr(config))
        again = self.load(shown)
        self.assertEqual(again.routes, config.routes)
        self.assertEqual(again.forgejo_webhook.targets, config.forgejo_webhook.targets)
        self.assertEqual(dump(again), shown)

    def test_effective(self) -> None:
        """Each setting of a route or a target is shown with where it comes from."""
        settings = {one.key: (one.value, one.source) for one in effective(self.load(GOOD))}
        self.assertEqual(settings["routes[1].timeoutSeconds"], ("7", "f.yaml line 9"))
        self.assertEqual(settings["routes[2].requireAuth"], ("true", "default"))
        target = "webhooks.forgejo.targets[0]"
        self.assertEqual(settings[f"{target}.event"], ("push", "f.yaml line 16"))
        self.assertNotIn("hook-secret", repr(settings))

    def test_bound_of_events(self) -> None:
        """An event's bound is its own, or the global one, and never a model's."""
        self.assertEqual(self.load(GOOD).forgejo_webhook.max_body_bytes, 9)
        text = GOOD.replace("    secret:", "    maxBodyBytes: 70\n    secret:")
        self.assertEqual(self.load(text).forgejo_webhook.max_body_bytes, 70)
        model = "models: {m: {upstream: http://m, maxBodyBytes: 99}}\n"
        self.assertEqual(self.load(model + GOOD).forgejo_webhook.max_body_bytes, 9)

    def test_alone(self) -> None:
        """Routes are enough to serve something."""
        self.load("routes: [{path: /a, upstream: http://a, requireAuth: false}]\n")

    def test_own_paths(self) -> None:
        """No route takes a path of the gateway's own, above it or below it."""
        for path in (
            *("/v1", "/v1/models", "/v1/chat", "/v1/chat/completions/x", "/health", "/metrics"),
            *("/health/live", "/status", "/v1/webhooks/forgejo", "/v1/auth", "/v1/services/x"),
        ):
            error = self.refused(self.route(f"path: {path}, upstream: http://u"))
            self.assertIn("expected a path apart from the gateway's own /", str(error))
        for path in ("/v1/notes", "/healthy", "/v2", "/v1/modelsx"):
            self.load(self.route(f"path: {path}, upstream: http://u"))

    def test_paths(self) -> None:
        """A prefix is plain: it is spelt in one way alone."""
        for path in (
            "/",
            "a",
            "/a/",
            "/a//b",
            "/a%20b",
            "/a;b",
            "/a/../b",
            "/.",
            "/a?b",
            "/ä",
            "''",
        ):
            self.refused(self.route(f"path: {path}, upstream: http://u"))

    def test_faults(self) -> None:
        """What is missing, twice, contradictory or unknown is named with its line."""
        self.assertFaults(
            AUTH + MEMORY + "routes:\n"
            "  - {upstream: http://u}\n"
            "  - {path: /a, upstream: http://u, adapter: memory}\n"
            "  - {path: /b}\n"
            "  - {path: /c, adapter: absent}\n"
            "  - {path: /d, adapter: memory, resource: list, stripPrefix: true}\n"
            "  - {path: /e, upstream: http://u, resource: query}\n"
            "  - {path: /f, upstream: http://u, deprecation: 2027-01-02, sunset: 2027-01-01}\n"
            "  - {path: /g, upstream: http://u, sunset: 1.1.2027}\n"
            "  - {path: /e, upstream: http://u}\n",
            "f.yaml: line 4: routes[0].path: expected a path",
            "f.yaml: line 5: routes[1].upstream: expected either upstream or adapter",
            "f.yaml: line 6: routes[2].upstream: expected either upstream or adapter",
            'f.yaml: line 7: routes[3].adapter: expected an adapter (memory, sqs), not "absent"',
            "f.yaml: line 8: routes[4].stripPrefix: expected nothing: that is for a route with "
            "upstream",
            "f.yaml: line 8: routes[4].resource: expected a resource of memory: ingest, query",
            "f.yaml: line 9: routes[5].resource: expected nothing: that is for a route with "
            "adapter",
            "f.yaml: line 10: routes[6].sunset: expected a date that is not before deprecation",
            "f.yaml: line 11: routes[7].sunset: expected a date such as 2027-01-01 or "
            "2027-01-01T12:00:00Z",
            "f.yaml: line 12: routes[8].path: expected each only once, and routes[5] has the same",
        )

    def test_dates(self) -> None:
        """A date is a date of the calendar; one moment for both is good."""
        for text in ("2027-02-30", "27-01-01", "2027-01-01T00:00", "2027-W01-1", "20270101", "x"):
            self.refused(self.route(f"path: /a, upstream: http://u, sunset: '{text}'"))
        # In UTC these are out of the calendar.
        for text in ("0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"):
            self.assertFaults(
                self.route(f"path: /a, upstream: http://u, sunset: '{text}'"),
                "f.yaml: line 4: routes[0].sunset: expected a date such as 2027-01-01 or "
                "2027-01-01T12:00:00Z",
            )
        dates = "deprecation: 2027-01-01, sunset: 2027-01-01T00:00:00Z"
        self.load(self.route(f"path: /a, upstream: http://u, {dates}"))

    def test_successors(self) -> None:
        """A successor is an address that can stand in a header, and nothing more."""
        for text in ("x", "//evil", "/a>; rel=x", '/a"b', "/a b", "ftp://x", "/a\\r\\nX: y", "''"):
            self.refused(self.route(f'path: /a, upstream: http://u, successor: "{text}"'))

    def test_auth(self) -> None:
        """A token that nobody accepts cannot be required."""
        self.assertFaults(
            "routes:\n  - {path: /a, upstream: http://u}\n",
            "f.yaml: line 2: routes[0].requireAuth: expected auth with issuer, audience and "
            "jwksUrl, for a token is required here; requireAuth: false lets anybody in",
        )

    def test_bounded(self) -> None:
        """There are no more than so many."""
        route = "  - {path: /a, upstream: http://u, requireAuth: false}\n"
        error = self.refused("routes:\n" + route * (MOST_ROUTES + 1))
        self.assertIn(f"expected at most {MOST_ROUTES}", str(error))


class WebhookTests(RoutesTestCase):
    """`webhooks`."""

    def test_keys(self) -> None:
        """Every key has its place."""
        webhook = self.load(GOOD).forgejo_webhook
        self.assertEqual(webhook.secret, Secret("hook-secret"))
        self.assertEqual(
            webhook.targets,
            (
                WebhookTarget(
                    event="push",
                    service="memory",
                    resource="ingest",
                    parameters={
                        "title": parse("push to {repository[full_name]}"),
                        "cost": parse("5 $"),
                    },
                ),
                WebhookTarget(event="*", service="memory", resource="query", parameters={}),
            ),
        )

    def test_absent(self) -> None:
        """Without any there is no secret and no target."""
        for text in ("", "webhooks: {}\n", "webhooks: {forgejo: {}}\n"):
            webhook = self.load("models: {m: {upstream: http://m}}\n" + text).forgejo_webhook
            self.assertEqual((webhook.secret, webhook.targets), (None, ()))

    def test_no_secret(self) -> None:
        """Targets without a secret are odd, and it is said."""
        target = "{event: push, service: memory, resource: query}"
        config = self.load(
            AUTH + MEMORY + f"webhooks: {{forgejo: {{secret: '', targets: [{target}]}}}}\n"
        )
        self.assertIn("every delivery is answered 503", " ".join(config.warnings))

    def test_faults(self) -> None:
        """What is missing or leads nowhere is named with its line."""
        self.assertFaults(
            AUTH + MEMORY + "webhooks:\n  forgejo:\n    secret: s\n    targets:\n"
            "      - {event: push}\n"
            "      - {event: push, service: absent, resource: x}\n"
            "      - {event: push, service: memory, resource: list}\n"
            "      - {event: push, service: sqs, resource: send-message}\n"
            "      - {event: push, service: memory, resource: query,\n"
            "         parameters: {title: '{a.b}'}}\n",
            "f.yaml: line 7: webhooks.forgejo.targets[0].service: expected a value",
            "f.yaml: line 7: webhooks.forgejo.targets[0].resource: expected a value",
            "f.yaml: line 8: webhooks.forgejo.targets[1].service: expected an adapter (memory, "
            'sqs), not "absent"',
            "f.yaml: line 9: webhooks.forgejo.targets[2].resource: expected a resource of memory: "
            "ingest, query",
            "f.yaml: line 10: webhooks.forgejo.targets[3].service: expected another adapter: sqs "
            "always takes a token, and a webhook has none",
            "f.yaml: line 12: webhooks.forgejo.targets[4].parameters.title: expected places such "
            "as {repository[full_name]}, and {{ or }} for braces",
        )

    def test_bounded(self) -> None:
        """There are no more than so many targets."""
        target = "      - {event: push, service: memory, resource: query}\n"
        error = self.refused(
            AUTH + MEMORY + "webhooks:\n  forgejo:\n    targets:\n" + target * (MOST_TARGETS + 1)
        )
        self.assertIn(f"expected at most {MOST_TARGETS}", str(error))

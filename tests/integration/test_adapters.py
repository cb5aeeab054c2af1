"""The adapters beside memory and s3: a real Temporal, an SQS that checks signatures, and fakes."""

from __future__ import annotations

import importlib
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

from twisted.trial.unittest import SynchronousTestCase

from tests.auth import issuer
from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.fakes import authentik, forgejo, gotify
from tests.integration.fakes.web import Came, FakeService, Said
from tests.integration.gateway import Gateway
from tests.integration.processes import pause, wait_until
from tests.integration.queues import REGION, Queues
from tests.integration.temporal import NAMESPACE, TASK_QUEUE, Temporal
from tests.integration.wire import Answer, exchange
from tests.integration.world import WORLD

USERS = 45
HOOK_SECRET = "hook-secret"


def module(name: str) -> Any:
    """A module that the types are checked without."""
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        raise Unavailable(f"{fault}: pip install '.[integration]'") from None


class Issuer(FakeService):
    """Publishes a key."""

    def answer(self, came: Came) -> Said:
        return Said(200, json.loads(issuer.jwks(issuer.ec_jwk("ec-1"))))


class Parts:
    """All services and a gateway before them, started once, when first asked for."""

    def __init__(self) -> None:
        self.queues = Queues(WORLD.logs)
        self.temporal = Temporal(WORLD.logs)
        self.authentik = authentik.Authentik(USERS, module("authentik_client"))
        self.gotify = gotify.Gotify()
        self.forgejo = forgejo.Forgejo()
        self.issuer = Issuer()
        self.queues.start()
        self.temporal.start()
        self.gateway = Gateway("gateway-adapters", self.configuration(), WORLD.logs)
        self.gateway.start()

    def configuration(self) -> dict[str, Any]:
        """One adapter of each kind, and some that are configured wrongly."""
        open_to_all = {"requireAuth": False}
        queues = {
            "upstream": self.queues.url,
            "region": REGION,
            "accessKey": self.queues.access_key,
            "secretKey": self.queues.secret_key,
        }
        registry = {"kind": "registry", "upstream": self.forgejo.url, **open_to_all}
        return {
            "adapters": {
                "sqs": queues,
                "forged": {"kind": "sqs", **queues, "secretKey": "another"},
                "workflow": {"upstream": self.temporal.address, **open_to_all},
                "nowhere": {"kind": "workflow", "upstream": "127.0.0.1:9", **open_to_all},
                "iam": {
                    "upstream": self.authentik.url,
                    "token": authentik.TOKEN,
                    **open_to_all,
                },
                "notification": {
                    "upstream": self.gotify.url,
                    "token": gotify.TOKEN,
                    **open_to_all,
                },
                "registry": {**registry, "token": forgejo.TOKEN},
                "public": registry,
                "wrong": {**registry, "token": "another"},
            },
            "webhooks": {
                "forgejo": {
                    "secret": HOOK_SECRET,
                    "targets": [
                        {
                            "event": "push",
                            "service": "notification",
                            "resource": "send-message",
                            "parameters": {
                                "title": "push to {repository[full_name]}",
                                "message": "{pusher[login]}: {commits[0][message]}",
                            },
                        }
                    ],
                }
            },
            "routes": [
                {
                    "path": "/git",
                    "upstream": self.forgejo.url,
                    "stripPrefix": True,
                    "requireAuth": False,
                    "deprecation": "2026-06-01",
                    "sunset": "2027-01-01",
                    "successor": "/v1/services",
                },
                {"path": "/closed", "upstream": self.forgejo.url},
                {"path": "/users", "adapter": "iam", "resource": "list-users"},
            ],
            "auth": {
                "issuer": "https://issuer.example",
                "audience": "gateway",
                "jwksUrl": f"{self.issuer.url}/jwks",
            },
        }


class AdaptersTestCase(SynchronousTestCase):
    """A test of real parts."""

    shared: Parts | None = None

    def setUp(self) -> None:
        try:
            if AdaptersTestCase.shared is None:
                AdaptersTestCase.shared = Parts()
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.parts = AdaptersTestCase.shared
        self.gateway = self.parts.gateway

    def ask(
        self,
        service: str,
        resource: str,
        body: Any = None,
        *,
        token: str | None = None,
        **parameters: Any,
    ) -> Answer:
        """Send a request: a POST of JSON where there is a body, else a GET."""
        query = urlencode(parameters, quote_via=quote)
        lines = {"X-Service": service, "X-Resource": resource}
        if token is not None:
            lines["Authorization"] = f"Bearer {token}"
        method, content = "GET", None
        if body is not None:
            method, content = "POST", json.dumps(body).encode()
            lines["Content-Type"] = "application/json"
        return exchange(f"{self.gateway.url}/?{query}", method, content, lines)


class QueueTests(AdaptersTestCase):
    """SQS, as moto has it, with signatures checked."""

    def setUp(self) -> None:
        super().setUp()
        self.token = issuer.token(now=_now())

    def sqs(self, resource: str, body: Any = None, **parameters: Any) -> Answer:
        return self.ask("sqs", resource, body, token=self.token, **parameters)

    def test_message(self) -> None:
        """A message is sent, received, and deleted for good."""
        client = self.parts.queues.client()
        client.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "30"})
        text = "hello ä <&> \N{ROCKET}\n"
        sent = self.sqs("send-message", {"queue": "jobs", "message": text})
        self.assertEqual(sent.status, 200, sent.body)
        received = self.sqs("receive-message", {"queue": "jobs", "wait_seconds": 1})
        (message,) = received.json()["messages"]
        self.assertEqual(message["body"], text)
        self.assertEqual(message["message_id"], sent.json()["message_id"])
        self.assertEqual(
            (message["receive_count"], message["body_md5"]), (1, sent.json()["body_md5"])
        )
        handle = {"queue": "jobs", "receipt_handle": message["receipt_handle"]}
        deleted = self.sqs("delete-message", handle)
        self.assertEqual((deleted.status, deleted.body), (204, b""))
        url = client.get_queue_url(QueueName="jobs")["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        self.assertEqual(set(left.values()), {"0"})

    def test_fifo(self) -> None:
        """A FIFO queue keeps the order of a group, and takes each message once."""
        self.parts.queues.client().create_queue(
            QueueName="orders.fifo", Attributes={"FifoQueue": "true"}
        )
        for number in (1, 2, 2, 3):
            body = {
                "queue": "orders.fifo",
                "message": f"m{number}",
                "message_group_id": "g",
                "message_deduplication_id": f"d{number}",
            }
            self.assertEqual(self.sqs("send-message", body).status, 200)
        received = self.sqs("receive-message", {"queue": "orders.fifo", "max_messages": 10})
        bodies = [one["body"] for one in received.json()["messages"]]
        self.assertEqual(bodies, ["m1", "m2", "m3"])

    def test_list(self) -> None:
        """Queues come by name, page by page, and no address with them."""
        client = self.parts.queues.client()
        names = [f"page{number}" for number in range(5)]
        for name in names:
            client.create_queue(QueueName=name)
        seen: list[str] = []
        token: dict[str, str] = {}
        for _ in range(5):
            answer = self.sqs("list-queues", prefix="page", max_results=2, **token)
            self.assertNotIn(b"127.0.0.1", answer.body)
            seen += answer.json()["queues"]
            if answer.json()["next_token"] is None:
                break
            token = {"next_token": answer.json()["next_token"]}
        self.assertEqual(sorted(seen), names)

    def test_no_queue(self) -> None:
        """A queue that is not there is the service's own refusal."""
        answer = self.sqs("send-message", {"queue": "absent", "message": "x"})
        self.assertEqual((answer.status, answer.json()["upstream_status"]), (400, 400))
        self.assertIn("QueueDoesNotExist", answer.json()["upstream_message"])

    def test_wrong_key(self) -> None:
        """The service's refusal of the gateway's key is told as what it is."""
        answer = self.ask("forged", "list-queues", token=self.token)
        self.assertEqual((answer.status, answer.json()["upstream_status"]), (403, 403))
        self.assertIn("SignatureDoesNotMatch", answer.json()["detail"])

    def test_no_token(self) -> None:
        """Without a token that is accepted there are no queues."""
        forged = issuer.token("ec-2", _now(), header={"kid": "ec-1"})
        for token in (None, forged, issuer.token(now=_now() - 7200)):
            self.assertEqual(self.ask("sqs", "list-queues", token=token).status, 401)


class WorkflowTests(AdaptersTestCase):
    """A real Temporal, over gRPC."""

    started = False

    def setUp(self) -> None:
        super().setUp()
        if not WorkflowTests.started:
            WorkflowTests.started = True
            self.parts.temporal.start_workflows(7)
            # Temporal's visibility follows a moment later.
            wait_until(lambda: len(self.list().json()["executions"]) == 7, 30, "the workflows")

    def list(self, service: str = "workflow", **parameters: Any) -> Answer:
        return self.ask(service, "list", **{"namespace": NAMESPACE, **parameters})

    def test_pages(self) -> None:
        """Every execution comes once, in pages."""
        seen: list[str] = []
        token: dict[str, Any] = {}
        for count in (3, 3, 1):
            page = self.list(page_size=3, **token).json()
            self.assertEqual(len(page["executions"]), count)
            seen += [one["workflow_id"] for one in page["executions"]]
            token = {"next_page_token": page["next_page_token"]}
        self.assertEqual(token, {"next_page_token": None})
        self.assertEqual(sorted(seen), [f"w{number}" for number in range(7)])

    def test_execution(self) -> None:
        """An execution has what there is to see of it."""
        (one,) = self.list(query="WorkflowId = 'w1'").json()["executions"]
        self.assertEqual(
            (one["type"], one["status"], one["task_queue"]), ("pay", "running", TASK_QUEUE)
        )
        self.assertRegex(one["start_time"], r"\A20\d\d-\d\d-\d\dT[\d:.]+Z\Z")
        self.assertIsNone(one["close_time"])

    def test_query(self) -> None:
        """The query is Temporal's own, and its refusal too."""
        found = self.list(query='WorkflowType = "ship" AND ExecutionStatus = "Running"').json()
        ids = sorted(one["workflow_id"] for one in found["executions"])
        self.assertEqual(ids, ["w0", "w2", "w4", "w6"])
        refused = self.list(query="this is no query")
        self.assertEqual((refused.status, refused.json()["upstream_status"]), (400, 400))
        self.assertIn("INVALID_ARGUMENT: invalid query", refused.json()["upstream_message"])

    def test_no_namespace(self) -> None:
        """None is 400; one that there is not is 404."""
        answer = self.ask("workflow", "list")
        self.assertEqual((answer.status, answer.json()["missing"]), (400, ["namespace"]))
        answer = self.list(namespace="absent")
        self.assertEqual((answer.status, answer.json()["upstream_status"]), (404, 404))
        self.assertIn("absent", answer.json()["detail"])

    def test_unreachable(self) -> None:
        """Where nobody listens it is 502, and no address is told."""
        answer = self.list("nowhere")
        self.assertEqual(answer.status, 502, answer.body)
        self.assertNotIn(b"127.0.0.1", answer.body)

    def test_reload(self) -> None:
        """A reload leaves no request without its answer."""
        for _ in range(3):
            self.gateway.reload()
            self.assertEqual(self.list().status, 200)
            pause(0.2)
        self.assertEqual(self.list().status, 200)


class IamTests(AdaptersTestCase):
    """authentik, by the models of its own client."""

    def list(self, **parameters: Any) -> Answer:
        return self.ask("iam", "list-users", **parameters)

    def test_faithful(self) -> None:
        """authentik's own client reads what the fake says."""
        client = module("authentik_client")
        where = client.Configuration(host=f"{self.parts.authentik.url}/api/v3")
        where.access_token = authentik.TOKEN
        page = client.CoreApi(client.ApiClient(where)).core_users_list(page_size=3)
        self.assertEqual([one.pk for one in page.results], [1, 2, 3])

    def test_pages(self) -> None:
        """Every user comes once, in pages, and nothing of the token or the attributes."""
        seen: list[int] = []
        page: int | None = 1
        while page is not None:
            answer = self.list(page=page, page_size=20)
            self.assertEqual(answer.status, 200, answer.body)
            for hidden in (authentik.TOKEN, "hidden-attribute", "inside.example"):
                self.assertNotIn(hidden.encode(), answer.body)
            seen += [one["pk"] for one in answer.json()["users"]]
            page = answer.json()["next_page"]
        self.assertEqual(seen, list(range(1, USERS + 1)))

    def test_filters(self) -> None:
        """Users are searched."""
        found = self.list(username="user07").json()
        self.assertEqual([one["pk"] for one in found["users"]], [7])
        self.assertEqual(self.list(is_active="false").json()["total"], USERS // 5)
        beyond = self.list(page=99)
        self.assertEqual((beyond.status, beyond.json()["upstream_message"]), (404, "Invalid page."))


class NotificationTests(AdaptersTestCase):
    """Gotify."""

    def test_faithful(self) -> None:
        """Gotify's own client reads what the fake says."""
        client = module("gotify").Gotify(base_url=self.parts.gotify.url, app_token=gotify.TOKEN)
        sent = client.create_message("by its client", title="t", priority=1)
        self.assertEqual(sent["message"], "by its client")

    def test_send(self) -> None:
        """A message arrives as it was sent."""
        body = {"title": "hä", "message": "line\nline \N{ROCKET}", "priority": 7}
        answer = self.ask("notification", "send-message", body)
        self.assertEqual(answer.status, 200, answer.body)
        message = self.parts.gotify.messages[-1]
        self.assertEqual({name: message[name] for name in body}, body)
        self.assertEqual(answer.json()["id"], message["id"])
        by_query = self.ask("notification", "send-message", {}, message="in the query")
        self.assertEqual(by_query.status, 200, by_query.body)
        self.assertEqual(self.parts.gotify.messages[-1]["message"], "in the query")


class WebhookTests(AdaptersTestCase):
    """Events, sent as Forgejo sends them."""

    def setUp(self) -> None:
        super().setUp()
        self.url = f"{self.gateway.url}/v1/webhooks/forgejo"
        self.before = len(self.parts.gotify.messages)

    def event(self, name: str) -> dict[str, Any]:
        """A push, with more in it than anybody asks for."""
        return {
            "ref": "refs/heads/main",
            "commits": [{"id": "c0", "message": "a\nb \N{ROCKET} {ref}"}],
            "repository": forgejo.repository(1) | {"full_name": name},
            "pusher": {"login": "ada"},
        }

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What came at Gotify since the test began."""
        return self.parts.gotify.messages[self.before :]

    def test_push(self) -> None:
        """A push becomes a message, once, delivered anew under another id too."""
        first, again = str(uuid.uuid4()), str(uuid.uuid4())
        for delivery in (first, first, again):
            answer = forgejo.deliver(
                self.url, HOOK_SECRET, "push", self.event("ada/gate"), delivery=delivery
            )
            self.assertEqual(answer.status, 200, answer.body)
        (message,) = self.messages
        self.assertEqual(message["title"], "push to ada/gate")
        self.assertEqual(message["message"], "ada: a\nb \N{ROCKET} {ref}")
        replayed = forgejo.deliver(self.url, HOOK_SECRET, "issues", self.event("ada/gate"))
        self.assertEqual(replayed.status, 409)

    def test_at_once(self) -> None:
        """One delivery that comes many times at once is acted on once."""
        delivery = str(uuid.uuid4())

        def send(_: int) -> int:
            event = self.event("ada/many")
            return forgejo.deliver(self.url, HOOK_SECRET, "push", event, delivery=delivery).status

        with ThreadPoolExecutor(20) as threads:
            self.assertEqual(set(threads.map(send, range(100))), {200})
        self.assertEqual(len(self.messages), 1)

    def test_forged(self) -> None:
        """Another secret, and a body that was written anew, are refused."""
        event = self.event("ada/evil")
        again = json.dumps(event).encode()
        for secret, body in (("another", None), (HOOK_SECRET, again), (HOOK_SECRET, b"{}")):
            answer = forgejo.deliver(self.url, secret, "push", event, body=body)
            self.assertEqual(answer.status, 401, answer.body)
        self.assertEqual(self.messages, [])

    def test_another_event(self) -> None:
        """An event that nobody wants leads to nothing."""
        answer = forgejo.deliver(self.url, HOOK_SECRET, "issues", self.event("ada/issue"))
        self.assertEqual((answer.status, answer.json()["targets"]), (200, []))
        self.assertEqual(self.messages, [])


class RouteTests(AdaptersTestCase):
    """Legacy routes."""

    def get(self, path: str, **headers: str) -> Answer:
        return exchange(f"{self.gateway.url}{path}", "GET", None, headers)

    def test_upstream(self) -> None:
        """An old path leads to its service, and says that it goes."""
        answer = self.get("/git/api/v1/users/ada")
        self.assertEqual((answer.status, answer.json()), (200, {"id": 1, "login": "ada"}))
        self.assertEqual(answer.headers["deprecation"], "@1780272000")
        self.assertEqual(answer.headers["sunset"], "Fri, 01 Jan 2027 00:00:00 GMT")
        self.assertEqual(answer.headers["link"], '</v1/services>; rel="successor-version"')
        absent = self.get("/git/nothing")
        self.assertEqual(absent.json()["message"], "The target couldn't be found.")
        used = self.gateway.metric("legacy_route_requests_total", route="/git")
        self.assertGreaterEqual(used, 2)

    def test_token(self) -> None:
        """A route that requires a token keeps it for itself."""
        self.assertEqual(self.get("/closed/api/v1/users/ada").status, 401)
        token = issuer.token(now=time.time())
        self.get("/closed/api/v1/users/ada", Authorization=f"Bearer {token}")
        self.assertNotIn("authorization", self.parts.forgejo.came[-1].headers)

    def test_adapter(self) -> None:
        """An old path leads to an adapter."""
        token = issuer.token(now=time.time())
        answer = self.get("/users?username=user07", Authorization=f"Bearer {token}")
        self.assertEqual([one["pk"] for one in answer.json()["users"]], [7])


class RegistryTests(AdaptersTestCase):
    """Forgejo."""

    def test_repositories(self) -> None:
        """Every repository that the token may see comes once, in pages, without addresses."""
        for service, count in (("registry", 40), ("public", 20)):
            seen: list[str] = []
            page: int | None = 1
            while page is not None:
                answer = self.ask(service, "list-repos", owner="ada", page=page, limit=15)
                self.assertEqual(answer.status, 200, answer.body)
                self.assertNotIn(b"inside.example", answer.body)
                seen += [one["full_name"] for one in answer.json()["repositories"]]
                page = answer.json()["next_page"]
            self.assertEqual((len(seen), len(set(seen))), (count, count))

    def test_packages(self) -> None:
        """Packages are listed by owner and type."""
        answer = self.ask("registry", "list-packages", owner="ada", type="pypi")
        names = [one["name"] for one in answer.json()["packages"]]
        self.assertEqual(names, ["package1", "package3", "package5"])
        absent = self.ask("registry", "list-packages", owner="nobody")
        self.assertEqual((absent.status, absent.json()["upstream_status"]), (404, 404))

    def test_wrong_token(self) -> None:
        """Forgejo's refusal of the gateway's token is told as what it is."""
        answer = self.ask("wrong", "list-repos")
        self.assertEqual((answer.status, answer.json()["upstream_status"]), (502, 401))
        self.assertNotIn("www-authenticate", answer.headers)


def _now() -> float:
    return time.time()

"""docs/nginx/nginx.conf in a real nginx: streams, reloads, and what is public."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess

from tests.integration.case import chat, unavailable
from tests.integration.fakes.serving import Handler, Server
from tests.integration.gateway import PATIENT
from tests.integration.nginx import HOST, PUBLISHED
from tests.integration.processes import free_port, pause
from tests.integration.published import ECHO, Echo, NginxTestCase
from tests.integration.wire import exchange, get, post
from tests.integration.world import WORLD


class Breaking(Server):
    """A gateway that takes requests and goes away."""

    def __init__(self) -> None:
        self.came: list[str] = []
        super().__init__()

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        self.came.append(method)
        handler.close_connection = True


class StreamTests(NginxTestCase):
    """Streams, parked requests, and clients that leave."""

    def test_unbuffered(self) -> None:
        """Comments come while a stream is parked, and its tokens one by one."""
        running = self.fill(600)
        call = self.stream(100)
        call.expect(lambda one: len(one.comments) >= 2, 20, "comments")
        self.assertFalse(call.contents)
        self.assertEqual(
            call.headers.get("content-type", "").partition(";")[0], "text/event-stream"
        )
        # For another nginx in front of this one.
        self.assertEqual(call.headers["x-accel-buffering"], "no")
        for other in running:
            other.leave()
        self.assertTrue(call.finish(60).whole, call.describe())
        # A hundred events of 250 bytes are two or three buffers.
        self.assertGreater(len(set(call.contents)), 20, call.describe())

    def test_http2(self) -> None:
        """The same by HTTP/2, where curl speaks it."""
        curl = shutil.which("curl")
        if curl is None or "HTTP2" not in _output(curl, "--version"):
            raise unavailable("there is no curl with HTTP/2: streams over HTTP/2 are not tried")
        running = self.fill(600)
        # Bounded, for what it says is read until a certain line.
        command = [curl, "--http2", "--max-time", "120", "-sSN", "-i"]
        command += ["--cacert", str(WORLD.logs / "authority.pem")]
        body = json.dumps(chat(20, stream=True))
        send = ["-H", "Content-Type: application/json", "-d", body]
        asked = subprocess.Popen(
            [*command, *send, f"{self.front}/v1/chat/completions"], stdout=subprocess.PIPE
        )
        self.addCleanup(_end, asked)
        assert asked.stdout is not None
        early = []
        for line in iter(asked.stdout.readline, b""):
            early.append(line)
            if line.startswith(b": keep-alive"):
                break
        self.assertEqual(early[0].split(), [b"HTTP/2", b"200"])
        self.assertEqual(len(self.gateway.parked()), 1)
        for other in running:
            other.leave()
        rest, _ = asked.communicate(timeout=60)
        self.assertTrue(rest.endswith(b"data: [DONE]\n\n"), rest[-300:])

    def test_patience(self) -> None:
        """Who parks in silence outlives all that is 60 s by default, at a hundredth of the time."""
        hundredth = {
            # Less so, for a slow machine: longer than this test may take.
            "proxy_read_timeout 1500s": "proxy_read_timeout 300s",
            "proxy_send_timeout 120s": "proxy_send_timeout 1200ms",
            "client_body_timeout 75s": "client_body_timeout 750ms",
            "send_timeout 120s": "send_timeout 1200ms",
            "keepalive_timeout 60s": "keepalive_timeout 600ms",
        }
        # Longer ones first: one is a part of another.
        patient = self.another("nginx-patient", hundredth)
        hasty = self.another(
            "nginx-default", {**hundredth, "proxy_read_timeout 1500s": "proxy_read_timeout 600ms"}
        )
        running = self.fill(4000)
        waits = self.call("/v1/chat/completions", chat(3, model=PATIENT), patient.url)
        gives_up = self.call("/v1/chat/completions", chat(3, model=PATIENT), hasty.url)
        gives_up.finish(60)
        self.assertEqual(gives_up.status, 504, gives_up.describe())
        problem = json.loads(gives_up.text)
        self.assertEqual(gives_up.headers["content-type"], "application/problem+json")
        self.assertEqual(problem["error"]["code"], "gateway_timeout")
        self.assertEqual(problem["instance"], f"urn:request:{gives_up.headers['x-request-id']}")
        # All the others are over by then.
        pause(3)
        self.assertFalse(waits.done.is_set(), waits.describe())
        self.assertEqual(len(self.gateway.parked()), 1)
        for other in running:
            other.leave()
        self.assertEqual(waits.finish(60).status, 200)
        self.ended(ok=1, client_disconnect=5)

    def test_leave(self) -> None:
        """Clients that leave give up their place: parked, silent or not, and running."""
        running = self.fill(4000)
        parked = self.stream(3)
        silent = self.call("/v1/chat/completions", chat(3, model=PATIENT))
        self.wait(lambda: len(self.gateway.parked()) == 2, 10, "two parked")
        parked.expect(lambda one: one.comments, 10, "a comment")
        for call in (parked, silent):
            call.leave()
        # While nothing else has ended that could have made room.
        self.wait(lambda: not self.gateway.parked(), 30, "nobody parked")
        self.assertEqual(self.gateway.status()["own"], 4)
        last = running.pop()
        last.leave()
        self.wait(lambda: self.gateway.status()["own"] == 3, 30, "three in the engine")
        self.assertFalse([call for call in running if call.done.is_set()])
        for call in running:
            call.leave()
        self.ended(client_disconnect=6)

    def test_reload(self) -> None:
        """A reload loses no stream, parked or running, and others find new workers."""
        old = self.nginx.workers()
        running = self.fill(700, self.front)
        parked = self.stream(50)
        parked.expect(lambda one: one.comments, 20, "a comment")
        self.nginx.reload()
        self.wait(lambda: self.nginx.workers() - old, 10, "new workers")
        self.wait(lambda: get(f"{self.front}/v1/models").status == 200, 10, "an answer")
        self.assertFalse(parked.done.is_set())
        for call in (*running, parked):
            self.assertTrue(call.finish(120).whole, call.describe())
        self.wait(lambda: not self.nginx.workers() & old, 10, "the old workers' end")
        self.ended(ok=5)


class DoorTests(NginxTestCase):
    """What is public, and what nginx answers by itself."""

    def test_inside_stays_inside(self) -> None:
        """Nothing but /v1 is published, however a path is spelt."""
        self.assertEqual(get(f"{self.gateway.admin_url}/metrics").status, 200)
        for path in (
            *("/", "/metrics", "/status", "/status.json", "/health", "/health/live", "/v1"),
            *("/health/ready", "//metrics", "/%6detrics", "/v1/../metrics", "/v1/%2e%2e/metrics"),
            *("/v1/..%2fmetrics", "/v1/.%2e/status.json", "/v1//../metrics", "/v1/../v1/../status"),
            *("/v1%2f..%2fmetrics", "/%2Fmetrics", "/metrics%2f", "/v1/x%2f..%2f..%2fstatus"),
        ):
            answer = get(f"{self.front}{path}")
            self.assertEqual(answer.status, 404, path)
            self.assertEqual(answer.headers["content-type"], "application/problem+json", path)
            self.assertNotIn(b"admission_", answer.body)
            self.assertEqual(answer.json()["error"]["code"], "not_found", path)
            self.assertEqual(
                answer.json()["instance"], f"urn:request:{answer.headers['x-request-id']}"
            )
        for path in ("/v1/metrics", "/v1/status.json", "/v1/health/ready"):
            # To the gateway these are paths of engines, which are posted to.
            answer = get(f"{self.front}{path}")
            self.assertEqual(answer.status, 405, path)
            self.assertIn("urn:twisted-gateway:problem:", answer.json()["type"])
        for path in ("/v1%2fmodels", "/%2Fv1/models", "/v1/%2e%2e/v1%2fmodels"):
            # To nginx a slash is one however it is spelt; the gateway knows no such path.
            answer = get(f"{self.front}{path}")
            self.assertIn(answer.status, (400, 404), path)
            self.assertIn("urn:twisted-gateway:problem:", answer.json()["type"], path)

    def test_gateway_down(self) -> None:
        """Who is not there is a 502 that clients can read, and repeat."""
        dead = {f"server 127.0.0.1:{self.gateway.port};": f"server 127.0.0.1:{free_port()};"}
        nginx = self.another("nginx-alone", dead)
        answer = post(f"{nginx.url}/v1/chat/completions", chat(3))
        self.assertEqual((answer.status, answer.headers["retry-after"]), (502, "5"))
        self.assertEqual(answer.json()["error"]["code"], "gateway_unreachable")
        self.assertEqual(self.logged(answer.headers["x-request-id"], nginx)["status"], 502)

    def test_one_of_two_down(self) -> None:
        """A request that finds one gateway gone goes to the other, POSTs too."""
        first = f"server 127.0.0.1:{self.gateway.port};"
        both = {first: f"server 127.0.0.1:{free_port()} max_fails=0; {first}"}
        nginx = self.another("nginx-two", both)
        for _ in range(8):
            answer = post(f"{nginx.url}/v1/chat/completions", {"model": ECHO, "messages": []})
            self.assertEqual(answer.status, 200, answer.body)

    def test_one_of_two_breaks_off(self) -> None:
        """What it had been sent goes to the other where that may be repeated: not a POST."""
        breaking = Breaking()
        self.addCleanup(breaking.stop)
        first = f"server 127.0.0.1:{self.gateway.port};"
        both = {first: f"server 127.0.0.1:{breaking.port} max_fails=0; {first}"}
        nginx = self.another("nginx-breaking", both)
        for _ in range(8):
            self.assertEqual(get(f"{nginx.url}/v1/models").status, 200)
        self.assertIn("GET", breaking.came)
        body = {"model": ECHO, "messages": []}
        statuses = [post(f"{nginx.url}/v1/chat/completions", body).status for _ in range(8)]
        self.assertEqual(set(statuses), {200, 502})
        self.assertEqual(statuses.count(502), breaking.came.count("POST"))

    def test_too_many(self) -> None:
        """One address alone can't have all connections: 429 with when to come again."""
        nginx = self.another("nginx-narrow", {"per_client 512;": "per_client 2;"})
        running = self.fill(2000, nginx.url, 2)
        answer = post(f"{nginx.url}/v1/chat/completions", chat(3))
        self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "5"))
        self.assertEqual(answer.json()["error"]["type"], "rate_limit_error")
        for call in running:
            call.leave()
        self.wait(lambda: get(f"{nginx.url}/v1/models").status == 200, 10, "room again")

    def test_redirect(self) -> None:
        """Who comes without TLS is sent to the host's own name, with method and body."""
        lines = {"Host": "evil.example"}
        answer = exchange(f"{self.nginx.plain}/v1/models?a=b", "POST", b"{}", lines)
        self.assertEqual(answer.status, 308)
        self.assertEqual(answer.headers["location"], f"https://{HOST}/v1/models?a=b")

    def test_certificate_renewal(self) -> None:
        """What a certificate authority asks for is served without TLS, and nothing beside it."""
        folder = self.nginx.home / "acme" / ".well-known" / "acme-challenge"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text("answer")
        (self.nginx.home / "acme" / "secret").write_text("no")
        where = f"{self.nginx.plain}/.well-known/acme-challenge"
        self.assertEqual(get(f"{where}/token").body, b"answer")
        self.assertEqual(get(f"{where}/../../secret").status, 308)

    def test_other_names(self) -> None:
        """Who asks for another name, or for none, gets no handshake, and old TLS none either."""
        port = int(self.front.rpartition(":")[2])
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for name in ("other.example", None):
            with socket.create_connection(("127.0.0.1", port), 10) as plain:
                self.assertRaises(ssl.SSLError, context.wrap_socket, plain, server_hostname=name)

    def test_file(self) -> None:
        """nginx accepts the file, and warns of nothing but how later ones say HTTP/2."""
        said = self.nginx.dump()
        self.assertIn("syntax is ok", said)
        # From 1.25.1 on; before, what it would rather have is an error.
        deprecated = 'the "listen ... http2" directive is deprecated'
        warnings = [line for line in said.splitlines() if "[warn]" in line]
        self.assertEqual([line for line in warnings if deprecated not in line], [])


class MigratingTests(NginxTestCase):
    """What docs/migrating.md has nginx do."""

    def snippets(self) -> list[str]:
        """Its pieces of configuration, in the page's order."""
        text = (PUBLISHED.parents[1] / "migrating.md").read_text()
        return re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)

    def test_path_of_a_model(self) -> None:
        """A path that Kong had for a model leads to the gateway's own, prefix taken away."""
        location, _ = self.snippets()
        mark = "# Legacy routes, each like this:"
        nginx = self.another("nginx-kong", {mark: location})
        answer = post(f"{nginx.url}/llm/reasoning/v1/chat/completions", chat(3))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(get(f"{nginx.url}/llm/reasoning/v1/models").status, 200)
        self.assertEqual(get(f"{nginx.url}/llm/other/v1/models").status, 404)

    def test_a_share_of_the_clients(self) -> None:
        """Some go to the gateway, some to what was there before."""
        _, split = self.snippets()
        before = Echo()
        self.addCleanup(before.stop)
        for old, new in (
            ("127.0.0.1:8088", f"127.0.0.1:{before.port}"),
            # The tests have one address, which would be either here or there.
            ("$remote_addr", "$request_id"),
            ("10%", "50%"),
        ):
            self.assertIn(old, split)
            split = split.replace(old, new)
        server = "    # Whoever asks for another name, or for none.\n"
        passed = "location /v1/ {\n            proxy_pass http://llm_gateway;"
        chosen = passed.replace("llm_gateway", "$chosen")
        nginx = self.another("nginx-split", {server: f"{split}\n{server}", passed: chosen})
        for _ in range(24):
            self.assertEqual(get(f"{nginx.url}/v1/models").status, 200)
        self.assertLess(0, len(before.came))
        self.assertLess(len(before.came), 24)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)

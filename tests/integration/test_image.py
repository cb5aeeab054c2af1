"""The image is built, and runs as a cluster runs it: half a core, 512 MiB, nothing writable."""

from __future__ import annotations

import configparser
import json
import resource
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import chat, unavailable
from tests.integration.container import MEMORY_BYTES, Container, usable
from tests.integration.engines import MODEL, simulated_engine
from tests.integration.fakes.authority import Authority
from tests.integration.fakes.serving import Handler, Server
from tests.integration.image import Once, size_bytes
from tests.integration.processes import free_port, wait_until
from tests.integration.wire import Call, exchange, get, post
from tests.integration.world import WORLD
from tests.k8s.objects import TOP

# What docs/image.md says of /opt/gateway, with room for the next releases of what is in it.
MOST_BYTES = 190e6
STREAMS = 1000
CHAT = "/v1/chat/completions"
# So long may anything take before it counts as never: at half a core, and others may be busy.
SECONDS = 300.0


ONCE = Once(lambda image: usable(image, WORLD.logs))


class Engine(Server):
    """A server that has one answer."""

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        handler.send(200, b"{}")


class Crowd:
    """Clients that each ask for a stream and read what comes, in one thread.

    Attributes:
        refused: how many have had a 503.
        ended: how many have been closed by the gateway.
    """

    def __init__(self, port: int, count: int, body: dict[str, Any]) -> None:
        self.refused = self.ended = 0
        self._selector = selectors.DefaultSelector()
        self._heard: dict[socket.socket, bytes] = {}
        self._comments: dict[socket.socket, int] = {}
        # Debian lets a process have 1,024 files until it asks for more.
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files[1], self._files[1]))
        text = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=30)
            client.sendall(request)
            client.setblocking(False)
            self._selector.register(client, selectors.EVENT_READ)
            self._heard[client], self._comments[client] = b"", 0

    def read(self) -> None:
        """Read what has come, or the first that comes within half a second."""
        for key, _ in self._selector.select(0.5):
            assert isinstance(key.fileobj, socket.socket)
            self._read(key.fileobj)

    def alive(self, comments: int = 1) -> int:
        """How many have had a 200 and so many comments."""
        return sum(count >= comments for count in self._comments.values())

    def close(self) -> None:
        """Go away."""
        for client in self._heard:
            client.close()
        self._selector.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self._files)

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(client)
            self.ended += 1
            return
        before = self._heard[client]
        heard = before + data
        self.refused += _refused(heard) and not _refused(before)
        if heard.startswith(_GOOD):
            self._comments[client] += heard.count(_COMMENT)
            # What may be the beginning of another comment.
            heard = _GOOD + heard.rpartition(_COMMENT)[2][1 - len(_COMMENT) :]
        self._heard[client] = heard[:4096]


_GOOD = b"HTTP/1.1 200 "
_COMMENT = b"\n: keep-alive"


def _refused(heard: bytes) -> bool:
    return heard.startswith(b"HTTP/1.1 503 ")


class ImageTests(SynchronousTestCase):
    """What `docker build .` makes."""

    def setUp(self) -> None:
        try:
            self.image = ONCE.image()
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.directory = WORLD.logs

    def container(self, name: str, *arguments: str, **options: Any) -> Container:
        """A container, not yet started."""
        try:
            container = Container(f"image-{name}", self.image, arguments, self.directory, **options)
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.addCleanup(container.remove)
        return container

    def ended(self, name: str, *arguments: str, **options: Any) -> tuple[int, str]:
        """Run a container to its end; returns its exit status and what it said."""
        container = self.container(name, *arguments, **options)
        container.process.start()
        status = container.process.wait(SECONDS)
        return status, container.process.tail(200)

    def ready(self, container: Container, port: int) -> None:
        """Start a container and wait for its gateway to be ready."""

        def is_ready() -> bool:
            try:
                return get(f"http://127.0.0.1:{port}/health/ready").status == 200
            except OSError:
                return False

        container.process.start()
        container.process.wait_ready(is_ready, SECONDS)

    def config(self, text: str) -> dict[str, Path]:
        """A configuration where the image looks for it, as a ConfigMap is mounted."""
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        (directory / "config.yaml").write_text(text)
        directory.chmod(0o755)
        return {"/etc/llm-gateway": directory}

    def asked(self, name: str, config: dict[str, Any], **options: Any) -> int:
        """The status of a chat with a gateway in a container that is configured so."""
        port = free_port()
        text = json.dumps({**config, "listen": [f"tcp:{port}:interface=127.0.0.1"]})
        files = {**self.config(text), **options.pop("files", {})}
        container = self.container(name, files=files, **options)
        self.ready(container, port)
        return post(f"http://127.0.0.1:{port}{CHAT}", chat(1)).status

    def test_what_it_says_of_itself(self) -> None:
        """User, entry point and the OCI's labels; nothing of the machine that built it."""
        config = self.image.config
        self.assertEqual(config["User"], "10001:10001")
        self.assertEqual(config["Entrypoint"], ["twistd", "-n", "--pidfile=", "llm-gateway"])
        labels = config["Labels"]
        for name in ("licenses", "revision", "source", "title", "version"):
            self.assertTrue(labels[f"org.opencontainers.image.{name}"], name)
        self.assertEqual(labels["org.opencontainers.image.revision"], "test")
        said = json.dumps([config, self.image.history]).lower()
        for word in ("index-url", "pip_index", "proxy", "password", "find_links"):
            self.assertNotIn(word, said)

    def test_what_is_in_it(self) -> None:
        """The package and what it needs: no installer, no secret of the build, no tests."""
        root = self.image.root
        # Mount points of the build's secrets may be left, without what was mounted.
        for name in ("etc/pip.conf", "run/secrets/ca.pem"):
            path = root / name
            self.assertFalse(path.exists() and path.stat().st_size, name)
        self.assertFalse((root / "src").exists())
        (packages,) = (root / "opt/gateway/lib").glob("python3.*/site-packages")
        for name in ("pip", "setuptools", "hypothesis", "twisted/test", "tests"):
            self.assertFalse((packages / name).exists(), name)
        for name in ("twisted_gateway", "grpc", "temporalio"):
            self.assertTrue((packages / name).is_dir(), name)
        self.assertTrue((root / "etc/ssl/certs/ca-certificates.crt").stat().st_size)
        self.assertLess(size_bytes(root / "opt/gateway"), MOST_BYTES)

    def test_nothing_can_be_written_but_tmp(self) -> None:
        """Not by the image's user, who owns no file outside of what is mounted for it.

        Shared memory, too, is mounted for every container, by Docker and Kubernetes alike.
        """
        program = (
            "import os, tempfile\n"
            "tempfile.TemporaryFile().write(b'x')\n"
            "places = sorted(d for d, _, _ in os.walk('/') if not d.startswith('/proc'))\n"
            "print(len(places) > 500, [d for d in places if os.access(d, os.W_OK)])\n"
        )
        status, said = self.ended("writable", "-c", program, command=["python"])
        self.assertEqual(status, 0, said)
        self.assertIn("True ['/dev/shm', '/tmp']", said)
        # The read-only root is not what keeps it from it.
        owned = [
            path
            for path in (self.image.root / "opt/gateway").rglob("*")
            if not path.is_symlink() and (path.stat().st_uid != 0 or path.stat().st_mode & 0o022)
        ]
        self.assertEqual(owned, [])

    def test_authorities(self) -> None:
        """An engine behind TLS must be vouched for: by the public authorities, or one's own."""
        pem = (self.image.root / "etc/ssl/certs/ca-certificates.crt").read_text()
        self.assertGreater(pem.count("BEGIN CERTIFICATE"), 100)
        authority = Authority()
        certificate = self.directory / "engine.pem"
        authority.issue(certificate)
        engine = Engine(certificate=certificate)
        self.addCleanup(engine.stop)
        config = {"models": {MODEL: {"upstream": engine.url}}}
        own = self.directory / "authority"
        own.mkdir(exist_ok=True)
        (own / "ca.pem").write_bytes(authority.certificate)
        trusting = {
            "files": {"/etc/authority": own},
            "environment": {"SSL_CERT_FILE": "/etc/authority/ca.pem"},
        }
        self.assertEqual(self.asked("tls-unknown", config), 502)
        self.assertEqual(self.asked("tls-known", config, **trusting), 200)

    def test_the_other_programs(self) -> None:
        """Every program that setup.cfg names is on the image's path, and starts."""
        setup = configparser.ConfigParser()
        setup.read(TOP / "setup.cfg", encoding="utf-8")
        lines = setup["options.entry_points"]["console_scripts"].split("\n")
        names = [line.partition("=")[0].strip() for line in lines if line]
        self.assertIn("llm-gateway-load", names)
        for name in names:
            status, said = self.ended(name, "--help", command=[name])
            self.assertEqual(status, 0, said)
            self.assertIn(f"usage: {name}", said)

    def test_without_a_configuration(self) -> None:
        """One clear line, and exit 1."""
        status, said = self.ended("bare", environment={"GATEWAY_CONFIG": "/etc/none.yaml"})
        self.assertEqual(status, 1, said)
        self.assertIn("/etc/none.yaml: there is no such configuration file", said)
        self.assertNotIn("Traceback", said)

    def test_the_demo(self) -> None:
        """It starts, says what it may use, streams, and ends with 0 when it is asked to."""
        port = free_port()
        listen = f"tcp:{port}:interface=127.0.0.1"
        container = self.container("demo", "--demo", "--listen", listen, "--demo-speed", "20")
        self.ready(container, port)
        status = container.status()
        self.assertEqual(status["Uid"].split(), ["10001"] * 4)
        self.assertEqual(status["Gid"].split(), ["10001"] * 4)
        self.assertEqual(int(status["CapEff"], 16), 0)
        self.assertEqual(status["NoNewPrivs"], "1")
        call = Call(f"http://127.0.0.1:{port}{CHAT}", chat(20, model="reasoning", stream=True))
        self.addCleanup(call.leave)
        self.assertTrue(call.finish(SECONDS).whole, call.describe())
        self.assertEqual(container.stop(SECONDS), 0)
        said = container.process.tail(200)
        self.assertIn("may use 0.5 CPUs by quota, of ", said)
        self.assertIn("; 512 MiB of memory; threads of the reactor's pool: 5", said)
        # twistd's cache of plugins is whole: nobody tried to write it.
        self.assertNotIn("plugin cache", said)
        self.assertNotIn("Traceback", said)

    def test_the_adapter_with_an_extra(self) -> None:
        """`workflow` is there with what it needs, and says that nobody answers."""
        port = free_port()
        workflow = {"upstream": f"127.0.0.1:{free_port()}", "requireAuth": False}
        text = json.dumps(
            {
                "listen": [f"tcp:{port}:interface=127.0.0.1"],
                "adapters": {"workflow": workflow},
            }
        )
        container = self.container("workflow", files=self.config(text))
        self.ready(container, port)
        address = f"http://127.0.0.1:{port}/?namespace=default"
        headers = {"X-Service": "workflow", "X-Resource": "list"}
        answer = exchange(address, "GET", None, headers)
        self.assertEqual(answer.status, 502, answer.body)
        self.assertEqual(container.stop(SECONDS), 0)

    def crowd(
        self, name: str, count: int, body: dict[str, Any], **admission: Any
    ) -> tuple[Container, Crowd]:
        """Clients of a gateway in a container, before an engine that runs four at a time."""
        engine = simulated_engine(free_port(), self.directory)
        engine.start()
        self.addCleanup(engine.process.stop)
        engine.wait_ready()
        port = free_port()
        patient = {
            "maxInflight": 4,
            "maxQueueDepth": 2 * count,
            "keepAliveSeconds": 5,
            # None of them is refused because of how long it would take to serve them.
            "maxParkSeconds": 86400,
            "patienceSeconds": 604800,
            "parkedWorkSeconds": 604800,
            **admission,
        }
        model = {"upstream": engine.url, "engine": "vllm", "admission": patient}
        text = json.dumps(
            {
                "listen": [f"tcp:{port}:interface=127.0.0.1"],
                "drainSeconds": 1,
                "models": {MODEL: model},
            }
        )
        container = self.container(name, files=self.config(text))
        self.ready(container, port)
        crowd = Crowd(port, count, body)
        self.addCleanup(crowd.close)
        return container, crowd

    def memory(self, container: Container, what: str) -> int:
        """The most that a container has had, in bytes; the kernel has not had to end it."""
        self.assertTrue(container.process.alive, container.process.tail())
        resident = int(container.status()["VmHWM"].split()[0]) * 1024
        peak = container.peak_bytes()
        in_mib = f"{resident / 2**20:.0f} MiB resident, {peak / 2**20:.0f} MiB in the group"
        print(f"{what}: {in_mib} at most")
        return max(resident, peak)

    def test_a_thousand_parked_streams(self) -> None:
        """They fit into the memory limit with half a core, and the drain lets go of all."""
        container, crowd = self.crowd("crowd", STREAMS, chat(5000, stream=True))
        self.heard(crowd, lambda: crowd.alive() >= STREAMS - 4, "a comment for each")
        self.heard(crowd, lambda: crowd.alive(3) >= STREAMS - 4, "two more")
        self.assertEqual(crowd.ended, 0)
        most = self.memory(container, f"{STREAMS} parked streams")
        self.assertLess(most, MEMORY_BYTES / 2)
        self.assertEqual(container.stop(SECONDS), 0)
        self.heard(crowd, lambda: crowd.ended == STREAMS, "the end of each")

    def heard(self, crowd: Crowd, condition: Callable[[], bool], what: str) -> None:
        """Read until it holds."""

        def read() -> bool:
            crowd.read()
            return condition()

        wait_until(read, SECONDS, f"{what} ({crowd.refused} refused, {crowd.ended} ended)")

    def test_as_many_bodies_as_are_held(self) -> None:
        """The default of `maxHeldBytes` fits into the memory limit; what is beyond is refused."""
        body: dict[str, Any] = chat(5000, stream=True)
        # Beside the prompt, for the engine would refuse one as long.
        body["metadata"] = {"note": "x" * 1_040_000}
        count = 280
        container, crowd = self.crowd("bodies", count, body, parkedBytes=512 << 20)

        self.heard(
            crowd,
            lambda: crowd.alive() + crowd.refused >= count - 8,
            f"{count} bodies of a megabyte, parked or refused",
        )
        self.assertGreater(crowd.alive(), 220)
        self.assertGreater(crowd.refused, 5)
        most = self.memory(container, f"{crowd.alive()} parked bodies of 1 MB")
        self.assertLess(most, MEMORY_BYTES * 0.9)

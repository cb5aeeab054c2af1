"""Services behind X-Service: a real S3 store, a real OpenID provider, a gateway of its own."""

from __future__ import annotations

import atexit
import hashlib
import hmac
import http.client
import json
import shutil
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from twisted.trial.unittest import SynchronousTestCase

from tests.auth import issuer as forger
from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.gateway import Gateway
from tests.integration.oidc import Provider
from tests.integration.processes import pause, wait_until
from tests.integration.store import ACCESS_KEY, SECRET_KEY, Store
from tests.integration.wire import Answer, exchange, get
from tests.integration.world import WORLD

MIB = 1 << 20
OBJECT_MIB = 1024
MOST_RSS_MIB = 512


class Parts:
    """Store, provider and gateway, started once, when first asked for."""

    def __init__(self) -> None:
        # Objects of a gigabyte are no logs: they go when the tests have ended.
        self.directory = Path(tempfile.mkdtemp(prefix="twisted-gateway-s3-"))
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        self.store = Store(self.directory, WORLD.logs)
        self.store.start()
        self.provider = Provider(WORLD.logs)
        self.provider.start()
        self.gateway = Gateway("gateway-services", self.configuration(), WORLD.logs)
        self.gateway.start()

    def configuration(self) -> dict[str, Any]:
        """Two stores, one of them with a wrong secret, and scopes."""
        store = {"upstream": self.store.url, "accessKey": ACCESS_KEY}
        return {
            "adapters": {
                "s3": {**store, "secretKey": SECRET_KEY, "timeoutSeconds": 60},
                "wrong": {"kind": "s3", **store, "secretKey": "another", "requireAuth": False},
                "open": {"kind": "s3", **store, "secretKey": SECRET_KEY, "requireAuth": False},
            },
            "auth": {
                **self.provider.auth(),
                "requireScopes": {"s3": ["storage.read"], "s3/put": ["storage.write"]},
            },
        }


class ServicesTestCase(SynchronousTestCase):
    """A test of real parts."""

    parts: Parts | None = None

    def setUp(self) -> None:
        try:
            if ServicesTestCase.parts is None:
                ServicesTestCase.parts = Parts()
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.gateway = ServicesTestCase.parts.gateway
        self.provider = ServicesTestCase.parts.provider
        self.store = ServicesTestCase.parts.store

    def s3(
        self,
        resource: str,
        method: str = "GET",
        *,
        service: str = "open",
        body: Any = None,
        headers: dict[str, str] | None = None,
        **parameters: str,
    ) -> Answer:
        """Send a request to a store through the gateway."""
        query = urlencode(parameters, quote_via=quote)
        lines = {"X-Service": service, "X-Resource": resource, **(headers or {})}
        return exchange(f"{self.gateway.url}/?{query}", method, body, lines, seconds=300)


class StoreTests(ServicesTestCase):
    """S3."""

    def test_object(self) -> None:
        """An object is put, got, got in part, found unchanged, listed and deleted."""
        self.store.bucket("one")
        key = "dir/a b+c=ä&%.txt"
        put = self.s3("put", "PUT", bucket="one", key=key, body=b"hello world")
        self.assertEqual(put.status, 200, put.body)
        self.assertEqual((self.store.directory / "one" / key).read_bytes(), b"hello world")
        got = self.s3("get", bucket="one", key=key)
        self.assertEqual((got.status, got.body), (200, b"hello world"))
        part = self.s3("get", bucket="one", key=key, headers={"Range": "bytes=6-"})
        # rclone says 200 where S3 says 206.
        self.assertIn(part.status, (200, 206))
        self.assertEqual((part.body, part.headers["content-range"]), (b"world", "bytes 6-10/11"))
        same = self.s3("get", bucket="one", key=key, headers={"If-None-Match": got.headers["etag"]})
        self.assertEqual((same.status, same.body), (304, b""))
        head = self.s3("get", "HEAD", bucket="one", key=key)
        self.assertEqual((head.status, head.headers["content-length"]), (200, "11"))
        listed = self.s3("list", bucket="one").json()
        self.assertEqual([one["key"] for one in listed["objects"]], [key])
        self.assertEqual(listed["objects"][0]["size"], 11)
        self.assertEqual(self.s3("delete", "DELETE", bucket="one", key=key).status, 204)
        gone = self.s3("get", bucket="one", key=key)
        self.assertEqual((gone.status, gone.json()["upstream_status"]), (404, 404))
        self.assertIn("NoSuchKey", gone.json()["detail"])

    def test_listing_in_pages(self) -> None:
        """A listing comes in pages that are asked for one after the other, each object once."""
        bucket = self.store.bucket("pages")
        names = [f"k{number:03}" for number in range(25)]
        for name in names:
            (bucket / name).write_bytes(b"x")
        seen: list[str] = []
        token: str | None = None
        for _ in range(10):
            more: dict[str, Any] = {} if token is None else {"continuation_token": token}
            page = self.s3("list", bucket="pages", max_keys="10", **more).json()
            seen += [one["key"] for one in page["objects"]]
            token = page["continuation_token"]
            self.assertEqual(page["truncated"], token is not None)
            if token is None:
                break
        self.assertEqual(seen, names)

    def test_wrong_secret(self) -> None:
        """The store's refusal of the gateway's key is told as what it is."""
        self.store.bucket("one")
        for resource, method in (("list", "GET"), ("put", "PUT")):
            more: dict[str, Any] = {"key": "k"} if resource == "put" else {}
            answer = self.s3(resource, method, service="wrong", bucket="one", body=b"x", **more)
            problem = answer.json()
            self.assertEqual((answer.status, problem["upstream_status"]), (403, 403))
            self.assertEqual(problem["type"], "urn:twisted-gateway:problem:service_refused")
            self.assertIn("SignatureDoesNotMatch", problem["detail"])
        self.assertFalse((self.store.directory / "one" / "k").exists())

    def test_no_bucket(self) -> None:
        """What is missing there is the store's own 404."""
        answer = self.s3("list", bucket="absent")
        self.assertEqual(answer.status, 404)
        self.assertIn("NoSuchBucket", answer.json()["detail"])

    def test_out_of_the_bucket(self) -> None:
        """No key leads out of its bucket, or out of the store."""
        self.store.bucket("one")
        (self.store.bucket("two") / "secret").write_bytes(b"secret")
        for key in ("../two/secret", "a/../../two/secret", "./../two/secret", "..\\two\\secret"):
            answer = self.s3("get", bucket="one", key=key)
            self.assertEqual(answer.status, 400, key)
        for key in ("%2e%2e/two/secret", "..%2ftwo/secret", "/../two/secret"):
            answer = self.s3("get", bucket="one", key=key)
            self.assertIn(answer.status, (400, 404), key)
            self.assertNotIn(b"secret", answer.body[:6])

    def test_chunked(self) -> None:
        """A body whose length nobody says is put whole, small or in parts."""
        bucket = self.store.bucket("chunked")
        for size in (0, 5, 20 * MIB + 3):
            data = _pattern(size)
            pieces = (data[at : at + 70_000] for at in range(0, size, 70_000))
            answer = self.s3("put", "PUT", bucket="chunked", key=f"o{size}", body=pieces)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual((bucket / f"o{size}").read_bytes(), data)

    def test_client_leaves(self) -> None:
        """A put that breaks off leaves no object that could be taken for whole."""
        bucket = self.store.bucket("one")
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=10)
        connection.putrequest("PUT", "/?bucket=one&key=broken")
        for name, value in (("X-Service", "open"), ("X-Resource", "put"), ("Content-Length", "9")):
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"half")
        pause(0.3)
        connection.close()
        wait_until(
            lambda: self.gateway.metric("gateway_inflight", model="") == 0, 5, "the request over"
        )
        answer = self.s3("get", bucket="one", key="broken")
        self.assertEqual(answer.status, 404)
        self.assertFalse((bucket / "broken").exists() and (bucket / "broken").stat().st_size == 9)

    def test_a_gigabyte(self) -> None:
        """An object of 1 GiB goes in and out, and the gateway stays below 512 MiB."""
        bucket = self.store.bucket("large")
        block = _pattern(MIB)
        expected = hashlib.sha256()
        for _ in range(OBJECT_MIB):
            expected.update(block)
        length = {"Content-Length": str(OBJECT_MIB * MIB)}
        blocks = (block for _ in range(OBJECT_MIB))
        put = self.s3("put", "PUT", bucket="large", key="o", body=blocks, headers=length)
        self.assertEqual(put.status, 200, put.body)
        self.assertEqual((bucket / "o").stat().st_size, OBJECT_MIB * MIB)
        actual = hashlib.sha256()
        for piece in self._pieces("large", "o"):
            actual.update(piece)
        self.assertEqual(actual.hexdigest(), expected.hexdigest())
        peak_mib = _peak_rss_mib(self.gateway.process.pid)
        print(f"the gateway's peak after {OBJECT_MIB} MiB in and out: {peak_mib:.0f} MiB")
        self.assertLess(peak_mib, MOST_RSS_MIB)
        self.assertEqual(self.s3("delete", "DELETE", bucket="large", key="o").status, 204)

    def test_slow_reader(self) -> None:
        """What a client does not read waits in the store, not in the gateway."""
        (self.store.bucket("large") / "slow").write_bytes(_pattern(256 * MIB))
        before_mib = _rss_mib(self.gateway.process.pid)
        with ThreadPoolExecutor(1) as threads:
            pieces = self._pieces("large", "slow")
            next(pieces)
            pause(3)
            grown_mib = _rss_mib(self.gateway.process.pid) - before_mib
            self.assertLess(grown_mib, 32)
            self.assertEqual(
                threads.submit(lambda: get(f"{self.gateway.url}/health").status).result(), 200
            )
            pieces.close()

    def _pieces(self, bucket: str, key: str) -> Generator[bytes, None, None]:
        """Get an object piece by piece."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
        try:
            headers = {"X-Service": "open", "X-Resource": "get"}
            connection.request("GET", f"/?bucket={bucket}&key={key}", headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            while piece := response.read(MIB):
                yield piece
        finally:
            connection.close()


class TokenTests(ServicesTestCase):
    """Tokens of a real provider."""

    def listed(self, authorization: str | None) -> Answer:
        """Ask for what takes `storage.read`."""
        self.store.bucket("one")
        headers = {} if authorization is None else {"Authorization": authorization}
        return self.s3("list", service="s3", bucket="one", headers=headers)

    def test_good(self) -> None:
        """A token of either algorithm is accepted, for what its scopes allow."""
        self.assertEqual(self.listed(None).status, 401)
        for resource in ("urn:gateway", "urn:gateway:es"):
            token = self.provider.bearer("storage.read", resource)
            self.assertEqual(self.listed(token).status, 200)
            put = self.s3(
                "put", "PUT", service="s3", bucket="one", key="k", body=b"x" * MIB,
                headers={"Authorization": token},
            )  # fmt: skip
            self.assertEqual(put.status, 403)
            self.assertIn('scope="storage.write"', put.headers["www-authenticate"])

    def test_through_the_gateway(self) -> None:
        """A token that is got through the gateway is a token; errors come as the provider's own."""
        answer = self.provider.token(self.gateway.url, "storage.read")
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertEqual(self.listed(f"Bearer {answer.json()['access_token']}").status, 200)
        refused = exchange(
            f"{self.gateway.url}/v1/auth/token",
            "POST",
            b"grant_type=client_credentials&client_id=nobody&client_secret=x",
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        self.assertEqual((refused.status, refused.json()["error"]), (401, "invalid_client"))

    def test_rotation(self) -> None:
        """New keys are accepted with their first token, old ones as long as they are there."""
        old = self.provider.bearer()
        self.assertEqual(self.listed(old).status, 200)
        pause(2.5)
        self.provider.rotate()
        new = self.provider.bearer()
        self.assertEqual(self.listed(new).status, 200)
        self.assertEqual(self.listed(old).status, 200)
        pause(2.5)
        self.provider.rotate(retire=True)
        newest = self.provider.bearer()
        self.assertEqual(self.listed(newest).status, 200)
        self.assertEqual(self.listed(old).status, 401)

    def test_flood(self) -> None:
        """A thousand tokens with made-up key names ask the provider once, and slow nobody down."""
        pause(2.5)
        good = self.provider.bearer()
        self.assertEqual(self.listed(good).status, 200)
        before = self.provider.key_fetches()

        def forged(number: int) -> int:
            token = forger.token(f"evil-{number % 8}", 2e9, header={"kid": f"evil-{number}"})
            return self.listed(f"Bearer {token}").status

        with ThreadPoolExecutor(8) as threads:
            statuses = set(threads.map(forged, range(1000)))
        self.assertEqual(statuses, {401})
        self.assertEqual(self.listed(good).status, 200)
        # The cooldown is two seconds here; the flood takes a few.
        self.assertLess(self.provider.key_fetches() - before, 10)

    def test_forged(self) -> None:
        """Tokens that only look like the provider's are refused."""
        keys = get(f"{self.provider.issuer}/jwks").json()["keys"]
        rsa = next(key for key in keys if key["kty"] == "RSA")
        claims = {
            "iss": self.provider.issuer,
            "aud": "gateway",
            "exp": 4e9,
            "scope": "storage.read",
        }
        none = ".".join(
            (_segment({"alg": "none", "kid": rsa["kid"]}), _segment(claims), _segment({}))
        )
        text = f"{_segment({'alg': 'HS256', 'kid': rsa['kid']})}.{_segment(claims)}"
        mac = hmac.digest(json.dumps(rsa).encode(), text.encode(), "sha256")
        hmac_token = f"{text}.{forger.segment(mac)}"
        other = forger.token("evil", 2e9, header={"kid": rsa["kid"]}, iss=self.provider.issuer)
        for token in (none, hmac_token, other, "x", ""):
            answer = self.listed(f"Bearer {token}")
            self.assertEqual(answer.status, 401, token)

    def test_provider_down(self) -> None:
        """While the provider is down its tokens stay good, and others are refused at once."""
        good = self.provider.bearer()
        self.assertEqual(self.listed(good).status, 200)
        pause(2.5)
        self.provider.process.kill()
        try:
            self.assertEqual(self.listed(good).status, 200)
            unknown = forger.token("evil", 2e9, iss=self.provider.issuer)
            self.assertEqual(self.listed(f"Bearer {unknown}").status, 401)
        finally:
            self.provider.start()
        new = self.provider.bearer()
        wait_until(lambda: self.listed(new).status == 200, 10, "the new keys known")


def _segment(tree: dict[str, Any]) -> str:
    return forger.segment(json.dumps(tree).encode())


def _pattern(size: int) -> bytes:
    """So many bytes that are not all the same."""
    unit = b"".join(number.to_bytes(4, "big") for number in range(16_384))
    return (unit * (size // len(unit) + 1))[:size]


def _rss_mib(pid: int) -> float:
    return _status_mib(pid, "VmRSS")


def _peak_rss_mib(pid: int) -> float:
    return _status_mib(pid, "VmHWM")


def _status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field} of process {pid}")

from __future__ import annotations

from typing import Any

from tests.config.loading import LoadingTestCase
from tests.config.test_jsonschema import accepts
from tests.support import TestCase
from twisted_gateway.auth.provider import Provider
from twisted_gateway.config.dump import dump
from twisted_gateway.config.effective import effective
from twisted_gateway.config.jsonschema import json_schema
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.config.schema import MemoryAdapter, S3Adapter, Secret
from twisted_gateway.config.service_keys import KINDS
from twisted_gateway.services.build import BUILDERS, Parts, build
from twisted_gateway.services.sessions.ongoing import Ongoing

AUTH = "auth: {issuer: i, audience: a, jwksUrl: 'https://i.example/jwks'}\n"
MEMORY = "adapters: {memory: {upstream: 'http://m:8080/base/'}}\n"
KEYS = "accessKey: ak, secretKey: sk"
KNOWN = ", ".join(KINDS)


class AdapterTests(LoadingTestCase):
    """`adapters`."""

    def test_defaults(self) -> None:
        """An adapter needs an upstream alone; a token is then required."""
        config = self.load(MEMORY + AUTH)
        self.assertEqual(
            config.adapters["memory"], MemoryAdapter(name="memory", upstream="http://m:8080/base")
        )
        self.assertTrue(config.adapters["memory"].require_auth)
        self.assertEqual(config.models, {})

    def test_keys(self) -> None:
        """Every key has its place."""
        self.files["/k"] = "secret\n"
        config = self.load(
            "maxBodyBytes: 7\nadapters:\n"
            "  memory: {upstream: http://m, resources: {query: /v2/q}, timeoutSeconds: 9,\n"
            "           client: {id: g, secret: {file: /k}, scope: a b}}\n"
            "  archive: {kind: s3, upstream: http://s, region: eu-1, accessKey: ak,\n"
            "            secretKey: {file: /k}, requireAuth: false, maxBodyBytes: 5}\n"
            "auth: {issuer: i, audience: a, jwksUrl: 'http://j', tokenUrl: 'http://t/token?x=1',\n"
            "       algorithms: [EdDSA], leewaySeconds: 5, jwksCooldownSeconds: 6,\n"
            "       jwksRefreshSeconds: 7, requireScopes: {memory: [a], memory/query: [b, c]}}\n"
        )
        memory, archive = config.adapters["memory"], config.adapters["archive"]
        assert isinstance(memory, MemoryAdapter)
        assert isinstance(archive, S3Adapter)
        self.assertEqual(memory.paths, {"ingest": "/ingest", "query": "/v2/q"})
        self.assertEqual((memory.timeout_seconds, memory.max_body_bytes), (9.0, 7))
        assert memory.client is not None
        self.assertEqual(memory.client.client_secret, Secret("secret"))
        self.assertEqual(memory.client.scope, "a b")
        self.assertEqual((archive.region, archive.require_auth), ("eu-1", False))
        self.assertEqual(archive.secret_key, Secret("secret"))
        self.assertEqual(archive.max_body_bytes, 5)
        assert config.auth is not None
        self.assertEqual(config.auth.jwks_url, "http://j/")
        self.assertEqual(config.auth.token_url, "http://t/token?x=1")
        self.assertEqual(config.auth.algorithms, ("EdDSA",))
        self.assertEqual(config.auth.require_scopes["memory/query"], ("b", "c"))

    def test_dump(self) -> None:
        """The effective configuration loads again, and shows no secret."""
        text = (
            "adapters:\n  memory: {upstream: http://m, client: {id: g, secret: s1}}\n"
            "  archive: {kind: s3, upstream: http://s, accessKey: k1, secretKey: s2}\n"
            "auth: {issuer: i, audience: a, jwksUrl: 'http://j/', tokenUrl: 'http://t/',\n"
            "       requireScopes: {archive/put: [w]}}\n"
        )
        config = self.load(text)
        shown = dump(config)
        for secret in ("s1", "s2", "k1"):
            self.assertNotIn(secret, shown)
            self.assertNotIn(secret, repr(config))
            self.assertNotIn(secret, repr(effective(config)))
        again = self.load(shown)
        self.assertEqual(again.auth, config.auth)
        self.assertEqual(again.adapters.keys(), config.adapters.keys())
        self.assertEqual(dump(again), shown)
        settings = {one.key: one.value for one in effective(config)}
        self.assertEqual(settings["adapters.archive.region"], "us-east-1")

    def test_kinds(self) -> None:
        """A name that is no kind wants one, and one that is a kind's means that kind."""
        self.assertFaults(
            "adapters:\n  a: {upstream: http://m}\n  b: {kind: c}\n  s3: {kind: memory}\n"
            "  d: {kind: [x]}\n  é: {kind: s3}\n",
            "f.yaml: line 2: adapters.a.kind: expected one of " + KNOWN + ': "a" is no kind',
            f"f.yaml: line 3: adapters.b.kind: expected one of {KNOWN}",
            "f.yaml: line 4: adapters.s3.kind: expected s3",
            f"f.yaml: line 5: adapters.d.kind: expected one of {KNOWN}",
            "f.yaml: line 6: adapters.\"é\": expected letters, digits, '.', '_' and '-', at most "
            "64, a letter first (as a name)",
        )

    def test_wrong_values(self) -> None:
        """What is missing, empty, unknown or impossible is named with its line."""
        self.assertFaults(
            AUTH + "adapters:\n"
            "  memory: {resources: {qery: /q, query: q}, timeoutSeconds: 0}\n"
            f"  s3: {{upstream: 'ftp://s', accessKey: '', bucket: b}}\n"
            f"  a: {{kind: s3, upstream: 'http://u:p@s', {KEYS}, requireAuth: maybe}}\n"
            "  b: 5\n",
            "f.yaml: line 3: adapters.memory.resources.query: expected an absolute path such as "
            "/rerank, without query",
            "f.yaml: line 3: adapters.memory.timeoutSeconds: expected a number, more than 0 and at "
            "most 604800, not 0",
            "f.yaml: line 3: adapters.memory.upstream: expected a value: memory has no other",
            "f.yaml: line 3: adapters.memory.resources.qery: unknown resource, expected ingest, "
            "query",
            "f.yaml: line 4: adapters.s3.upstream: expected a URL such as http://host:8000",
            "f.yaml: line 4: adapters.s3.bucket: unknown key, expected one of upstream, region, "
            "accessKey, secretKey, kind, requireAuth, maxBodyBytes, timeoutSeconds",
            "f.yaml: line 4: adapters.s3.accessKey: expected a value: every request to it is "
            "signed",
            "f.yaml: line 4: adapters.s3.secretKey: expected a value: every request to it is "
            "signed",
            "f.yaml: line 5: adapters.a.upstream: expected a URL without user and password (they "
            "have keys of their own)",
            "f.yaml: line 5: adapters.a.requireAuth: expected true or false, not maybe",
            "f.yaml: line 6: adapters.b.kind: expected one of " + KNOWN + ': "b" is no kind',
        )

    def test_nothing_to_serve(self) -> None:
        """No adapters are as good as no models."""
        for text in ("adapters: {}\n", AUTH):
            fault = "f.yaml: line 1: models: expected at least one model, or adapters, or routes"
            self.assertFaults(text, fault)

    def test_schema(self) -> None:
        """The JSON Schema takes what loads, and not what lacks what is needed."""
        schema = json_schema()
        good: dict[str, Any] = {"upstream": "http://s", "accessKey": "a", "secretKey": "b"}
        for adapters, valid in (
            ({"memory": {"upstream": "http://m"}}, True),
            ({"s3": good}, True),
            ({"archive": {"kind": "s3", **good}}, True),
            ({"archive": good}, False),
            ({"s3": {**good, "kind": "memory"}}, False),
            ({"memory": {}}, False),
            ({"memory": {"upstream": "http://m", "region": "x"}}, False),
            ({"x": {"kind": "y"}}, False),
        ):
            self.assertEqual(accepts(schema, {"adapters": adapters}), valid, adapters)


class AuthTests(LoadingTestCase):
    """`auth`, and what needs it."""

    def test_absent(self) -> None:
        """Without keys there is no auth."""
        config = self.load("models: {m: {upstream: http://m}}\nauth: {}\n")
        self.assertIsNone(config.auth)

    def test_needed(self) -> None:
        """Whatever requires a token needs auth; nobody could use it otherwise."""
        words = (
            "expected auth with issuer, audience and jwksUrl, for a token is required here; "
            "requireAuth: false lets anybody in"
        )
        self.assertFaults(
            "models:\n  m:\n    upstream: http://m\n    requireAuth: true\n"
            "adapters:\n  memory:\n    upstream: http://m\n",
            f"f.yaml: line 4: models.m.requireAuth: {words}",
            f"f.yaml: line 6: adapters.memory.requireAuth: {words}",
        )
        self.load("models: {m: {upstream: http://m, requireAuth: true}}\n" + AUTH)
        self.load("adapters: {memory: {upstream: http://m, requireAuth: false}}\n")

    def test_whole(self) -> None:
        """Issuer, audience and the keys' place belong together."""
        self.assertFaults(
            "models: {m: {upstream: http://m}}\nauth: {issuer: i}\n",
            "f.yaml: line 2: auth.audience: expected a value: auth accepts no token without it",
            "f.yaml: line 2: auth.jwksUrl: expected a value: auth accepts no token without it",
        )

    def test_algorithms(self) -> None:
        """Only signatures whose checking takes no secret can be configured."""
        for name in ("none", "HS256", "HS512", "rs256", "RSA1_5"):
            self.refused(MEMORY + AUTH.replace("}", f", algorithms: [{name}]}}"))
        self.refused(MEMORY + AUTH.replace("}", ", algorithms: []}"))

    def test_scopes(self) -> None:
        """Scopes are required of adapters and resources that there are, and that need a token."""
        text = (
            "adapters:\n  memory: {upstream: http://m}\n"
            "  open: {kind: memory, upstream: http://m, requireAuth: false}\n"
            "auth:\n  issuer: i\n  audience: a\n  jwksUrl: http://j\n  requireScopes:\n"
        )
        self.assertFaults(
            text + "    memroy: [a]\n    memory/list: [a]\n    open: [a]\n    memory: ['a b']\n",
            "f.yaml: line 9: auth.requireScopes.memroy: expected an adapter (memory, open), not "
            '"memroy"',
            'f.yaml: line 10: auth.requireScopes."memory/list": expected a resource of memory: '
            "ingest, query",
            "f.yaml: line 11: auth.requireScopes.open: expected nothing: open has requireAuth: "
            "false",
            "f.yaml: line 12: auth.requireScopes.memory[0]: expected a scope: visible ASCII "
            "without blanks, quotes and backslashes",
        )

    def test_own_client(self) -> None:
        """The gateway's own client needs the token endpoint, a name and a secret."""
        client = "adapters: {memory: {upstream: http://m, requireAuth: false, client: {id: g}}}\n"
        self.assertFaults(
            client,
            "f.yaml: line 1: adapters.memory.client.secret: expected a value: the provider asks "
            "for it",
            "f.yaml: line 1: adapters.memory.client: expected auth.tokenUrl, where the gateway's "
            "own token comes from",
        )


class BuildTests(TestCase):
    """From the configuration to the adapter."""

    def test_every_kind(self) -> None:
        """Every kind that can be configured is built, with the resources that it says it has."""
        agent: Any = None
        parts = Parts(
            clock=self.clock,
            provider=Provider(agent, self.clock),
            auth=None,
            agent=agent,
            sandboxes=Ongoing(self.clock, lambda policy: agent),
            replica="r",
        )
        self.assertEqual(set(BUILDERS), set(KINDS))
        secret = Secret("s")
        for adapter in (
            MemoryAdapter(name="m", upstream="http://m"),
            S3Adapter(name="s", upstream="http://s", access_key=secret, secret_key=secret),
            SessionsAdapter(name="t", image="i", namespace="n"),
        ):
            service = build(adapter, parts)
            self.assertEqual(tuple(service.operations), adapter.resources)

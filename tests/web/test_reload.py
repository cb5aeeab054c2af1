"""A reload while a request waits: what it was to be served by may be gone, or be elsewhere."""

from __future__ import annotations

import gzip
import json

from tests.auth import issuer
from tests.services.stack import AUTH, ServicesTestCase
from tests.stack import CONFIG, Client

OTHER = "  open: {upstream: 'http://10.0.0.2:8000'}\n"


class WaitingForKeysTests(ServicesTestCase):
    """The issuer is asked for a key, the configuration is read again, then the key comes."""

    config = CONFIG + "    requireAuth: true\n" + OTHER + AUTH

    def reload(self, text: str, body: bytes | None = None, **headers: str) -> Client:
        token = issuer.token("ec-9", self.stack.now)
        said = body or json.dumps({"model": "reasoning", "messages": []}).encode()
        client = self.stack.client().post(
            "/v1/chat/completions", said, {"Authorization": f"Bearer {token}", **headers}
        )
        self.assertEqual(client.status, 0)
        self.stack.text = text
        self.assertTrue(self.stack.gateway.reload())
        self.stack.settle()
        self.keys = issuer.jwks(issuer.ec_jwk("ec-9"))
        self.give_keys()
        return client

    def test_the_model_is_gone(self) -> None:
        """Then it is one that is not served here, and no fault of ours."""
        client = self.reload("models:\n" + OTHER + AUTH)
        self.assertEqual((client.status, client.json["valid_models"]), (400, ["open"]))
        self.assertEqual(self.stack.outcomes, ["bad_request"])

    def test_its_engine_is_another(self) -> None:
        """It goes to the engine that is in force, and counts there; an encoded body, too."""
        body = gzip.compress(b'{"model": "gpt-4o", "messages": []}')
        moved = self.config.replace("10.0.0.1:8000", "10.0.0.9:8000")
        client = self.reload(moved, body, **{"Content-Encoding": "gzip"})
        asked = self.stack.engine("10.0.0.9").last
        self.assertEqual(json.loads(asked.body), {"model": "reasoning", "messages": []})
        self.assertEqual(self.stack.engine().asked, [])
        self.assertEqual(self.stack.facts()["in_engine"], 1)
        asked.answer()
        self.assertEqual(client.status, 200)
        self.assertEqual(self.stack.facts()["in_engine"], 0)

    def test_it_has_more_engines(self) -> None:
        """Whichever of them takes it, the request goes there."""
        more = "upstreams: [http://10.0.0.8:8000, http://10.0.0.9:8000]"
        clients = [
            self.reload(self.config.replace("upstream: http://10.0.0.1:8000", more)),
            self.stack.client().chat(headers={"Authorization": f"Bearer {self.ninth()}"}),
        ]
        for host in ("10.0.0.8", "10.0.0.9"):
            self.stack.engine(host).last.answer()
        self.assertEqual([client.status for client in clients], [200, 200])

    def test_a_drain(self) -> None:
        """Whoever is still at the door when it closes stays outside."""
        token = self.ninth()
        client = self.stack.client().chat(headers={"Authorization": f"Bearer {token}"})
        _ = self.stack.gateway.drain()
        self.keys = issuer.jwks(issuer.ec_jwk("ec-9"))
        self.give_keys()
        self.assertEqual(client.status, 503)
        self.stack.advance(3)

    def ninth(self) -> str:
        return issuer.token("ec-9", self.stack.now)

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support import TestCase
from twisted_gateway.config.effective import MOST_CHARACTERS, Setting, effective
from twisted_gateway.config.load import load

FILE = """\
drainSeconds: 5
models:
  reasoning:
    upstream: http://10.0.0.1:8000
    engine: vllm
    apiKey: sesame-open
    admission: {maxInflight: 4}
  dotted.name:
    upstreams: [http://10.0.0.2:8000, http://10.0.0.3:8000]
    engine: vllm
    admission: {pollSeconds: 9}
"""


def settings(text: str = FILE, environ: Mapping[str, str] | None = None) -> dict[str, Setting]:
    config = load(text, name="config.yaml", environ=environ or {}, read_file=str)
    return {one.key: one for one in effective(config)}


class EffectiveTests(TestCase):
    """The settings in force."""

    def test_queries(self) -> None:
        """The query of an address, where a credential may stand, is not shown."""
        found = settings(
            FILE
            + "auth: {issuer: i, audience: a, jwksUrl: 'https://j.example/k?key=a-credential',\n"
            "       tokenUrl: 'https://t.example/t?key=a-credential&x=y'}\n"
        )
        self.assertEqual(found["auth.jwksUrl"].value, "https://j.example/k?***")
        self.assertEqual(found["auth.tokenUrl"].value, "https://t.example/t?***")
        self.assertNotIn("a-credential", repr(found))

    def test_where_values_come_from(self) -> None:
        """File with its line, environment, a rule, default: each says so."""
        environ = {"MAX_BODY_BYTES": "5000", "ADMISSION_MAX_PARK_SECONDS": "77"}
        found = settings(environ=environ)
        for key, value, source in (
            ("drainSeconds", "5", "config.yaml line 1"),
            ("maxBodyBytes", "5000", "environment MAX_BODY_BYTES"),
            ("models.reasoning.admission.maxInflight", "4", "config.yaml line 7"),
            (
                "models.reasoning.admission.maxParkSeconds",
                "77",
                "environment ADMISSION_MAX_PARK_SECONDS",
            ),
            ('models."dotted.name".admission.pollTimeoutSeconds', "18", "2 x pollSeconds"),
            ("maxConnections", "10000", "default"),
            ("models.reasoning.timeouts.connectSeconds", "5", "default"),
            ("tenants.from", "subject, header, address", "default"),
            ("models.reasoning.paths", "/v1/rerank: /rerank", "default"),
        ):
            self.assertEqual((found[key].value, found[key].source), (value, source), key)

    def test_every_given_value_is_found(self) -> None:
        """No value of the file is taken for a default."""
        sources = [one.source for one in settings().values()]
        self.assertEqual(sum(source.startswith("config.yaml line") for source in sources), 8)

    def test_secrets_are_hidden(self) -> None:
        """A credential is stars; one that is not there is not shown."""
        found = settings()
        self.assertEqual(found["models.reasoning.apiKey"].value, "***")
        self.assertNotIn("peers.token", found)
        self.assertNotIn("sesame", str(found))

    def test_long_values_are_cut(self) -> None:
        """A list of hundreds of names is cut with a sign that it goes on."""
        names = json.dumps([f"alias-{number}" for number in range(500)])
        found = settings(f"models: {{m: {{upstream: 'http://h:1', aliases: {names}}}}}")
        value = found["models.m.aliases"].value
        self.assertEqual((len(value), value[-1]), (MOST_CHARACTERS, "…"))

    def test_truth_is_as_the_file_has_it(self) -> None:
        """Yes and no are YAML's words, not Python's."""
        values = {one.value for one in settings().values()}
        self.assertFalse(values & {"True", "False", "None"})

from __future__ import annotations

from dataclasses import replace

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.loading import LoadingTestCase
from tests.support import examples
from twisted_gateway.config.dump import dump
from twisted_gateway.config.faults import ConfigError
from twisted_gateway.config.schema import Config

TOKEN = "0123456789abcdef"
NAMES = st.text(st.sampled_from("ab1.:-_#$'\"{}[]&*!|>%@`, ~?é模"), min_size=1, max_size=8)


def in_force(config: Config) -> Config:
    """Leave out what a reading says about itself."""
    return replace(config, sources={}, warnings=())


class DumpTests(LoadingTestCase):
    """The effective configuration as YAML."""

    def assertRoundTrip(self, config: Config) -> None:
        again = self.load(dump(config))
        self.assertEqual(in_force(again), in_force(config))

    def test_everything_in_force(self) -> None:
        """Defaults and the environment's values are written out under the file's keys."""
        config = self.load(
            self.vllm("kvThreshold: 0.5"), {"VLLM_MAX_NUM_SEQS": "6", "MAX_BODY_BYTES": "9"}
        )
        tree = yaml.safe_load(dump(config))
        self.assertEqual((tree["listen"], tree["maxBodyBytes"]), (["tcp:8080"], 9))
        self.assertEqual((tree["drainSeconds"], tree["cors"]), (600, {"origins": []}))
        model = tree["models"]["m"]
        self.assertEqual((model["upstream"], model["engine"]), ("http://m", "vllm"))
        self.assertEqual(model["admission"]["maxInflight"], 6)
        self.assertEqual(model["admission"]["kvThreshold"], 0.5)
        self.assertNotIn("upstreams", model)
        self.assertNotIn("apiKey", model)
        self.assertRoundTrip(config)

    def test_secrets(self) -> None:
        """A secret is three stars, and the file still loads."""
        config = self.load(self.model("apiKey: hunter2"))
        self.assertNotIn("hunter2", dump(config))
        key = self.load(dump(config)).models["m"].api_key
        assert key is not None
        self.assertEqual(key.value, "***")

    def test_dollar_signs(self) -> None:
        """A dollar sign is escaped, so that it starts no reference."""
        config = self.load(self.model("upstreamModel: '$${HOME}', paths: {/v1/$x: /$$y}"))
        self.assertEqual(config.models["m"].upstream_model, "${HOME}")
        self.assertRoundTrip(config)

    def test_engines(self) -> None:
        """Whatever the engine, only what its kind may say is written."""
        for keys in (
            *("", "engine: ollama", "engine: tei", "engine: tei, admission: {pollSeconds: 9}"),
            *("engine: ollama, admission: {maxInflight: 2}", "admission: {keepAliveSeconds: 3}"),
            *("engine: sglang", "engine: vllm, admission: {maxInflight: auto, whenStale: hold}"),
        ):
            for environ in (
                {},
                {"ADMISSION_OBSERVE_MODELS": ""},
                {"ADMISSION_OBSERVE_MODELS": "m"},
            ):
                self.assertRoundTrip(self.load(self.model(keys), environ))

    def test_unnamed_rates(self) -> None:
        """Rates that are learned are left out, for naming them would end that."""
        config = self.load(self.vllm("prefillTokensPerSecond: 900"))
        admission = yaml.safe_load(dump(config))["models"]["m"]["admission"]
        self.assertEqual(admission["prefillTokensPerSecond"], 900)
        self.assertNotIn("decodeTokensPerSecond", admission)
        self.assertRoundTrip(config)

    def test_replicas(self) -> None:
        """Replicas are a number, a name or a list, as the file has them."""
        for text, shown in {
            "3": 3,
            "'dns:Gateway:1'": "dns:gateway:1",
            "['[fd00::1]:1', 'a:2']": ["a:2", "[fd00::1]:1"],
        }.items():
            config = self.load(self.vllm(f"replicas: {text}") + f"peers: {{token: {TOKEN}}}\n")
            tree = yaml.safe_load(dump(config))
            self.assertEqual(tree["models"]["m"]["admission"]["replicas"], shown)
            again = self.load(dump(config).replace("'***'", TOKEN))
            self.assertEqual(in_force(again), in_force(config))

    def test_tenants(self) -> None:
        """The sources of tenants keep their order."""
        config = self.load("tenants: {from: [address, apiKey]}\n" + self.model(""))
        self.assertIn("from:\n  - address\n  - apiKey\n", dump(config))
        self.assertRoundTrip(config)

    def test_token(self) -> None:
        """The peers' token is three stars, which are themselves no token."""
        text = self.vllm("replicas: [a:1]") + "peers: {token: hunter2-hunter2-hunter2}\n"
        shown = dump(self.load(text))
        self.assertNotIn("hunter2", shown)
        self.assertEqual(yaml.safe_load(shown)["peers"], {"listen": "tcp:8081", "token": "***"})
        self.assertIn("peers.token: expected at least 16", str(self.refused(shown)))

    def test_several_upstreams(self) -> None:
        """A list of upstreams stays one."""
        config = self.load("models: {m: {upstreams: [http://a, http://b]}}\n")
        self.assertIn("upstreams:", dump(config))
        self.assertRoundTrip(config)

    def test_strings_that_look_like_numbers(self) -> None:
        """A string that either version of YAML takes for something else keeps its quotes."""
        for text in ("1e3", "0o7", "12", "~", "null", "true", "no", "1:30", "1_0", ".nan"):
            self.assertRoundTrip(
                self.load(self.model(f"upstreamModel: '{text}', aliases: ['{text}']"))
            )

    def test_networks(self) -> None:
        """Addresses come back as networks."""
        self.assertRoundTrip(
            self.load("tenants: {trustedProxies: [10.0.0.1, 'fd00::/8']}\n" + self.model(""))
        )

    @examples(40)
    @given(
        NAMES
        | st.sampled_from(["no", "1e3", "0o7", "12", "~", "null", "<<", "1:30", "=", "x" * 200]),
        NAMES,
        st.floats(1e-12, 604_800),
    )
    def test_any_names_and_numbers(self, name: str, alias: str, seconds: float) -> None:
        """Any names and numbers that load come back equal."""
        base = self.load(self.model(""))
        model = replace(
            base.models["m"],
            name=name,
            aliases=(alias,),
            upstream_model=alias,
            timeouts=replace(base.models["m"].timeouts, idle_seconds=seconds),
        )
        config = replace(base, models={name: model}, drain_seconds=seconds)
        try:
            again = self.load(dump(config))
        except ConfigError as error:
            # Names that no file could have given.
            if {name.strip(), alias.strip()} == {name, alias} and name != alias:
                raise AssertionError(f"{error}\n{dump(config)}") from error
            return
        self.assertEqual(in_force(again), in_force(config))

from __future__ import annotations

from tests.config.loading import LoadingTestCase
from twisted_gateway.config.admission import describe_admission
from twisted_gateway.config.schema import Config, EngineKind, Model
from twisted_gateway.core.policy import Ordering, Policy, WhenStale

TWO = """\
models:
  a: {upstream: http://a, engine: vllm, admission: {maxInflight: 4}}
  b: {upstream: http://b, admission: {keepAliveSeconds: 9}}
  c: {upstream: http://c, engine: tei, admission: {pollSeconds: 1}}
"""


def state(model: Model) -> tuple[EngineKind, bool, bool]:
    return model.engine, model.observed, model.gated


class ModelTests(LoadingTestCase):
    """What one model may say."""

    def one(self, keys: str, environ: dict[str, str] | None = None) -> Model:
        return self.load(self.model(keys), environ).models["m"]

    def test_values(self) -> None:
        """What the file gives for a model goes where it belongs."""
        model = self.one(
            "aliases: [gpt-4o], upstreamModel: Q/Q3, maxBodyBytes: 9, paths: {/v1/score: /score}, "
            "timeouts: {connectSeconds: 1, bodySeconds: 2, firstContentSeconds: 3, idleSeconds: 4, "
            "clientStallSeconds: 5}"
        )
        self.assertEqual(
            (model.name, model.aliases, model.upstream_model), ("m", ("gpt-4o",), "Q/Q3")
        )
        self.assertEqual(model.max_body_bytes, 9)
        self.assertEqual(dict(model.paths), {"/v1/rerank": "/rerank", "/v1/score": "/score"})
        timeouts = model.timeouts
        self.assertEqual((timeouts.connect_seconds, timeouts.body_seconds), (1, 2))
        self.assertEqual((timeouts.first_content_seconds, timeouts.idle_seconds), (3, 4))
        self.assertEqual(timeouts.client_stall_seconds, 5)

    def test_paths_before_the_default(self) -> None:
        """A model's own path for /v1/rerank comes before the default one."""
        self.assertEqual(self.one("paths: {/v1/rerank: /x}").paths["/v1/rerank"], "/x")

    def test_body_limit(self) -> None:
        """A model's body limit is the global one unless it has its own."""
        config = self.load(
            "maxBodyBytes: 7\nmodels:\n  a: {upstream: http://a}\n"
            "  b: {upstream: http://b, maxBodyBytes: 9}\n"
        )
        limits = [model.max_body_bytes for model in config.models.values()]
        self.assertEqual(limits, [7, 9])

    def test_upstreams(self) -> None:
        """A model has one upstream or a list of them, each engine once."""
        config = self.load("models: {m: {upstreams: ['http://a/', 'http://b:80']}}\n")
        self.assertEqual(config.models["m"].upstreams, ("http://a", "http://b:80"))
        self.assertFaults(
            "models:\n  m:\n    upstream: http://a\n    upstreams: [http://b]\n"
            "  n:\n    aliases: []\n  o:\n    upstreams: []\n  p:\n    upstreams: [http://a, 'http://A:80/x']\n",
            "f.yaml: line 4: models.m.upstream: expected either upstream or upstreams, not both",
            "f.yaml: line 5: models.n.upstream: expected an engine's URL here, "
            "or several under upstreams",
            "f.yaml: line 8: models.o.upstreams: expected at least 1 in the list of URLs",
            "f.yaml: line 10: models.p.upstreams[1]: expected each only once, "
            "and models.p.upstreams[0] is the same",
        )

    def test_names(self) -> None:
        """A model's name is printable and bounded; names with dots are quoted in faults."""
        for name in ("''", "' a'", '"a\\nb"', "x" * 257):
            self.assertIn(
                "(as a name)", str(self.refused(f"models: {{{name}: {{upstream: http://m}}}}\n"))
            )
        error = self.refused('models: {"a.b:c": {}}\n')
        self.assertIn('models."a.b:c".upstream', str(error))

    def test_names_from_references(self) -> None:
        """Two names that come out the same are one too many."""
        self.assertFaults(
            "models:\n  a: {upstream: http://a}\n  '${A}': {upstream: http://b}\n",
            'f.yaml: line 3: models."${A}": expected only one "a"',
            environ={"A": "a"},
        )

    def test_kinds(self) -> None:
        """The kind of engine decides what is observed, and with maxInflight what is gated."""
        kind = EngineKind
        for text, expected in {
            "": (kind.NONE, False, False),
            "engine: none": (kind.NONE, False, False),
            "engine: vllm": (kind.VLLM, True, True),
            "engine: sglang, admission: {maxInflight: auto}": (kind.SGLANG, True, True),
            "engine: llamacpp": (kind.LLAMACPP, True, True),
            "engine: tgi": (kind.TGI, True, True),
            "engine: tei": (kind.TEI, True, False),
            "engine: tei, admission: {maxInflight: 2}": (kind.TEI, True, True),
            "engine: ollama": (kind.OLLAMA, False, False),
            "engine: ollama, admission: {maxInflight: 2}": (kind.OLLAMA, False, True),
        }.items():
            self.assertEqual(state(self.one(text)), expected, text)

    def test_policy(self) -> None:
        """Every key of admission reaches the policy."""
        model = self.one(
            "engine: vllm, admission: {maxInflight: 4, kvThreshold: 0.5, maxParkSeconds: 1, "
            "maxQueueDepth: 2, keepAliveSeconds: 3, pollSeconds: 4, pollTimeoutSeconds: 6, "
            "staleAfterPolls: 7, whenStale: hold, holdSeconds: 8, retryAfterSeconds: 9, "
            "parkedBytes: 10, patienceSeconds: 11, ordering: fifo, longPrefillSeconds: 12, "
            "prefillTokensPerSecond: 13, decodeTokensPerSecond: 14.5, parkedWorkSeconds: 15}"
        )
        self.assertEqual(
            model.policy,
            Policy(
                max_inflight=4,
                kv_threshold=0.5,
                max_park_seconds=1,
                max_queue_depth=2,
                keep_alive_seconds=3,
                poll_seconds=4,
                poll_timeout_seconds=6,
                stale_after_polls=7,
                when_stale=WhenStale.HOLD,
                hold_seconds=8,
                retry_after_seconds=9,
                parked_bytes=10,
                patience_seconds=11,
                ordering=Ordering.FIFO,
                long_prefill_seconds=12,
                prefill_tokens_per_second=13,
                decode_tokens_per_second=14.5,
                parked_work_seconds=15,
            ),
        )

    def test_ordering(self) -> None:
        """Service is by cost unless it is by arrival."""
        self.assertIs(self.one("engine: vllm").policy.ordering, Ordering.COST)
        policy = self.one("engine: vllm, admission: {ordering: cost}").policy
        self.assertIs(policy.ordering, Ordering.COST)

    def test_unnamed_rates(self) -> None:
        """Rates that the file does not name are none, so that they are learned."""
        policy = self.one("engine: vllm, admission: {decodeTokensPerSecond: 25}").policy
        self.assertIsNone(policy.prefill_tokens_per_second)
        self.assertEqual(policy.decode_tokens_per_second, 25)

    def test_ranges(self) -> None:
        """Impossible values are refused, the ends of the ranges are not."""
        for text in (
            *(
                "maxInflight: 0",
                "maxInflight: -1",
                "maxInflight: automatic",
                "maxInflight: 'auto '",
            ),
            *("kvThreshold: 0", "kvThreshold: 1.01", "kvThreshold: 90%", "maxParkSeconds: 0"),
            *("maxQueueDepth: 0", "pollSeconds: 0", "pollSeconds: 1e-9", "staleAfterPolls: 0"),
            *("whenStale: maybe", "retryAfterSeconds: 61", "parkedBytes: 0", "ordering: ~"),
            *("patienceSeconds: 0", "longPrefillSeconds: -1", "parkedWorkSeconds: .inf"),
            *("prefillTokensPerSecond: 0", "prefillTokensPerSecond: 1e8"),
            *("decodeTokensPerSecond: 0.01", "decodeTokensPerSecond: auto"),
            *("ordering: lifo", "keepAliveSeconds: -1", "maxInflight: []", "holdSeconds: true"),
        ):
            error = self.refused(self.vllm(text))
            self.assertIn(f"models.m.admission.{text.partition(':')[0]}: expected ", str(error))
        for text in (
            "kvThreshold: 1",
            "maxInflight: 1",
            "retryAfterSeconds: 60",
            "maxInflight: auto",
        ):
            self.load(self.vllm(text))

    def test_poll_timeout(self) -> None:
        """The poll's time-out grows with the interval, unless it is given."""
        for text, seconds in {
            "pollSeconds: 2": 5.0,
            "pollSeconds: 4": 8.0,
            "pollSeconds: 4, pollTimeoutSeconds: 1": 1.0,
        }.items():
            model = self.load(self.vllm(text)).models["m"]
            self.assertEqual(model.policy.poll_timeout_seconds, seconds, text)

    def test_admission_without_gate(self) -> None:
        """A model of engine none has no admission but keepAliveSeconds."""
        self.assertEqual(self.one("admission: {keepAliveSeconds: 7}").policy.keep_alive_seconds, 7)
        self.assertFaults(
            "models:\n  m:\n    upstream: http://m\n    admission:\n      keepAliveSeconds: 7\n"
            "      maxInflight: 4\n      pollSeconds: 1\n",
            "f.yaml: line 6: models.m.admission.maxInflight: expected keepAliveSeconds alone: "
            "engine none has no gate",
            "f.yaml: line 7: models.m.admission.pollSeconds: expected keepAliveSeconds alone: "
            "engine none has no gate",
        )

    def test_misspelt_engine(self) -> None:
        """A misspelt engine is one fault, not one more for each key of admission."""
        self.assertEqual(
            len(self.refused(self.model("engine: vlm, admission: {maxInflight: 4}")).faults), 1
        )

    def test_nothing_to_learn_from(self) -> None:
        """`auto` is refused where running and waiting are not published."""
        for engine in ("tei", "ollama"):
            error = self.refused(self.model(f"engine: {engine}, admission: {{maxInflight: auto}}"))
            self.assertIn("models.m.admission.maxInflight: expected a whole number", str(error))

    def test_admission_that_does_nothing(self) -> None:
        """Keys that do nothing without maxInflight are worth a warning."""
        config = self.load(self.model("engine: ollama, admission: {maxParkSeconds: 4}"))
        self.assertEqual(
            config.warnings,
            (
                "models.m.admission.maxParkSeconds does nothing: "
                "ollama has no gate without maxInflight",
            ),
        )
        self.assertEqual(config.models["m"].policy, Policy())


class EnvironmentTests(LoadingTestCase):
    """The environment's defaults and levers."""

    def policy(self, admission: str, **environ: str) -> Policy:
        return self.load(self.vllm(admission), environ).models["m"].policy

    def test_order_for_max_inflight(self) -> None:
        """The file comes first, then ADMISSION_MAX_INFLIGHT, VLLM_MAX_NUM_SEQS, `auto`."""
        ours, theirs = {"ADMISSION_MAX_INFLIGHT": "5"}, {"VLLM_MAX_NUM_SEQS": "6"}
        self.assertEqual(self.policy("maxInflight: 4", **ours, **theirs).max_inflight, 4)
        self.assertIsNone(self.policy("maxInflight: auto", **ours, **theirs).max_inflight)
        self.assertEqual(self.policy("", **ours, **theirs).max_inflight, 5)
        self.assertEqual(self.policy("", **theirs).max_inflight, 6)
        self.assertIsNone(self.policy("", ADMISSION_MAX_INFLIGHT="auto", **theirs).max_inflight)
        self.assertIsNone(self.policy("").max_inflight)

    def test_other_defaults(self) -> None:
        """The park budget and the queue's depth have variables too."""
        environ = {"ADMISSION_MAX_PARK_SECONDS": "1.5", "VLLM_MAX_QUEUE_DEPTH": "7"}
        policy = self.policy("", **environ)
        self.assertEqual((policy.max_park_seconds, policy.max_queue_depth), (1.5, 7))
        policy = self.policy("maxParkSeconds: 2, maxQueueDepth: 3", **environ)
        self.assertEqual((policy.max_park_seconds, policy.max_queue_depth), (2, 3))

    def test_defaults_are_for_vllm(self) -> None:
        """The variables mean nothing to other engines; they make no gate either."""
        environ = {"ADMISSION_MAX_INFLIGHT": "5", "VLLM_MAX_QUEUE_DEPTH": "7"}
        for engine in ("sglang", "tei", "ollama"):
            model = self.load(self.model(f"engine: {engine}"), environ).models["m"]
            self.assertEqual(model.policy, Policy(), engine)
            self.assertEqual(model.gated, engine == "sglang")

    def test_winning_variables(self) -> None:
        """MAX_BODY_BYTES and GATEWAY_LISTEN win over the file, but not over a model's own limit."""
        config = self.load(
            "listen: [tcp:1]\nmaxBodyBytes: 5\nmodels: {a: {upstream: http://a}, "
            "b: {upstream: http://b, maxBodyBytes: 9}}\n",
            {"MAX_BODY_BYTES": "7", "GATEWAY_LISTEN": " tcp:2:interface=127.0.0.1  tcp:3\n"},
        )
        self.assertEqual(config.listen, ("tcp:2:interface=127.0.0.1", "tcp:3"))
        self.assertEqual(config.max_body_bytes, 7)
        self.assertEqual([one.max_body_bytes for one in config.models.values()], [7, 9])
        self.assertEqual(config.sources["listen"], "GATEWAY_LISTEN")

    def test_empty_variables(self) -> None:
        """An empty variable is as good as unset."""
        names = ("MAX_BODY_BYTES", "GATEWAY_LISTEN", "ADMISSION_MAX_INFLIGHT", "VLLM_MAX_NUM_SEQS")
        config = self.load(self.vllm(""), dict.fromkeys(names, ""))
        self.assertEqual((config.listen, config.max_body_bytes), (("tcp:8080",), 1_048_576))

    def test_bad_variables(self) -> None:
        """A bad variable is a fault under its name, even where another comes before it."""
        error = self.refused(
            self.vllm("maxInflight: 4"),
            {
                "ADMISSION_MAX_INFLIGHT": "0",
                "VLLM_MAX_NUM_SEQS": "x",
                "ADMISSION_MAX_PARK_SECONDS": "inf",
                "MAX_BODY_BYTES": "1_0",
                "GATEWAY_LISTEN": "8080",
            },
        )
        self.assertEqual(
            {fault.path for fault in error.faults},
            {
                *("ADMISSION_MAX_INFLIGHT", "VLLM_MAX_NUM_SEQS", "ADMISSION_MAX_PARK_SECONDS"),
                *("MAX_BODY_BYTES", "GATEWAY_LISTEN"),
            },
        )
        self.assertIn(
            "environment: ADMISSION_MAX_INFLIGHT: expected auto or a whole number from 1 to 100000",
            str(error),
        )

    def test_listener_twice(self) -> None:
        """GATEWAY_LISTEN does not name an endpoint twice, nor the operations' one."""
        self.assertIn("twice", str(self.refused(self.vllm(""), {"GATEWAY_LISTEN": "tcp:1 tcp:1"})))
        self.refused("adminListen: [tcp:1]\n" + self.vllm(""), {"GATEWAY_LISTEN": "tcp:1"})

    def test_options(self) -> None:
        """An option stands in the place of its variable, and a fault of it bears its name."""
        environ = {"GATEWAY_LISTEN": "8080"}
        config = self.load(self.vllm(""), environ, {"--listen": "tcp:2 tcp:3"})
        self.assertEqual(config.listen, ("tcp:2", "tcp:3"))
        self.assertEqual(config.sources["listen"], "--listen")
        self.assertEqual(
            str(self.refused(self.vllm(""), {"GATEWAY_LISTEN": "tcp:1"}, {"--listen": "8080"})),
            "command line: --listen: expected a Twisted server endpoint such as tcp:8080",
        )
        error = self.refused(self.vllm(""), environ, {"--listen": ""})
        self.assertEqual([fault.path for fault in error.faults], ["GATEWAY_LISTEN"])

    def observe(self, value: str, text: str = TWO) -> Config:
        return self.load(text, {"ADMISSION_OBSERVE_MODELS": value})

    def test_observe_some(self) -> None:
        """Exactly the named models are observed and gated, as vLLM where no kind is given."""
        models = self.observe(" a, b,").models
        self.assertEqual(state(models["a"]), (EngineKind.VLLM, True, True))
        self.assertEqual(state(models["b"]), (EngineKind.VLLM, True, True))
        self.assertEqual(state(models["c"]), (EngineKind.NONE, False, False))
        self.assertEqual(models["b"].policy.keep_alive_seconds, 9)

    def test_observe_none(self) -> None:
        """Set but empty, it turns the gate off everywhere, whatever the file says."""
        for value in ("", " ", ","):
            config = self.observe(value)
            self.assertEqual(
                {state(model) for model in config.models.values()},
                {(EngineKind.NONE, False, False)},
            )
            self.assertEqual(config.sources["models.a.engine"], "ADMISSION_OBSERVE_MODELS")
            self.assertEqual(config.models["b"].policy.keep_alive_seconds, 9)

    def test_observe_makes_admission_meaningful(self) -> None:
        """Keys of admission that engine none forbids are right once the model is observed."""
        text = self.model("admission: {maxInflight: 3}")
        self.refused(text)
        self.assertEqual(self.observe("m", text).models["m"].policy.max_inflight, 3)

    def test_observed_by_the_environment_takes_its_defaults(self) -> None:
        """A model that the environment makes vLLM has the environment's defaults."""
        config = self.load(TWO, {"ADMISSION_OBSERVE_MODELS": "b", "VLLM_MAX_NUM_SEQS": "6"})
        self.assertEqual(config.models["b"].policy.max_inflight, 6)

    def test_observe_unknown(self) -> None:
        """A name that is not configured is a warning."""
        self.assertEqual(
            self.observe("a,b,nope").warnings,
            ('ADMISSION_OBSERVE_MODELS names "nope", which is not configured',),
        )

    def test_observe_without_gate(self) -> None:
        """A named model that cannot have a gate is a warning."""
        (warning,) = self.observe("c").warnings
        self.assertIn('names "c", but tei has no gate without maxInflight', warning)

    def test_observe_with_a_shared_engine(self) -> None:
        """The lever never makes a file unusable: models that it leaves out agree with all."""
        text = (
            "models:\n  a: {upstream: http://a, engine: vllm}\n"
            "  b: {upstream: http://a, engine: vllm}\n"
        )
        for value in ("a", "b", "", "a,b"):
            self.assertEqual(len(self.observe(value, text).models), 2)


class SharingTests(LoadingTestCase):
    """Names and engines that several models name."""

    def pair(self, first: str, second: str) -> str:
        return f"models:\n  a: {{{first}}}\n  b: {{{second}}}\n"

    def test_names(self) -> None:
        """A name or alias means one model; both places are named."""
        self.assertFaults(
            "models:\n  a: {upstream: http://a, aliases: [b, x, a]}\n"
            "  b: {upstream: http://b, aliases: [x]}\n",
            "f.yaml: line 2: models.a.aliases[0]: expected a name of its own: "
            '"b" is models.b (line 3)',
            "f.yaml: line 2: models.a.aliases[2]: expected a name of its own: "
            '"a" is models.a (line 2)',
            'f.yaml: line 3: models.b.aliases[0]: expected a name of its own: "x" is '
            "models.a.aliases[1] (line 2)",
        )

    def test_equal_admission(self) -> None:
        """Models of one engine may differ in four keys of admission, in no other."""
        vllm = "upstream: 'http://h:80', engine: vllm, admission: {maxInflight: 4"
        other = "upstream: 'http://H/x', engine: vllm, admission: {maxInflight: 4"
        self.load(self.pair(vllm + "}", other + "}"))
        self.load(
            self.pair(
                vllm + ", maxParkSeconds: 1, keepAliveSeconds: 2, retryAfterSeconds: 3, "
                "patienceSeconds: 4}",
                other + "}",
            )
        )
        for key in (
            *("kvThreshold: 0.5", "maxQueueDepth: 1", "pollSeconds: 1", "staleAfterPolls: 9"),
            *("whenStale: hold", "holdSeconds: 1", "parkedBytes: 1", "pollTimeoutSeconds: 1"),
            *("ordering: fifo", "longPrefillSeconds: 1", "parkedWorkSeconds: 1", "replicas: 2"),
            *("prefillTokensPerSecond: 525", "decodeTokensPerSecond: 25"),
        ):
            error = self.refused(self.pair(vllm + "}", f"{other}, {key}}}"))
            name, _, value = key.partition(": ")
            self.assertEqual(len(error.faults), 1)
            self.assertIn(f"f.yaml: line 3: models.b.admission.{name}: expected ", str(error))
            self.assertIn(f"as in models.a (line 2), not {value}: ", str(error))
            self.assertIn("they share the engine at http://h:80", str(error))

    def test_after_a_fault(self) -> None:
        """A model with a fault of its own is not compared: that may be all that it differs in."""
        vllm = "upstream: http://h, engine: vllm"
        good = f"{vllm}, admission: {{maxInflight: 3, kvThreshold: 0.5}}"
        for bad in (
            f"{vllm}, admission: {{maxInflight: 0, kvThreshold: 0.5}}",
            f"{vllm}, admission: {{maxInflght: 3, kvThreshold: 0.5}}",
            f"{vllm}, admission: 3",
            "upstream: http://h, engine: vlm, admission: {maxInflight: 3}",
            "upstream: http://h, engin: vllm, admission: {keepAliveSeconds: 3}",
            "upstreams: [http://h, 5], engine: vllm",
        ):
            for first, second in (bad, good), (good, bad):
                error = self.refused(self.pair(first, second))
                self.assertEqual(len(error.faults), 1, str(error))
                self.assertNotIn("share", str(error))
        error = self.refused(self.pair(f"{vllm}, admission: {{maxInflight: 4}}", good))
        self.assertEqual(len(error.faults), 2, str(error))

    def test_rates(self) -> None:
        """A rate that is named is another than the same one until it is learned."""
        vllm = "upstream: http://h, engine: vllm"
        error = self.refused(self.pair(f"{vllm}, admission: {{prefillTokensPerSecond: 525}}", vllm))
        self.assertIn(
            "models.b.admission.prefillTokensPerSecond: expected 525 as in models.a (line 2), "
            "not 525 until learned: ",
            str(error),
        )

    def test_replicas(self) -> None:
        """Replicas are the same in any order and spelling, and shown as the file has them."""
        vllm = "upstream: http://h, engine: vllm, admission: {replicas: "
        token = "peers: {token: 0123456789abcdef}\n"
        self.load(
            token + self.pair(f"{vllm}['A:1', '[::1]:2']}}", f"{vllm}['[0:0::1]:2', 'a:1']}}")
        )
        self.assertFaults(
            token + self.pair(f"{vllm}[b:1, a:1]}}", f"{vllm}dns:a:1}}"),
            "f.yaml: line 4: models.b.admission.replicas: expected a:1, b:1 as in models.a "
            "(line 3), not dns:a:1: they share the engine at http://h:80",
        )

    def test_maximum(self) -> None:
        """maxInflight is compared as it is in force; both lines are named."""
        text = (
            "models:\n  a:\n    upstream: http://h\n    engine: vllm\n"
            "  b:\n    upstream: http://h\n    engine: vllm\n    admission:\n      maxInflight: 4\n"
        )
        self.assertFaults(
            text,
            "f.yaml: line 9: models.b.admission.maxInflight: expected auto as in models.a "
            "(line 2), not 4: they share the engine at http://h:80",
        )
        self.load(text, {"VLLM_MAX_NUM_SEQS": "4"})

    def test_gated_or_not(self) -> None:
        """A gate that only one of the models makes is told so."""
        ollama = "upstream: http://h, engine: ollama"
        error = self.refused(self.pair(ollama, ollama + ", admission: {maxInflight: 2}"))
        self.assertIn("expected nothing as in models.a (line 2), not 2", str(error))

    def test_kind(self) -> None:
        """An engine is of one kind."""
        self.assertFaults(
            self.pair("upstream: http://h, engine: vllm", "upstream: http://h"),
            "f.yaml: line 3: models.b.engine: expected vllm as in models.a (line 2): they share "
            "the engine at http://h:80",
        )

    def test_overlapping_lists(self) -> None:
        """Lists of engines are equal or have nothing in common."""
        self.load(
            self.pair("upstreams: [http://x, http://y]", "upstreams: ['http://x:80', http://y/]")
        )
        self.load(self.pair("upstreams: [http://x, http://y]", "upstreams: [http://z]"))
        for second in (
            *(
                "upstream: http://y",
                "upstreams: [http://y, http://x]",
                "upstreams: [http://z, http://y]",
            ),
            "upstreams: [http://x, http://y, http://z]",
        ):
            error = self.refused(self.pair("upstreams: [http://x, http://y]", second))
            self.assertEqual(len(error.faults), 1)
            key = second.partition(":")[0]
            self.assertIn(f"f.yaml: line 3: models.b.{key}: expected the same engines", str(error))
            self.assertIn("models.a (line 2)", str(error))


class DescribeTests(LoadingTestCase):
    """The line that the log has at start for each model."""

    def test_sources(self) -> None:
        """Each value says where it comes from."""
        config = self.load(
            'models:\n  "a:b":\n    upstream: http://a\n    engine: vllm\n    admission:\n'
            "      kvThreshold: 0.5\n      pollSeconds: 4\n",
            {"VLLM_MAX_NUM_SEQS": "6"},
        )
        line = describe_admission(config, config.models["a:b"])
        for part in (
            *("engine=vllm (f.yaml line 4): observed, gated;", "maxInflight=6 (VLLM_MAX_NUM_SEQS)"),
            *("kvThreshold=0.5 (f.yaml line 6)", "pollTimeoutSeconds=8 (2 x pollSeconds)"),
            *("maxParkSeconds=540 (default)", "whenStale=open (default)"),
            *("ordering=cost (default)", "patienceSeconds=600 (default)"),
            *("longPrefillSeconds=15 (default)", "parkedWorkSeconds=900 (default)"),
            *("prefillTokensPerSecond=525 until learned (default)", "replicas=1 (default)"),
            "decodeTokensPerSecond=25 until learned (default)",
        ):
            self.assertIn(part, line)

    def test_named_rates_and_replicas(self) -> None:
        """What the file names of rates and replicas is said with its line, but no token."""
        config = self.load(
            "models:\n  m:\n    upstream: http://m\n    engine: vllm\n    admission:\n"
            "      prefillTokensPerSecond: 900\n      replicas: [b:1, a:1]\n"
            "peers: {token: hunter2-hunter2-hunter2}\n"
        )
        line = describe_admission(config, config.models["m"])
        self.assertIn("prefillTokensPerSecond=900 (f.yaml line 6)", line)
        self.assertIn("replicas=a:1, b:1 (f.yaml line 7)", line)
        self.assertNotIn("hunter2", line)

    def test_auto(self) -> None:
        """A maximum that is learned is called auto."""
        config = self.load(self.vllm(""))
        self.assertIn("maxInflight=auto (default)", describe_admission(config, config.models["m"]))

    def test_no_gate(self) -> None:
        """A model without gate says so, and who turned it off."""
        config = self.load(self.vllm("maxInflight: 4"), {"ADMISSION_OBSERVE_MODELS": ""})
        self.assertEqual(
            describe_admission(config, config.models["m"]),
            "engine=none (ADMISSION_OBSERVE_MODELS): not observed, no gate; "
            "keepAliveSeconds=15 (default)",
        )

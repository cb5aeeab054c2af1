from __future__ import annotations

import os
import string
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.config.loading import LoadingTestCase
from tests.support import examples
from twisted_gateway.config.faults import ConfigError, Fault
from twisted_gateway.config.load import load, load_file
from twisted_gateway.config.schema import Config, TenantSource, Timeouts

MODEL = "models: {m: {upstream: http://m}}\n"


class TopLevelTests(LoadingTestCase):
    """The keys beside the models, and the file as a whole."""

    def test_defaults(self) -> None:
        """A model with an upstream is enough; everything else has its default."""
        config = self.load(MODEL)
        self.assertEqual(
            (config.listen, config.admin_listen, config.max_body_bytes, config.drain_seconds),
            (("tcp:8080",), (), 1_048_576, 600.0),
        )
        model = config.models["m"]
        self.assertEqual(
            (model.upstreams, model.gated, model.observed), (("http://m",), False, False)
        )
        self.assertEqual(dict(model.paths), {"/v1/rerank": "/rerank"})
        self.assertEqual(model.timeouts, Timeouts())

    def test_values(self) -> None:
        """What the file gives goes where it belongs."""
        config = self.load(
            "listen: [tcp:1, 'tcp:2']\nadminListen: [tcp:3]\nmaxBodyBytes: 5\nmaxHeldBytes: 6\n"
            "maxConnections: 7\ndrainSeconds: 8\nreload: watch\n"
            "cors: {origins: ['*', 'https://A.example']}\n"
            "tenants: {trustedProxies: [10.1.0.0/16]}\n"
            "telemetry: {genAiMetrics: false, identifyClients: true}\n" + MODEL
        )
        self.assertEqual(config.listen, ("tcp:1", "tcp:2"))
        self.assertEqual(config.admin_listen, ("tcp:3",))
        self.assertEqual((config.max_body_bytes, config.max_held_bytes), (5, 6))
        self.assertEqual((config.max_connections, config.drain_seconds), (7, 8.0))
        self.assertEqual(config.reload, "watch")
        self.assertEqual(config.cors_origins, ("*", "https://a.example"))
        self.assertEqual([str(one) for one in config.trusted_proxies], ["10.1.0.0/16"])
        self.assertEqual((config.gen_ai_metrics, config.identify_clients), (False, True))
        self.assertEqual(config.sources["maxBodyBytes"], "f.yaml line 3")

    def test_no_models(self) -> None:
        """A file without models, or without anything, is told so by the name of the key."""
        for text in ("", "# nothing\n", "listen: [tcp:1]\n", "{}"):
            self.assertFaults(
                text, "f.yaml: line 1: models: expected at least one model, or adapters, or routes"
            )
        self.assertFaults(
            "\nmodels: {}\nadapters: {}\nroutes: []\n",
            "f.yaml: line 2: models: expected at least one model, or adapters, or routes",
        )
        adapters = "adapters: {memory: {upstream: http://m, requireAuth: false}}\n"
        self.assertEqual(list(self.load(f"models: {{}}\n{adapters}").adapters), ["memory"])
        self.assertFaults(
            "models:\n",
            "f.yaml: line 1: models: expected a mapping from names to models, not nothing",
        )

    def test_root(self) -> None:
        """The root is a mapping."""
        self.assertFaults("- a\n", "f.yaml: line 1: expected a mapping, not a list")
        self.assertFaults("a\n", "f.yaml: line 1: expected a mapping, not a single value")

    def test_unreadable(self) -> None:
        """What is no YAML is one fault with its line."""
        self.assertFaults(
            "a: 1\n\tb: 2\n", "f.yaml: line 2: expected spaces: YAML allows no tab here"
        )

    def test_all_faults_at_once(self) -> None:
        """Every fault is found, in the order of lines, those of the environment at the end."""
        error = self.refused(
            "maxBodyBytes: x\nmodels:\n  m: {upstream: nope}\n  n: {}\nlisten: []\ndrain: 5\n",
            {"MAX_BODY_BYTES": "-1"},
        )
        self.assertEqual(
            [(fault.line, fault.path) for fault in error.faults],
            [
                (1, "maxBodyBytes"),
                (3, "models.m.upstream"),
                (4, "models.n.upstream"),
                (5, "listen"),
                (6, "drain"),
                (None, "MAX_BODY_BYTES"),
            ],
        )
        self.assertEqual(len(str(error).splitlines()), 6)

    def test_unknown_keys(self) -> None:
        """An unknown key is told what it may have meant, or what there is."""
        self.assertFaults(
            MODEL + "max_body_bytes: 5\n",
            "f.yaml: line 2: max_body_bytes: unknown key, did you mean maxBodyBytes?",
        )
        self.assertFaults(
            MODEL + "cors: {zzz: 1}\n",
            "f.yaml: line 2: cors.zzz: unknown key, expected one of origins",
        )

    def test_tenants(self) -> None:
        """What says whom a request counts for is a list in an order, with a default."""
        source = TenantSource
        self.assertEqual(
            self.load(MODEL).tenants_from, (source.SUBJECT, source.HEADER, source.ADDRESS)
        )
        self.assertEqual(
            self.load(MODEL + "tenants: {from: [address, apiKey]}\n").tenants_from,
            (source.ADDRESS, source.API_KEY),
        )

    def test_bad_tenants(self) -> None:
        """The list is one, is not empty, and names each of the four sources once at most."""
        self.assertFaults(
            MODEL + "tenants:\n  from: [header, api_key,\n    header]\n",
            "f.yaml: line 3: tenants.from[1]: expected one of subject, apiKey, header, address, "
            "not api_key",
            "f.yaml: line 4: tenants.from[2]: expected each only once, and tenants.from[0] "
            "is the same",
        )
        self.assertFaults(
            MODEL + "tenants: {from: []}\n",
            "f.yaml: line 2: tenants.from: expected at least 1 in the list of sources",
        )
        self.assertFaults(
            MODEL + "tenants: {from: header}\n",
            "f.yaml: line 2: tenants.from: expected a list of sources, not a single value",
        )

    def test_duplicate_keys(self) -> None:
        """A key that stands twice is a fault that names both lines."""
        self.assertFaults(
            "reload: none\n" + MODEL + "reload: watch\n",
            "f.yaml: line 3: reload: expected once, and it is at line 1",
        )
        self.assertFaults(
            "models:\n  m: {upstream: http://m}\n  m: {upstream: http://n}\n",
            "f.yaml: line 3: models.m: expected once, and it is at line 2",
        )

    def test_merge_keys_tags_and_strange_keys(self) -> None:
        """Merge keys, tags and keys that are no names are refused one by one."""
        self.assertFaults(
            MODEL + "<<: {reload: none}\nreload: !!str none\n? [a]\n: b\nmaxConnections: !x 5\n",
            'f.yaml: line 2: "<<": expected no merge key: write the keys out',
            "f.yaml: line 3: reload: expected no YAML tag: put quotes round a string",
            "f.yaml: line 4: expected names as keys",
            "f.yaml: line 6: maxConnections: expected no YAML tag: put quotes round a string",
        )

    def test_aliases(self) -> None:
        """Anchors and aliases may share what models have in common."""
        config = self.load(
            "models:\n"
            "  a: {upstream: http://a, timeouts: &t {idleSeconds: 7}}\n"
            "  b: {upstream: http://b, timeouts: *t}\n"
        )
        self.assertEqual(config.models["b"].timeouts.idle_seconds, 7.0)

    def test_lists(self) -> None:
        """Lists are lists, long enough, without repetition; items have places of their own."""
        self.assertFaults(
            MODEL + "listen: tcp:1\n",
            "f.yaml: line 2: listen: expected a list of Twisted server endpoints, "
            "not a single value",
        )
        self.assertFaults(
            MODEL + "listen:\n - tcp:1\n - tcp:1\n - {}\n",
            "f.yaml: line 4: listen[1]: expected each only once, and listen[0] is the same",
            "f.yaml: line 5: listen[2]: expected a Twisted server endpoint such as tcp:8080, "
            "not a mapping",
        )

    def test_admin_listener_of_its_own(self) -> None:
        """The operations' listener is none of the clients', the default one included."""
        self.assertFaults(
            MODEL + "adminListen: [tcp:8080]\n",
            "f.yaml: line 2: adminListen[0]: expected another endpoint than those of listen",
        )

    def test_yaml_1_1_traps(self) -> None:
        """YAML 1.1's readings of plain scalars are faults or right values, never surprises."""
        for text in ("1_000", "0x10", "010", "1:30", "4.0", "true", "on", ".inf", "'5'", "1e3", ""):
            self.refused(MODEL + f"maxConnections: {text}\n")
        for text in (".inf", ".nan", "-.inf", "1e999", "010", "1:30", "0", "-1", "yes", "'5'", "~"):
            self.refused(MODEL + f"drainSeconds: {text}\n")
        for text, seconds in {"5": 5.0, "0.5": 0.5, ".5": 0.5, "1e2": 100.0, "+7.": 7.0}.items():
            self.assertEqual(self.load(MODEL + f"drainSeconds: {text}\n").drain_seconds, seconds)
        config = self.load("models: {no: {upstream: http://m, aliases: [on, 1_0, '12'], }}\n")
        self.assertEqual(config.models["no"].aliases, ("on", "1_0", "12"))
        for text in ("12", "true", "~", "1.5", "null", "0x1"):
            self.refused(f"models: {{m: {{upstream: http://m, upstreamModel: {text}}}}}\n")

    def test_numbers_say_what_was_found(self) -> None:
        """The fault of a number shows it, on one line and at bounded length."""
        self.assertFaults(
            MODEL + f'maxConnections: "{"9" * 500}"\ndrainSeconds: "a\\nb"\n',
            "f.yaml: line 2: maxConnections: expected a whole number from 1 to 1000000, "
            f'not the string "{"9" * 60}..."',
            "f.yaml: line 3: drainSeconds: expected a number, more than 0 and at most 604800, "
            'not the string "a\\nb"',
        )

    def test_references(self) -> None:
        """References work in strings, numbers, words and names, and cannot inject YAML."""
        config = self.load(
            'maxConnections: "${N}"\nreload: ${R:-watch}\nlisten: ["${L}"]\n'
            'models: {"${M}": {upstream: "${U}"}}\n',
            {"N": "5", "L": "tcp:9", "M": "x: {y}", "U": "http://u"},
        )
        self.assertEqual((config.max_connections, config.reload), (5, "watch"))
        self.assertEqual(config.listen, ("tcp:9",))
        self.assertEqual(config.models["x: {y}"].upstreams, ("http://u",))

    def test_bad_references(self) -> None:
        """An unset variable is named; one with the wrong value is shown as it is written."""
        self.assertFaults(
            MODEL + 'maxConnections: "${N}"\ndrainSeconds: "${D}"\n',
            "f.yaml: line 2: maxConnections: expected N in the environment, "
            "or a default: ${N:-...}",
            "f.yaml: line 3: drainSeconds: expected a number, more than 0 and at most 604800, "
            'not the string "${D}"',
            environ={"D": "hunter2"},
        )

    def test_body_limit_warning(self) -> None:
        """A body limit beyond what is ever held is odd, but no error."""
        config = self.load("maxHeldBytes: 10\n" + MODEL)
        self.assertEqual(len(config.warnings), 1)
        self.assertIn("m takes bodies of more than maxHeldBytes", config.warnings[0])
        upstream = "upstream: http://m, requireAuth: false"
        config = self.load(
            "maxHeldBytes: 10\nmaxBodyBytes: 10\n"
            f"routes: [{{path: /a, {upstream}, maxBodyBytes: 11}}]\n"
            f"adapters:\n  memory: {{{upstream}, maxBodyBytes: 11}}\n"
            f"  s3: {{{upstream}, accessKey: a, secretKey: b, maxBodyBytes: 11}}\n"
            "webhooks: {forgejo: {secret: x, maxBodyBytes: 11}}\n"
        )
        said = [line.partition(" takes bodies")[0] for line in config.warnings]
        self.assertEqual(said, ["adapters: memory", "routes: /a", "webhooks: forgejo"])


class RobustnessTests(LoadingTestCase):
    """No input gives a traceback."""

    PIECES = (
        *("models:", " a:", " upstream:", " http://h", "\n", "\n  ", "\n    ", " {", "}", "[", "]"),
        *(", ", "admission:", " maxInflight:", " auto", " 1", " 1e999", "engine: vllm", "listen:"),
        *("${A}", "${", "$$", "'", '"', "&x ", "*x", "!!int ", "<<: ", "? ", "- ", "---\n", "\t"),
        *("apiKey: {file: /x}", "aliases:", "tenants:", "\0", "\ud800", "#", "|\n", ".nan", "~"),
    )

    def outcome(self, text: str) -> None:
        try:
            config = self.load(text, {"A": "x\n- y"})
        except ConfigError as error:
            self.assertTrue(error.faults)
            lines = str(error).split("\n")
            self.assertEqual(len(lines), len(error.faults), "a fault is not one line")
            for line in lines:
                self.assertTrue(line.isprintable(), repr(line))
        else:
            self.assertIsInstance(config, Config)

    @examples(60)
    @given(st.text(max_size=60))
    def test_any_text(self, text: str) -> None:
        """Any text gives a configuration or faults of one line each."""
        self.outcome(text)

    @examples(60)
    @given(st.lists(st.sampled_from(PIECES), max_size=25))
    def test_any_pieces(self, pieces: list[str]) -> None:
        """So does any medley of what configurations are made of."""
        self.outcome("".join(pieces))

    @examples(60)
    @given(
        st.sampled_from(
            ["upstream", "engine", "apiKey", "paths", "admission", "timeouts", "aliases"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["file", "maxInflight", "x"]), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
    def test_any_value(self, key: str, value: object) -> None:
        """So does any value under a model's keys."""
        # A Python literal of such values is nearly always flow-style YAML.
        self.outcome(f"models: {{m: {{upstream: http://m, {key}: {value!r}}}}}\n")

    def test_long_names_are_cut(self) -> None:
        """A fault's path is bounded, whatever the file calls its keys."""
        error = self.refused(MODEL + f"? {'x' * 5000}\n: 1\n")
        self.assertLess(len(str(error)), 400)


class LoadFileTests(LoadingTestCase):
    """Reading files."""

    def write(self, content: bytes, name: str = "c.yaml") -> str:
        path = Path(self.mktemp())
        path.mkdir()
        (path / name).write_bytes(content)
        return str(path / name)

    def fault(self, path: str) -> Fault:
        error: ConfigError = self.assertRaises(ConfigError, load_file, path, {})
        (fault,) = error.faults
        self.assertEqual((fault.file, fault.line), (path, None))
        return fault

    def test_file(self) -> None:
        """A file is read, and the names of its faults are its path."""
        path = self.write(MODEL.encode())
        self.assertEqual(list(load_file(path, {}).models), ["m"])
        self.assertEqual(list(load_file(Path(path), {}).models), ["m"])

    def test_byte_order_mark(self) -> None:
        """A byte order mark does no harm."""
        self.assertEqual(
            list(load_file(self.write(b"\xef\xbb\xbf" + MODEL.encode()), {}).models), ["m"]
        )

    def test_absent(self) -> None:
        """An absent file or a directory is a fault with the system's reason."""
        path = self.mktemp()
        self.assertIn("No such file", self.fault(path).expected)
        os.mkdir(path)
        self.assertIn("directory", self.fault(path).expected)

    def test_no_path(self) -> None:
        """A path with a NUL is a fault too."""
        self.fault("a\0b")

    def test_not_utf8(self) -> None:
        """What is not UTF-8 is told at which line."""
        self.assertIn("line 2", self.fault(self.write(b"a: 1\nb: \xff\n")).expected)

    def test_too_large(self) -> None:
        """A file that is too large is not read to its end."""
        self.assertIn("at most", self.fault(self.write(b"#" * 600_000)).expected)

    def test_relative_secret(self) -> None:
        """A secret's file with a relative path lies beside the configuration."""
        path = self.write(b"models: {m: {upstream: http://m, apiKey: {file: key}}}\n")
        (Path(path).parent / "key").write_text("sk-1\n")
        key = load_file(path, {}).models["m"].api_key
        assert key is not None
        self.assertEqual(key.value, "sk-1")

    def test_large_or_binary_secret(self) -> None:
        """A secret's file is bounded and is text; its content is not shown."""
        path = self.write(b"models: {m: {upstream: http://m, apiKey: {file: key}}}\n")
        for content in (b"hunter2" * 20_000, b"hunter2\xff"):
            (Path(path).parent / "key").write_bytes(content)
            error = self.assertRaises(ConfigError, load_file, path, {})
            self.assertIn("line 1: models.m.apiKey.file: expected a readable text file", str(error))
            self.assertNotIn("hunter2", str(error))


class SecretTests(LoadingTestCase):
    """Credentials."""

    def key(self, text: str, environ: dict[str, str] | None = None) -> str | None:
        key = self.load(self.model(f"apiKey: {text}"), environ).models["m"].api_key
        return None if key is None else key.value

    def test_forms(self) -> None:
        """A secret is a string, a reference or a file."""
        self.files = {"/secrets/m": "sk-2\n"}
        self.assertEqual(self.key("sk-1"), "sk-1")
        self.assertEqual(self.key("'${K}'", {"K": "sk-3"}), "sk-3")
        self.assertEqual(self.key("{file: /secrets/m}"), "sk-2")
        self.assertEqual(self.key("{file: '${D}/m'}", {"D": "/secrets"}), "sk-2")

    def test_empty_is_absent(self) -> None:
        """A secret that comes out empty is none; an empty file is worth a warning."""
        self.assertIsNone(self.key("'${K:-}'"))
        self.assertIsNone(self.key("''"))
        self.files = {"/empty": "\n"}
        config = self.load(self.model("apiKey: {file: /empty}"))
        self.assertIsNone(config.models["m"].api_key)
        self.assertEqual(
            config.warnings, ("models.m.apiKey: the file is empty, which counts as no secret",)
        )

    def test_faults_show_no_secret(self) -> None:
        """No fault repeats a secret, whatever is wrong with it."""
        self.files = {"/bad": "hunter2 hunter2"}
        for text in (
            *("'hunter2 x'", "[hunter2]", "{fil: hunter2}", "{file: [hunter2]}", "'${K}'", "5555"),
            *("{file: /bad}", "{file: /none}", "{file: ''}", "{}", "~", "true"),
        ):
            error = self.refused(self.model(f"apiKey: {text}"), {"K": "hunter2\nhunter2"})
            self.assertIn("models.m.apiKey", str(error))
            self.assertNotIn("hunter2", str(error))
            self.assertNotIn("5555", str(error))

    def test_one_fault_is_one_line(self) -> None:
        """What follows from a fault is not said beside it, of a secret, or of a required key."""
        self.files = {"/k": "key"}
        key = "accessKey: k, secretKey: "
        good = "{upstream: 'http://s', accessKey: k, secretKey: k, requireAuth: false}"
        routes = f"adapters: {{s3: {good}}}\nroutes:"
        for text, path in (
            (self.model("apiKey: {env: X}"), "models.m.apiKey.env"),
            (self.model("apiKey: {file: }"), "models.m.apiKey.file"),
            (self.model("apiKey: {file: /none}"), "models.m.apiKey.file"),
            (self.model("apiKey: {}"), "models.m.apiKey"),
            (self.model("apiKey: {file: /k, env: X}"), "models.m.apiKey.env"),
            ("models: {m: {upstraem: http://m}}", "models.m.upstraem"),
            *(
                (f"adapters: {{s3: {{upstream: http://s, requireAuth: false, {keys}}}}}", path)
                for keys, path in (
                    (key + "{file: /none}", "adapters.s3.secretKey.file"),
                    (key + "{fil: /k}", "adapters.s3.secretKey.fil"),
                    ("accessKey: k, secretkey: k", "adapters.s3.secretkey"),
                    ("accessKey: k", "adapters.s3.secretKey"),
                )
            ),
            (
                f"{routes} [{{paht: /x, adapter: s3, requireAuth: false}}]",
                "routes[0].paht",
            ),
            (
                f"{routes} [{{path: /x, adaptr: s3, requireAuth: false}}]",
                "routes[0].adaptr",
            ),
            (
                "adapters: {s3: 3}\nroutes: [{path: /x, adapter: s3, requireAuth: false}]",
                "adapters.s3",
            ),
            (self.model("requireAuth: true") + "auth: 3", "auth"),
            (
                self.model("requireAuth: true")
                + "auth: {isuer: i, audience: a, jwksUrl: 'http://j'}",
                "auth.isuer",
            ),
            (
                "adapters: {s3: 3}\nauth: {issuer: i, audience: a, jwksUrl: 'http://j', "
                "requireScopes: {s3: [a]}}",
                "adapters.s3",
            ),
        ):
            error = self.refused(text)
            self.assertEqual([fault.path for fault in error.faults], [path], text)

    def test_unreadable_file(self) -> None:
        """A file that cannot be read is a fault with the line of its path."""
        self.assertFaults(
            "models:\n  m:\n    upstream: http://m\n    apiKey:\n      file: /none\n",
            "f.yaml: line 5: models.m.apiKey.file: expected a readable text file "
            "(No such file or directory)",
        )

    def test_repr(self) -> None:
        """The configuration's repr does not show it."""
        config = load(
            self.model("apiKey: hunter2"), name="f", environ={}, read_file=lambda path: ""
        )
        self.assertNotIn("hunter2", repr(config))

    @examples(30)
    @given(st.text(string.printable, max_size=20))
    def test_any_secret(self, text: str) -> None:
        """Any file's content is a credential of visible ASCII, nothing, or a fault."""
        self.files = {"/any": text}
        try:
            key = self.key("{file: /any}")
        except ConfigError:
            return
        self.assertEqual(key, text.rstrip("\r\n") or None)

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.loading import LoadingTestCase
from tests.support import examples
from twisted_gateway.config.faults import ConfigError
from twisted_gateway.config.jsonschema import json_schema

ROOT = Path(__file__).parent.parent.parent
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Judge a value by the words of JSON Schema that json_schema() uses."""
    return all(RULES[word](schema, value) for word in schema if word in RULES)


def _type(schema: dict[str, Any], value: Any) -> bool:
    # To Python a flag is a number, to JSON it is not.
    return isinstance(value, TYPES[schema["type"]]) and (
        schema["type"] == "boolean" or not isinstance(value, bool)
    )


def _properties(schema: dict[str, Any], value: Any) -> bool:
    known = schema.get("properties", {})
    rest = schema["additionalProperties"]
    names = schema.get("propertyNames", {})
    return all(
        accepts(known[key], one)
        if key in known
        else rest is not False and accepts(rest, one) and accepts(names, key)
        for key, one in (value.items() if isinstance(value, dict) else ())
    )


RULES: dict[str, Callable[[dict[str, Any], Any], bool]] = {
    "type": _type,
    "additionalProperties": _properties,
    "properties": lambda schema, value: (
        "additionalProperties" in schema
        or _properties({**schema, "additionalProperties": {}}, value)
    ),
    "required": lambda schema, value: all(key in value for key in schema["required"]),
    "anyOf": lambda schema, value: any(accepts(one, value) for one in schema["anyOf"]),
    "oneOf": lambda schema, value: sum(accepts(one, value) for one in schema["oneOf"]) == 1,
    "enum": lambda schema, value: value in schema["enum"],
    "minimum": lambda schema, value: _is(value, float) or value >= schema["minimum"],
    "exclusiveMinimum": lambda schema, value: (
        _is(value, float) or value > schema["exclusiveMinimum"]
    ),
    "maximum": lambda schema, value: _is(value, float) or value <= schema["maximum"],
    "minItems": lambda schema, value: _is(value, list) or len(value) >= schema["minItems"],
    "maxItems": lambda schema, value: _is(value, list) or len(value) <= schema["maxItems"],
    "minProperties": lambda schema, value: (
        _is(value, dict) or len(value) >= schema["minProperties"]
    ),
    "items": lambda schema, value: (
        _is(value, list) or all(accepts(schema["items"], one) for one in value)
    ),
    "pattern": lambda schema, value: _is(value, str) or bool(re.search(schema["pattern"], value)),
}


def _is(value: Any, kind: type) -> bool:
    """Say whether a rule does not apply, for the value is of another kind."""
    return not isinstance(value, (int, float) if kind is float else kind)


VALUES: dict[str, list[Any]] = {
    "listen": [["tcp:1"], [], "tcp:1", [5]],
    "adminListen": [[], ["tcp:9"], {}],
    "maxBodyBytes": [1, 0, 1.5, "5", "${N:-7}", None, True],
    "drainSeconds": [1, 0.5, 0, -1, "x", 1e9],
    "reload": ["none", "watch", "on", 1],
    "cors": [{}, {"origins": ["*"]}, {"origin": []}, []],
    "tenants": [{}, {"from": ["header"]}, {"from": []}, {"from": ["api_key"]}, {"from": "header"}],
    "peers": [
        *({}, {"listen": "tcp:9"}, {"listen": ["tcp:9"]}, {"listen": 9}, {"tokens": "x" * 16}),
        *({"token": "x" * 16}, {"token": {"file": "/k16"}}, {"token": {}}, {"token": ""}),
    ],
    "unknown": [1],
}
MODEL_VALUES: dict[str, list[Any]] = {
    "upstream": ["http://m", "${U:-https://m}", "m:80", 5, ["http://m"]],
    "upstreams": [["http://m", "http://n"], [], "http://m"],
    "engine": ["vllm", "none", "vlm", None],
    "aliases": [["a"], [], "a"],
    "apiKey": ["k", {"file": "/k"}, {}, {"path": "/k"}, 5],
    "paths": [{}, {"/v1/score": "/score"}, {"v1": "/x"}, {"/v1/x": "y"}],
    "timeouts": [{}, {"idleSeconds": 5}, {"idleSeconds": "5"}, {"idle": 5}],
    "admission": [{}, {"maxInflight": 4}, {"maxInflight": "auto"}, {"maxInflight": 0}, {"x": 1}],
}


REPLICAS: list[Any] = [
    *(1, 64, 0, -1, 65, 1.5, True, None, "3", "${N:-3}", "dns:a:1", "dns:a", "dns:a:0", "a:1"),
    *(["a:1"], ["a:1", "[::1]:2"], [], ["a"], ["a:0"], ["a:b"], [1], {}),
    [f"a:{port}" for port in range(1, 65)],
    [f"a:{port}" for port in range(1, 66)],
]


def documents() -> st.SearchStrategy[dict[str, Any]]:
    """Give documents of one model that are right or wrong in a few places."""
    model = st.fixed_dictionaries(
        {}, optional={key: st.sampled_from(values) for key, values in MODEL_VALUES.items()}
    )
    return st.builds(
        lambda top, model: {**top, "models": {"m": model}},
        st.fixed_dictionaries(
            {}, optional={key: st.sampled_from(values) for key, values in VALUES.items()}
        ),
        model,
    )


class JSONSchemaTests(LoadingTestCase):
    """The JSON Schema, judged by agreement with the loader."""

    def loads(self, document: dict[str, Any]) -> bool:
        self.files = {"/k": "k", "/k16": "k" * 16}
        try:
            # JSON is YAML, and its strings are in quotes.
            self.load(json.dumps(document))
        except ConfigError:
            return False
        return True

    @examples(50)
    @given(documents())
    def test_what_loads_is_valid(self, document: dict[str, Any]) -> None:
        """What the loader takes, the schema takes."""
        if self.loads(document):
            self.assertTrue(accepts(json_schema(), document), document)

    def test_single_values(self) -> None:
        """On each value alone the two agree, both ways."""
        schema = json_schema()
        for key, values in VALUES.items():
            for value in values:
                document = {"models": {"m": {"upstream": "http://m"}}, key: value}
                self.assertEqual(accepts(schema, document), self.loads(document), document)
        for key, values in MODEL_VALUES.items():
            for value in values:
                model: dict[str, Any] = {"upstream": "http://m", "engine": "vllm", key: value}
                if key == "upstreams":
                    del model["upstream"]
                document = {"models": {"m": model}}
                self.assertEqual(accepts(schema, document), self.loads(document), document)

    def test_replicas(self) -> None:
        """So they do on each form of `replicas`."""
        for value in REPLICAS:
            model = {"upstream": "http://m", "engine": "vllm", "admission": {"replicas": value}}
            document = {"models": {"m": model}, "peers": {"token": "x" * 16}}
            self.assertEqual(accepts(json_schema(), document), self.loads(document), value)

    def test_whole_documents(self) -> None:
        """Something is to be served, each model by upstream or upstreams, and nothing unknown."""
        memory = {"memory": {"upstream": "http://m", "requireAuth": False}}
        route = {"path": "/a", "upstream": "http://a", "requireAuth": False}
        for document, valid in (
            ({}, False),
            ({"models": {}}, False),
            ({"models": {}, "adapters": {}, "routes": []}, False),
            ({"models": {}, "adapters": memory}, True),
            ({"routes": [route]}, True),
            ({"models": {"m": {}}}, False),
            ({"models": {"m": {"upstream": "http://m", "upstreams": ["http://n"]}}}, False),
            ({"models": {"m": {"upstreams": ["http://n"]}}}, True),
        ):
            assert isinstance(document, dict)
            self.assertEqual(accepts(json_schema(), document), valid, document)
            self.assertEqual(self.loads(document), valid, document)

    def test_descriptions_and_defaults(self) -> None:
        """Every key is described; every default that is no computed one is stated and valid."""
        for path, schema in _keys(json_schema()):
            self.assertTrue(schema.get("description"), path)
            if "default" in schema:
                self.assertTrue(accepts(schema, schema["default"]), path)
        keys = dict(_keys(json_schema()))
        self.assertEqual(keys["listen"]["default"], ["tcp:8080"])
        self.assertEqual(keys["models.*.admission.maxInflight"]["default"], "auto")
        self.assertEqual(keys["models.*.timeouts.idleSeconds"]["default"], 300)
        self.assertEqual(keys["models.*.engine"]["default"], "none")
        self.assertEqual(keys["cors.origins"]["default"], [])
        self.assertEqual(keys["tenants.from"]["default"], ["subject", "header", "address"])
        self.assertEqual(keys["peers.listen"]["default"], "tcp:8081")
        self.assertEqual(keys["models.*.admission.replicas"]["default"], 1)
        self.assertEqual(keys["models.*.admission.ordering"]["default"], "cost")
        self.assertNotIn("default", keys["models.*.admission.prefillTokensPerSecond"])
        self.assertNotIn("default", keys["models.*.admission.pollTimeoutSeconds"])
        self.assertIn("VLLM_MAX_NUM_SEQS", keys["models.*.admission.maxInflight"]["description"])

    def test_it_is_json(self) -> None:
        """It goes through JSON unchanged and names its draft."""
        schema = json_schema()
        self.assertEqual(json.loads(json.dumps(schema)), schema)
        self.assertIn("2020-12", schema["$schema"])


class ExampleTests(LoadingTestCase):
    """The configurations that stand in the repository."""

    def read(self, name: str) -> str:
        return (ROOT / name).read_text(encoding="utf-8")

    def whole(self) -> str:
        """config.yaml, with the part that wants an extra installed."""
        return re.sub(r"(?m)^#(?=  )", "", self.read("config.yaml"))

    def test_without_extras(self) -> None:
        """What stands in config.yaml without a mark wants nothing but the package itself."""
        self.assertNotIn("workflow", self.load(self.read("config.yaml")).adapters)
        self.assertIn("workflow", self.load(self.whole()).adapters)
        self.assertTrue(accepts(json_schema(), yaml.safe_load(self.whole())))

    def test_they_load(self) -> None:
        """Both load without any environment and without warnings, and the schema takes them."""
        for name in ("config.yaml", "config.local.yaml"):
            text = self.read(name)
            self.assertEqual(self.load(text).warnings, ())
            self.assertTrue(accepts(json_schema(), yaml.safe_load(text)), name)

    def test_every_key_is_shown(self) -> None:
        """config.yaml has every key of the schema, at its place."""
        tree = yaml.safe_load(self.whole())
        shown = set(_shown(tree))
        # The one key that is only told of: no such file need exist.
        self.assertIn("{file: ", self.read("config.yaml"))
        self.assertEqual({path for path, _ in _keys(json_schema())} - shown, set())

    def test_local_engines(self) -> None:
        """config.local.yaml has an Ollama and a vLLM on this machine, both gated."""
        models = self.load(self.read("config.local.yaml")).models.values()
        self.assertEqual(
            {model.upstreams for model in models},
            {("http://127.0.0.1:11434",), ("http://127.0.0.1:8000",)},
        )
        self.assertTrue(all(model.gated for model in models))


def _keys(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every key of a schema by its path, `*` for names that the operator chooses."""
    for name, one in schema.get("properties", {}).items():
        yield path + name, one
        yield from _keys(one, f"{path}{name}.")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _keys(schema["additionalProperties"], path + "*.")


def _shown(tree: object, path: str = "") -> Iterator[str]:
    for name, one in tree.items() if isinstance(tree, dict) else ():
        yield path + name
        yield from _shown(one, f"{path}{'*' if path == 'models.' else name}.")

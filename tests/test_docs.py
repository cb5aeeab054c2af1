from __future__ import annotations

import ast
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from docs import make_configuration
from tests.support import TestCase
from twisted_gateway.auth.keys import read_keys
from twisted_gateway.auth.token import Rules, check, parse
from twisted_gateway.config.admission_keys import ADMISSION
from twisted_gateway.config.environment import OBSERVE_MODELS
from twisted_gateway.config.jsonschema import json_schema
from twisted_gateway.config.keys import ROOT
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import EngineKind
from twisted_gateway.core.decision import Reason
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.engines.kinds import KINDS
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.telemetry.states import ModelState

TOP = Path(__file__).parent.parent
PACKAGE = TOP / "twisted_gateway"
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]

# Where a problem's kind is not written out: the gate's reasons, and a helper's argument.
INDIRECT = {("web/refusal.py", "reason.value"), ("web/call.py", "kind")}
# Put together from parts in web/patience.py.
BUILT_REASONS = {"idle_timeout"}


def read(name: str) -> str:
    """The text of a page."""
    return (TOP / name).read_text(encoding="utf-8")


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(text: str) -> set[str]:
    """What stands between single backquotes."""
    return set(re.findall(r"`([^`\n]+)`", text))


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the package that makes a problem, with its module."""
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Problem" | "_bad_request"), args=[_, *_]):
                    yield module.relative_to(PACKAGE).as_posix(), node


def kinds() -> dict[str, set[int]]:
    """Every kind of problem in the package's source, with its statuses."""
    found: dict[str, set[int]] = defaultdict(set)
    for module, call in calls():
        kind = call.args[0]
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            status: Any = 400 if ast.unparse(call.func) == "_bad_request" else call.args[1]
            found[kind.value].add(status if isinstance(status, int) else status.value)
        elif (module, ast.unparse(kind)) not in INDIRECT:
            raise AssertionError(f"{module}: what kinds of problem can {ast.unparse(kind)} be?")
    for reason in Reason:
        found[reason.value].add(503)
    return found


def words(value: ast.AST) -> Iterator[str]:
    """The words that an expression may come to."""
    if isinstance(value, ast.IfExp):
        yield from words(value.body)
        yield from words(value.orelse)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def reasons() -> set[str]:
    """Every `reason` that the package's source puts into a problem or a frame."""
    found = {reason.value for reason in Reason} | BUILT_REASONS
    for module in (PACKAGE / "web").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "reason":
                        found |= set(words(value))
    return found


def metric_names() -> set[str]:
    """Every metric that a gateway with a model has."""
    metrics = Metrics(CollectorRegistry())
    metrics.configure(["a"], ["a"], gen_ai=True)
    metrics.states = lambda: {"a": ModelState()}
    exposition = metrics.render(None)[0].decode()
    return set(re.findall(r"^# TYPE (\w+) ", exposition, re.MULTILINE))


class ProblemsTests(TestCase):
    """docs/problems.md has every problem that the gateway makes."""

    def test_kinds(self) -> None:
        """Every kind in the source is in the table with its statuses, and no other is."""
        table: dict[str, set[int]] = defaultdict(set)
        for row in rows(read("docs/problems.md")):
            if len(row) == 5 and row[0] != "kind":
                table[row[0].strip("`")] |= {int(status) for status in row[1].split(",")}
        self.assertEqual(dict(table), dict(kinds()))

    def test_reasons(self) -> None:
        """Every reason in the source has its row, and no other has."""
        cells = set()
        for row in rows(read("docs/problems.md")):
            if len(row) == 5:
                cells.add(row[2])
            elif row[0] in ("`upstream_status`", "`upstream_not_a_stream`"):
                cells.add(row[0])
        self.assertEqual({one.strip("`") for one in cells if one} - {"reason"}, reasons())

    def test_outcomes(self) -> None:
        """Every outcome has its row."""
        cells = {row[0].strip("`") for row in rows(read("docs/problems.md")) if len(row) == 2}
        self.assertLessEqual({outcome.value for outcome in Outcome}, cells)


class TokensTests(TestCase):
    """docs/tokens.md shows how a token is made without a provider."""

    def test_the_token_is_good(self) -> None:
        """What its program makes passes by the keys and the configuration that it shows; run again
        it makes a key that the gateway has to ask for."""
        page = read("docs/tokens.md")
        program = re.search(r"<<'END'\n(.*?)\nEND\n", page, re.DOTALL)
        auth = re.search(r"^auth: .*jwksUrl.*$", page, re.MULTILINE)
        assert program is not None
        assert auth is not None
        there = Path(self.mktemp())
        (there / "jwks").mkdir(parents=True)
        text = re.sub(r'Path\("', f'Path("{there.absolute()}/', program[1])
        config = load(
            f"models: {{m: {{upstream: 'http://m'}}}}\n{auth[0]}\n",
            name="tokens.md",
            environ={},
            read_file=str,
        )
        assert config.auth is not None
        rules = Rules(
            config.auth.issuer,
            config.auth.audience,
            frozenset(config.auth.algorithms),
            config.auth.leeway_seconds,
        )
        names = set()
        for _ in range(2):
            exec(compile(text, "docs/tokens.md", "exec"), {})
            token = parse((there / "token").read_text("ascii"), rules)
            key = read_keys((there / "jwks" / "jwks.json").read_bytes()).find(
                token.key_name, token.algorithm
            )
            assert key is not None
            self.assertEqual(check(token, key, rules, time.time()).subject, "me")
            names.add(token.key_name)
        # The gateway asks for the keys again only because of a name that it does not know.
        self.assertEqual(len(names), 2)

    def test_what_is_started_is_ended(self) -> None:
        """The configuration has a file's name, by which the gateway starts, and all has an end."""
        page = read("docs/tokens.md").partition("## Trying it")[2]
        (name,) = re.findall(r"^Put this into `(.*)`:$", page, re.MULTILINE)
        self.assertIn(f"\ntwistd -n llm-gateway --config {name}\n", page)
        started = re.findall(r"& (\w+)=\$!$", page, re.MULTILINE)
        self.assertEqual(len(re.findall(r" &(?!&)", page)), len(started))
        self.assertIn(f"`kill {' '.join(f'${one}' for one in started)}`", page)


class ConfigurationTests(TestCase):
    """docs/configuration.md and the files that README.md shows."""

    def test_tables_are_current(self) -> None:
        """The tables are those of the schema; `python docs/make_configuration.py` makes them."""
        text = read("docs/configuration.md")
        self.assertEqual(text, make_configuration.rewritten(text))

    def test_every_mapping_has_its_table(self) -> None:
        """No mapping of the file is left out, but that of a secret's file."""
        described = make_configuration.described(read("docs/configuration.md"))
        self.assertEqual(described, make_configuration.mappings(json_schema()))

    def test_a_cell_says_each_kind_once(self) -> None:
        """What two kinds have in common is not said twice."""
        for row in rows(read("docs/configuration.md")):
            kinds = row[1].split(" or ")
            self.assertEqual(len(kinds), len(set(kinds)), row)

    def test_a_new_key_shows(self) -> None:
        """A key that the schema has and a table has not makes the page differ."""
        text = read("docs/configuration.md")
        gone = re.sub(r"\| `holdSeconds` .*\n", "", text)
        self.assertNotEqual(gone, text)
        self.assertEqual(make_configuration.rewritten(gone), text)

    def test_examples_load(self) -> None:
        """Every YAML example that has models is a configuration that loads without a warning."""
        found = 0
        for page in PAGES:
            for block in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
                if "models" in (yaml.safe_load(block) or {}):
                    config = load(block, name=page.name, environ={}, read_file=str)
                    self.assertEqual(config.warnings, ())
                    found += 1
        self.assertGreaterEqual(found, 3)


class ReadmeTests(TestCase):
    """README.md and docs/ speak of what there is."""

    def test_variables(self) -> None:
        """Every environment variable that stands for a key is in README.md."""
        named = code(read("README.md"))
        keys = [*ROOT.keys, *ADMISSION.keys]
        for name in [OBSERVE_MODELS, *(name for key in keys for name in key.environment)]:
            self.assertIn(name, {one.partition("=")[0] for one in named})

    def test_metrics(self) -> None:
        """Every metric that README.md names is one that the gateway has."""
        known = metric_names()
        section = read("README.md").partition("\n## Metrics")[2].partition("\n## ")[0]
        named = [row[0] for row in rows(section) if row[0].startswith("`")]
        self.assertGreater(len(named), 5)
        for name in set().union(*map(code, named)):
            self.assertIn(name, known)

    def test_engines(self) -> None:
        """docs/engines.md has a row for every kind, and names every gauge that is read."""
        text = read("docs/engines.md")
        first = {row[0].strip("`") for row in rows(text)}
        self.assertLessEqual({kind.value for kind in EngineKind}, first)
        for gauges in KINDS.values():
            single = (gauges.running, gauges.waiting, gauges.hits, gauges.size, *gauges.usage)
            for name in filter(None, single):
                self.assertIn(name, code(text))

    def test_links(self) -> None:
        """Every relative link and picture leads to a file that is there."""
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

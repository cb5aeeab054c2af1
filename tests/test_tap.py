"""Tests of the command line: what ends the process before the reactor runs, and what is said."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from tests.support import TestCase
from twisted_gateway.tap import Options, makeService

GOOD = "models: {a: {upstream: 'http://127.0.0.1:1', apiKey: sesame}}\n"
BAD = """\
models:
  a: {upstream: 4, engine: vlm}
  b: {upstrem: http://x}
"""


class CommandLine(TestCase):
    """`twistd llm-gateway ...`."""

    def setUp(self) -> None:
        """Catch what is printed, and know the environment."""
        super().setUp()
        self.out, self.err = io.StringIO(), io.StringIO()
        self.patch(sys, "__stdout__", self.out)
        self.patch(sys, "__stderr__", self.err)
        self.patch(os, "environ", {})
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _exits(self, *arguments: str) -> object:
        options = Options()
        with self.assertRaises(SystemExit) as caught:
            options.parseOptions(list(arguments))
            makeService(options)
        return caught.exception.code

    def test_the_plugin_is_found(self) -> None:
        """twistd lists llm-gateway."""
        names = [plugin.tapname for plugin in getPlugins(IServiceMaker)]
        self.assertIn("llm-gateway", names)

    def test_check_prints_what_is_in_force(self) -> None:
        """As YAML, secrets as ***, exit 0."""
        self.path.write_text(GOOD)
        self.assertEqual(self._exits("--check", "--config", str(self.path)), 0)
        self.assertIn("upstream: http://127.0.0.1:1", self.out.getvalue())
        self.assertIn("***", self.out.getvalue())
        self.assertNotIn("sesame", self.out.getvalue() + self.err.getvalue())

    def test_every_fault_is_printed(self) -> None:
        """FILE: line N: KEY.PATH: what was expected; exit 1; with --check and without."""
        self.path.write_text(BAD)
        for arguments in (["--check"], []):
            self.assertEqual(self._exits("--config", str(self.path), *arguments), 1)
        lines = self.err.getvalue().splitlines()
        self.assertEqual(lines[: len(lines) // 2], lines[len(lines) // 2 :])
        self.assertIn(f"{self.path}: line 2: models.a.engine: expected one of vllm", lines[1])
        self.assertIn(f"{self.path}: line 3: models.b.upstrem: unknown key", self.err.getvalue())

    def test_no_file(self) -> None:
        """One line that names --config and --demo; exit 1."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.path.parent)
        self.assertEqual(self._exits(), 1)
        self.assertEqual(len(self.err.getvalue().splitlines()), 1)
        self.assertIn("config.yaml", self.err.getvalue())
        self.assertIn("--demo", self.err.getvalue())

    def test_the_environment_names_the_file_and_the_listeners(self) -> None:
        """GATEWAY_CONFIG and GATEWAY_LISTEN; options win."""
        self.path.write_text(GOOD)
        os.environ["GATEWAY_CONFIG"] = str(self.path)
        os.environ["GATEWAY_LISTEN"] = "tcp:1 tcp:2"
        self.assertEqual(self._exits("--check"), 0)
        self.assertIn("- tcp:1\n- tcp:2\n", self.out.getvalue())
        self.assertEqual(self._exits("--check", "-l", "tcp:3", "--listen", "tcp:4"), 0)
        self.assertIn("- tcp:3\n- tcp:4\n", self.out.getvalue())

    def test_schema(self) -> None:
        """JSON Schema on standard output, exit 0."""
        self.assertEqual(self._exits("--schema"), 0)
        self.assertIn("models", json.loads(self.out.getvalue())["properties"])

    def test_demo_speed(self) -> None:
        """A number above 0."""
        for text in ("x", "0", "-1", "nan", "inf", "1e9"):
            with self.assertRaises(UsageError):
                Options().parseOptions(["--demo", "--demo-speed", text])
        Options().parseOptions(["--demo", "--demo-speed", "20"])

"""A test case that loads texts."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from tests.support import TestCase
from twisted_gateway.config.faults import ConfigError
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import Config


class LoadingTestCase(TestCase):
    """Loads texts called `f.yaml`; `self.files` are the secrets' files."""

    def setUp(self) -> None:
        super().setUp()
        self.files: dict[str, str] = {}

    def read_file(self, path: str) -> str:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.files[path]

    def load(
        self,
        text: str,
        environ: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Config:
        return load(
            text,
            name="f.yaml",
            environ=environ or {},
            read_file=self.read_file,
            options=options,
        )

    def refused(
        self,
        text: str,
        environ: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> ConfigError:
        try:
            config = self.load(text, environ, options)
        except ConfigError as error:
            return error
        self.fail(f"loaded: {config!r}")
        raise AssertionError

    def assertFaults(
        self, text: str, *faults: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.assertEqual(str(self.refused(text, environ)).splitlines(), list(faults))

    def model(self, keys: str) -> str:
        """Give a file with one model, `m`, that has these keys."""
        return f"models: {{m: {{upstream: http://m, {keys}}}}}\n"

    def vllm(self, admission: str) -> str:
        """Give a file with one vLLM model, `m`, that has these keys of `admission`."""
        return self.model(f"engine: vllm, admission: {{{admission}}}")

"""The JSON Schema of the configuration, for editors and for `--schema`."""

from __future__ import annotations

from typing import Any

from twisted_gateway.config.keys import ROOT


def json_schema() -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of the file, with descriptions and defaults.

    What it cannot say (one gate per engine address, names used once) only loading checks.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of twisted-gateway",
        **ROOT.schema(),
    }

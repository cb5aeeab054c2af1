"""Bring the tables of docs/configuration.md up to date with the keys that the gateway takes.

    python docs/make_configuration.py

Each table stands between `<!-- keys: PATH -->` and `<!-- end -->`, where PATH names a mapping of
the file; `*` stands for any name in it. What is in a table comes from the JSON Schema, so what is
wrong in it is put right in `twisted_gateway/config/keys.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted_gateway.config.jsonschema import json_schema

PAGE = Path(__file__).parent / "configuration.md"
_TABLE = re.compile(r"(<!-- keys: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Schema = Mapping[str, Any]


def rewritten(text: str) -> str:
    """Give the page with its tables made anew.

    Raises:
        KeyError: a table is of a mapping that there is not.
    """
    root = json_schema()
    return _TABLE.sub(lambda found: found[1] + table(at(root, found[2])) + found[3], text)


def described(text: str) -> list[str]:
    """Name the mappings that the page has tables of."""
    return [found[2] for found in _TABLE.finditer(text)]


def mappings(schema: Schema, path: str = "") -> list[str]:
    """Name the mappings with keys of their own, outermost first; the file itself is `.`."""
    found = [path or "."] if "properties" in schema else []
    for name, one in _inner(schema).items():
        found += mappings(one, f"{path}.{name}" if path else name)
    return found


def at(schema: Schema, path: str) -> Schema:
    """Give the schema of the mapping at `path`."""
    for name in path.split(".") if path != "." else ():
        schema = _inner(schema)[name]
    return schema


def table(schema: Schema) -> str:
    """Make the table of a mapping's keys."""
    rows = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {_takes(key)} | {_default(key)} | {_cell(key['description'])} |"
        for name, key in schema["properties"].items()
    ]
    return "\n".join(rows) + "\n"


def _inner(schema: Schema) -> dict[str, Schema]:
    inner = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        inner["*"] = schema["additionalProperties"]
    if "properties" in schema.get("items", {}):
        inner["[]"] = schema["items"]
    return inner


def _takes(key: Schema) -> str:
    """Say in words what values a key takes."""
    if "anyOf" in key:
        # A reference to the environment stands for any value, which the page says once.
        kinds = [_takes(one) for one in key["anyOf"] if not _is_reference(one)]
        # Two that differ in their patterns only are called the same.
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in key:
        return " \\| ".join(f"`{word}`" for word in key["enum"])
    if "minimum" in key or "exclusiveMinimum" in key:
        return _range(key)
    if key["type"] == "array":
        what = _takes(key["items"])
        return f"list of {what}" if what.endswith("`") else f"list of {what}s"
    if "required" in key:
        return "`{" + ", ".join(f"{name}: …" for name in key["required"]) + "}`"
    if key["type"] == "object":
        return "mapping"
    if key["type"] == "boolean":
        return "`true` \\| `false`"
    return f"string such as `{key['examples'][0]}`" if "examples" in key else "string"


def _range(key: Schema) -> str:
    what = "whole number" if key["type"] == "integer" else "number"
    least = f"from {key['minimum']:,}" if "minimum" in key else f"above {key['exclusiveMinimum']:,}"
    return f"{what} {least} to {key['maximum']:,}"


def _default(key: Schema) -> str:
    if "default" not in key:
        return "" if key.get("type") == "object" else "none"
    return f"`{json.dumps(key['default'], ensure_ascii=False)}`".replace('"', "")


def _is_reference(key: Schema) -> bool:
    return str(key.get("pattern", "")).replace("\\", "").startswith("${")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""`${NAME}` and `${NAME:-default}` in the file's strings.

It happens after YAML is parsed, so a variable's value is always one string, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from twisted_gateway.config.faults import Wrong

REFERENCE = r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"
"""The form of a reference, as a regular expression of JSON Schema and of Python."""

_SPECIAL = re.compile(r"\$(?:\$|\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?)")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Put the environment's values into `text`.

    As in a shell, `:-` gives the default of a variable that is unset or empty. `$$` is a dollar
    sign; one before anything but `{` stands for itself. Values are not expanded again.

    Raises:
        Wrong: a variable is unset and has no default, or a reference is malformed.
    """

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name is None:
            if found.group() == "$$":
                return "$"
            raise Wrong("expected ${NAME} or ${NAME:-default}; a dollar sign itself is $$")
        given = environ.get(name)
        if default is not None:
            return given or str(default)
        if given is None:
            raise Wrong(f"expected {name} in the environment, or a default: ${{{name}:-...}}")
        return given

    return _SPECIAL.sub(value, text)


def escape(text: str) -> str:
    """Give the text that `expand` turns into `text`."""
    return text.replace("$", "$$")

"""Credentials: strings that are never shown, or files that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twisted_gateway.config.faults import Noted, Wrong
from twisted_gateway.config.forms import credential, file_path
from twisted_gateway.config.kinds import Text
from twisted_gateway.config.reading import Kind, Reading, Schema
from twisted_gateway.config.schema import Secret
from twisted_gateway.config.sections import Key, Section
from twisted_gateway.config.source import Entries, Node

_FILE = Section(
    keys=(
        Key(
            name="file",
            kind=Text(file_path, "the path of a file"),
            about="A file that holds the secret, read at start and at each reload; a relative "
            "path is looked up beside the configuration.",
        ),
    ),
    extra={"required": ["file"]},
)


@dataclass(frozen=True)
class SecretText(Kind):
    """A credential: a string, or `{file: PATH}`. It is never shown; an empty one is absent.

    Attributes:
        min_characters: how long it is at least, unless it is empty.
    """

    min_characters: int = 0

    _TEXT: ClassVar[Text] = Text(credential, "a string or {file: PATH}", max_characters=16_384)

    def take(self, node: Node, path: str, reading: Reading) -> Secret | None:
        """Read the string or the file."""
        if isinstance(node, Entries):
            text = self._from_file(node, path, reading)
        else:
            text = str(self._TEXT.take(node, path, reading))
        if text and len(text) < self.min_characters:
            raise Wrong(f"expected at least {self.min_characters} characters")
        return Secret(text) if text else None

    def _from_file(self, node: Entries, path: str, reading: Reading) -> str:
        before = len(reading.faults)
        found = _FILE.take(node, path, reading)
        given = found.values.get("file")
        if given is None:
            # A key that is misspelt, or has no path, is one fault.
            if len(reading.faults) > before:
                raise Noted
            raise Wrong(f"expected {self._TEXT.expected}")
        try:
            text = reading.read_file(given.value)
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else None
            reading.fault(
                given.line, given.path, f"expected a readable text file ({why or 'it is not one'})"
            )
            raise Noted from None
        secret = str(self._TEXT.judge(text))
        if not secret:
            reading.warnings.append(f"{path}: the file is empty, which counts as no secret")
        return secret

    def schema(self) -> Schema:
        """Say either form."""
        return {"anyOf": [self._TEXT.schema(), _FILE.schema()]}

    def plain(self, value: Any) -> str:
        """Hide the secret."""
        return "***"

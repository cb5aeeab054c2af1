"""YAML text as a small tree of nodes that know their lines.

PyYAML's scanner and parser give the events; what they mean is decided here and by the key that
takes the value, never by YAML 1.1's guesses (`on`, `1_000`, `1:30`, `010`). Everything is
bounded, so that no text costs more than its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from twisted_gateway.config.faults import Wrong

MAX_CHARACTERS = 524_288
"""The longest text that is read."""
MAX_NODES = 50_000
"""The most nodes that a text may come to, each alias counted as all that it stands for."""
MAX_DEPTH = 20
"""The deepest nesting of collections."""


class Unreadable(Wrong):
    """A text that is no single YAML document of bearable size.

    Attributes:
        line: where, counted from 1.
    """

    def __init__(self, line: int, expected: str) -> None:
        """Say at which line what was expected."""
        super().__init__(expected)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A text.

    Attributes:
        text: as written, quotes and escapes resolved.
        plain: whether it stands without quotes, so that it may be a number.
        tagged: whether the file gives it a tag (`!!int`), which no key takes.
        expanded: whether any of it came from the environment; such a text may be a string or a
            number, as its key wants.
    """

    text: str
    line: int
    plain: bool = True
    tagged: bool = False
    expanded: bool = False


@dataclass(slots=True, kw_only=True)
class Items:
    """A sequence."""

    line: int
    tagged: bool = False
    nodes: list[Node] = field(default_factory=list)
    size: int = 1


@dataclass(slots=True, kw_only=True)
class Entries:
    """A mapping: keys and values in their order, duplicates and all."""

    line: int
    tagged: bool = False
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    key: Node | None = None
    size: int = 1


Node = Scalar | Items | Entries


def parse(text: str) -> Node | None:
    """Read the one document that `text` holds.

    Returns:
        Its root, or None for a text that is empty but for comments.

    Raises:
        Unreadable: it is no YAML, more than one document, too large or too deep, or its aliases
            are undefined or recursive.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unreadable(1, f"expected at most {MAX_CHARACTERS} characters")
    tree = _Tree()
    for event in _events(text):
        tree.take(event)
    return tree.root


def describe(node: Node) -> str:
    """Name what `node` is, without showing its content."""
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Entries):
        return "a mapping"
    return "a single value" if node.text or not node.plain else "nothing"


def _events(text: str) -> Iterator[yaml.Event]:
    """Run PyYAML's parser, whose every failure becomes `Unreadable`."""
    line = 1
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = _line(event)
            yield event
    except yaml.MarkedYAMLError as fault:
        raise _unreadable(fault, text, line) from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        raise Unreadable(line, "expected printable characters") from None
    except (ValueError, OverflowError):
        # An escape beyond Unicode, or a version directive of thousands of digits.
        raise Unreadable(line, "expected YAML; an escape or a directive here is none") from None


def _unreadable(fault: yaml.MarkedYAMLError, text: str, line: int) -> Unreadable:
    """Say what is wrong in words of the file, where the parser has those of its grammar.

    Args:
        fault: the parser's.
        text: the whole text.
        line: where the parser was, if the fault does not say.
    """
    mark, context = fault.problem_mark, fault.context_mark
    at = line if mark is None else mark.line + 1
    problem = " ".join((fault.problem or "it cannot be read").split())
    if mark is not None and text[max(0, mark.index - 1) : mark.index + 1] == "${":
        # Within braces or brackets the one of a reference would open another mapping.
        expected = 'expected quotes round a reference within braces or brackets: "${NAME}"'
    elif "\\t" in problem:
        expected = "expected spaces: YAML allows no tab here"
    elif mark is not None and "mapping values" in problem:
        expected = _not_a_value(text[: mark.index])
    elif context is not None and "expected ':'" in problem:
        at = context.line + 1
        expected = "expected a colon, with a blank behind it, after the key"
    elif mark is not None and ("<block end>" in problem or "<document start>" in problem):
        expected = _not_in_line(text[: mark.index])
    else:
        expected = f"expected YAML: {problem}"
    return Unreadable(at, expected)


def _not_a_value(before: str) -> str:
    """Say what is wrong with a colon, given the text before it."""
    if _has_colon(before.rpartition("\n")[2]):
        return "expected quotes round a value that has a colon with a blank behind it"
    number, complete = _line_above(before)
    if complete:
        return f"expected a line less far in: line {number} has a value already"
    return f"expected no key here: line {number} may lack its colon, or the blank behind it"


def _not_in_line(before: str) -> str:
    """Say what is wrong where a mapping or list goes on with what is none of it."""
    here = before.rpartition("\n")[2]
    if here.strip(" -"):
        quote = ": a ' within '…' is written twice" if "'" in here else ""
        return f"expected nothing more behind the value{quote}"
    number, complete = _line_above(before)
    said = "expected a line as far in as those around it"
    return said if complete else f"{said}; line {number} may lack its colon"


def _line_above(before: str) -> tuple[int, bool]:
    """Find the line that says something above the one that a text ends in.

    Returns:
        Its number, and whether it has its colon; where there is none, 1 and True.
    """
    lines = list(enumerate(before.split("\n")[:-1], 1))
    for number, line in reversed(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            return number, _has_colon(line)
    return 1, True


def _has_colon(line: str) -> bool:
    return ": " in line or line.rstrip().endswith(":")


def _line(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1


class _Tree:
    """Builds the nodes from the events, with a stack of its own: depth costs no recursion."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._documents = 0
        self._open: list[Items | Entries] = []
        self._anchors: dict[str, Node] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise Unreadable(_line(event), "expected one YAML document, not another one")
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._aliased(event))
        elif isinstance(event, yaml.NodeEvent):
            self._start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._add(self._open.pop())

    def _start(self, event: yaml.NodeEvent) -> None:
        node = _node(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        if isinstance(node, Scalar):
            self._add(node)
        elif len(self._open) == MAX_DEPTH:
            raise Unreadable(node.line, f"expected at most {MAX_DEPTH} levels of nesting")
        else:
            self._open.append(node)

    def _aliased(self, event: yaml.AliasEvent) -> Node:
        node = self._anchors.get(event.anchor or "")
        if node is None:
            raise Unreadable(_line(event), "expected an alias whose anchor stands before it")
        if any(node is parent for parent in self._open):
            raise Unreadable(_line(event), "expected an alias that does not contain itself")
        return node

    def _add(self, node: Node) -> None:
        """Put a whole node where it belongs."""
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += 1 if isinstance(node, Scalar) else node.size
        if parent.size > MAX_NODES:
            raise Unreadable(parent.line, f"expected at most {MAX_NODES} values, aliases resolved")
        if isinstance(parent, Items):
            parent.nodes.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            parent.pairs.append((parent.key, node))
            parent.key = None


def _node(event: yaml.NodeEvent) -> Node:
    line = _line(event)
    if isinstance(event, yaml.SequenceStartEvent):
        return Items(line=line, tagged=event.tag is not None)
    if isinstance(event, yaml.MappingStartEvent):
        return Entries(line=line, tagged=event.tag is not None)
    assert isinstance(event, yaml.ScalarEvent)
    return Scalar(
        text=event.value, line=line, plain=event.style is None, tagged=event.tag is not None
    )

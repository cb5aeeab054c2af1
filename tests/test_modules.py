"""What holds for every module of the package."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support import TestCase

PACKAGE = Path(__file__).parents[1] / "twisted_gateway"


def torn(tree: ast.Module) -> list[str]:
    """The names that a module's top level gives a value, or defines, more than once."""
    seen: set[str] = set()
    again = []
    for one in tree.body:
        names: list[str] = []
        if isinstance(one, ast.Assign):
            names = [target.id for target in one.targets if isinstance(target, ast.Name)]
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [] if one.decorator_list else [one.name]
        again += [name for name in names if name in seen]
        seen.update(names)
    return again


class ModuleTests(TestCase):
    """Every module."""

    def test_defined_once(self) -> None:
        """No constant, function or class is defined twice: the first would be a torn rest."""
        modules = sorted(PACKAGE.rglob("*.py"))
        self.assertGreater(len(modules), 100)
        found = {}
        for path in modules:
            again = torn(ast.parse(path.read_text(encoding="utf-8")))
            if again:
                found[str(path.relative_to(PACKAGE))] = again
        self.assertEqual(found, {})

    def test_is_seen(self) -> None:
        """A text that is there twice is found."""
        self.assertEqual(torn(ast.parse("_A = 1\n_B = 2\n_A = 3\ndef f(): pass\n")), ["_A"])

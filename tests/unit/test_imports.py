"""No module of Howdah imports itself through others: not at its top, not inside a function, not for
type checkers alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import howdah
from howdah.backends import registry

ROOT = Path(howdah.__file__).parent


def modules() -> dict[str, Path]:
    """All modules of the package, by name."""
    found: dict[str, Path] = {}
    for path in ROOT.rglob("*.py"):
        parts = ("howdah", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules of ours that one imports anywhere in its text."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circle(edges: Mapping[str, list[str]]) -> list[str]:
    """Modules that import each other in that order; empty if there are none."""
    done: set[str] = set()
    way: list[str] = []

    def visit(name: str) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        way.append(name)
        for other in edges[name]:
            if found := visit(other):
                return found
        way.pop()
        done.add(name)
        return []

    for name in edges:
        if found := visit(name):
            return found
    return []


def test_no_module_imports_itself_through_others() -> None:
    known = modules()
    edges = {
        name: sorted({other for other in imported(path, known) if other in known})
        for name, path in known.items()
    }
    assert sum(map(len, edges.values())) > 1000
    assert not circle(edges), "move what both need into a module below them"


def test_a_circle_is_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_no_room_but_the_backends_own_asks_for_a_backend_by_name() -> None:
    names = set(registry.BUILT_IN)
    asked: list[str] = []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "backends"):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                text = ast.unparse(node)
                literal = any(isinstance(s, ast.Constant) and s.value in names for s in sides)
                if "backend" in text.lower() and (literal or "registry." in text):
                    asked.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    assert not asked, "ask the backend, or its row of howdah.backends.registry"

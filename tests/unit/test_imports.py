"""No module of Howdah imports itself through others: not at its top, not inside a function, not for
type checkers alone."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import howdah
from howdah.backends import registry

ROOT = Path(howdah.__file__).parent


pytestmark = pytest.mark.xdist_group("imports")


@cache
def modules() -> dict[str, Path]:
    """All modules of the package, by name."""
    found: dict[str, Path] = {}
    for path in ROOT.rglob("*.py"):
        parts = ("howdah", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def imports_and_comparisons(path: Path) -> tuple[ast.AST, ...]:
    wanted = (ast.Import, ast.ImportFrom, ast.Compare)
    return tuple(node for node in ast.walk(parsed(path)) if isinstance(node, wanted))


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules of ours that one imports anywhere in its text."""
    for node in imports_and_comparisons(path):
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


def test_no_room_but_the_backends_own_asks_for_a_backend_by_name() -> None:
    names = set(registry.BUILT_IN)
    asked: list[str] = []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "backends"):
            continue
        for node in imports_and_comparisons(path):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                text = ast.unparse(node)
                literal = any(isinstance(s, ast.Constant) and s.value in names for s in sides)
                if "backend" in text.lower() and (literal or "registry." in text):
                    asked.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    assert not asked, "ask the backend, or its row of howdah.backends.registry"


SUBMISSION = (
    "howdah.cli.main, howdah.cli.commands.run, howdah.backends.yarn.client.submit, "
    "howdah.client.submission.submit, howdah.cli.display.progress, howdah.cli.display.attached"
)
MASTER = "howdah.coordinator.main, howdah.backends.yarn.master.backend"
MESSAGES = """
from howdah.hadoop.protos import yarn
asked = yarn.AllocateRequestProto(progress=0.5)
asked.ask.add(num_containers=3).capability.memory = 4
assert yarn.AllocateRequestProto.FromString(asked.SerializeToString()) == asked
assert type(asked.ask[0]) is yarn.ResourceRequestProto
assert yarn.YarnApplicationStateProto.Name(7) == "FAILED"
"""


def imported_by(program: str, **env: str) -> set[str]:
    """What a Python process has imported at the end of that program."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("needed", "at_most"),
    [(SUBMISSION, 390), pytest.param(MASTER, 385, marks=pytest.mark.nightly)],
    ids=["submission", "master"],
)
def test_little_is_imported_before_yarn_is_asked_for_anything(needed: str, at_most: int) -> None:
    modules = imported_by(f"import {needed}\n{MESSAGES}")
    assert "google.protobuf.internal.python_message" not in modules, "its C implementation is used"
    assert "ctypes" not in modules, "it is for Kerberos alone"
    late = {"howdah.client.handle", "howdah.client.advice", "starlette", "uvicorn", "jinja2"}
    assert not modules & late, "a job that runs is followed, and shown"
    assert len(modules) < at_most, len(modules)


@pytest.mark.nightly
def test_hadoops_messages_are_the_same_of_protobufs_implementation_in_python() -> None:
    modules = imported_by(MESSAGES, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    assert "google.protobuf.internal.python_message" in modules

"""Writes docs/frameworks/programs.md from tests/programs: whose programs run, by which command.

A row is a marker ``program(framework, packages, command, asserted)`` of a test. Versions are the pinned ones.
A marker ``on_yarn(framework)`` in tests/yarn says that a program of that framework runs on a real cluster too.
Run it after a change there or of constraints.txt; tests/docs compares what is committed with it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "frameworks" / "programs.md"
TESTS = ROOT / "tests" / "programs"
ON_YARN = ROOT / "tests" / "yarn"

_HEAD = """\
# Programs that are run as they are

<!-- Written by docs/generate_programs.py from tests/programs and tests/yarn. Change those. -->

Quick-start programs in the style of each framework's documentation, run with the command its users know, and by
`howdah run` on one machine unless a row says otherwise. Each row is a test; the versions are those that
`constraints.txt` pins, two where they differ by the version of Python. The last column names the test that runs a
program of that framework on a real YARN.

| Framework | Version | Command | Asserted | Test | On YARN |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    pinned = _pinned([ROOT / "constraints.txt", *sorted(TESTS.glob("mpi/*.txt"))])
    there = _on_yarn()
    rows = [row for path in sorted(TESTS.glob("test_*.py")) for row in _rows(path, pinned, there)]
    return _HEAD + "".join(sorted(rows))


def _pinned(files: list[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in files:
        for name, version in re.findall(r"^([a-z0-9.-]+)==([^ ;]+)", file.read_text(), re.M):
            if version not in found.setdefault(name, []):
                found[name].append(version)
    return found


def _on_yarn() -> dict[str, str]:
    """The test of each framework."""
    found: dict[str, str] = {}
    for path in sorted(ON_YARN.glob("test_*.py")):
        for test in ast.parse(path.read_text()).body:
            if not isinstance(test, ast.FunctionDef):
                continue
            for node in ast.walk(test):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.on_yarn":
                    found.setdefault(ast.literal_eval(node.args[0]), f"`{path.name}::{test.name}`")
    return found


def _rows(path: Path, pinned: dict[str, list[str]], there: dict[str, str]) -> list[str]:
    rows: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.program":
                framework, packages, command, asserted = map(ast.literal_eval, mark.args)
                versions = ", ".join(f"{p} {' and '.join(pinned[p])}" for p in packages.split())
                test = f"`{path.name}::{node.name}`"
                yarn = there.get(framework, "")
                rows.append(
                    f"| {framework} | {versions} | {command} | {asserted} | {test} | {yarn} |\n"
                )
    return rows


if __name__ == "__main__":
    PAGE.write_text(page())

"""Writes docs/frameworks/programs.md from tests/programs: whose programs run, by which command.

A row is a marker ``program(framework, packages, command, asserted)`` of a test. Versions are the pinned ones.
Run it after a change there or of constraints.txt; tests/docs compares what is committed with it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "frameworks" / "programs.md"
TESTS = ROOT / "tests" / "programs"

_HEAD = """\
# Programs that are run as they are

<!-- Written by docs/generate_programs.py from tests/programs. Change those. -->

Quick-start programs in the style of each framework's documentation, run with the command its users know, and by
`howdah run` on one machine unless a row says otherwise. Each row is a test; the versions are those that
`constraints.txt` pins, two where they differ by the version of Python.

| Framework | Version | Command | Asserted | Test |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    pinned = _pinned([ROOT / "constraints.txt", *sorted(TESTS.glob("mpi/*.txt"))])
    rows = [row for path in sorted(TESTS.glob("test_*.py")) for row in _rows(path, pinned)]
    return _HEAD + "".join(sorted(rows))


def _pinned(files: list[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in files:
        for name, version in re.findall(r"^([a-z0-9.-]+)==([^ ;]+)", file.read_text(), re.M):
            if version not in found.setdefault(name, []):
                found[name].append(version)
    return found


def _rows(path: Path, pinned: dict[str, list[str]]) -> list[str]:
    rows: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.program":
                framework, packages, command, asserted = map(ast.literal_eval, mark.args)
                versions = ", ".join(f"{p} {' and '.join(pinned[p])}" for p in packages.split())
                test = f"`{path.name}::{node.name}`"
                rows.append(f"| {framework} | {versions} | {command} | {asserted} | {test} |\n")
    return rows


if __name__ == "__main__":
    PAGE.write_text(page())

"""Writes docs/design/reliability.md from tests/hosts: what becomes of jobs when hosts and networks fail.

A row is a marker ``fault(backend, what, how_long, outcome)`` of a test. Run it after a change there;
tests/docs compares what is committed with it.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design" / "reliability.md"
TESTS = ROOT / "tests" / "hosts"

_HEAD = """\
# Hosts and networks that fail

<!-- Written by docs/generate_reliability.py from tests/hosts. Change those. -->

Each row is a test on hosts apart: network namespaces with addresses, names, processes and disks of their own, on
which the client, HDFS, the ResourceManager and three NodeManagers run. A host is cut off by pulling its cable:
nothing is refused, everything is silent. In each case no two generations of a gang, and no two attempts of a task,
ran at once, and no step was lost that a checkpoint had.

| Backend | What fails | For how long | What becomes of the job | Test |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(row for path in sorted(TESTS.glob("test_*.py")) for row in _rows(path))


def _rows(path: Path) -> list[str]:
    return [
        f"| {' | '.join(map(ast.literal_eval, mark.args))} | `{path.name}::{node.name}` |\n"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault"
    ]


if __name__ == "__main__":
    PAGE.write_text(page())

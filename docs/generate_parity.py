"""Writes docs/guides/tony-parity.md from the tests themselves: which stands for which of TonY's.

Run it after a change of tests/yarn/test_tony_*.py; a test compares what is committed with it, and fails
where a row has no test, or one that may be skipped or never sees the real cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.yarn.parity import Like, collected  # noqa: E402
from tests.yarn.tony import ROWS  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "tony-parity.md"

INTRODUCTION = """\
# TonY's tests, and ours

<!-- Written by docs/generate_parity.py from tests/yarn/test_tony_*.py. Change those. -->

TonY has end-to-end tests on a mini cluster (`TestTonyE2E`). Each has its like here, on a real YARN and
HDFS of several processes. Some of ours ask for more than TonY's: where that expects a job to fail
because something of its own died, ours expects the job to go on.

This table is made from the tests. The build fails where a row has no test, where a test was skipped,
and where one does not use the real cluster.

| TonY's test | | Ours |
|---|---|---|
"""


def page(found: list[Like] | None = None) -> str:
    """The whole page."""
    found = collected() if found is None else found
    return INTRODUCTION + "".join(
        f"| {row} | `{test}` | {_tests(row, found)} |\n" for row, test in ROWS.items()
    )


def _tests(row: str, found: list[Like]) -> str:
    return "<br>".join(f"`{_name(like.test)}`" for like in found if like.row == row)


def _name(test: str) -> str:
    file, _, name = test.partition("::")
    return f"{Path(file).stem}::{name}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

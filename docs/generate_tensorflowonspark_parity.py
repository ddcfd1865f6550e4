"""Writes docs/guides/tensorflowonspark-parity.md from the tests that stand for its rows.

Run it after a change of tests/spark/compat/test_tfos_*.py or tests/spark/test_examples.py; a test
compares what is committed with it, and fails where a row has no test, or one that may be skipped or
uses no real Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.spark.compat.parity import Like, collected  # noqa: E402
from tests.spark.compat.tfos import EXAMPLES, NAMES, TESTS  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "tensorflowonspark-parity.md"

INTRODUCTION = """\
# TensorFlowOnSpark's tests, examples and names, and ours

<!-- Written by docs/generate_tensorflowonspark_parity.py from tests/spark. Change those. -->

For every test and example of TensorFlowOnSpark 2.2.5 (and what its 1.4.4 had), and for every name, a
test of ours on a real Spark: mostly a Standalone master and two workers. "(not there)" is what its
users asked for.

This table is made from the tests. The build fails where a row has no test, where a test was skipped,
and where one does not use a real Spark.
"""


def page(found: list[Like] | None = None) -> str:
    """The whole page."""
    found = collected() if found is None else found
    parts = (
        _part("Tests", "Its test", TESTS, found),
        _part("Examples", "Its example", EXAMPLES, found),
        _part("Names", "There", NAMES, found),
    )
    return INTRODUCTION + "".join(parts)


def _part(title: str, there: str, rows: Mapping[str, str], found: list[Like]) -> str:
    head = f"\n## {title}\n\n| | {there} | Ours |\n|---|---|---|\n"
    return head + "".join(
        f"| {row} | `{name}` | {_tests(row, found)} |\n" for row, name in rows.items()
    )


def _tests(row: str, found: list[Like]) -> str:
    return "<br>".join(f"`{_name(like.test)}`" for like in found if like.row == row)


def _name(test: str) -> str:
    file, _, name = test.partition("::")
    return f"{Path(file).stem}::{name}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

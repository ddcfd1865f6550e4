"""Writes the parity tables of docs/guides from the tests that stand for their rows.

Run it after a change of tests/yarn/tony.py, tests/compat/test_tony_cases.py, tests/yarn/test_tony.py,
tests/spark/compat/test_tfos_*.py or tests/spark/test_examples.py; a test compares what is committed with it, and fails where a row has no
test, or one that may be skipped or never sees the real servers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.parity import Like  # noqa: E402
from tests.spark.compat import tfos  # noqa: E402
from tests.yarn import tony  # noqa: E402

GUIDES = ROOT / "docs" / "guides"
TONY = GUIDES / "tony-parity.md"
TENSORFLOWONSPARK = GUIDES / "tensorflowonspark-parity.md"

_TONY = """\
# TonY's tests, and ours

<!-- Written by docs/generate_parity.py from tests/yarn/tony.py and the tests that stand for its rows. Change
those. -->

TonY has end-to-end tests on a mini cluster (`TestTonyE2E`). Each has its like here: those of `test_tony_cases` give
the same options to `howdah tony` on one machine, and the others run on a real YARN and HDFS. Some of ours ask for more
than TonY's: where that expects a job to fail because something of its own died, ours expects the job to go on.

These tables are made from the tests. The build fails where a row has no test, and where a test was skipped.

## The cases that state an exit code

`TestTonyE2E` has {count}. {same} end here as there with the same options given to `howdah tony`: with 0, or
with another code than 0. Of the other {others}, each says why. `test_tony_cases` runs the options of each
but one.

"""

_NOT_ZERO = "testPSWorkerTrainingShouldFailMissedHeartbeat"
"""It says no more of its exit code."""
_TONY_OTHERS = """
## The others

"""

_TENSORFLOWONSPARK = """\
# TensorFlowOnSpark's tests, examples and names, and ours

<!-- Written by docs/generate_parity.py from tests/spark. Change those. -->

For every test and example of TensorFlowOnSpark 2.2.5 (and what its 1.4.4 had), and for every name, a
test of ours on a real Spark: mostly a Standalone master and two workers. "(not there)" is what its
users asked for.

This table is made from the tests. The build fails where a row has no test, where a test was skipped,
and where one does not use a real Spark.
"""


def tony_page(found: list[Like]) -> str:
    """The whole page."""
    same = sum((case.there == 0) == (case.here == 0) for case in tony.CASES)
    count = len(tony.CASES)
    parts = [_TONY.format(count=count, same=same, others=count - same)]
    parts.append("| Case | | TonY's exit code | Ours | | Tests |\n|---|---|---|---|---|---|\n")
    parts += (
        f"| {case.row} | `{case.name}` | {_code(case)} | {case.here} | {_outcome(case)} | "
        f"{_tests(case.row, found)} |\n"
        for case in tony.CASES
    )
    cases = {case.row for case in tony.CASES}
    rest = {row: name for row, name in tony.ROWS.items() if row not in cases}
    return "".join(parts) + _TONY_OTHERS + _table("| TonY's test | | Ours |", rest, found)


def _code(case: tony.Case) -> str:
    return "not 0" if case.name == _NOT_ZERO else str(case.there)


def _outcome(case: tony.Case) -> str:
    same = (case.there == 0) == (case.here == 0)
    return ("the same" if same else "**differs**") + (f": {case.why}" if case.why else "")


def tensorflowonspark_page(found: list[Like]) -> str:
    """The whole page."""
    parts = (
        ("Tests", "Its test", tfos.TESTS),
        ("Examples", "Its example", tfos.EXAMPLES),
        ("Names", "There", tfos.NAMES),
    )
    return _TENSORFLOWONSPARK + "".join(
        f"\n## {title}\n\n" + _table(f"| | {there} | Ours |", rows, found)
        for title, there, rows in parts
    )


def _table(head: str, rows: Mapping[str, str], found: list[Like]) -> str:
    return f"{head}\n|---|---|---|\n" + "".join(
        f"| {row} | `{name}` | {_tests(row, found)} |\n" for row, name in rows.items()
    )


def _tests(row: str, found: list[Like]) -> str:
    return "<br>".join(f"`{_name(like.test, row)}`" for like in found if like.row == row)


def _name(test: str, row: str) -> str:
    """A test's name; one that is given its row as a parameter is not told apart by it."""
    file, _, name = test.partition("::")
    return f"{Path(file).stem}::{name.removesuffix(f'[{row}]')}"


if __name__ == "__main__":
    TONY.write_text(tony_page(tony.PARITY.collected()), encoding="utf-8")
    TENSORFLOWONSPARK.write_text(tensorflowonspark_page(tfos.PARITY.collected()), encoding="utf-8")

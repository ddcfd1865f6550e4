"""Which tests stand for which row of `tests.spark.compat.tfos`, as pytest collects them.

As a plug-in of a collection (``-p tests.spark.compat.parity``) it writes what it finds to the file
that ``HOWDAH_TFOS_PARITY`` names. `tests/spark/compat/conftest.py` uses the rest in every run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.spark.compat.tfos import ROWS, SPARK_FIXTURES

MARK = "tfos"
FILE = "HOWDAH_TFOS_PARITY"
FOLDER = Path(__file__).parent
FILES = ("compat/test_tfos_*.py", "test_examples.py")
"""Where they are, in tests/spark."""
_ROOT = FOLDER.parents[2]
_SKIPS = ("skip", "skipif", "xfail")


class Like(msgspec.Struct, frozen=True, kw_only=True):
    """One test that stands for one row."""

    row: str
    test: str
    """``tests/spark/compat/test_tfos_cluster.py::test_…``"""
    real: bool
    """It uses a real Spark."""
    skipped: bool
    """It is marked so that it may not be run, or may fail."""


def collected() -> list[Like]:
    """All of them, in the order of the files."""
    files = [file for pattern in FILES for file in sorted(FOLDER.parent.glob(pattern))]
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", __name__]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *map(str, files)],
            cwd=_ROOT,
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
            | {FILE: out.name},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")
        return msgspec.json.decode(Path(out.name).read_bytes(), type=list[Like])


def of_item(item: pytest.Item) -> list[Like]:
    """What a test stands for."""
    return [
        Like(
            row=str(row),
            test=item.nodeid,
            real=bool(SPARK_FIXTURES & {*getattr(item, "fixturenames", ())}),
            skipped=any(item.get_closest_marker(name) for name in _SKIPS),
        )
        for mark in item.iter_markers(MARK)
        for row in mark.args or ("",)
    ]


def problems(found: list[Like]) -> list[str]:
    """Why the table would not be true; empty if it is."""
    rows = {like.row for like in found}
    told = [f"nothing stands for {row!r} ({name})" for row, name in ROWS.items() if row not in rows]
    for like in found:
        if like.row not in ROWS:
            told.append(f"{like.test} stands for {like.row!r}, which is no row")
        if not like.real:
            told.append(f"{like.test} does not use a real Spark ({', '.join(SPARK_FIXTURES)})")
        if like.skipped:
            told.append(f"{like.test} may be skipped or fail")
    return told


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that stands for a row has failed if it was skipped."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.skipped and item.get_closest_marker(MARK) is not None:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} stands for a row of TensorFlowOnSpark's and was skipped"


def pytest_collection_finish(session: pytest.Session) -> None:
    if (file := os.environ.get(FILE)) and session.config.option.collectonly:
        found = [like for item in session.items for like in of_item(item)]
        Path(file).write_text(json.dumps(msgspec.to_builtins(found)))

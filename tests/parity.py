"""Which tests stand for which of another system's, as pytest collects them; and that all of them run.

A folder of such tests registers its `Parity` as a plug-in in its ``conftest.py``. It fails a test that
stands for a row and was skipped, and, in a collection, writes what it finds to the file that
``HOWDAH_PARITY`` names.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

FILE = "HOWDAH_PARITY"
_TESTS = Path(__file__).parent
_SKIPS = ("skip", "skipif", "xfail")


class Like(msgspec.Struct, frozen=True, kw_only=True):
    """One test that stands for one row."""

    row: str
    test: str
    """``tests/yarn/test_tony.py::test_…``"""
    real: bool
    """It uses the real servers."""
    skipped: bool
    """It is marked so that it may not be run, or may fail."""


@dataclass(frozen=True, eq=False)
class Parity:
    """The rows of one system, and how its tests are known."""

    mark: str
    """``@pytest.mark.<mark>("a row", …)`` on a test."""
    rows: Mapping[str, str]
    """What each row is called there."""
    row: str
    """What a row is, in words: ``a test of TonY's``."""
    fixtures: frozenset[str]
    """A test that uses one of them uses the real servers."""
    real: str
    """What those are, in words."""
    files: tuple[str, ...]
    """Patterns in ``tests/``."""
    further: tuple[str, ...] = ()
    """The same of tests without the real servers."""
    further_suffice: bool = False
    """A row may have such tests only; else each has one with the real servers besides."""

    def collected(self) -> list[Like]:
        """All that stand for a row, in the order of the files."""
        files = [
            file
            for pattern in (*self.files, *self.further)
            for file in sorted(_TESTS.glob(pattern))
        ]
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
                + [str(file) for file in files],
                cwd=_TESTS.parent,
                env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
                | {FILE: out.name},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")
            return msgspec.json.decode(Path(out.name).read_bytes(), type=list[Like])

    def of_item(self, item: pytest.Item) -> list[Like]:
        """What a test stands for."""
        return [
            Like(
                row=str(row),
                test=item.nodeid,
                real=bool(self.fixtures & {*getattr(item, "fixturenames", ())}),
                skipped=any(item.get_closest_marker(name) for name in _SKIPS),
            )
            for mark in item.iter_markers(self.mark)
            for row in mark.args or ("",)
        ]

    def problems(self, found: list[Like]) -> list[str]:
        """Why the table would not be true; empty if it is."""
        rows = {
            like.row
            for like in found
            if like.real or self.further_suffice or not self._further(like)
        }
        told = [
            f"nothing stands for {row!r} ({name})"
            for row, name in self.rows.items()
            if row not in rows
        ]
        for like in found:
            if like.row not in self.rows:
                told.append(f"{like.test} stands for {like.row!r}, which is not {self.row}")
            if not like.real and not self._further(like):
                told.append(f"{like.test} does not use {self.real} ({', '.join(self.fixtures)})")
            if like.skipped:
                told.append(f"{like.test} may be skipped or fail")
        return told

    def _further(self, like: Like) -> bool:
        file = like.test.partition("::")[0].removeprefix("tests/")
        return any(fnmatch.fnmatch(file, pattern) for pattern in self.further)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """A test that stands for a row has failed if it was skipped, but for want of time."""
        outcome: Any = yield
        report = outcome.get_result()
        if not report.skipped:
            return
        if item.get_closest_marker(self.mark) is not None:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} stands for {self.row} and was skipped"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write what was found, when asked to."""
        if (file := os.environ.get(FILE)) and session.config.option.collectonly:
            found = [like for item in session.items for like in self.of_item(item)]
            Path(file).write_text(json.dumps(msgspec.to_builtins(found)))

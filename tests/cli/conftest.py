"""End-to-end tests: every test has a home of its own, and ends what it started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import finished as jobs
from tests.cli.finished import Finished
from tests.cli.howdah import ended_at_last


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the test's jobs are."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HOWDAH_HOME", str(folder))
    monkeypatch.setenv("HOWDAH_SITE", "")
    with ended_at_last():
        yield folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Jobs that have ended, shared by all processes of the run."""
    return jobs.finished(tmp_path_factory)


@pytest.fixture
def looking(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """The test's home is theirs: it only looks."""
    monkeypatch.setenv("HOWDAH_HOME", str(finished.home))
    return finished

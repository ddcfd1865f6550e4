"""The Spark backend on a Connect server: Spark's driver is another process than the user's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.spark import Mode
from tests.spark.backend_jobs import Started, eventually, holder_folders

pytestmark = pytest.mark.timeout(300)


def tell(word: str) -> tuple[str, str]:
    return word, os.environ["HOWDAH_RANK"]


def wait_for(file: str) -> int:
    """Note who runs, and wait to be let go."""
    folder = Path(file).parent
    (folder / f"{os.environ['HOWDAH_RANK']}.{os.getpid()}.said").write_text("here")
    while not Path(file).exists():
        time.sleep(0.02)
    return os.getpid()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every test ends with no holder and no folder of one."""
    yield
    eventually(lambda: not holder_folders(), f"holders are gone: {holder_folders()}", 30)


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
def test_functions_run_in_the_slots_of_a_connect_server(connect_spark: Any, mode: Mode) -> None:
    found = Started(connect_spark, tell, ("hello",), mode=mode).values()
    assert found == {0: ("hello", "0"), 1: ("hello", "1")}


def test_interrupting_the_sessions_operations_ends_a_foreground_job(
    connect_spark: Any, tmp_path: Path
) -> None:
    job = Started(connect_spark, wait_for, (str(tmp_path / "go"),), mode=Mode.FOREGROUND)
    eventually(lambda: len(list(tmp_path.glob("*.said"))) == 2, "both run")
    connect_spark.interruptAll()
    view = job.ended(30)
    assert view.outcome == "stopped", view.reason

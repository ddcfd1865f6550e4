"""The Spark backend on a Connect server: Spark's driver is another process than the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from howdah.spec.model import Slots
from tests.spark.backend_jobs import Started, eventually, pids, wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("no_container_left")]


def tell(word: str) -> tuple[str, str]:
    return word, os.environ["HOWDAH_RANK"]


@pytest.mark.parametrize("slots", Slots, ids=lambda slots: slots.value)
def test_functions_run_in_the_slots_of_a_connect_server(connect_spark: Any, slots: Slots) -> None:
    found = Started(connect_spark, tell, ("hello",), slots=slots).values()
    assert found == {0: ("hello", "0"), 1: ("hello", "1")}


def test_interrupting_the_sessions_operations_ends_a_foreground_job(
    connect_spark: Any, tmp_path: Path
) -> None:
    job = Started(connect_spark, wait_for, (str(tmp_path / "go"),), slots=Slots.HELD)
    eventually(lambda: len(pids(tmp_path)) == 2, "both run")
    connect_spark.interruptAll()
    view = job.ended()
    assert view.outcome == "stopped", view.reason

"""Executors that share nothing with the driver: what they are told to be, and what travels to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.findings import Health
from howdah.backends.spark.doctor import examine
from howdah.backends.spark.facts import read_when_there
from howdah.backends.spark.sessions import session_of
from howdah.spark.scoring import Make, score
from tests.spark.adding_model import make, saved
from tests.spark.backend_jobs import Started


def word() -> tuple[str, str]:
    """What a function sees of its place."""
    return os.environ["HOWDAH_SPARK_FOLDER"], Path("word.txt").read_text()


@pytest.mark.usefixtures("no_container_left")
def test_the_source_folder_travels_to_executors_that_do_not_see_it(
    standalone_spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "word.txt").write_text("from afar")
    job = Started(standalone_spark, word, far=True, source=tmp_path / "source")
    found = job.values()
    assert {text for _, text in found.values()} == {"from afar"}
    assert len({folder for folder, _ in found.values()}) == 2


def test_the_doctor_looks_at_the_session_and_into_its_executors(standalone_spark: Any) -> None:
    read_when_there(session_of(standalone_spark), 4, 60)  # both executors
    found = {each.what: each for each in examine(standalone_spark)}
    assert {each.health for each in found.values()} == {Health.FINE}, found
    assert found["Spark"].text.endswith(standalone_spark.sparkContext.master)
    assert found["slots"].text.startswith("4 at the same time (spark.cores.max = 4")
    assert found["Howdah"].text.endswith("in executors too")
    assert found["ports"].text.startswith("executors reach the driver at 127.0.0.1")
    assert found["barrier stages"].text == "run: slots can be shared"
    assert not standalone_spark.sparkContext.statusTracker().getActiveJobsIds()


def test_executors_get_a_copy_of_the_drivers_files(standalone_spark: Any, tmp_path: Path) -> None:
    model = Make(saved(tmp_path / "model", 100), make=make)
    frame = score(standalone_spark.range(0, 6, 1, 2), model)
    rows = frame.collect()
    assert [row.y for row in rows] == [100, 101, 102, 103, 104, 105]
    assert all(not row.place.startswith(str(tmp_path)) for row in rows)
    (tmp_path / "model" / "bias.txt").write_text("7")
    changed = score(standalone_spark.range(0, 6, 1, 2), model)
    assert [row.y for row in changed.collect()] == [7, 8, 9, 10, 11, 12]
    assert [row.y for row in frame.collect()] == [100, 101, 102, 103, 104, 105]

"""Models and functions on their way to executors that share nothing with the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.ml import PipelineModel

from howdah.spark.pipeline import Model
from howdah.spark.scoring import Make, score


def make(path: str) -> Any:
    """Adds what the file says, and tells where the file was."""
    bias = int((Path(path) / "bias.txt").read_text())
    return lambda batch: {"y": batch["id"] + bias, "place": [path] * len(batch["id"])}


def saved(folder: Path, bias: int) -> str:
    folder.mkdir()
    (folder / "bias.txt").write_text(str(bias))
    return str(folder)


@pytest.mark.timeout(480)
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
    (tmp_path / "model" / "bias.txt").write_text("100")
    PipelineModel([Model(model)]).save(str(tmp_path / "saved"))
    loaded = PipelineModel.load(str(tmp_path / "saved"))
    again = loaded.transform(standalone_spark.range(0, 4, 1, 2)).collect()
    assert [row.y for row in again] == [100, 101, 102, 103]

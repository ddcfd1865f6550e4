"""Scoring and pipeline models on Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from howdah.client.errors import BadInput
from howdah.spark.pipeline import Model
from howdah.spark.scoring import Make, predict_udf, score
from howdah.spark.streaming import start
from tests.spark.adding_model import make, saved

pytestmark = pytest.mark.timeout(400)  # the first test waits for Spark, on a busy machine


def test_rows_are_scored_by_functions_and_by_models_sent_to_the_server(
    connect_spark: Any, tmp_path: Path
) -> None:
    rows = connect_spark.range(0, 6, 1, 2)
    frame = score(rows, lambda batch: {"z": batch["id"] * 0.5}, batch_size=2)
    assert frame.columns == ["id", "z"]
    assert [tuple(row) for row in frame.collect()] == [(i, i * 0.5) for i in range(6)]
    dotted = rows.selectExpr("id as `s.x`", "struct(id as x) s")
    half = score(dotted, lambda batch: {"z.z": batch["s.x"] * 0.5}, inputs={"s.x": "s.x"})
    assert [tuple(row) for row in half.collect()] == [(i, (i,), i * 0.5) for i in range(6)]
    model = Make(saved(tmp_path / "model", 7), make=make)
    assert [row.y for row in score(rows, model).collect()] == list(range(7, 13))
    of_columns = predict_udf(connect_spark, model, "y long, place string", inputs=["id"])
    assert [row.y for row in rows.select(of_columns("id").y.alias("y")).collect()] == list(
        range(7, 13)
    )


def test_a_model_is_saved_and_loaded(connect_spark: Any, tmp_path: Path) -> None:
    model = Model(Make(saved(tmp_path / "model", 7), make=make), output_mapping={"y": "sum"})
    model.save(str(tmp_path / "saved"))
    loaded = Model.load(str(tmp_path / "saved"))
    found = loaded.transform(connect_spark.range(3)).collect()
    assert [(row.id, row["sum"]) for row in found] == [(0, 7), (1, 8), (2, 9)]


def test_streams_are_refused_in_words(connect_spark: Any) -> None:
    stream = connect_spark.readStream.format("rate").load()
    with pytest.raises(BadInput, match="in Spark Connect micro-batches are handled in the server"):
        start(None, None, stream)  # type: ignore[arg-type]

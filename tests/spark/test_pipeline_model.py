"""Models as stages of Spark ML pipelines: parameters, transform, saving and loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import VectorAssembler

from howdah.client.errors import BadInput
from howdah.spark.pipeline import Estimator, Model
from howdah.spark.scoring import Make


def train(args: Any, ctx: Any) -> Any:
    raise AssertionError("nothing is trained here")


def twice(batch: dict[str, Any]) -> dict[str, Any]:
    return {"y": batch["x"] * 2.0}


def _times(path: str) -> Any:
    factor = float(Path(path).read_text())
    return lambda batch: {"y": batch["x"] * factor}


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    frame = spark.createDataFrame([(float(i), 2.0 * i) for i in range(6)], "x double, label double")
    return frame.coalesce(2)


@pytest.mark.both_sparks
def test_a_model_scores_in_a_pipeline_that_is_saved_and_loaded(
    spark: Any, rows: Any, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "factor.txt").write_text("3")

    def make(path: str) -> Any:
        factor = float((Path(path) / "factor.txt").read_text())
        return lambda batch: batch["features"].sum(axis=1) * factor

    scorer = Model(
        Make(str(weights), make=make),
        input_mapping={"vector": "features"},
        output_schema="prediction double",
    )
    assembler = VectorAssembler(inputCols=["x", "label"], outputCol="vector")
    pipeline = PipelineModel([assembler, scorer])
    expected = [9.0 * i for i in range(6)]
    assert [row.prediction for row in pipeline.transform(rows).collect()] == expected

    place = str(tmp_path / "saved")
    pipeline.save(place)
    (weights / "factor.txt").write_text("1000")  # the saved stage has files of its own
    loaded = PipelineModel.load(place)
    found = loaded.transform(rows)
    assert found.columns == ["x", "label", "vector", "prediction"]
    assert [row.prediction for row in found.collect()] == expected
    assert [stage.uid for stage in loaded.stages] == [assembler.uid, scorer.uid]
    assert loaded.stages[1].getOutputSchema() == "prediction double"  # pyright: ignore[reportAttributeAccessIssue]
    # and once more, from what was loaded
    loaded.write().overwrite().save(place)
    assert PipelineModel.load(place).transform(rows).first().prediction == 0.0


@pytest.mark.nightly
def test_a_model_in_the_home_folder_is_saved_with_its_files(
    spark: Any, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    weights = tmp_path / "factor.txt"
    weights.write_text("3")
    model = Model(Make("~/factor.txt", make=_times), output_schema="y double", keep_columns=False)
    expected = [(3.0 * i,) for i in range(6)]
    assert [tuple(row) for row in model.transform(rows).collect()] == expected
    model.save(str(tmp_path / "saved"))
    weights.unlink()
    loaded = Model.load(str(tmp_path / "saved"))
    assert [tuple(row) for row in loaded.transform(rows).collect()] == expected


def test_of_a_model_that_only_executors_see_the_path_is_saved(spark: Any, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "shared" / "factor.txt")
    Model(Make(elsewhere, make=_times)).save(str(tmp_path / "saved"))
    assert Model.load(str(tmp_path / "saved")).predictor.path == elsewhere


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_parameters_have_defaults_setters_copies_and_words(spark: Any, rows: Any) -> None:
    model = Model(twice, input_mapping={"x": "x"})
    assert model.getPredictBatchSize() == 1024  # pyright: ignore[reportAttributeAccessIssue]
    assert model.setPredictBatchSize(8).getPredictBatchSize() == 8  # pyright: ignore[reportAttributeAccessIssue]
    assert "keep_columns: The columns of the rows stay beside the new ones (default: True" in (
        model.explainParams()
    )
    other = model.copy({model.output_mapping: {"y": "doubled"}})
    assert other.getOutputMapping() == {"y": "doubled"} and model.getOutputMapping() == {}  # pyright: ignore[reportAttributeAccessIssue]
    assert other.transform(rows).columns == ["x", "label", "doubled"]
    overridden = model.transform(rows, {model.keep_columns: False})
    assert overridden.columns == ["y"]
    renamed = model.setOutputMapping({"y": "prediction"}).transform(rows)  # pyright: ignore[reportAttributeAccessIssue]
    assert RegressionEvaluator().evaluate(renamed) == 0.0


def test_a_wrong_parameter_is_named() -> None:
    with pytest.raises(BadInput, match="Model has no parameter 'batch_sise'"):
        Model(twice, batch_sise=3)
    with pytest.raises(BadInput, match="no parameter 'epoch'; did you mean 'epochs'?"):
        Estimator(train, epoch=3)
    with pytest.raises(BadInput, match="workers='two'"):
        Estimator(train, workers="two")


@pytest.mark.both_sparks
def test_an_estimator_is_saved_with_its_function_and_parameters(spark: Any, tmp_path: Path) -> None:
    factor = 7

    def inner(args: Any, ctx: Any) -> Any:
        return factor

    estimator = Estimator(
        inner,
        {"rate": 0.1, "path": Path("/data")},
        to_model=lambda value: twice,
        callbacks=["a"],
        workers=2,
        checkpoint={"dir": "/somewhere"},
    )
    Pipeline(stages=[estimator]).save(str(tmp_path / "saved"))
    loaded: Any = Pipeline.load(str(tmp_path / "saved")).getStages()[0]
    assert loaded.uid == estimator.uid
    assert loaded.getArgs() == {"rate": 0.1, "path": Path("/data")}
    assert (loaded.getWorkers(), loaded.getEpochs()) == (2, 1)
    assert loaded.getCheckpoint() == {"dir": "/somewhere"}
    assert loaded._train(None, None) == 7 and loaded._callbacks == ["a"]
    with pytest.raises(BadInput, match="is a howdah.spark.pipeline.estimator.Estimator, not a"):
        Model.load(str(next((tmp_path / "saved" / "stages").iterdir())))


def test_what_does_not_fit_is_named_before_a_cluster_starts(rows: Any) -> None:
    with pytest.raises(BadInput, match="the rows have no column 'weight'"):
        Estimator(train, input_mapping={"x": "x"}, weight_col="weight").fit(rows)
    with pytest.raises(BadInput, match="slots='none': .*'held' or 'shared' is needed"):
        Estimator(train, input_mapping={"x": "x"}, slots="none").fit(rows)

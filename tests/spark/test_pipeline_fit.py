"""Estimators: a training function fitted on a cluster, in pipelines and cross-validation."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator, RegressionEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder, TrainValidationSplit
from pyspark.sql import functions as F

from howdah.client.errors import BadInput, JobFailed
from howdah.spark import FeedError
from howdah.spark.pipeline import Estimator, Model, keras_training, torch_training
from howdah.spark.scoring import Make
from tests.spark.faulty import eventually


def softmax(x: Any, weights: Any) -> Any:
    scores = np.hstack([x, np.ones((len(x), 1))]) @ weights
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def train_digits(args: Any, ctx: Any) -> Any:
    """Softmax regression on the handwritten digits; the value is its own predict function."""
    weights = np.zeros((65, 10))
    for batch in ctx.feed().batches(args.batch_size, drop_last=True):
        x = np.asarray(batch["x"]) / 16.0
        truth = np.eye(10)[np.asarray(batch["y"], dtype=int)]
        error = softmax(x, weights) - truth
        weights -= args.rate * np.hstack([x, np.ones((len(x), 1))]).T @ error / len(x)

    def predict(batch: dict[str, Any]) -> dict[str, Any]:
        found = softmax(batch["x"] / 16.0, weights)
        return {"digit": found.argmax(axis=1).astype("float64"), "probability": found}

    return predict


def train_mean(args: Any, ctx: Any) -> Any:
    """The weighted mean of ``y`` times a factor, and what the other feeds and arguments were."""
    total = weight = 0.0
    held_back = []
    for epoch in ctx.feed():
        for batch in epoch.batches(4):
            weights = batch.get("sample_weight", np.ones(len(batch["y"])))
            total += float((batch["y"] * weights).sum())
            weight += float(weights.sum())
            for callback in args.callbacks:
                callback(ctx)
    if args.validation_col:
        for batch in ctx.feed("validation").batches(4):
            held_back += batch["y"].tolist()
    mean = args.factor * total / weight
    if args.export_dir:
        Path(args.export_dir).mkdir(parents=True)
        (Path(args.export_dir) / "mean.txt").write_text(str(mean))
    return {"mean": mean, "held back": sorted(held_back), "seen": sorted(vars(args))}


def train_in_company(args: Any, ctx: Any) -> Any:
    """Goes on once a fit with the other factor is there, too."""
    folder = Path(args.folder)
    (folder / f"{args.factor}").touch()
    eventually("the other fit", lambda: len(list(folder.iterdir())) == 2, 90)
    return train_mean(args, ctx)


def constant(value: Any) -> Any:
    mean = value["mean"]
    return lambda batch: np.full(len(batch["x"]), mean)


def from_file(path: str) -> Any:
    mean = float((Path(path) / "mean.txt").read_text())
    return lambda batch: np.full(len(batch["x"]), mean)


def failing(args: Any, ctx: Any) -> Any:
    raise ArithmeticError("no model today")


def resuming(args: Any, ctx: Any) -> Any:
    """How often it was fitted before, as its checkpoint says."""
    file = ctx.checkpoint_dir / "fits.txt"
    before = int(file.read_text()) if file.exists() else 0
    for _ in ctx.feed().batches(4):
        pass
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(before + 1))
    return {"mean": float(before)}


def with_torch(args: Any, ctx: Any) -> Any:
    for _ in ctx.feed().batches(4):
        pass
    if "never" in os.environ:
        import torch  # noqa: F401
    return {"mean": float(os.environ["WORLD_SIZE"])}


def train_and_show(args: Any, ctx: Any) -> Any:
    """What it was fed; a plain sum of the features is the model."""
    fed = {
        name: sorted(
            float(label) for batch in ctx.feed(name).batches(4) for label in batch["label"]
        )
        for name in ("train", "validation")
    }
    return {**fed, "seed": args.seed}


def _hidden(args: Any, ctx: Any) -> Any:
    """A name with which no job may begin."""
    return train_mean(args, ctx)


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    """y is 1 … 8; rows with 7 and 8 are held back; the first half weighs nothing."""
    values = [(float(i), float(i), float(i > 4), i > 6) for i in range(1, 9)]
    frame = spark.createDataFrame(values, "x double, y double, w double, held boolean")
    return frame.coalesce(1).cache()


def mean_estimator(**params: Any) -> Estimator:
    return Estimator(
        train_mean,
        {"factor": 1.0},
        to_model=constant,
        **{
            "input_mapping": {"x": "x"},
            "label_mapping": {"y": "y"},
            "output_schema": "prediction double",
            "restarts": 0,
            **params,
        },
    )


@pytest.mark.both_sparks
@pytest.mark.timeout(300)
def test_a_pipeline_learns_the_digits_and_scores_after_a_reload(spark: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    data = spark.createDataFrame(
        [(*map(float, image), int(label)) for image, label in zip(images, labels)],
        [*(f"p{i}" for i in range(64)), "label"],
    ).repartition(4)
    assembler = VectorAssembler(inputCols=[f"p{i}" for i in range(64)], outputCol="pixels")
    estimator = Estimator(
        train_digits,
        {"rate": 0.5},
        workers=2,
        epochs=6,
        cache=True,
        shuffle=1,
        batch_size=16,
        input_mapping={"pixels": "x"},
        label_mapping={"label": "y"},
        output_mapping={"digit": "prediction", "probability": "probability"},
    )
    fitted = Pipeline(stages=[assembler, estimator]).fit(data)
    model: Any = fitted.stages[1]
    assert isinstance(model, Model)
    assert model.summary.report.epochs == 6
    assert sorted(model.summary.values) == [0, 1]
    fitted.save(str(tmp_path / "digits"))
    scored = PipelineModel.load(str(tmp_path / "digits")).transform(data)
    assert scored.columns == [*data.columns, "pixels", "prediction", "probability"]
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(scored)
    print(f"accuracy {accuracy:.3f} after {model.summary.report.rows} rows")
    assert accuracy > 0.9


@pytest.mark.timeout(300)
def test_weights_validation_and_callbacks_reach_the_function(spark: Any, rows: Any) -> None:
    def callback(ctx: Any) -> None:
        ctx.report(called=1)

    model = Estimator(
        train_mean,
        {"factor": 2.0},
        to_model=constant,
        callbacks=[callback],
        input_mapping={"x": "x"},
        label_mapping={"y": "y"},
        weight_col="w",
        validation_col="held",
        output_schema="prediction double",
        restarts=0,
    ).fit(rows)
    value = model.summary.values[0]
    assert value["mean"] == 2.0 * (5 + 6) / 2
    assert value["held back"] == [7.0, 8.0]
    assert {"factor", "epochs", "export_dir", "callbacks"} <= set(value["seen"])
    assert {row.prediction for row in model.transform(rows).collect()} == {11.0}


@pytest.mark.both_sparks
@pytest.mark.timeout(300)
def test_columns_are_named_as_for_other_stages_and_a_fraction_is_held_back(spark: Any) -> None:
    values = [(float(i % 50), float(i), float(i)) for i in range(200)]
    data = spark.createDataFrame(values, "a double, b double, y double").repartition(3)
    assembler = VectorAssembler(inputCols=["a", "b"], outputCol="together")
    estimator = Estimator(
        train_and_show,
        to_model=lambda value: lambda batch: batch["features"].sum(axis=1),
        featuresCol="together",
        labelCol="y",
        predictionCol="guess",
        validationFraction=0.25,
        restarts=0,
    )
    found = []
    for rows in (data, data.repartition(5)):
        fitted: Any = Pipeline(stages=[assembler, estimator]).fit(rows)
        found.append(fitted.stages[1].summary.values[0])
    assert found[0] == found[1], "whatever the order of the rows"
    assert sorted(found[0]["train"] + found[0]["validation"]) == [float(i) for i in range(200)]
    assert 20 < len(found[0]["validation"]) < 80
    scored = fitted.transform(data)
    assert scored.columns == ["a", "b", "y", "together", "guess"]
    assert all(row.guess == row.a + row.b for row in scored.collect())

    for both, words in (
        ({"input_mapping": {"together": "x"}}, "features_col and input_mapping are both given"),
        ({"label_mapping": {"y": "y"}}, "label_col and label_mapping are both given"),
        ({"validation_col": "y"}, "validation_col and validation_fraction are both given"),
        ({"shuffle": 3}, "shuffle=3 reorders cached epochs: add cache=True"),
    ):
        with pytest.raises(BadInput, match=words):
            estimator.fit(assembler.transform(data), both_of(estimator, both))
    with pytest.raises(BadInput, match="validationFraction=1.5"):
        Estimator(train_and_show, validationFraction=1.5)
    with pytest.raises(
        BadInput, match="has no parameter 'featureCol'; did you mean 'features_col'"
    ):
        Estimator(train_and_show, featureCol="together")


def both_of(estimator: Estimator, values: dict[str, Any]) -> dict[Any, Any]:
    return {estimator.getParam(name): value for name, value in values.items()}


def line() -> Any:
    import torch

    return torch.nn.Linear(2, 1)


def quick(parameters: Any) -> Any:
    import torch

    return torch.optim.Adam(parameters, lr=0.3)


def row_losses(output: Any, label: Any) -> Any:
    return (output - label) ** 2


def keras_line() -> Any:
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.3), loss="mse")
    return model


@pytest.fixture(scope="module")
def plane(spark: Any) -> Any:
    """y = 2a - b; rows that are wrong weigh nothing."""
    rows = [(i / 60, i % 7 / 7, float(i % 10 != 0)) for i in range(120)]
    values = [(a, b, 2 * a - b if weight else 100.0, weight) for a, b, weight in rows]
    data = spark.createDataFrame(values, "a double, b double, y double, w double")
    return data.repartition(4).cache()


def off(model: Any, rows: Any) -> float:
    """How far the answers are from the plane at the worst."""
    model.set(model.predict_batch_size, 29)  # and one row alone at the end of each part
    found = model.transform(rows).collect()
    return max(abs(row.guess - (2 * row.a - row.b)) for row in found)


NAMES = {"featuresCol": ["a", "b"], "labelCol": "y", "weightCol": "w", "predictionCol": "guess"}


def test_loops_refuse_what_they_would_ignore() -> None:
    none = {"checkpoint": False, "resume": "", "model_dir": "", "callbacks": []}
    with pytest.raises(ValueError, match="torch_training takes no checkpoint and no callbacks"):
        given = {**none, "checkpoint": True, "callbacks": [len]}
        torch_training(line, row_losses)(SimpleNamespace(**given), None)
    with pytest.raises(ValueError, match="keras_training takes no resume"):
        keras_training(keras_line)(SimpleNamespace(**{**none, "resume": "a-job"}), None)


@pytest.mark.nightly
@pytest.mark.timeout(500)
def test_a_torch_module_is_trained_without_a_loop_of_ones_own(
    spark: Any, plane: Any, tmp_path: Path
) -> None:
    estimator = Estimator(
        torch_training(line, row_losses, quick),
        workers=2,
        epochs=10,
        batchSize=8,
        cache=True,
        validationFraction=0.2,
        restarts=0,
        **NAMES,
    )
    assert off(estimator.fit(plane), plane) < 0.3
    place = str(tmp_path / "line.pt")
    alone = {estimator.export_dir: place, estimator.workers: 1}
    assert off(estimator.fit(plane, alone), plane) < 0.3
    assert os.path.exists(place)


@pytest.mark.nightly
@pytest.mark.timeout(500)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_keras_model_is_trained_without_a_loop_of_ones_own(
    spark: Any, plane: Any, tmp_path: Path, workers: int
) -> None:
    estimator = Estimator(
        keras_training(keras_line),
        workers=workers,
        epochs=10,
        batchSize=8,
        cache=True,
        validationFraction=0.2,
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        restarts=0,
        **NAMES,
    )
    place = str(tmp_path / "line") if workers == 2 else ""
    assert off(estimator.fit(plane, {estimator.export_dir: place}), plane) < 0.3
    assert not place or os.path.exists(place)


@pytest.mark.timeout(300)
def test_cross_validation_and_train_validation_split_choose_arguments(
    spark: Any, rows: Any
) -> None:
    estimator = mean_estimator()
    grid = ParamGridBuilder().addGrid(estimator.args, [{"factor": 1.0}, {"factor": 50.0}]).build()
    chosen: list[tuple[Any, dict[str, int]]] = [
        (TrainValidationSplit, {"seed": 3}),
        (CrossValidator, {"numFolds": 2, "seed": 3, "parallelism": 2}),
    ]
    for kind, options in chosen:
        search = kind(
            estimator=estimator,
            estimatorParamMaps=grid,
            evaluator=RegressionEvaluator(labelCol="y"),
            **options,
        )
        best = search.fit(rows).bestModel
        mean = best.summary.values[0]["mean"]
        assert abs(mean - 4.5) < 0.01


@pytest.mark.timeout(300)
def test_models_are_fitted_at_once(
    spark: Any, rows: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    estimator = mean_estimator()
    estimator._train = train_in_company
    factors = [{"factor": factor, "folder": str(tmp_path)} for factor in (1.0, 50.0)]
    grid = ParamGridBuilder().addGrid(estimator.args, factors).build()
    search = TrainValidationSplit(
        estimator=estimator,
        estimatorParamMaps=grid,
        evaluator=RegressionEvaluator(labelCol="y"),
        seed=3,
        parallelism=2,
    )
    best: Any = search.fit(rows).bestModel
    assert abs(best.summary.values[0]["mean"] - 4.5) < 0.01
    assert capfd.readouterr().out.count('slots="shared" is assumed') == 1
    with pytest.raises(TypeError, match="'held' or 'shared' is needed"):  # as of Spark's own stages
        estimator.fit(rows, {estimator.slots: "none"})


@pytest.mark.timeout(300)
def test_a_model_is_made_of_what_was_exported_or_refused_in_words(
    spark: Any, rows: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    estimator = mean_estimator(export_dir=str(folder))
    estimator._to_model = lambda value: Make(str(folder), make=from_file)
    found = estimator.fit(rows).transform(rows.select(F.lit(0.0).alias("x")))
    assert {row.prediction for row in found.collect()} == {4.5}
    estimator = mean_estimator()
    estimator._to_model = None
    with pytest.raises(BadInput, match="and no model can be made of it"):
        estimator.fit(rows)
    with pytest.raises((FeedError, JobFailed), match="no model today"):
        Estimator(failing, restarts=0).fit(rows)


@pytest.mark.timeout(300)
def test_a_function_may_have_any_name(spark: Any, rows: Any) -> None:
    estimator = mean_estimator()
    estimator._train = _hidden
    summary = estimator.fit(rows).summary
    assert summary.job_id.startswith("hidden-")
    assert summary.values[0]["mean"] == 4.5


@pytest.mark.timeout(300)
def test_a_fit_goes_on_from_the_checkpoint_of_an_earlier_one(spark: Any, rows: Any) -> None:
    first = Estimator(
        resuming, to_model=constant, input_mapping={"x": "x"}, checkpoint=True, restarts=0
    )
    summary = first.fit(rows).summary
    assert summary.values[0]["mean"] == 0.0
    again = first.fit(rows, {first.resume: summary.job_id})
    assert again.summary.values[0]["mean"] == 1.0
    with pytest.raises(BadInput, match="resume='nothing'"):
        first.fit(rows, {first.resume: "nothing"})


def test_the_framework_is_that_of_the_function(
    rows: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    estimator = Estimator(with_torch, to_model=constant, restarts=0)
    assert estimator.fit(rows).summary.values == {0: {"mean": 1.0}}
    assert 'framework="pytorch" is assumed' in capfd.readouterr().out

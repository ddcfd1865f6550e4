"""TFEstimator and TFModel as stages of Spark ML, on a Standalone master with two workers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from howdah.compat.tensorflowonspark import TFCluster
from howdah.compat.tensorflowonspark.pipeline import (
    TFEstimator,
    TFModel,
    get_meta_graph_def,
    yield_batch,
)

WEIGHTS = (3.14, 1.618)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]


def _fit_line(args: Any, ctx: Any) -> None:
    import numpy as np
    import tensorflow as tf

    from howdah.compat.tensorflowonspark import compat

    feed = ctx.get_data_feed(input_mapping=args.input_mapping)
    rows: dict[str, list[Any]] = {"x": [], "y_": []}
    while not feed.should_stop():
        for name, values in feed.next_batch(args.batch_size).items():
            rows[name] += values
    weights = np.linalg.lstsq(np.array(rows["x"]), np.array(rows["y_"]), rcond=None)[0]
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(2,))])  # pyright: ignore[reportCallIssue]
    model.set_weights([weights.astype("float32").reshape(2, 1)])
    assert compat.is_gpu_available() in (True, False)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")


@pytest.fixture(scope="module")
def lines(standalone_spark: Any) -> Any:
    import numpy as np

    points = np.random.RandomState(1).rand(1000, 2)
    rows = [(p.tolist(), float(p @ WEIGHTS), n) for n, p in enumerate(points)]
    return standalone_spark.createDataFrame(rows, "features array<double>, target double, n int")


@pytest.fixture(scope="module")
def fitted(lines: Any, tmp_path_factory: pytest.TempPathFactory) -> TFModel:
    folder = tmp_path_factory.mktemp("model") / "line"
    estimator = (
        TFEstimator(_fit_line, {"note": "kept"})
        .setInputMapping({"features": "x", "target": "y_"})
        .setExportDir(str(folder))
        .setBatchSize(100)
        .setEpochs(1)
        .setGraceSecs(1)
    )
    model = estimator.fit(lines)
    model.setInputMapping({"features": "dense_input"}).setOutputMapping({"dense": "prediction"})
    return model


@pytest.mark.tfos(
    "pipeline: fit, export, transform of a linear regression", "pipeline: graphs by their tags"
)
def test_a_line_is_fitted_exported_and_applied(fitted: TFModel, lines: Any, tmp_path: Path) -> None:
    assert isinstance(fitted, TFModel) and fitted.args.note == "kept"
    scored = fitted.setSignatureDefKey("serving_default").setTagSet("serve").transform(lines)
    assert scored.columns == ["prediction"]
    expected = [row.target for row in lines.collect()]
    found = [row[0][0] for row in scored.collect()]
    assert found == pytest.approx(expected, abs=1e-4)
    with pytest.raises(ValueError, match="export_dir or model_dir"):
        TFModel({}).transform(lines)
    graph = get_meta_graph_def(fitted.getExportDir(), "serve")
    assert "serving_default" in graph.signature_def
    with pytest.raises(RuntimeError, match="tag-set train could not be found .*serve"):
        get_meta_graph_def(fitted.getExportDir(), "train")
    # As ctx.absolute_path names it, and as text.
    assert get_meta_graph_def(f"file://{fitted.getExportDir()}", "serve") == graph
    (tmp_path / "saved_model.pbtxt").write_text('meta_graphs { meta_info_def { tags: "text" } }')
    assert get_meta_graph_def(str(tmp_path), "text").meta_info_def.tags == ["text"]
    with pytest.raises(OSError, match="does not exist"):
        get_meta_graph_def(str(tmp_path / "none"), "serve")


@pytest.mark.tfos(
    "pipeline: a model in a PipelineModel on disk",
    "pipeline: transform keeps columns when asked",
    "1.4.4: inference from a checkpoint folder",
)
def test_a_model_is_saved_and_loaded_in_a_pipeline(
    fitted: TFModel, lines: Any, tmp_path: Path
) -> None:
    from pyspark.ml import PipelineModel

    model = TFModel({"note": "kept", "dropped": object()})
    model.setModelDir(fitted.getExportDir()).setKeepColumns(True)
    model.setInputMapping(fitted.getInputMapping()).setOutputMapping(fitted.getOutputMapping())
    PipelineModel([model]).write().overwrite().save(str(tmp_path / "stages"))
    loaded = PipelineModel.load(str(tmp_path / "stages"))
    stage = loaded.stages[0]
    assert isinstance(stage, TFModel) and (stage.uid, vars(stage.args)) == (
        model.uid,
        {"note": "kept"},
    )
    scored = loaded.transform(lines)
    assert scored.columns == ["features", "target", "n", "prediction"]
    assert all(abs(row.prediction[0] - row.target) < 1e-4 for row in scored.collect())


def _report(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed()
    rows: list[Any] = []
    while not feed.should_stop():
        rows += feed.next_batch(args.batch_size)
    told = {"rows": len(rows), "columns": rows[0].__fields__, "epochs": args.epochs}
    with Path(args.report).open("a") as file:
        file.write(json.dumps(told) + "\n")


@pytest.mark.tfos(
    "pipeline: CrossValidator", "1.4.4: only mapped columns are fed", "1.4.4: export_fn"
)
def test_a_cross_validator_fits_every_fold_with_the_choice(
    fitted: TFModel, lines: Any, tmp_path: Path
) -> None:
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
    from pyspark.sql import functions as F

    report, exported = tmp_path / "report", tmp_path / "exported"

    def export(args: Any) -> None:
        with Path(args.exported).open("a") as file:
            file.write(f"{args.epochs}\n")

    class First(RegressionEvaluator):
        """The prediction is an array of one."""

        def evaluate(self, dataset: Any, params: Any = None) -> float:
            first = dataset.withColumn("prediction", F.col("prediction")[0])
            return super().evaluate(
                first.withColumn("prediction", F.col("prediction").cast("double"))
            )

    estimator = TFEstimator(_report, {"report": str(report), "exported": str(exported)}, export)
    estimator.setInputMapping({"features": "x"}).setExportDir(fitted.getExportDir())

    class Mapped(TFEstimator):
        def _fit(self, dataset: Any) -> TFModel:
            model = super()._fit(dataset).setKeepColumns(True)
            model.setInputMapping(fitted.getInputMapping())
            return model.setOutputMapping(fitted.getOutputMapping())

    estimator.__class__ = Mapped
    grid = ParamGridBuilder().addGrid(estimator.epochs, [2]).build()
    evaluator = First(labelCol="target", predictionCol="prediction", metricName="rmse")
    validator = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1
    )
    best = validator.fit(lines)
    assert isinstance(best.bestModel, TFModel) and max(best.avgMetrics) < 1e-3
    told = [json.loads(line) for line in report.read_text().splitlines()]
    # Two folds, and all rows with the best choice.
    assert [each["epochs"] for each in told] == [2] * 3
    assert all(each["columns"] == ["features"] for each in told)
    assert sum(each["rows"] for each in told[:2]) == told[2]["rows"] == 2000
    assert exported.read_text().splitlines() == ["2"] * 3


def _count_files(args: Any, ctx: Any) -> None:
    count = 0
    for file in Path(args.tfrecord_dir).glob("part-*"):
        data = file.read_bytes()
        while data:  # length, its checksum, record, its checksum
            (size,) = struct.unpack_from("<Q", data)
            data = data[8 + 4 + size + 4 :]
            count += 1
    Path(args.report).write_text(str(count))


@pytest.mark.tfos("pipeline: TFRecords as the way in")
def test_rows_go_through_tfrecords_in_tensorflow_mode(
    standalone_spark: Any, lines: Any, tmp_path: Path
) -> None:
    from howdah.compat.tensorflowonspark import dfutil

    estimator = TFEstimator(_count_files, {"report": str(tmp_path / "count")})
    estimator.setInputMode(TFCluster.InputMode.TENSORFLOW).setExportDir("unused")
    with pytest.raises(ValueError, match="setTFRecordDir"):
        estimator.fit(lines)
    folder = str(tmp_path / "records")
    estimator.setTFRecordDir(folder).fit(lines)
    assert (tmp_path / "count").read_text() == "1000"
    # What was loaded from TFRecords is there already.
    loaded = dfutil.loadTFRecords(standalone_spark.sparkContext, folder)
    estimator.setTFRecordDir(str(tmp_path / "not-needed")).fit(loaded)
    assert not (tmp_path / "not-needed").exists()


@pytest.mark.tfos("1.4.4: sparse rows")
def test_sparse_vectors_arrive_as_they_were(standalone_spark: Any) -> None:
    from pyspark.ml.linalg import SparseVector

    def collect(args: Any, ctx: Any) -> list[Any]:
        feed = ctx.get_data_feed()
        rows: list[Any] = []
        while not feed.should_stop():
            rows += feed.next_batch(2)
        return rows

    sc = standalone_spark.sparkContext
    given = [(n, SparseVector(100, {n: 1.0, 50 + n: 2.0})) for n in range(5)]
    mode = TFCluster.InputMode.SPARK
    cluster = TFCluster.run(sc, collect, None, 1, 0, input_mode=mode)
    cluster.train(sc.parallelize(given, 1), 1)
    cluster.shutdown()
    assert cluster.howdah.results()[0] == given
    batches = list(yield_batch([(n, bytearray(b"x")) for n, _ in given], 2, 2))
    assert batches == [[[0, 1], [b"x"] * 2], [[2, 3], [b"x"] * 2], [[4], [b"x"]]]


@pytest.mark.tfos("Scala's Inference command")
def test_the_scoring_command_reads_tfrecords_and_writes_json(
    standalone_spark: Any, fitted: TFModel, lines: Any, tmp_path: Path
) -> None:
    from howdah.compat.tensorflowonspark import dfutil
    from howdah.spark.scoring.command import Request, run

    dfutil.saveAsTFRecords(lines.select("features", "n"), str(tmp_path / "in"))
    request = Request(
        model=str(fitted.getExportDir()),
        inputs=(str(tmp_path / "in"),),
        format="tfrecord",
        schema="features array<float>, n bigint",
        mapping={"features": "dense_input"},
        output_mapping={"dense": "prediction"},
        keep=("n",),
        output=str(tmp_path / "out"),
        output_format="json",
    )
    assert run(standalone_spark, request).columns.keys() == {"n", "prediction"}
    expected = {row.n: row.target for row in lines.collect()}
    found = standalone_spark.read.json(str(tmp_path / "out")).collect()
    assert len(found) == 1000
    assert all(abs(row.prediction[0] - expected[row.n]) < 1e-4 for row in found)

"""Scoring DataFrames by functions, in Spark's Python workers."""

from __future__ import annotations

import decimal
import pickle
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from howdah.client.errors import BadInput
from howdah.spark.errors import ScoringError
from howdah.spark.scoring import Function, Make, predict_udf, score, worker
from howdah.spark.scoring.files import FilesAccess, ModelFiles
from howdah.storage.hdfs.files import Hdfs
from tests.hadoop.cluster import Cluster

pytestmark = pytest.mark.timeout(400)  # the first test waits for Spark, on a busy machine


@pytest.fixture(scope="module")
def numbers(spark: Any) -> Any:
    """2,500 rows in 3 uneven partitions, with columns of many types."""
    return (
        spark.range(0, 2500, 1, 3)
        .withColumn("value", (F.col("id") * 0.5).cast("float"))
        .withColumn("text", F.concat(F.lit("row "), F.col("id").cast("string")))
        .withColumn("pair", F.array(F.col("id").cast("float"), F.lit(1.0).cast("float")))
        .withColumn("inner", F.struct(F.col("id").alias("a"), F.lit("b").alias("b")))
        .withColumn("when", F.timestamp_seconds(F.col("id")))
        .withColumn("price", (F.col("id") / 100).cast("decimal(10,2)"))
    )


@pytest.mark.both_sparks
def test_every_row_keeps_its_columns_and_its_place(numbers: Any) -> None:
    scored = score(
        numbers,
        lambda batch: {"double": batch["value"] * 2, "size": np.full(len(batch["value"]), 7)},
        inputs={"value": "value"},
        batch_size=64,
    )
    assert [field.simpleString() for field in scored.schema] == [
        *(field.simpleString() for field in numbers.schema),
        "double:float",
        "size:bigint",
    ]
    rows, before = scored.collect(), numbers.collect()
    assert [tuple(row)[:-2] for row in rows] == [tuple(row) for row in before]
    assert all(row.double == row.id and row.size == 7 for row in rows)


@pytest.mark.both_sparks
def test_columns_may_have_any_names(spark: Any) -> None:
    rows = spark.range(0, 3, 1, 1).selectExpr("id as `a.b`", "-id as `c``d`", "struct(id as b) a")
    scored = score(rows, lambda batch: {"p.q": batch["a.b"] * 2}, inputs={"a.b": "a.b"})
    assert scored.columns == ["a.b", "c`d", "a", "p.q"]
    assert [tuple(row) for row in scored.collect()] == [(i, -i, (i,), 2 * i) for i in range(3)]
    answers = score(rows, lambda batch: {"p.q": batch["c`d"]}, schema="`p.q` long", keep=["a.b"])
    assert [tuple(row) for row in answers.collect()] == [(i, -i) for i in range(3)]
    twice = predict_udf(
        spark, lambda batch: {"p.q": batch["a.b"] * 2}, "`p.q` long", inputs=["a.b"]
    )
    of_columns = rows.select(twice("`a.b`"), twice(rows["`a.b`"]), twice("a.b"))
    assert [tuple(row) for row in of_columns.collect()] == [(2 * i,) * 3 for i in range(3)]


def test_a_function_gets_batches_of_the_size_asked_for(numbers: Any) -> None:
    def sizes(batch: dict[str, Any]) -> Any:
        return np.full(len(batch["x"]), len(batch["x"]))

    whole = score(numbers.coalesce(1), sizes, inputs={"id": "x"}, batch_size=600, keep=())
    assert [row[0] for row in whole.collect()] == [600] * 2400 + [100] * 100
    padded = score(
        numbers.coalesce(1), sizes, inputs={"id": "x"}, batch_size=600, keep=(), pad=True
    )
    assert [row[0] for row in padded.collect()] == [600] * 2500


def echo(batch: dict[str, Any]) -> Any:
    return batch["x"]


@pytest.mark.parametrize("pad", [False, True])
def test_a_batch_that_arrow_cannot_join_is_scored_in_parts(
    monkeypatch: pytest.MonkeyPatch, pad: bool
) -> None:
    """Binaries and texts of more than 2 GiB stay in several chunks; these are spared the test."""

    def apart(batches: list[pa.RecordBatch]) -> Any:
        table = pa.Table.from_batches(batches)
        return SimpleNamespace(combine_chunks=lambda: table)

    stub = SimpleNamespace(**{**vars(pa), "Table": SimpleNamespace(from_batches=apart)})
    monkeypatch.setattr(worker, "pa", stub)
    plan = worker.ScoringPlan(
        predictor=pickle.dumps(Function(function=echo)), batch_size=4, keep=("x",), pad=pad
    )
    rows = [pa.record_batch({"x": range(start, stop)}) for start, stop in ((0, 7), (7, 8))]
    scored = list(worker.score_batches(plan, iter(rows)))
    assert [batch.to_pydict() for batch in scored] == [
        {"x": values, "prediction": values} for values in ([0, 1, 2, 3], [4, 5, 6], [7])
    ]


def test_columns_become_tensors_of_their_shape(spark: Any, numbers: Any) -> None:
    seen = score(
        numbers.limit(4),
        lambda batch: {name: [f"{v.dtype} {v.shape}"] * 4 for name, v in batch.items()},
        inputs={
            "pair": "pair",
            "price": "price",
            "text": "text",
            "id": "both",
            "value": "both",
        },
        keep=(),
        batch_size=4,
        schema="pair string, price string, text string, both string",
    ).first()
    assert seen.asDict() == {
        "pair": "float32 (4, 2)",
        "price": "float64 (4,)",
        "text": "object (4,)",
        "both": "float64 (4, 2)",
    }
    reshaped = score(
        spark.createDataFrame([([1.0, 2.0, 3.0, 4.0],)], "image array<double>"),
        lambda batch: batch["image"].transpose(0, 2, 1),
        shapes={"image": (2, 2)},
    ).first()
    assert reshaped.prediction == [[1.0, 3.0], [2.0, 4.0]]


def test_nulls_are_masked_for_functions_and_null_in_the_columns_kept(spark: Any) -> None:
    rows = [(1, True, 1.5, "a"), (None, None, None, None)]
    data = spark.createDataFrame(rows, "i int, b boolean, d double, s string").coalesce(1)
    scored = score(
        data,
        lambda batch: {
            "missing": sum(np.ma.getmaskarray(batch[name]).astype("int32") for name in "ib")
            + np.isnan(batch["d"]),
            "none": np.array([text is None for text in batch["s"]]),
        },
    )
    assert [tuple(row) for row in scored.collect()] == [
        (*rows[0], 0, False),
        (*rows[1], 3, True),
    ]


@pytest.mark.both_sparks
def test_vectors_of_spark_ml_are_matrices(spark: Any) -> None:
    data = spark.createDataFrame(
        [(Vectors.dense([1.0, 2.0]),), (Vectors.sparse(2, {1: 5.0}),)], ["features"]
    ).coalesce(1)
    scored = score(data, lambda batch: batch["features"].sum(axis=1))
    assert [row.prediction for row in scored.collect()] == [3.0, 5.0]
    assert scored.first().features == Vectors.dense([1.0, 2.0])


def test_answers_of_many_types_become_columns(spark: Any) -> None:
    def answers(batch: dict[str, Any]) -> dict[str, Any]:
        n = len(batch["id"])
        return {
            "half": np.ones(n, "float16"),
            "byte": np.full(n, 255, "uint8"),
            "wide": np.full(n, 2**40, "uint64"),
            "flag": np.ones(n, bool),
            "name": np.array(["x"] * n),
            "ragged": [list(range(i % 3 + 1)) for i in range(n)],
            "cube": np.zeros((n, 2, 3), "float32"),
            "day": np.full(n, np.datetime64("2024-01-02")),
        }

    scored = score(spark.range(3), answers)
    assert [field.simpleString() for field in scored.schema][1:] == [
        "half:float",
        "byte:smallint",
        "wide:bigint",
        "flag:boolean",
        "name:string",
        "ragged:array<bigint>",
        "cube:array<array<float>>",
        "day:date",
    ]
    row = scored.collect()[2]
    assert (row.byte, row.wide, row.name, str(row.day)) == (255, 2**40, "x", "2024-01-02")
    assert row.cube == [[0.0] * 3] * 2


def test_a_schema_turns_answers_into_its_types(spark: Any) -> None:
    scored = score(
        spark.range(3),
        lambda batch: {"a": batch["id"].reshape(-1, 1), "b": batch["id"]},
        outputs={"a": "first", "b": "second"},
        schema="second double, first float",
    )
    assert scored.columns == ["id", "second", "first"]
    assert tuple(scored.collect()[2]) == (2, 2.0, 2.0)
    empty = score(spark.range(0), lambda batch: batch["id"], schema="prediction long")
    assert empty.collect() == []


def test_what_does_not_fit_is_said_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    data = spark.range(3)
    with pytest.raises(BadInput, match="the rows have no column 'x'; they have 'id'"):
        score(data, len, inputs={"x": "x"})
    with pytest.raises(BadInput, match="the rows already have a column 'ID'"):
        score(data, lambda batch: {"ID": batch["id"]})
    with pytest.raises(BadInput, match="both must name the same columns"):
        score(data, len, outputs={"a": "b"}, schema="c int")
    with pytest.raises(BadInput, match="the schema 'prediction flot' is not one of Spark's"):
        score(data, len, schema="prediction flot")
    with pytest.raises(BadInput, match="there is no row to ask the model with"):
        score(spark.range(1).where("id > 5"), lambda batch: batch["id"])
    with pytest.raises(BadInput, match="int is no model"):
        score(data, 3)
    with pytest.raises(BadInput, match="there is no model at memory://nowhere/model.pt"):
        score(data, "memory://nowhere/model.pt")


def test_a_column_that_is_there_twice_is_refused_where_it_is_needed(spark: Any) -> None:
    data = spark.sql("select id, id as x, id as x from range(3)")

    def answers(batch: dict[str, Any]) -> dict[str, Any]:
        return {"a": batch["id"], "b": batch["id"] + 1}

    def scored(**options: Any) -> Any:
        return score(data, answers, **{"inputs": {"id": "id"}, "keep": ["id"], **options})

    with pytest.raises(BadInput, match="keep: the rows have more than one column 'x'"):
        scored(keep=True)
    with pytest.raises(BadInput, match="inputs: the rows have more than one column 'x'"):
        scored(inputs={"x": "id"})
    for schema in (None, "y long"):
        with pytest.raises(BadInput, match="more than one of the model's answers is to be 'y'"):
            scored(outputs={"a": "y", "b": "y"}, schema=schema)
    with pytest.raises(BadInput, match="more than one of the model's answers is to be 'a'"):
        scored(schema="a long, a double")
    assert [tuple(row) for row in scored().collect()] == [(0, 0, 1), (1, 1, 2), (2, 2, 3)]


def test_what_does_not_fit_in_the_workers_is_said_with_the_numbers(spark: Any) -> None:
    data = spark.createDataFrame([([1.0],), ([1.0, 2.0],)], "x array<double>").coalesce(1)
    plain = spark.range(0, 2, 1, 1)
    short = {"y": [1.0]}
    cases: list[tuple[Any, Any, dict[str, str] | None, str]] = [
        (data, lambda batch: {"y": batch["x"]}, None, "cannot be double"),
        (plain, lambda batch: short, None, "has 1 rows for 2 rows"),
        (plain, lambda batch: short, {"z": "y"}, "the model answers 'y', not 'z'"),
    ]
    with pytest.raises(Exception, match="rows of column 'x' have 1 to 2 values"):
        score(data, lambda batch: batch["x"], shapes={"x": (1,)}, schema="y double").collect()
    for frame, function, outputs, text in cases:
        with pytest.raises(Exception, match=text):
            score(frame, function, schema="y double", outputs=outputs).collect()


def test_a_model_is_made_once_in_a_worker_and_files_go_with_it(spark: Any, tmp_path: Path) -> None:
    weights = tmp_path / "weights.txt"
    weights.write_text("3")
    made = tmp_path / "made"
    made.mkdir()

    def make(path: str) -> Any:
        import os
        import secrets

        factor = int(Path(path).read_text())
        (made / f"{os.getpid()}-{secrets.token_hex(4)}").touch()
        return lambda batch: {"y": batch["id"] * factor}

    def run() -> list[int]:
        frame = score(spark.range(0, 8, 1, 8), Make(str(weights), make=make), keep=())
        return [row.y for row in frame.collect()]

    assert run() == run() == [0, 3, 6, 9, 12, 15, 18, 21]
    workers = {path.name.partition("-")[0] for path in made.iterdir()}
    assert len(list(made.iterdir())) == len(workers) < 9
    weights.write_text("10")  # another content is another model
    assert run() == [0, 10, 20, 30, 40, 50, 60, 70]


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_a_function_of_columns_takes_the_model_that_is_there_when_its_tasks_run(
    spark: Any, tmp_path: Path, scheme: str
) -> None:
    """It may live as long as its application, and its model be trained anew under the same path."""
    weights = tmp_path / "weights.txt"
    weights.write_text("3.0")

    def make(path: str) -> Any:
        factor = float(Path(path).read_text())
        return lambda batch: batch["x"] * factor

    times = predict_udf(spark, Make(f"{scheme}{weights}", make=make), "double", inputs=["x"])
    frame = spark.range(1, 3).coalesce(1).select(times("id").alias("y"))
    for factor in (3.0, 10.0):
        weights.write_text(str(factor))
        assert [row.y for row in frame.collect()] == [factor, 2 * factor]


def test_a_model_that_cannot_be_loaded_anew_stays_as_it_was(tmp_path: Path) -> None:
    """It may just be written, or be away until it is."""
    weights = tmp_path / "weights.txt"

    def make(path: str) -> Any:
        factor = float(Path(path).read_text())
        return lambda batch: factor

    plan = worker.ScoringPlan(
        predictor=cloudpickle.dumps(Make(str(weights), make=make)),
        files=ModelFiles(FilesAccess.SEEN, str(weights)),
    )
    with pytest.raises(ScoringError, match="neither on the driver's machine"):
        worker.loaded(plan)
    found: list[Any] = []
    for text in ("3", "", None, "10"):
        weights.unlink(missing_ok=True)
        if text is not None:
            weights.write_text(text)
        found.append(worker.loaded(plan)({}))
    assert found == [3.0, 3.0, 3.0, 10.0]


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_path_may_be_given_as_spark_writes_it(spark: Any, tmp_path: Path, scheme: str) -> None:
    weights = tmp_path / "weights.txt"
    weights.write_text("3")

    def make(path: str) -> Any:
        factor = int(Path(path).read_text())
        return lambda batch: {"y": batch["id"] * factor}

    frame = score(spark.range(3), Make(f"{scheme}{weights}", make=make), keep=())
    assert [row.y for row in frame.collect()] == [0, 3, 6]


def test_a_url_is_fetched_and_decimals_stay_exact_in_kept_columns(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "bias.txt").write_text("5")

    def make(path: str) -> Any:
        bias = int((Path(path) / "inner" / "bias.txt").read_text())
        return lambda batch: batch["price"] + bias

    data = spark.createDataFrame([(decimal.Decimal("1.25"),)], "price decimal(6,2)")
    row = score(data, Make(f"local://{folder}", make=make)).first()
    assert tuple(row) == (decimal.Decimal("1.25"), 6.25)


def test_a_folder_and_a_file_on_hdfs_are_fetched(spark: Any, hadoop: Cluster) -> None:
    place = f"{hadoop.default_fs}/tmp/{uuid.uuid4().hex}"
    hdfs = Hdfs(place)
    hdfs.mkdirs(f"{place}/model/inner")
    hdfs.write(f"{place}/model/inner/bias.txt", b"5")

    def make(path: str) -> Any:
        whole = Path(path)
        bias = int((whole / "inner" / "bias.txt" if whole.is_dir() else whole).read_text())
        return lambda batch: {"y": batch["id"] + bias, "name": [whole.name] * len(batch["id"])}

    def first(path: str) -> tuple[Any, ...]:
        return tuple(score(spark.range(1), Make(path, make=make), keep=()).first())

    try:
        assert first(f"{place}/model") == (5, "model")
        hdfs.write(f"{place}/model/inner/bias.txt", b"60")
        assert first(f"{place}/model/") == (60, "model")
        assert first(f"{place}/model/inner/bias.txt") == (60, "bias.txt")
        with pytest.raises(BadInput, match=f"there is no model at {place}/nothing"):
            first(f"{place}/nothing")
    finally:
        hdfs.remove(place, recursive=True)


def test_a_predictor_may_be_given_as_a_function_of_it(spark: Any) -> None:
    frame = score(spark.range(2), Function(function=lambda batch: batch["id"] + 1))
    assert StructType([StructField(*_of(field)) for field in frame.schema]) == frame.schema
    assert [row.prediction for row in frame.collect()] == [1, 2]


def _of(field: Any) -> tuple[Any, ...]:
    return field.name, field.dataType, field.nullable


@pytest.mark.both_sparks
def test_a_model_is_a_function_of_columns(spark: Any, numbers: Any) -> None:
    double = predict_udf(
        spark, lambda batch: batch["x"] * 2 + batch["y"], "float", inputs=["x", "y"], batch_size=64
    )
    rows = numbers.select("id", double("value", F.col("value")).alias("three")).collect()
    assert [row.three for row in rows] == [row.id * 1.5 for row in rows]
    both = predict_udf(
        spark,
        lambda batch: {"sum": batch["pair"].sum(1), "same": batch["pair"]},
        "same array<float>, sum double",
        inputs=["pair"],
    )
    [row] = numbers.where("id = 7").select(both("pair").alias("of")).collect()
    assert row.of.asDict() == {"same": [7.0, 1.0], "sum": 8.0}
    spark.udf.register("three_halves", double)
    numbers.createOrReplaceTempView("numbers")
    assert (
        spark.sql("SELECT count(*) FROM numbers WHERE three_halves(value, value) < 15").first()[0]
        == 10
    )


def test_a_function_of_columns_that_does_not_fit_is_refused(spark: Any, numbers: Any) -> None:
    for schema, inputs, said in (
        ("float", None, "does not say what its inputs are called"),
        ("float", ["x", "y"], "2 in all, and was given 1"),
        ("other float", ["x"], "not 'other'"),
    ):
        wrong = predict_udf(spark, lambda batch: batch["x"], schema, inputs=inputs)
        with pytest.raises(Exception, match=said):
            numbers.select(wrong("value")).collect()
    with pytest.raises(BadInput, match="not one of Spark's"):
        predict_udf(spark, lambda batch: batch["x"], "flaot")

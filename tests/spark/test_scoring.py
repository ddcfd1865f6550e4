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

from howdah.client.errors import BadInput
from howdah.spark.errors import ScoringError
from howdah.spark.scoring import Function, Make, predict_udf, score, worker
from howdah.spark.scoring.files import FilesAccess, ModelFiles
from howdah.storage.hdfs.files import Hdfs
from tests.hadoop.cluster import Cluster


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


@pytest.mark.nightly
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


def in_worker(rows: pa.RecordBatch, function: Any, **plan: Any) -> pa.Table:
    """What a Python worker of Spark makes of them."""
    predictor = cloudpickle.dumps(Function(function=function))
    scored = worker.score_batches(worker.ScoringPlan(predictor=predictor, **plan), iter([rows]))
    return pa.Table.from_batches(scored)


@pytest.mark.parametrize(("pad", "sizes"), [(False, [6] * 24 + [1]), (True, [6] * 25)])
def test_a_function_gets_batches_of_the_size_asked_for(pad: bool, sizes: list[int]) -> None:
    def size(batch: dict[str, Any]) -> Any:
        return np.full(len(batch["x"]), len(batch["x"]))

    found = in_worker(pa.record_batch({"x": range(25)}), size, batch_size=6, pad=pad)
    assert found["prediction"].to_pylist() == sizes


def test_columns_become_tensors_of_their_shape() -> None:
    rows = pa.record_batch(
        {
            "pair": [[1.0, 2.0]] * 4,
            "text": ["a"] * 4,
            "id": range(4),
            "value": pa.array([0.5] * 4, pa.float32()),
        }
    )
    found = in_worker(
        rows,
        lambda batch: {name: [f"{v.dtype} {v.shape}"] * 4 for name, v in batch.items()},
        inputs=(("pair", "pair"), ("text", "text"), ("id", "both"), ("value", "both")),
        shapes=(("pair", (2, 1)),),
    )
    assert found.slice(3).to_pylist() == [
        {"pair": "float64 (4, 2, 1)", "text": "object (4,)", "both": "float64 (4, 2)"}
    ]


def test_answers_of_many_types_become_columns() -> None:
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

    found = in_worker(pa.record_batch({"id": range(3)}), answers)
    assert {field.name: str(field.type) for field in found.schema} == {
        "half": "float",
        "byte": "int16",
        "wide": "int64",
        "flag": "bool",
        "name": "string",
        "ragged": "list<item: int64>",
        "cube": "list<item: list<item: float>>",
        "day": "date32[day]",
    }
    row = found.to_pylist()[2]
    assert (row["byte"], row["wide"], row["ragged"]) == (255, 2**40, [0, 1, 2])
    assert (row["cube"], str(row["day"])) == ([[0.0] * 3] * 2, "2024-01-02")


@pytest.mark.parametrize(
    ("rows", "plan", "text"),
    [
        ({"x": [[1.0], [1.0, 2.0]]}, {"shapes": (("x", (1,)),)}, "'x' have 1 to 2 values"),
        ({"y": [1.0]}, {"outputs": (("z", "y"),)}, "the model answers 'prediction', not 'z'"),
        ({"x": [1, 2]}, {}, "has 1 rows for 2 rows"),
    ],
)
def test_what_does_not_fit_in_the_workers_is_said_with_the_numbers(
    rows: dict[str, Any], plan: dict[str, Any], text: str
) -> None:
    with pytest.raises(ScoringError, match=text):
        in_worker(pa.record_batch(rows), lambda batch: [1.0], **plan)


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


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_vectors_of_spark_ml_are_matrices(spark: Any) -> None:
    data = spark.createDataFrame(
        [(Vectors.dense([1.0, 2.0]),), (Vectors.sparse(2, {1: 5.0}),)], ["features"]
    ).coalesce(1)
    scored = score(data, lambda batch: batch["features"].sum(axis=1))
    assert [row.prediction for row in scored.collect()] == [3.0, 5.0]
    assert scored.first().features == Vectors.dense([1.0, 2.0])


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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

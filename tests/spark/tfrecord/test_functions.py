"""`read_tfrecords`, `write_tfrecords` and dfutil on a real Spark, 3.5 and 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from howdah.spark.tfrecord import TFRecordError, dfutil, read_tfrecords, write_tfrecords
from howdah.spark.tfrecord.codec.framing import frame

COLUMNS = [
    "id",
    "cast(id as float) f",
    "if(id % 2 = 0, null, cast(id as double)) d",
    "cast(id % 100 as tinyint) t",
    "cast(id as smallint) sm",
    "cast(id as int) i",
    "id % 2 = 0 b",
    "concat('s', id) s",
    "cast(concat('s', id) as binary) y",
    "array(id, -id) al",
    "array('x', cast(id as string)) a_s",
    "array(id % 2 = 0) ab",
    "array(cast('x' as binary)) ay",
    "array(cast(id as float), 0.5f) af",
    "date '2026-11-21' day",
    "timestamp '2026-11-21 20:00:00' moment",
    "cast(1.5 as decimal(5, 2)) price",
    "cast(id % 3 as int) k",
]


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    return spark.range(0, 1000, 1, 3).selectExpr(*COLUMNS)


def _same(one: Any, other: Any) -> bool:
    names = one.columns
    return sorted(one.collect(), key=lambda row: row["id"]) == sorted(
        other.select(names).collect(), key=lambda row: row["id"]
    )


@pytest.mark.both_sparks
def test_all_types_come_back_with_their_schema_and_without(
    spark: Any, rows: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "out")
    assert write_tfrecords(rows, path, compression="gzip") == 1000
    assert len(list((tmp_path / "out").glob("part-*.tfrecord.gz"))) == 3
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert _same(rows, read_tfrecords(spark, path, rows.schema))
    some = read_tfrecords(spark, path, "al array<bigint>, id bigint, nothing string")
    first = min(some.collect(), key=lambda row: row["id"])
    assert first.asDict() == {"al": [0, 0], "id": 0, "nothing": None}
    types = dict(read_tfrecords(spark, path, binary_features=["y"]).dtypes)
    assert types == {
        **dict.fromkeys(("id", "t", "sm", "i", "b", "k", "day", "moment"), "bigint"),
        **dict.fromkeys(("f", "d", "price"), "float"),
        "s": "string", "y": "binary", "al": "array<bigint>", "a_s": "array<string>",
        "ab": "bigint", "ay": "string", "af": "array<float>",
    }  # fmt: skip


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_columns_may_have_any_names(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    frame = spark.range(0, 2, 1, 1).selectExpr(
        "id as `image.size`", "-id as `t``k`", "id % 2 as `a.k`"
    )
    assert write_tfrecords(frame, path, partition_by=["a.k"]) == 2
    assert (tmp_path / "out" / "a.k=1").is_dir()
    for schema in (None, frame.schema):
        found = read_tfrecords(spark, path, schema).select("`image.size`", "`t``k`", "`a.k`")
        assert sorted(tuple(map(int, row)) for row in found.collect()) == [(0, 0, 0), (1, -1, 1)]


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_folders_are_written_and_read_as_columns(spark: Any, rows: Any, tmp_path: Path) -> None:
    path, wanted = str(tmp_path / "out"), rows.select("id", "s", "k", "b")
    write_tfrecords(wanted, path, partition_by=["k", "b"])
    assert (tmp_path / "out" / "k=2" / "b=true").is_dir()
    found = read_tfrecords(spark, path)
    assert found.dtypes == [("id", "bigint"), ("s", "string"), ("k", "int"), ("b", "string")]
    assert _same(wanted, read_tfrecords(spark, path, wanted.schema))
    part = read_tfrecords(spark, f"{path}/k=1/b=*")
    assert part.columns == ["id", "s", "b"] and part.count() == 333


@pytest.mark.nightly
def test_modes_do_what_sparks_do(spark: Any, tmp_path: Path) -> None:
    path, ten = str(tmp_path / "out"), spark.range(10)
    assert write_tfrecords(ten, path) == 10
    with pytest.raises(FileExistsError, match="is not empty: choose mode append, overwrite"):
        write_tfrecords(ten, path)
    assert write_tfrecords(ten, path, mode="ignore") == 0
    write_tfrecords(ten, path, mode="append")
    assert read_tfrecords(spark, path).count() == 20
    write_tfrecords(read_tfrecords(spark, path), path, mode="overwrite")
    assert read_tfrecords(spark, path).count() == 20
    with pytest.raises(TFRecordError, match="unknown mode 'upsert'"):
        write_tfrecords(ten, path, mode="upsert")


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_nested_arrays_are_sequence_examples(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    wanted = spark.range(50).selectExpr(
        "id", "array(array(id, 1), array(), array(2)) n", "if(id = 3, null, array(array('x'))) w"
    )
    with pytest.raises(TFRecordError, match="recordType=SequenceExample"):
        write_tfrecords(wanted, path)
    write_tfrecords(wanted, path, record_type="SequenceExample")
    found = read_tfrecords(spark, path, record_type="SequenceExample")
    assert dict(found.dtypes)["n"] == "array<array<bigint>>"
    assert _same(wanted, found)


@pytest.mark.nightly
def test_no_rows_give_no_files_and_are_read_with_a_schema(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    assert write_tfrecords(spark.range(0), path) == 0
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["_SUCCESS"]
    with pytest.raises(TFRecordError, match="give a schema"):
        read_tfrecords(spark, path)
    assert read_tfrecords(spark, path, "id bigint").collect() == []
    with pytest.raises(TFRecordError, match="column 'm' has type map"):
        read_tfrecords(spark, path, "m map<string, int>")


@pytest.mark.nightly
def test_a_damaged_file_fails_the_query_with_its_name_and_byte(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "part"
    whole = frame([b"one", b"two"])
    path.write_bytes(whole[:-6] + b"?" + whole[-5:])
    with pytest.raises(Exception, match=f"{path}, byte 19: the checksum of record 1"):
        read_tfrecords(spark, str(path), record_type="ByteArray", schema="r binary").collect()


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_dfutil_saves_and_loads_as_tensorflowonspark_does(
    spark: Any, rows: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "out")
    wanted = rows.select("y", "f", "d", "b", "i", "s", "al", "af", "a_s")
    dfutil.saveAsTFRecords(wanted, path)
    loaded = dfutil.loadTFRecords(spark.sparkContext, path, binary_features=["y"])
    assert dfutil.isLoadedDF(loaded) and not dfutil.isLoadedDF(wanted)
    assert loaded.dtypes == [
        ("a_s", "array<string>"), ("af", "array<double>"), ("al", "array<bigint>"), ("b", "bigint"),
        ("d", "double"), ("f", "double"), ("i", "bigint"), ("s", "string"), ("y", "binary"),
    ]  # fmt: skip
    row = min(loaded.collect(), key=lambda row: row["i"])
    assert row["y"] == b"s0" and row["d"] is None and row["a_s"] == ["x", "0"]


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_dfutils_functions_are_for_map_partitions(rows: Any) -> None:
    wanted = rows.select("id", "f", "s", "b", "al").limit(7)
    examples = wanted.rdd.mapPartitions(dfutil.toTFExample(wanted.dtypes))
    back = examples.mapPartitions(dfutil.fromTFExample).collect()
    assert [(row["id"], row["f"], row["s"], row["b"]) for row in back] == [
        (n, float(n), f"s{n}", n % 2 == 0) for n in range(7)
    ]
    assert dfutil.infer_schema(bytes(examples.first()[0])).simpleString() == (
        "struct<al:array<bigint>,b:bigint,f:double,id:bigint,s:string>"
    )

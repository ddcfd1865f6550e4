"""Files and folders, schemas from samples, the commit of what is written."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from howdah.spark.tfrecord import TFRecordError, filesystems, folders, options, reading, writing
from howdah.spark.tfrecord.codec.columns import FeatureKind
from howdah.spark.tfrecord.codec.framing import frame
from howdah.spark.tfrecord.options import TFRecordOptions
from howdah.spark.tfrecord.schemas import arrow_schema, spark_schema
from tests.hadoop.cluster import Cluster
from tests.spark.tfrecord.records import RecordType, batch, encoded, lists


def _put(path: Path, **arrays: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(batch(**arrays)))


def _inferred(folder: Path, **more: Any) -> dict[str, tuple[FeatureKind, int, bool]]:
    wanted = TFRecordOptions(paths=(str(folder),), **more)
    found = reading.inferred(reading.pieces(wanted), wanted)
    return {each.name: (each.kind, each.depth, each.text) for each in found}


def test_a_schema_comes_from_more_than_the_first_record_and_file(tmp_path: Path) -> None:
    _put(tmp_path / "a", n=lists(pa.int64(), [[1], []]), x=pa.array([1, 2]), s=pa.array(["a", "b"]))
    _put(tmp_path / "b", n=lists(pa.int64(), [[1], [1, 2]]), x=pa.array([0.5, 1.5]))
    _put(tmp_path / "c", s=pa.array([b"\xff"]), late=pa.array([1]), e=lists(pa.int64(), [[]]))
    assert _inferred(tmp_path) == {
        "e": (FeatureKind.BYTES, 0, True),
        "late": (FeatureKind.INT, 0, True),
        "n": (FeatureKind.INT, 1, True),
        "s": (FeatureKind.BYTES, 0, False),
        "x": (FeatureKind.FLOAT, 0, True),
    }
    assert _inferred(tmp_path, sample_files=1) == {
        "n": (FeatureKind.INT, 0, True),
        "s": (FeatureKind.BYTES, 0, True),
        "x": (FeatureKind.INT, 0, True),
    }
    assert _inferred(tmp_path, sample_files=1, binary_features=("s",))["s"][2] is False
    _put(tmp_path / "a", n=lists(pa.int64(), [[1], [2, 3]]))
    assert _inferred(tmp_path, sample_files=1, sample_records=1)["n"] == (FeatureKind.INT, 0, True)


def test_a_feature_of_two_kinds_is_told_by_name(tmp_path: Path) -> None:
    _put(tmp_path / "a", it=pa.array([1]))
    _put(tmp_path / "b", it=pa.array(["x"]))
    with pytest.raises(TFRecordError, match="feature 'it' is bytes_list and int64_list"):
        _inferred(tmp_path)


def test_nothing_to_infer_from_asks_for_a_schema(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(TFRecordError, match="give a schema"):
        _inferred(tmp_path)


def test_hidden_files_are_left_out_and_patterns_find_the_others(tmp_path: Path) -> None:
    for name in (
        "_SUCCESS",
        ".crc",
        "_temporary-1/x",
        "a/part-1",
        "a/part-2",
        "b/part-1",
        "b/note",
        "b/part-2._COPYING_",
        "c/_day=1/part-1",
        "c/_day=2/_draft",
        "c/.x=1/part-1",
    ):
        _put(tmp_path / name, x=pa.array([1]))

    def found(path: str) -> list[str]:
        files = filesystems.find([str(tmp_path / path)])
        return [str(Path(file.path).relative_to(tmp_path)) for _, file in files]

    assert found("") == ["a/part-1", "a/part-2", "b/note", "b/part-1", "c/_day=1/part-1"]
    assert found("*/part-1") == ["a/part-1", "b/part-1"]
    assert found("[b]") == ["b/note", "b/part-1"]
    assert found("a/part-2") == ["a/part-2"]
    with pytest.raises(FileNotFoundError, match="no file matches .*/d"):
        found("d*")
    with pytest.raises(FileNotFoundError, match="there is no .*/nowhere"):
        found("nowhere")


@pytest.mark.parametrize(
    ("path", "default_fs", "wanted"),
    [
        ("/a//b/", "", "/a/b"),
        ("file:///a/b", "hdfs://nn", "/a/b"),
        ("file:/a/b", "", "/a/b"),
        ("/a/b", "hdfs://nn:8020/", "hdfs://nn:8020/a/b"),
        ("/a/b", "file:///", "/a/b"),
        ("a/b", "hdfs://nn", "hdfs://nn/user/anna/a/b"),
        ("hdfs://nn/a/", "", "hdfs://nn/a"),
        ("s3://bucket/a", "hdfs://nn", "s3://bucket/a"),
    ],
)
def test_paths_mean_what_they_mean_to_spark(
    path: str, default_fs: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "anna")
    assert filesystems.qualified(path, default_fs) == wanted


def test_a_path_on_viewfs_is_where_the_mount_table_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = "<property><name>fs.viewfs.mounttable.v.link./data</name><value>hdfs://nn/d</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{link}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert filesystems.qualified("viewfs://v/data/a/") == "hdfs://nn/d/a"
    assert filesystems.qualified("/data/a", "viewfs://v/") == "hdfs://nn/d/a"


def test_names_of_folders_are_values_and_back() -> None:
    names = [folders.name_of("k", value) for value in ("a/b=c", None, 1.5, True, "", "ü%")]
    assert names[:4] == ["k=a%2Fb%3Dc", f"k={folders.NULL}", "k=1.5", "k=true"]
    back = [folders.values_of("/x", f"/x/{name}/part")[0][1] for name in names]
    assert back == ["a/b=c", None, "1.5", "true", None, "ü%"]
    with pytest.raises(TFRecordError, match="column 'k' cannot be a folder's name"):
        folders.name_of("k", b"x")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2", None], "int"),
        (["1", "3000000000"], "bigint"),
        (["1", "0.5"], "double"),
        (["2026-11-21"], "date"),
        (["1", "x"], "string"),
        ([None], "string"),
        ([str(2**64)], "double"),
    ],
)
def test_the_type_of_a_folder_column_is_the_narrowest(texts: list[str | None], kind: str) -> None:
    assert folders.type_of(texts) == kind


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_2", "1_2"),
        (" 5", " 5"),
        ("+5", 5.0),
        ("\u0665", "\u0665"),  # an Arabic-Indic five
        ("0x1F", "0x1F"),
        ("1_0.5", "1_0.5"),
        ("2026-W01-1", "2026-W01-1"),
    ],
)
def test_a_folder_of_any_name_is_read_by_the_type_it_is_given(
    text: str, value: Any, tmp_path: Path
) -> None:
    _put(tmp_path / f"k={text}/part", x=pa.array([1]))
    wanted = TFRecordOptions(paths=(str(tmp_path),))
    found = reading.pieces(wanted)
    schema = arrow_schema(spark_schema(reading.inferred(found, wanted), found))
    [rows] = reading.rows(reading.Split(tuple(found)), schema, wanted)
    assert rows.to_pylist() == [{"x": 1, "k": value}]


def test_folders_that_do_not_agree_are_told(tmp_path: Path) -> None:
    _put(tmp_path / "a=1/part", x=pa.array([1]))
    _put(tmp_path / "b=1/part", x=pa.array([1]))
    with pytest.raises(TFRecordError, match="do not agree in their partition columns .a, b."):
        reading.pieces(TFRecordOptions(paths=(str(tmp_path),)))


def test_few_files_are_tasks_and_many_small_ones_share() -> None:
    few = [reading.RecordFile(f"/{n}", 10) for n in range(20)]
    assert len(reading.splits(few, 1)) == 20
    many = [reading.RecordFile(f"/{n}", 10) for n in range(1000)]
    shares = reading.splits(many, 128 << 20)
    assert [piece for share in shares for piece in share.pieces] == many
    assert {len(share.pieces) for share in shares[:-1]} == {31}
    assert reading.splits([reading.RecordFile("/empty", 0)], 1) == []


def _plan(folder: Path, **more: Any) -> writing.WritePlan:
    return writing.plan(TFRecordOptions(paths=(str(folder),), **more))


def _names(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [str(path.relative_to(folder)) for path in files]


def test_only_what_successful_tasks_told_of_appears(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    writing.write([batch(x=pa.array([1]))], plan, 0)  # an attempt that nobody heard of
    told = writing.write([batch(x=pa.array([1, 2]))], plan, 0)
    assert _names(tmp_path) and not any(name.startswith("part") for name in _names(tmp_path))
    writing.commit(plan, told, overwrite=False)
    assert _names(tmp_path) == ["_SUCCESS", told[0].name]
    assert told[0].rows == 2


def test_overwriting_removes_the_old_only_when_the_new_is_whole(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    plan = _plan(tmp_path)
    told = writing.write([batch(x=pa.array([1]))], plan, 0)
    assert (tmp_path / "old").exists()
    writing.commit(plan, told, overwrite=True)
    assert _names(tmp_path) == ["_SUCCESS", told[0].name]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    plan = _plan(tmp_path)
    with pytest.raises(TFRecordError, match="null inside an array"):
        bad = lists(pa.int64(), [[None]])
        writing.write([batch(x=lists(pa.int64(), [[1]])), batch(x=bad)], plan, 0)
    writing.abort(plan)
    assert _names(tmp_path) == ["old"]


def test_rows_of_more_folders_than_may_be_open_all_arrive(tmp_path: Path) -> None:
    plan = _plan(tmp_path, partition_by=("k",))
    keys = pa.array([n % 100 for n in range(1000)])
    told = writing.write([batch(k=keys, x=pa.array(range(1000)))] * 2, plan, 0)
    writing.commit(plan, told, overwrite=False)
    assert sum(each.rows for each in told) == 2000
    wanted = TFRecordOptions(paths=(str(tmp_path),))
    schema = pa.schema([("x", pa.int64()), ("k", pa.int32())])
    found = [
        row
        for split in reading.splits(reading.pieces(wanted), 1)
        for rows in reading.rows(split, schema, wanted)
        for row in rows.to_pylist()
    ]
    assert len(found) == 2000 and all(row["x"] % 100 == row["k"] for row in found)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"path": "/x", "recordTpe": "Example"}, "unknown option 'recordtpe'.*recordType"),
        ({"path": "/x", "recordType": "Foo"}, "unknown recordType 'Foo': it is one of Example"),
        ({"path": "/x", "sampleFiles": "0"}, "sampleFiles='0' must be a whole number"),
        ({"path": "/x", "verify": "maybe"}, "verify='maybe' must be true or false"),
        ({}, "no path"),
    ],
)
def test_an_option_without_sense_is_told(told: dict[str, str], words: str) -> None:
    with pytest.raises(TFRecordError, match=words):
        options.options(told)


def test_options_are_read_by_sparks_and_the_connectors_names() -> None:
    given = {"paths": '["/a", "/b"]', "codec": "org.apache.hadoop.io.compress.GzipCodec"}
    found = options.options({**given, "RECORDTYPE": "sequenceexample", "binaryFeatures": "a, b"})
    assert found.paths == ("/a", "/b") and found.binary_features == ("a", "b")
    assert found.compression is not None and found.compression.value == "gzip"
    assert found.record_type is RecordType.SEQUENCE_EXAMPLE


@pytest.mark.parametrize("place", ["memory", pytest.param("hdfs", marks=pytest.mark.nightly)])
def test_other_file_systems_have_files_written_found_and_read(
    place: str, request: pytest.FixtureRequest
) -> None:
    """Folders of values that no folder can be called after are escaped."""
    root = "memory://some=where/100%25 of/tfrecords"
    if place == "hdfs":
        hadoop: Cluster = request.getfixturevalue("hadoop")
        root = f"{hadoop.default_fs}/tmp/some={uuid.uuid4().hex}/100%25 of"
    wanted = TFRecordOptions(paths=(root,), partition_by=("k",))
    plan = writing.plan(wanted)
    rows = batch(k=pa.array(["a/b?%", "b"]), x=pa.array([1, 2]))
    try:
        for _ in range(2):
            told = writing.write([rows], plan, 0)
            writing.commit(plan, told, overwrite=True)
        found = reading.pieces(wanted)
        assert [piece.values for piece in found] == [(("k", "a/b?%"),), (("k", "b"),)]
        schema = pa.schema([("x", pa.int64()), ("k", pa.string())])
        read = [
            row
            for piece in found
            for part in reading.rows(reading.Split((piece,)), schema, wanted)
            for row in part.to_pylist()
        ]
        assert read == [{"x": 1, "k": "a/b?%"}, {"x": 2, "k": "b"}]
        assert len(filesystems.file_system(root).children(root)) == 3
    finally:
        filesystems.file_system(root).remove(root)


def test_an_old_record_at_the_end_of_a_sample_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(frame([b""] * 3) + b"damaged")
    assert _inferred(tmp_path, record_type=RecordType.BYTES) == {
        "byteArray": (FeatureKind.BYTES, 0, False)
    }

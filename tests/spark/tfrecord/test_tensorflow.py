"""TensorFlow reads what is written here, and the other way round."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from howdah.spark.tfrecord import dfutil
from howdah.spark.tfrecord.codec.compression import Compression, Compressor
from howdah.spark.tfrecord.codec.framing import blocks
from howdah.spark.tfrecord.schemas import infer
from tests.spark.tfrecord.records import EXAMPLE, SEQUENCE, batch, encoded, lists, table_of

pytestmark = pytest.mark.nightly

TF_NAMES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
ROWS = 500


@pytest.fixture(scope="module")
def tf() -> Any:
    return importlib.import_module("tensorflow")


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    rng = np.random.default_rng(5)
    words = ["".join(chr(97 + n % 26) for n in range(size)) for size in rng.integers(0, 200, ROWS)]
    return batch(
        flag=pa.array([None if n % 7 == 0 else n % 2 == 0 for n in range(ROWS)], pa.bool_()),
        id=pa.array(rng.integers(-(2**63), 2**63 - 1, ROWS)),
        image=pa.array([rng.bytes(300) for _ in range(ROWS)]),
        pixels=lists(pa.float32(), [rng.random(28, np.float32) for _ in range(ROWS)]),
        ragged=lists(pa.int64(), [rng.integers(-9, 900, n % 5) for n in range(ROWS)]),
        score=pa.array(rng.random(ROWS, np.float32)),
        tags=lists(pa.string(), [words[n : n + n % 4] for n in range(ROWS)]),
        word=pa.array(words),
    )


def _of_tf(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


@pytest.mark.parametrize("compression", Compression)
def test_tensorflow_reads_the_same_rows(
    tf: Any, rows: pa.RecordBatch, tmp_path: Path, compression: Compression
) -> None:
    path = tmp_path / "part"
    with path.open("wb") as file:
        packing = Compressor(file, compression)
        packing.write(encoded(rows))
        packing.finish()
    records = tf.data.TFRecordDataset(str(path), compression_type=TF_NAMES[compression])
    found = [tf.train.Example.FromString(record) for record in records.as_numpy_iterator()]
    assert len(found) == ROWS
    for example, row in zip(found, rows.to_pylist()):
        features = example.features.feature
        assert set(features) == {name for name, value in row.items() if value is not None}
        for name in features:
            values = row[name] if isinstance(row[name], list) else [row[name]]
            wanted = [each.encode() if isinstance(each, str) else each for each in values]
            assert _of_tf(features[name]) == wanted, name


def _feature(tf: Any, value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if all(isinstance(each, (bool, int)) for each in values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, values)))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    octets = [each.encode() if isinstance(each, str) else each for each in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=octets))


@pytest.mark.parametrize("compression", Compression)
def test_what_tensorflow_writes_is_read(
    tf: Any, rows: pa.RecordBatch, tmp_path: Path, compression: Compression
) -> None:
    path = tmp_path / "part"
    with tf.io.TFRecordWriter(str(path), TF_NAMES[compression]) as writer:
        for row in rows.to_pylist():
            features = {
                name: _feature(tf, value)
                if value != []
                else tf.train.Feature(bytes_list=tf.train.BytesList())
                for name, value in row.items()
                if value is not None
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    assert table_of(path, rows.schema).combine_chunks().to_batches() == [rows]
    if compression is Compression.NONE:
        with path.open("rb") as file:
            found = {each.name: each for each in infer(blocks(file), EXAMPLE)}
        assert {name: (each.depth, each.text) for name, each in found.items()} == {
            "flag": (0, True), "id": (0, True), "image": (0, False), "pixels": (1, True),
            "ragged": (1, True), "score": (0, True), "tags": (1, True), "word": (0, True),
        }  # fmt: skip


def test_sequence_examples_are_the_same_on_both_sides(tf: Any, tmp_path: Path) -> None:
    rows = batch(
        label=pa.array([1, None, 3]),
        frames=lists(pa.list_(pa.float32()), [[[0.5, 1.5], [2.5]], [], None]),
        words=lists(pa.list_(pa.string()), [[["a", "b"], []], [["c"]], [[""]]]),
    )
    path = tmp_path / "ours"
    path.write_bytes(encoded(rows, SEQUENCE))
    found = [
        tf.train.SequenceExample.FromString(record)
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
    lists_of = found[0].feature_lists.feature_list
    assert [_of_tf(each) for each in lists_of["frames"].feature] == [[0.5, 1.5], [2.5]]
    assert [_of_tf(each) for each in lists_of["words"].feature] == [[b"a", b"b"], []]
    assert list(found[1].feature_lists.feature_list["frames"].feature) == []
    assert "frames" not in found[2].feature_lists.feature_list
    again = tmp_path / "theirs"
    with tf.io.TFRecordWriter(str(again)) as writer:
        for each in found:
            writer.write(each.SerializeToString())
    assert table_of(again, rows.schema, record_type=SEQUENCE).to_batches() == [rows]


def test_dfutil_takes_tensorflows_own_examples(tf: Any) -> None:
    features = {"image": _feature(tf, b"x"), "n": _feature(tf, [1, 2]), "y": _feature(tf, 0.5)}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    schema = dfutil.infer_schema(example, ["image"])
    assert schema.simpleString() == "struct<image:binary,n:array<bigint>,y:double>"
    rows = dfutil.fromTFExample([(example.SerializeToString(), None)], ["image"])
    assert [row.asDict() for row in rows] == [{"image": bytearray(b"x"), "n": [1, 2], "y": 0.5}]
    dtypes = [("image", "binary"), ("n", "array<bigint>"), ("y", "double")]
    [(record, nothing)] = dfutil.toTFExample(dtypes)(rows)
    assert nothing is None and tf.train.Example.FromString(bytes(record)) == example

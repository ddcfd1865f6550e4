"""What runs in a driver of its own: ``python -m benchmarks.tfrecord.program ORDER`` (JSON)."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from benchmarks.spark.session import session
from benchmarks.tfrecord.shapes import Shape, batch, frame

_SLOWER = 10
"""dfutil gets so much fewer rows: it takes minutes for what takes others a second."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    runs: int
    scale: float
    folder: str
    figures: str
    """The file for them."""
    jvm: bool
    dfutil: bool
    spark: bool = True


class Figure(msgspec.Struct, frozen=True):
    """One clock."""

    shape: str
    name: str
    rows_s: float


def main() -> None:
    """Measure all shapes."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    cores = os.sched_getaffinity(0)
    for shape in Shape:
        _on_one_core(shape, order)
    if not order.spark:
        return
    os.sched_setaffinity(0, cores)
    spark = session()
    try:
        for shape in Shape:
            _in_spark(spark, shape, order)
    finally:
        spark.stop()


def _clock(
    order: Order,
    shape: Shape,
    name: str,
    rows: int,
    work: Callable[[], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    begin = clock()
    work()
    figure = Figure(shape.value, name, rows / (clock() - begin))
    with Path(order.figures).open("ab") as out:
        out.write(msgspec.json.encode(figure) + b"\n")


def _in_spark(spark: Any, shape: Shape, order: Order) -> None:
    from howdah.spark.tfrecord import read_tfrecords, write_tfrecords

    rows = frame(spark, shape, order.scale)
    count = rows.count()
    kept, place = f"{order.folder}/{shape.name}", f"{order.folder}/written"
    write_tfrecords(rows, kept)

    def read() -> None:
        found = read_tfrecords(spark, kept, rows.schema)
        found.write.format("noop").mode("overwrite").save()

    def frames() -> None:
        assert _in_the_jvm(spark, kept) == count

    def write() -> None:
        write_tfrecords(rows, place)

    turns: list[tuple[str, Callable[[], None]]] = [("read ours", read), ("write ours", write)]
    if order.jvm:
        turns.append(("read frames", frames))
    if order.dfutil:
        from tensorflowonspark import dfutil

        few = rows.limit(count // _SLOWER).repartition(4).cache()
        less = f"{kept}-few"
        write_tfrecords(few, less)

        def theirs() -> None:
            found = dfutil.loadTFRecords(spark.sparkContext, less)
            found.write.format("noop").mode("overwrite").save()

        turns += [
            ("read dfutil", theirs),
            ("write dfutil", lambda: dfutil.saveAsTFRecords(few, place)),
        ]
    for run in range(order.runs + 1):
        for name, work in turns:
            done = count // _SLOWER if "dfutil" in name else count
            if "dfutil" in name and not run:
                continue
            # The first round warms Java and Python up.
            _clock(order, shape, name if run else f"{name}, cold", done, work)
            shutil.rmtree(place, ignore_errors=True)
    rows.unpersist()


def _in_the_jvm(spark: Any, folder: str) -> int:
    """How many records the JVM finds; checksums are checked, nothing is parsed."""
    context, jvm = spark.sparkContext, spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def of(name: str) -> Any:
        return jvm.java.lang.Class.forName(name, True, loader)

    records = context._jsc.newAPIHadoopFile(
        folder,
        of("org.tensorflow.hadoop.io.TFRecordFileInputFormat"),
        of("org.apache.hadoop.io.BytesWritable"),
        of("org.apache.hadoop.io.NullWritable"),
        context._jsc.hadoopConfiguration(),
    )
    return int(records.count())


def _on_one_core(shape: Shape, order: Order) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    import tensorflow as tf

    from howdah.spark.tfrecord.codec.columns import RecordType, columns
    from howdah.spark.tfrecord.codec.encode import encode
    from howdah.spark.tfrecord.options import TFRecordOptions
    from howdah.spark.tfrecord.reading import RecordFile, Split, rows

    made = batch(shape, order.scale)
    path, place = Path(order.folder) / "core", Path(order.folder) / "core-written"
    wanted = columns(made.schema, RecordType.EXAMPLE)
    features = {
        column.name: tf.io.FixedLenFeature(
            [784] if column.depth else [], _dtype(tf, column.element)
        )
        for column in wanted
    }

    def write() -> None:
        with place.open("wb") as out:
            for data in encode(made, wanted, RecordType.EXAMPLE):
                out.write(data)

    def read() -> None:
        split = Split((RecordFile(str(path), path.stat().st_size),))
        found = rows(split, made.schema, TFRecordOptions(paths=(str(path),)))
        assert sum(each.num_rows for each in found) == made.num_rows

    def tf_read() -> None:
        data = tf.data.TFRecordDataset(str(path)).batch(1024)
        data = data.map(lambda records: tf.io.parse_example(records, features))
        found = sum(int(next(iter(each.values())).shape[0]) for each in data)
        assert found == made.num_rows

    few = made.slice(0, max(100, made.num_rows // 10))

    def tf_write() -> None:
        with tf.io.TFRecordWriter(str(place)) as out:
            for row in few.to_pylist():
                features = {name: _feature(tf, value) for name, value in row.items()}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                out.write(example.SerializeToString())

    write()
    place.rename(path)
    for run in range(order.runs + 1):
        suffix = "" if run else ", cold"
        for name, rows_of, work in (
            ("core read ours", made, read),
            ("core read tf", made, tf_read),
            ("core write ours", made, write),
            ("core write tf", few, tf_write),
        ):
            # Processor time, of all threads: what else the machine does matters less.
            clock = time.process_time
            _clock(order, shape, f"{name}{suffix}", rows_of.num_rows, work, clock)


def _dtype(tf: Any, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        return tf.float32
    return tf.string if pa.types.is_string(kind) else tf.int64


def _feature(tf: Any, value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))


if __name__ == "__main__":
    main()

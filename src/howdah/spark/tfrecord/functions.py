"""TFRecord files as DataFrames by functions: Spark 3.5 and 4, classic and Connect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from howdah.spark.frames import map_in_arrow
from howdah.spark.session import default_fs
from howdah.spark.tfrecord import filesystems, reading, writing
from howdah.spark.tfrecord.codec import compression as packing
from howdah.spark.tfrecord.codec.columns import RecordType
from howdah.spark.tfrecord.errors import TFRecordError
from howdah.spark.tfrecord.options import (
    PARTITION_BYTES,
    SAMPLE_FILES,
    SAMPLE_RECORDS,
    TFRecordOptions,
)
from howdah.spark.tfrecord.schemas import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MODES = ("error", "errorifexists", "append", "overwrite", "ignore")


def register(spark: SparkSession) -> None:
    """Make ``format("tfrecord")`` known to a session of Spark 4.

    Raises:
        TFRecordError: this Spark is older; `read_tfrecords` and `write_tfrecords` work there.
    """
    try:
        from howdah.spark.tfrecord.source import TFRecordSource
    except ImportError as error:
        raise TFRecordError(
            f"Spark {spark.version} has no data sources in Python (Spark 4 has): use"
            " howdah.spark.tfrecord.read_tfrecords and write_tfrecords"
        ) from error
    # Planning happens in a process that cannot ask the session.
    own = type("TFRecordSource", (TFRecordSource,), {"default_fs": default_fs(spark)})
    spark.dataSource.register(own)


def read_tfrecords(
    spark: SparkSession,
    path: str | Sequence[str],
    schema: StructType | str | None = None,
    *,
    record_type: RecordType | str = RecordType.EXAMPLE,
    compression: str | None = None,
    binary_features: Sequence[str] = (),
    sample_files: int = SAMPLE_FILES,
    sample_records: int = SAMPLE_RECORDS,
    verify: bool = True,
    partition_bytes: int = PARTITION_BYTES,
) -> DataFrame:
    """A DataFrame of TFRecord files. Lazy, but for looking at the sample.

    Args:
        path: folders, files, patterns; local, HDFS or fsspec URLs, as driver and executors see them.
        schema: a StructType or DDL text, which may leave features out; None infers it.
        record_type: ``Example``, ``SequenceExample`` or ``ByteArray``.
        compression: none, gzip, zlib; None finds out file by file.
        binary_features: features that are binary although they look like text.
        sample_files: so many files, spread evenly, are looked at to infer a schema.
        sample_records: so many records of each.
        verify: check all checksums.
        partition_bytes: where there are many files, small ones are read together up to this.

    Raises:
        FileNotFoundError: a path is not there.
        TFRecordError: the sample tells of no schema; the schema cannot be.
    """
    options = TFRecordOptions(
        paths=(path,) if isinstance(path, str) else tuple(path),
        record_type=_record_type(record_type),
        compression=None if compression is None else packing.named(compression),
        binary_features=tuple(binary_features),
        sample_files=sample_files,
        sample_records=sample_records,
        verify=verify,
        partition_bytes=partition_bytes,
    )
    return read(spark, options, schema)


def write_tfrecords(
    df: DataFrame,
    path: str,
    *,
    mode: str = "error",
    record_type: RecordType | str = RecordType.EXAMPLE,
    compression: str | None = None,
    partition_by: Sequence[str] = (),
) -> int:
    """Write a DataFrame as TFRecord files; returns the number of rows.

    Files appear when all tasks are done, ``_SUCCESS`` last. A partition without rows gives no file.

    Args:
        mode: what if the folder has something in it already: error, append, overwrite, ignore.
        partition_by: columns that become folders ``name=value``.

    Raises:
        FileExistsError: there is something and ``mode`` is error.
        TFRecordError: a column's type cannot be written.
    """
    if mode.lower() not in _MODES:
        raise TFRecordError(f"unknown mode {mode!r}: it is one of {', '.join(_MODES)}")
    options = TFRecordOptions(
        paths=(path,),
        record_type=_record_type(record_type),
        compression=None if compression is None else packing.named(compression),
        partition_by=(partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
    )
    writing.check(arrow_schema(df.schema), options)
    plan = writing.plan(options, default_fs(df.sparkSession))
    if mode.lower() in ("error", "errorifexists", "ignore"):
        if filesystems.file_system(plan.folder).children(plan.folder):
            if mode.lower() == "ignore":
                return 0
            raise FileExistsError(
                f"{plan.folder} is not empty: choose mode append, overwrite or ignore"
            )
    try:
        told = map_in_arrow(df, _writing(plan), "name string, rows bigint").collect()
        written = [writing.Written(row["name"], row["rows"]) for row in told]
        writing.commit(plan, written, overwrite=mode.lower() == "overwrite")
    except BaseException:
        with contextlib.suppress(Exception):
            writing.abort(plan)
        raise
    return sum(each.rows for each in written)


def read(
    spark: Any, options: TFRecordOptions, schema: StructType | str | None, *, doubles: bool = False
) -> DataFrame:
    found = reading.pieces(options, default_fs(spark))
    if schema is None:
        wanted = spark_schema(reading.inferred(found, options), found, doubles=doubles)
    elif isinstance(schema, str):
        wanted = spark.createDataFrame([], schema).schema
    else:
        wanted = schema
    columns = arrow_schema(wanted)
    reading.check(columns, found, options)
    shares = reading.splits(found, options.partition_bytes)
    if not shares:
        return spark.createDataFrame([], wanted)
    work = _reading(shares, columns, options)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(work, wanted)


def _record_type(given: RecordType | str) -> RecordType:
    return given if isinstance(given, RecordType) else RecordType.named(given)


def _reading(
    shares: list[reading.Split], schema: pa.Schema, options: TFRecordOptions
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    packed = msgspec.msgpack.encode(shares)
    columns = schema.serialize().to_pybytes()

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = msgspec.msgpack.decode(packed, type=list[reading.Split])
        kinds = pa.ipc.read_schema(pa.py_buffer(columns))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reading.rows(own[number], kinds, options)

    return read


def _writing(
    plan: writing.WritePlan,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        written = writing.write(batches, plan, context.partitionId())
        names = pa.array([each.name for each in written], pa.string())
        rows = pa.array([each.rows for each in written], pa.int64())
        yield pa.RecordBatch.from_arrays([names, rows], ["name", "rows"])

    return write

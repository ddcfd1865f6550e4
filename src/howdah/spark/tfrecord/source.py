"""``spark.read.format("tfrecord")`` and ``df.write.format("tfrecord")``: Spark 4's Python Data
Source API. Imported on Spark 4 only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from howdah.spark.tfrecord import options as given
from howdah.spark.tfrecord import reading, writing
from howdah.spark.tfrecord.schemas import arrow_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TFRecordSource(DataSource):
    """The data source; `howdah.spark.tfrecord.register` makes it known to a session."""

    default_fs = ""
    """Of the session, for paths without a scheme."""

    @classmethod
    def name(cls) -> str:
        return "tfrecord"

    def schema(self) -> StructType:
        wanted = given.options(self.options)
        found = reading.pieces(wanted, self.default_fs)
        return spark_schema(reading.inferred(found, wanted), found)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(schema, given.options(self.options), self.default_fs)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(schema, given.options(self.options), self.default_fs, overwrite)


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, wanted: given.TFRecordOptions, default_fs: str) -> None:
        self._schema = arrow_schema(schema)
        self._options = wanted
        self._default_fs = default_fs

    def partitions(self) -> Sequence[InputPartition]:
        found = reading.pieces(self._options, self._default_fs)
        reading.check(self._schema, found, self._options)
        shares = reading.splits(found, self._options.partition_bytes)
        return [InputPartition(split) for split in shares or [reading.Split(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return reading.rows(partition.value, self._schema, self._options)


class _Told(WriterCommitMessage):
    def __init__(self, files: list[writing.Written]) -> None:
        self.files = files


class _Writer(DataSourceArrowWriter):
    def __init__(
        self, schema: StructType, wanted: given.TFRecordOptions, default_fs: str, overwrite: bool
    ) -> None:
        writing.check(arrow_schema(schema), wanted)
        self._plan = writing.plan(wanted, default_fs)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        return _Told(writing.write(iterator, self._plan, context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [each for told in messages if isinstance(told, _Told) for each in told.files]
        writing.commit(self._plan, files, overwrite=self._overwrite)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        writing.abort(self._plan)

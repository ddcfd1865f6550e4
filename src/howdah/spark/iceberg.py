"""Iceberg tables as `howdah.spark.parquet` reads them: by pyiceberg's own scan, one data file after another.

That scan knows which rows were deleted, which columns were renamed, and what the table was at a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from howdah.spark.errors import FeedError


class IcebergScan:
    """What a scan of a table reads, as far as `pyarrow.dataset.Dataset` has the same names."""

    def __init__(self, source: Any, columns: Sequence[str] | None) -> None:
        """``source``: pyiceberg's ``Table``, as it is now, or what its ``scan`` gives.

        Raises:
            FeedError: the scan has a limit.
        """
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

        scan = source.scan() if hasattr(source, "scan") else source
        if scan.limit is not None:
            raise FeedError(
                f"The scan has limit={scan.limit}: ranks that share a table read all of it"
            )
        self.schema: pa.Schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
        # Who asks for others is told so later, by the names that there are.
        asked = [name for name in columns or self.schema.names if name in self.schema.names]

        def reader(of: Any) -> ArrowScan:
            return ArrowScan(scan.table_metadata, scan.io, of, scan.row_filter, scan.case_sensitive)

        # Not scan.select, which knows neither fields of structs nor names in another case.
        self._reader = reader(scan.projection().select(*asked))
        self._counter = reader(scan.projection().select(self.schema.names[0]))
        self._tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)

    def get_fragments(self) -> list[DataFile]:
        """The table's data files, in the order of their names: each rank plans for itself."""
        return [DataFile(task, self._reader, self._counter) for task in self._tasks]


class DataFile:
    """The rows of one data file that the scan gives."""

    def __init__(self, task: Any, reader: Any, counter: Any) -> None:
        self.path: str = task.file.file_path
        self._task = task
        self._reader = reader
        self._counter = counter

    def num_rows(self) -> int:
        """From the table's manifests; a file with deleted or filtered rows is read for it."""
        from pyiceberg.expressions import AlwaysTrue

        if not self._task.delete_files and self._task.residual == AlwaysTrue():
            return self._task.file.record_count
        return sum(batch.num_rows for batch in self._counter.to_record_batches([self._task]))

    def to_table(self, **_: Any) -> pa.Table:
        """The columns of the scan."""
        return pa.Table.from_batches(list(self._reader.to_record_batches([self._task])))


def is_iceberg(source: Any) -> bool:
    """Whether it is a table or a scan of pyiceberg's."""
    return type(source).__module__.partition(".")[0] == "pyiceberg"

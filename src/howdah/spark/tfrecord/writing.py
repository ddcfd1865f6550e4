"""Files of TFRecords: written under temporary names by tasks, renamed when all are done.

``_temporary-<id>/`` in the output folder holds what tasks write. When all have ended well the driver
moves the files that they told of, and only those, to their places, then writes ``_SUCCESS``. What a
failed or repeated task has left goes with the folder.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from howdah.spark.tfrecord import filesystems, folders
from howdah.spark.tfrecord.codec.columns import FeatureColumn, columns
from howdah.spark.tfrecord.codec.compression import Compression, Compressor
from howdah.spark.tfrecord.codec.encode import encode
from howdah.spark.tfrecord.errors import TFRecordError
from howdah.spark.tfrecord.options import TFRecordOptions

SUCCESS = "_SUCCESS"
_OPEN_AT_MOST = 64
"""Folders that a task writes into at the same time; more take turns, each turn with a new file."""


class WritePlan(msgspec.Struct, frozen=True):
    """Where a job writes, and how."""

    folder: str
    options: TFRecordOptions
    job: str

    @property
    def temporary(self) -> str:
        """Of this job only."""
        return f"{self.folder}/_temporary-{self.job}"


class Written(msgspec.Struct, frozen=True):
    """One file, by its name relative to the folder."""

    name: str
    rows: int


def plan(options: TFRecordOptions, default_fs: str = "") -> WritePlan:
    """Raises: TFRecordError: not exactly one path."""
    if len(options.paths) != 1:
        raise TFRecordError(f"one path is needed to write to, not {len(options.paths)}")
    folder = filesystems.qualified(options.paths[0], default_fs).rstrip("/")
    return WritePlan(folder, options, secrets.token_hex(6))


def check(schema: pa.Schema, options: TFRecordOptions) -> None:
    """Refuse what cannot be written, before anything runs.

    Raises:
        TFRecordError: a column's type, or an unknown partition column.
    """
    names = list(schema.names)
    for name in options.partition_by:
        if name not in names:
            raise TFRecordError(
                f"there is no column {name!r} to partition by; there are: {', '.join(names)}"
            )
    rest = [field for field in schema if field.name not in options.partition_by]
    if not rest:
        raise TFRecordError("all columns are partition columns: nothing is left to write")
    twice = {field.name for field in rest if names.count(field.name) > 1}
    if twice:
        raise TFRecordError(f"two columns are called {twice.pop()!r}: a record has each name once")
    columns(rest, options.record_type)


def write(batches: Iterable[pa.RecordBatch], the: WritePlan, task: int) -> list[Written]:
    """In a task: write all rows; nothing of it is in its place before `commit`.

    Raises:
        TFRecordError: a value cannot be written.
    """
    files = _Files(the, task)
    try:
        for batch in batches:
            for folder, part in _by_folder(batch, the.options.partition_by):
                files.write(folder, part)
        return files.close()
    except BaseException:
        with contextlib.suppress(Exception):
            files.close()
        raise


def commit(the: WritePlan, written: Iterable[Written], *, overwrite: bool) -> None:
    """In the driver, when all tasks have ended well."""
    fs = filesystems.file_system(the.folder)
    if overwrite:
        for child in fs.children(the.folder):
            if child.rstrip("/").rpartition("/")[2] != the.temporary.rpartition("/")[2]:
                fs.remove(child)
    for each in written:
        fs.rename(f"{the.temporary}/{each.name}", f"{the.folder}/{each.name}")
    fs.remove(the.temporary)
    success = f"{the.folder}/{SUCCESS}"
    fs.remove(success)
    fs.create(success).close()


def abort(the: WritePlan) -> None:
    """In the driver, when the job has failed."""
    filesystems.file_system(the.folder).remove(the.temporary)


class _File:
    def __init__(
        self, fs: filesystems.FileSystem, the: WritePlan, name: str, wanted: Sequence[FeatureColumn]
    ) -> None:
        self.name = name
        self.rows = 0
        self._columns = wanted
        self._options = the.options
        self._file: Any = fs.create(f"{the.temporary}/{name}")
        self._packing = Compressor(self._file, the.options.compression or Compression.NONE)

    def write(self, batch: pa.RecordBatch) -> None:
        for data in encode(batch, self._columns, self._options.record_type):
            self._packing.write(data)
        self.rows += batch.num_rows

    def close(self) -> Written:
        try:
            self._packing.finish()
        finally:
            self._file.close()
        return Written(self.name, self.rows)


class _Files:
    """What one task writes: a file for each folder it has rows for."""

    def __init__(self, the: WritePlan, task: int) -> None:
        self._plan = the
        self._fs = filesystems.file_system(the.folder)
        # Attempts of one task never meet: each has letters of its own.
        self._stem = f"part-{task:05d}-{secrets.token_hex(8)}"
        self._open: dict[str, _File] = {}
        self._done: list[Written] = []
        self._columns: Sequence[FeatureColumn] = ()

    def write(self, folder: str, batch: pa.RecordBatch) -> None:
        if not self._columns:
            self._columns = columns(batch.schema, self._plan.options.record_type)
        file = self._open.get(folder)
        if file is None:
            if len(self._open) >= _OPEN_AT_MOST:
                oldest = next(iter(self._open))
                self._done.append(self._open.pop(oldest).close())
            number = len(self._done) + len(self._open)
            suffix = (self._plan.options.compression or Compression.NONE).suffix
            name = f"{folder}{self._stem}.c{number:03d}.tfrecord{suffix}"
            file = self._open[folder] = _File(self._fs, self._plan, name, self._columns)
        file.write(batch)

    def close(self) -> list[Written]:
        while self._open:
            self._done.append(self._open.pop(next(iter(self._open))).close())
        return self._done


def _by_folder(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> list[tuple[str, pa.RecordBatch]]:
    """The rows of each folder (with a slash behind), without the columns that its name tells."""
    if batch.num_rows == 0:
        return []
    if not partition_by:
        return [("", batch)]
    keep = [name for name in batch.schema.names if name not in partition_by]
    rest = batch.select(keep)
    groups: dict[str, list[int]] = {}
    values = zip(*(batch.column(name).to_pylist() for name in partition_by))
    known: dict[tuple[Any, ...], str] = {}
    for row, value in enumerate(values):
        folder = known.get(value)
        if folder is None:
            parts = [folders.name_of(name, each) for name, each in zip(partition_by, value)]
            folder = known[value] = "/".join(parts) + "/"
        groups.setdefault(folder, []).append(row)
    if len(groups) == 1:
        return [(next(iter(groups)), rest)]
    return [(folder, rest.take(pa.array(at))) for folder, at in groups.items()]

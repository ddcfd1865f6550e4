"""Rows of Parquet files, read by the training processes themselves, without Spark in the way.

    feed = ParquetFeed("hdfs:///digits", columns=["image", "label"], shuffle=7, epochs=3)
    for epoch in feed:
        for batch in epoch.batches(256):
            ...

In an epoch's order the row groups of all files are one long sequence of rows. Each rank has a segment
of it, and all segments are equally long: ranks make the same number of steps. Each rank works that
out by itself from the files' footers, so ranks exchange nothing. A row group in which one segment ends
and another begins is read by both ranks.

A rank holds the row group it hands out and the next one, no more.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as arrow

from howdah import task
from howdah.hadoop.errors import ConfigurationError
from howdah.spark.errors import FeedError
from howdah.spark.feed.adapters.batching import Batch, Batching, BatchSource
from howdah.spark.feed.adapters.loaders import Loaders
from howdah.spark.feed.arrow.columns import Converter, Shapes, concatenated, length, ordered, rows
from howdah.spark.iceberg import DataFile, IcebergScan, is_iceberg
from howdah.spark.tfrecord.filesystems import find, resolved
from howdah.storage.hdfs import is_hdfs

Segment = tuple[int, int]
"""Rows of an epoch's sequence: from, up to."""

REMEMBERED = 1024
"""Batches behind the last one that `ParquetFeed.position` still knows the position of."""
ALIGN = ("drop", "pad", "none")


class FilePosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far all ranks together are: the same in each of them after the same number of batches."""

    epoch: int = 0
    """From 0."""
    taken: tuple[tuple[int, int], ...] = ()
    """Of that epoch: (ranks, rows that each of them has taken), for each size the gang has had."""
    files: str = ""
    """Digest of the files' names and row groups."""
    shuffle: int | None = None


class ParquetFeed(Loaders):
    """Rows of Parquet files for one rank, a segment of its own. For one thread at a time.

    Batches are those of `howdah.spark.feed.feed.Feed`: `howdah.spark.feed.arrow.columns` says which array a
    column becomes.

    Args:
        source: a file, a folder (with folders ``name=value`` in it for further columns), a pattern
            such as ``/data/2026-*/*.parquet``, or a list of these: paths or fsspec URLs; ``hdfs://``
            without a JVM. Or any `pyarrow.dataset.Dataset` of files, such as that of a Delta table
            (``deltalake.DeltaTable(url).to_pyarrow_dataset()``). Or pyiceberg's table, or a scan of it
            (``table.scan(snapshot_id=…, row_filter=…)``), of which whole data files take the place of row
            groups.
        columns: only these are read.
        rank: whose segment; by default that of this task of a Howdah job, else 0.
        world_size: of how many ranks; by default the job's, else 1.
        epochs: how often the files are read; None: again and again.
        shuffle: a seed. In each epoch row groups change places, and rows within each. None: the order
            of the files' names.
        align: what happens to the last rows that do not make one for every rank. ``drop``: nobody gets
            these (fewer than there are ranks; with ``shuffle`` others each time). ``pad``: the first
            ones come a second time, to make one for every rank. ``none``: some ranks have one more.

    Raises:
        FeedError: the files cannot be read, or there are none.
        ValueError: ``rank`` is none of ``world_size``, or there is no such ``align``.
    """

    def __init__(
        self,
        source: Any,
        *,
        columns: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        epochs: int | None = 1,
        shuffle: int | None = None,
        align: str = "drop",
    ) -> None:
        me = task.context()
        if rank is None and me.rank is None:
            raise FeedError(
                f"The role {me.role!r} has no ranks, so no rows are its own: give rank and world_size"
            )
        self.rank: int = (me.rank or 0) if rank is None else rank
        self.world_size: int = me.world_size if world_size is None else world_size
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"There is no rank {self.rank} of {self.world_size}")
        if align not in ALIGN:
            raise ValueError(f"align is {align!r}; there are {', '.join(ALIGN)}")
        self._columns = None if columns is None else list(columns)
        self._align = align
        self._seed = shuffle
        self._epochs = math.inf if epochs is None else epochs
        found: Any = source
        if is_iceberg(source):
            found = IcebergScan(source, columns)
        elif not isinstance(source, arrow.Dataset):
            found = dataset(source)
        self.schema: pa.Schema = _chosen(found.schema, self._columns)
        """Columns and Arrow types."""
        self._all = found.schema
        self._groups, self._lengths, self._files = _row_groups(found)
        self._restored = FilePosition(files=self._files, shuffle=shuffle)
        self._behind: deque[FilePosition] = deque([self._restored], REMEMBERED)

    @property
    def name(self) -> str:
        return "files"

    @property
    def num_rows(self) -> int:
        """Rows of one epoch, of this rank."""
        return _size(self._share([(0, sum(self._lengths))]))

    def steps(self, size: int, drop_last: bool = False) -> int:
        """Batches of one epoch, of this rank."""
        return self.num_rows // size if drop_last else -(-self.num_rows // size)

    # -- rows ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[FileEpoch]:
        """What is left of the epochs. The rest of one is dropped when the next is asked for; ranks
        that leave an epoch early must all do so."""
        begun = self.position()
        while begun.epoch < self._epochs:
            if left := self._share(self._left(begun)):
                yield FileEpoch(self, begun, left)
            begun = self.ended(begun)

    def iterate(self, asked: Batching) -> Iterator[Batch]:
        for epoch in self:
            yield from epoch.iterate(asked)

    def sample(self, columns: Sequence[str] | None = None, shapes: Shapes | None = None) -> Batch:
        convert = Converter(self.name, columns, shapes)
        return convert.convert(self._read(0).slice(0, 64))

    def ended(self, begun: FilePosition) -> FilePosition:
        """The position after that epoch, from now on ours."""
        self._behind[-1] = msgspec.structs.replace(begun, epoch=begun.epoch + 1, taken=())
        return self._behind[-1]

    def read(self, begun: FilePosition, left: list[Segment], asked: Batching) -> Iterator[Batch]:
        """Batches of these rows of an epoch."""
        size = asked.size
        handed, parts, waiting = 0, [], 0
        for piece in self._pieces(begun.epoch, left, asked.convert):
            at, end = 0, length(piece)
            while at < end:
                stop = min(end, at + size - waiting)
                parts.append(rows(piece, at, stop))
                waiting += stop - at
                at = stop
                if waiting == size:
                    handed += size
                    self._handed(begun, handed)
                    yield concatenated(parts)
                    parts, waiting = [], 0
        if waiting and not asked.drop_last:
            self._handed(begun, handed + waiting)
            yield concatenated(parts)

    # -- where it is -----------------------------------------------------------------------------

    def position(self, batches: int = 0) -> FilePosition:
        """The rows handed out up to the last batch given: to be saved beside a checkpoint. One rank's
        is every rank's, if all have made the same number of steps.

        Args:
            batches: so many of the last ones do not count: those that a prefetching loop has drawn and
                not trained with yet.

        Raises:
            FeedError: so many are not remembered.
        """
        if not 0 <= batches < len(self._behind):
            raise FeedError(
                f"The position {batches} batches ago is not known, only of up to {len(self._behind) - 1}"
            )
        return self._behind[-1 - batches]

    def position_bytes(self, batches: int = 0) -> bytes:
        """`position`, as `restore` takes it."""
        return msgspec.json.encode(self.position(batches))

    def restore(self, position: FilePosition | bytes) -> None:
        """Go on from there, before the first batch is asked for, in every rank. There may be another
        number of ranks now: they share what is left of the epoch.

        Raises:
            FeedError: these are no bytes of `position_bytes`, or they belong to other files or to
                another order of rows.
        """
        if not isinstance(position, FilePosition):
            try:
                position = msgspec.json.decode(position, type=FilePosition)
            except msgspec.DecodeError as error:
                raise FeedError(f"This is no position of files: {error}") from error
        if position.files != self._files:
            raise FeedError(
                "The position is one of other files: since it was saved, files have come, gone or "
                "changed. Read the same ones, or begin without a position"
            )
        if position.shuffle != self._seed:
            raise FeedError(
                f"The position was saved with shuffle={position.shuffle}, which is {self._seed} now: "
                "rows come in another order"
            )
        self._restored = position
        self._behind = deque([position], REMEMBERED)

    # -- frameworks ------------------------------------------------------------------------------

    def passes(self, asked: Batching, per_epoch: bool) -> Iterator[Batch]:
        for epoch in self:
            if asked.drop_last and epoch.begun.taken and epoch.num_rows < asked.size:
                continue  # all batches but no end of it were asked for, by who knows the length
            yield from epoch.iterate(asked)
            if per_epoch:
                self.ended(epoch.begun)
                return

    def length(self, size: int, drop_last: bool) -> int | None:
        """See `Loaders.length`. None in an epoch in whose midst a position was restored."""
        restored = self._restored
        within = restored.taken and restored.epoch == self.position().epoch
        return None if within else self.steps(size, drop_last)

    def _handed(self, begun: FilePosition, handed: int) -> None:
        taken = (*begun.taken, (self.world_size, handed))
        self._behind.append(msgspec.structs.replace(begun, taken=taken))

    def _left(self, position: FilePosition) -> list[Segment]:
        left = [(0, sum(self._lengths))]
        for ranks, taken in position.taken:
            left = remainder(left, ranks, taken, self._align)
        return left

    def _share(self, left: list[Segment]) -> list[Segment]:
        return share(left, self.rank, self.world_size, self._align)

    def _pieces(self, epoch: int, left: list[Segment], convert: Converter) -> Iterator[Batch]:
        """The rows' arrays, one row group after another; the next one is read meanwhile."""
        order = np.arange(len(self._groups))
        if self._seed is not None:
            order = np.random.default_rng([self._seed, epoch]).permutation(order)
        ends = np.cumsum([self._lengths[group] for group in order])
        wanted = []
        for start, stop in left:
            place = int(np.searchsorted(ends, start, "right"))
            while start < stop:
                begins = int(ends[place]) - self._lengths[order[place]]
                until = min(stop, int(ends[place]))
                wanted.append((int(order[place]), start - begins, until - begins))
                start, place = until, place + 1
        with ThreadPoolExecutor(1, "howdah-parquet") as reader:
            coming = [reader.submit(self._read, group) for group, _, _ in wanted[:1]]
            for number, (group, start, stop) in enumerate(wanted):
                batch = coming.pop().result()
                coming = [
                    reader.submit(self._read, after)
                    for after, _, _ in wanted[number + 1 : number + 2]
                ]
                if self._seed is None:
                    yield convert.convert(batch.slice(start, stop - start))
                    continue
                random = np.random.default_rng([self._seed, epoch, group])
                mixed = random.permutation(batch.num_rows)[start:stop]
                yield ordered(convert.convert(batch), mixed)

    def _read(self, group: int) -> pa.RecordBatch:
        fragment = self._groups[group]
        try:
            table = fragment.to_table(schema=self._all, columns=self._columns)
            batches = table.combine_chunks().to_batches()
        except (OSError, ValueError, pa.ArrowException) as error:
            what = "The data file" if isinstance(fragment, DataFile) else "A row group of"
            raise FeedError(f"{what} {fragment.path} cannot be read: {error}") from error
        if len(batches) > 1:
            raise FeedError(_too_large(fragment, table.num_rows))
        return batches[0]


class FileEpoch(BatchSource):
    """One pass over the files."""

    def __init__(self, feed: ParquetFeed, begun: FilePosition, left: list[Segment]) -> None:
        self._feed = feed
        self._left = left
        self.begun = begun

    @property
    def number(self) -> int:
        """From 0."""
        return self.begun.epoch

    @property
    def num_rows(self) -> int:
        """Rows of it, of this rank."""
        return _size(self._left)

    @property
    def name(self) -> str:
        return self._feed.name

    def iterate(self, asked: Batching) -> Iterator[Batch]:
        return self._feed.read(self.begun, self._left, asked)


# -- who has which rows: pure ----------------------------------------------------------------------


def share(left: list[Segment], rank: int, ranks: int, align: str) -> list[Segment]:
    """What one of so many ranks has of these rows."""
    total = _size(left)
    if align == "none":
        return _cut(left, rank * total // ranks, (rank + 1) * total // ranks)
    size = -(-total // ranks) if align == "pad" else total // ranks
    start, stop = rank * size, (rank + 1) * size
    found = _cut(left, min(start, total), min(stop, total))
    while stop > total > 0:  # the first rows once more
        start, stop = max(0, start - total), stop - total
        found += _cut(left, start, min(stop, total))
    return found


def remainder(left: list[Segment], ranks: int, taken: int, align: str) -> list[Segment]:
    """What is left of these rows when each of so many ranks has taken so many of its own."""
    total = _size(left)
    found, end = [], 0
    for rank in range(ranks):
        if align == "none":
            start, end = rank * total // ranks, (rank + 1) * total // ranks
        else:
            size = -(-total // ranks) if align == "pad" else total // ranks
            start, end = min(rank * size, total), min((rank + 1) * size, total)
        found += _cut(left, min(start + taken, end), end)
    return found + _cut(left, end, total)


def _cut(left: list[Segment], start: int, stop: int) -> list[Segment]:
    """The rows from ``start`` up to ``stop``, counted along these segments."""
    found, at = [], 0
    for begins, ends in left:
        low, high = max(start, at), min(stop, at + ends - begins)
        if low < high:
            found.append((begins + low - at, begins + high - at))
        at += ends - begins
    return found


def _size(segments: list[Segment]) -> int:
    return sum(stop - start for start, stop in segments)


# -- files -----------------------------------------------------------------------------------------


def dataset(source: str | Sequence[str]) -> arrow.Dataset:
    """The Parquet files of paths, folders, patterns and URLs, in the order of their names.

    Raises:
        FeedError: there are none, or they cannot be read.
    """
    sources = [source] if isinstance(source, str) else [str(each) for each in source]
    try:
        files = [file.path for _, file in find(map(resolved, sources))]
        if not files:
            raise FeedError(f"There is no Parquet file at {', '.join(sources)}")
        systems: dict[Any, list[str]] = {}
        for file in files:
            system, path = _opened_by(file)
            systems.setdefault(system, []).append(path)
        found = [
            arrow.dataset(
                paths,
                filesystem=system,
                format="parquet",
                partitioning=arrow.partitioning(flavor="hive"),
            )
            for system, paths in systems.items()
        ]
        return found[0] if len(found) == 1 else arrow.dataset(found)
    except (OSError, ValueError, ImportError, pa.ArrowException, ConfigurationError) as error:
        raise FeedError(f"{', '.join(sources)} cannot be read as Parquet: {error}") from error


def _opened_by(url: str) -> tuple[Any, str]:
    """What Arrow opens the file with, and its path there."""
    from fsspec.core import url_to_fs

    if is_hdfs(url):
        # By name: fsspec's own choice for hdfs:// is pyarrow's, which needs a JVM.
        from hdfs_native.fsspec import HdfsFileSystem

        host, _, path = url.partition("://")[2].partition("/")
        name, _, port = host.partition(":")
        return HdfsFileSystem(name or None, int(port) if port else None), f"/{path}"
    return url_to_fs(url)


def _row_groups(found: Any) -> tuple[list[Any], list[int], str]:
    """Row groups that have rows, how many rows each has, and a digest of it all."""
    fragments = list(found.get_fragments())
    with ThreadPoolExecutor(8, "howdah-parquet") as pool:
        try:
            parts = list(pool.map(_parts, fragments))
        except (OSError, pa.ArrowException) as error:
            raise FeedError(f"A footer cannot be read: {error}") from error
    groups, lengths, digest = [], [], hashlib.sha256()
    for fragment, (of_file, rows_of_each) in zip(fragments, parts):
        digest.update(f"{fragment.path.rpartition('/')[2]}{rows_of_each}\n".encode())
        for group, count in zip(of_file, rows_of_each):
            if count:
                groups.append(group)
                lengths.append(count)
    if not groups:
        raise FeedError(f"The {len(fragments)} files have no rows")
    return groups, lengths, digest.hexdigest()[:16]


def _parts(fragment: Any) -> tuple[list[Any], list[int]]:
    if isinstance(fragment, DataFile):
        return [fragment], [fragment.num_rows()]
    groups = fragment.split_by_row_group()
    return groups, [group.row_groups[0].num_rows for group in groups]


def _chosen(schema: pa.Schema, columns: list[str] | None) -> pa.Schema:
    for name in columns or ():
        if name not in schema.names:
            raise FeedError(f"The files have no column {name!r}, only {', '.join(schema.names)}")
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _too_large(fragment: Any, count: int) -> str:
    if isinstance(fragment, DataFile):
        return (
            f"The data file {fragment.path} of {count} rows has more than 2 GiB in one column: write the "
            "table with smaller data files (write.target-file-size-bytes)"
        )
    return (
        f"A row group of {fragment.path}, of {count} rows, has more than 2 GiB in one column: write the "
        "files with smaller row groups"
    )


__all__ = ["FileEpoch", "FilePosition", "ParquetFeed"]

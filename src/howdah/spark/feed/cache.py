"""Rows kept for another pass: in memory up to a limit, then in a file nobody else can open.

The file has no name (it is unlinked as soon as it is open), so it goes with the process however
that ends. It holds Arrow IPC messages as they came; later passes look at it through a memory map.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.ipc import record_batch
from howdah.spark.feed.messages import Intervals

SPARE = 10
"""This part of what is free on a disk is left to others."""

_PREFIX = "howdah-rows-"
_ROOM = "Set TMPDIR or Spark's spark.local.dir to a disk with room for them, train with cache=False"


class Entry(NamedTuple):
    """One record batch of the cache."""

    load: Callable[[], pa.RecordBatch]
    rows: int
    partition: int
    offsets: Intervals


class SpillSpace:
    """The disk that the files of one rank may take, of all its feeds together."""

    def __init__(self, folder: Path | None) -> None:
        """``folder``: where the files lie; None: the temporary one."""
        self.folder = folder
        self.used: int = 0
        """Bytes of all files."""
        self._spare: int | None = None
        """Bytes of the disk that stay free where nobody has set a limit."""
        self._lock = threading.Lock()

    def claim(self, size: int, limit: int | None, descriptor: int, folder: Path) -> None:
        """Count ``size`` more bytes.

        Args:
            limit: of all files; None: a tenth of what was free at first stays free. Other ranks of
                the host write to the same disk.

        Raises:
            FeedError: that would be more than the limit.
            OSError: the disk does not say how full it is.
        """
        with self._lock:
            if limit is None:
                found = os.fstatvfs(descriptor)
                free = found.f_bavail * found.f_frsize
                if self._spare is None:
                    self._spare = free // SPARE
                if free - size < self._spare:
                    raise FeedError(
                        f"Rows could not be kept in a file in {folder}: {free} bytes of its disk are "
                        f"free, and {self._spare} are left to others; files of this rank have "
                        f"{self.used}. {_ROOM}, or say how many bytes the files of a rank may have: "
                        "spill= of Cluster.train"
                    )
            elif self.used + size > limit:
                raise FeedError(
                    f"Rows could not be kept in a file in {folder}: files of this rank have "
                    f"{self.used} bytes, and {size} more are over the limit, spill={limit} of "
                    f"Cluster.train. Raise it, or train with cache=False"
                )
            self.used += size

    def release(self, size: int) -> None:
        """A file of so many bytes is gone."""
        with self._lock:
            self.used -= size


class SpillFile:
    """A file of messages that grows while it is read; gone when nothing refers to it any more."""

    def __init__(self, space: SpillSpace, limit: int | None) -> None:
        """``limit``: see `SpillSpace.claim`."""
        self._space = space
        self._limit = limit
        self._folder = space.folder or Path(tempfile.gettempdir())
        self._file: int | None = None
        self._claimed = 0
        self._size = 0
        self._map: mmap.mmap | None = None
        self._lock = threading.Lock()

    def put(self, message: pa.Buffer) -> tuple[int, int]:
        """Write the message; where it is, and how large.

        Raises:
            FeedError: the limit is reached, the disk is full, or the folder cannot be written to.
        """
        with self._lock:
            try:
                descriptor = self._descriptor()
                # Bodies begin at a multiple of 64: the map begins at a page.
                start = self._size + -self._size % 64
                view = memoryview(message).cast("B")
                self._space.claim(len(view), self._limit, descriptor, self._folder)
                self._claimed += len(view)
                done = 0
                while done < len(view):
                    done += os.pwrite(descriptor, view[done:], start + done)
            except OSError as error:
                raise FeedError(
                    f"Rows could not be kept in a file in {self._folder}: {error}. {_ROOM}"
                ) from error
            self._size = start + len(view)
            return start, len(view)

    def get(self, start: int, size: int) -> pa.Buffer:
        """The message, looking at the file."""
        with self._lock:
            if self._map is None or len(self._map) < start + size:
                assert self._file is not None
                self._map = mmap.mmap(self._file, self._size, prot=mmap.PROT_READ)
            return pa.py_buffer(self._map).slice(start, size)

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)  # maps of it stay good
            self._space.release(self._claimed)

    def _descriptor(self) -> int:
        if self._file is None:
            try:
                made = tempfile.mkstemp(prefix=_PREFIX, dir=self._space.folder)
            except OSError:
                # The executor it belonged to is gone with its folder; the process lives on.
                made = tempfile.mkstemp(prefix=_PREFIX)
            self._file, name = made
            self._folder = Path(name).parent
            Path(name).unlink()
        return self._file


class EpochCache:
    """All record batches of an epoch, in the order they came."""

    def __init__(self, memory: int, spill_file: SpillFile) -> None:
        """``memory``: bytes kept before the file is used."""
        self._memory = memory
        self._spill_file = spill_file
        self.entries: list[Entry] = []
        self.in_memory: int = 0
        """Bytes."""

    def keep(
        self, message: pa.Buffer, batch: pa.RecordBatch
    ) -> tuple[Callable[[], pa.RecordBatch], bool]:
        """What gives the rows back, for an entry, and whether they were written to the file."""
        if self.in_memory + message.size > self._memory:
            return spilled(self._spill_file, message, batch.schema), True
        self.in_memory += message.size

        def load() -> pa.RecordBatch:
            return batch

        return load, False


def spilled(
    spill_file: SpillFile, message: pa.Buffer, schema: pa.Schema
) -> Callable[[], pa.RecordBatch]:
    """Write the message, and give back what reads it."""
    start, size = spill_file.put(message)

    def load() -> pa.RecordBatch:
        return record_batch(spill_file.get(start, size), schema)

    return load


def shuffled(
    entries: list[Entry], seed: int, epoch: int, rank: int
) -> list[tuple[Entry, np.ndarray]]:
    """Another order of the entries, and of the rows in each: the same for the same arguments,
    in whatever order the entries came."""
    entries = sorted(entries, key=lambda entry: (entry.partition, entry.offsets))
    random = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, epoch, rank])
    order = random.permutation(len(entries))
    return [(entries[index], random.permutation(entries[index].rows)) for index in order]

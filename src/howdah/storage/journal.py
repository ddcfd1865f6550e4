"""The journal: what happened to a job, in order, durable, one JSON line an entry.

A line is ``{"crc":"1a2b3c4d","is":"event","seq":7,"now":…,"event":{…}}``; the checksum (CRC-32) is
over the line without it. Sequence numbers count from 1 without gaps, through all segments
``events-0001.jsonl``, ``events-0002.jsonl``, …

What a crash leaves at the end of the last segment, a line without its newline, was never reported
durable: it is cut when the journal is opened, and not read. Any other damage is a `JournalError`
that names file and line; entries are never guessed. A journal of the last release is read too.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from howdah.core.messages import AnyEvent, Record
from howdah.storage import legacy_names
from howdah.storage.files import open_regular, sync_folder

SEGMENT_BYTES = 64 * 1024 * 1024
CLOSE_S = 10.0
"""A replica that can't be written gets so long when the journal is closed."""

_SEGMENT = re.compile(r"events-(\d{4,})\.jsonl")


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", omit_defaults=True):
    seq: int
    now: float
    """Seconds since the epoch, as the machine was told."""


class EventEntry(_Entry, frozen=True, kw_only=True, tag="event"):
    """A fact the machine was given."""

    event: AnyEvent


def event_cause(event: AnyEvent, seq: int) -> str:
    """What commands and records that follow from this entry name as their cause."""
    return f"{type(event).__name__}#{seq}"


class RecordEntry(_Entry, frozen=True, kw_only=True, tag="record"):
    """A record of the job's event log, for readers; replay does not need it."""

    record: Record


Entry = EventEntry | RecordEntry


class JournalError(Exception):
    """The journal is damaged, held by another process, or can't be written."""


class Fenced(JournalError):
    """Another coordinator has taken the job over; this one must end."""


class Replica(Protocol):
    """A copy elsewhere that makes entries durable; `howdah.storage.copies.replica` has it on HDFS.

    With one, the files here are only for reading. All but `hurry` are called in one thread.
    """

    def take_over(self, folder: Path) -> float | None:
        """Become the one writer, and put what was written before into the folder.

        Returns what the clock of the former writers' entries shows now, as the store's own clock tells;
        None if nothing was written, or that is not known.
        """
        ...

    def store(self, data: bytes) -> None:
        """Return once the data is durable; may wait for as long as that takes.

        Raises:
            JournalError: it never will be.
        """
        ...

    def hurry(self, timeout_s: float) -> None:
        """Wait no longer than that from now on."""
        ...

    def close(self) -> None:
        """Let go; what was stored is there for readers."""
        ...


class _Position(NamedTuple):
    """Where the sound part of the journal ends."""

    segment: int
    """Number of the last segment; 0 if there is none."""
    size: int
    """Sound bytes of the last segment."""
    last_seq: int


class Journal:
    """The one writer of a job's journal, on one event loop.

    `append` and `commit` separate order from durability: many entries and many waiters share one
    `fsync`. After a failed write the journal stays failed, for a failed `fsync` can't be repeated
    with any meaning.
    """

    def __init__(
        self,
        folder: Path,
        lock: int,
        position: _Position,
        segment_bytes: int,
        replica: Replica | None = None,
        time_now: float | None = None,
    ) -> None:
        self.time_now: float | None = time_now
        """What the entries' clock showed when the journal was opened, where its store has a clock of its
        own: those of former writers' machines and of this one may be apart."""
        self._folder = folder
        self._replica = replica
        self._lock = lock
        self._segment_bytes = segment_bytes
        self._segment = position.segment
        self._size = position.size
        self._file = _open_segment(folder, position.segment)
        self._next_seq = position.last_seq + 1
        self._pending: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        """Resolves when what is pending now is durable."""
        self._flusher: asyncio.Task[None] | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._failure: JournalError | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    @classmethod
    def open(
        cls, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, replica: Replica | None = None
    ) -> Journal:
        """Open the journal in the job directory for writing, new or after a predecessor.

        The end that a crash left torn is cut off. With a replica the truth is there: it is taken
        over and copied here first.

        Raises:
            JournalError: another process writes it, or it is damaged.
        """
        lock = _lock(folder)
        try:
            time_now = replica.take_over(folder) if replica is not None else None
            position = _recover(folder)
            return cls(folder, lock, position, segment_bytes, replica, time_now)
        except BaseException:
            os.close(lock)
            raise

    @property
    def next_seq(self) -> int:
        return self._next_seq

    def append(self, entry: Entry) -> None:
        """Add an entry; it is durable once a `commit` begun after this call returns.

        Raises:
            ValueError: its ``seq`` is not `next_seq`.
            JournalError: an earlier write failed, or the journal is closed.
        """
        self._check()
        if entry.seq != self._next_seq:
            raise ValueError(f"The next journal entry has number {self._next_seq}, not {entry.seq}")
        self._pending.append(_encode(entry))
        self._next_seq += 1

    def append_event(self, now: float, event: AnyEvent) -> int:
        """Add a fact; returns its number. See `append`."""
        seq = self._next_seq
        self.append(EventEntry(seq=seq, now=now, event=event))
        return seq

    def append_record(self, now: float, record: Record) -> int:
        """Add a record of the event log; returns its number. See `append`."""
        seq = self._next_seq
        self.append(RecordEntry(seq=seq, now=now, record=record))
        return seq

    async def commit(self) -> None:
        """Return once all entries appended before are durable.

        Concurrent commits share an `fsync`. Cancelling a waiter cancels nothing else.

        Raises:
            JournalError: they could not be written; the journal is unusable from now on.
        """
        self._check()
        if self._pending:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
                self._waiting.add_done_callback(_retrieve)
            waiting = self._waiting
        elif self._flushing is not None:
            waiting = self._flushing
        else:
            return
        if self._flusher is None:
            self._flusher = asyncio.get_running_loop().create_task(self._flush())
        await asyncio.shield(waiting)

    async def close(self) -> None:
        """Commit what is pending, and let go of the journal. Closing twice is harmless."""
        if self._closed:
            return
        if self._replica is not None:
            self._replica.hurry(CLOSE_S)
        try:
            if self._failure is None:
                await self.commit()
        finally:
            self._closed = True
            if self._replica is not None:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._replica.close)
            self._thread.shutdown(wait=True)
            os.close(self._file)
            os.close(self._lock)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise JournalError(f"The journal in {self._folder} is closed")

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                lines, self._pending = self._pending, []
                self._flushing, self._waiting = self._waiting or loop.create_future(), None
                try:
                    await loop.run_in_executor(self._thread, self._write, lines)
                except BaseException as error:
                    self._fail(error)
                    if not isinstance(error, Exception):
                        raise
                    return
                if not self._flushing.done():
                    self._flushing.set_result(None)
        finally:
            self._flushing = None
            self._flusher = None

    def _fail(self, error: BaseException) -> None:
        self._failure = JournalError(
            f"The journal in {self._folder} can't be written: {error or type(error).__name__}"
        )
        for future in (self._flushing, self._waiting):
            if future is not None and not future.done():
                future.set_exception(self._failure)

    def _write(self, lines: list[bytes]) -> None:
        """In the journal's thread: the lines are durable when this returns."""
        batch: list[bytes] = []
        for line in lines:
            if self._size and self._size + len(line) > self._segment_bytes:
                self._store(b"".join(batch))
                batch = []
                self._rotate()
            batch.append(line)
            self._size += len(line)
        self._store(b"".join(batch))

    def _store(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # a write may take a part only
            view = view[os.write(self._file, view) :]
        if self._replica is None:
            _sync_data(self._file)
        elif data:
            self._replica.store(data)

    def _rotate(self) -> None:
        file = _open_segment(self._folder, self._segment + 1)
        sync_folder(self._folder)
        os.close(self._file)
        self._file, self._segment, self._size = file, self._segment + 1, 0


def read(folder: Path) -> Iterator[Entry]:
    """All entries, oldest first, a line at a time; also while a writer is at work.

    An end torn by a crash, or not wholly written yet, is not read.

    Raises:
        JournalError: the journal is damaged; the text names file and line.
    """
    seq = 0
    segments = _segments(folder)
    for path in segments:
        for entry, _ in _read_segment(path, seq, last=path is segments[-1]):
            yield entry
            seq = entry.seq


def _read_segment(path: Path, seq: int | None, *, last: bool) -> Iterator[tuple[Entry, int]]:
    """The segment's entries, each with the offset of its end.

    ``seq`` is the number of the entry before the first, or None where that is not known.
    """
    end = 0
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            if last and not line.endswith(b"\n"):
                return
            entry = _decode(line)
            if isinstance(entry, str):
                raise JournalError(
                    f"{path}, line {number}: {entry}. The journal is damaged; restore the file"
                    " from a copy, or remove this line and all after it, segments too, to go on"
                    " from what is left"
                )
            if seq is not None and entry.seq != seq + 1:
                raise JournalError(
                    f"{path}, line {number}: entry {entry.seq} follows entry {seq}; the entries"
                    " between are lost"
                )
            end += len(line)
            seq = entry.seq
            yield entry, end


def _encode(entry: Entry) -> bytes:
    body = _json.encode(entry)
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body[1:])


def _decode(line: bytes) -> Entry | str:
    """The entry, or what is wrong with the line."""
    match = _LINE.fullmatch(line)
    if match is None:
        return "not a journal line"
    body = b"{" + match[2]
    if zlib.crc32(body) != int(match[1], 16):
        return "its checksum does not fit its content"
    try:
        return _entry(body)
    except (ValueError, RecursionError) as error:  # msgspec's own, or of a key that is no text
        return f"not an entry this version knows ({error})"


def _entry(body: bytes) -> Entry:
    """The entry, if need be in the words of the last release (`howdah.storage.legacy_names`)."""
    try:
        entry = _entries.decode(body)
    except msgspec.ValidationError:
        old = msgspec.json.decode(body, type=dict[str, Any])
        if not isinstance(old.get("event"), dict):
            raise
        return msgspec.convert({**old, "event": legacy_names.event(old["event"])}, EventEntry)
    if isinstance(entry, RecordEntry):
        record = entry.record
        data = legacy_names.data(record.data)
        if data is not record.data:
            entry = replace(entry, record=replace(record, data=data))
    return entry


_json = msgspec.json.Encoder()
_entries: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(EventEntry | RecordEntry)
_LINE = re.compile(rb'\{"crc":"([0-9a-f]{8})",([^\n]*)\n')


def segment_name(number: int) -> str:
    """File name of a segment, from 1 on."""
    return f"events-{number:04}.jsonl"


def segment_number(name: str) -> int:
    """Of the segment whose file that is; 0 for any other file."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else 0


def _segments(folder: Path) -> list[Path]:
    """The journal's files in order.

    Raises:
        JournalError: one is missing.
    """
    files = [path for path in folder.iterdir() if segment_number(path.name)]
    files.sort(key=lambda path: segment_number(path.name))
    for number, path in enumerate(files, 1):
        if path.name != segment_name(number):
            raise JournalError(f"{folder / segment_name(number)} is missing: entries are lost")
    return files


def _open_segment(folder: Path, number: int) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.open(folder / segment_name(number), flags, 0o600)


def _lock(folder: Path) -> int:
    """Exclusive lock on the first segment, which always exists and is never replaced."""
    descriptor = _open_segment(folder, 1)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise JournalError(
            f"Another process writes the journal in {folder}: a job has one coordinator at a"
            " time; wait for that one to end, or stop it"
        ) from error
    sync_folder(folder)
    return descriptor


def _recover(folder: Path) -> _Position:
    """Find the end of the journal and cut off what a crash left behind it."""
    segments = _segments(folder)
    size, last_seq = 0, 0
    # A crash right after a rotation leaves the last segment without a whole line: the number of
    # the last entry is then found in the one before.
    for path in reversed(segments):
        sound = 0
        for entry, end in _read_segment(path, None, last=path is segments[-1]):
            last_seq, sound = entry.seq, end
        if path is segments[-1]:
            size = sound
            _cut(path, size)
        if last_seq:
            break
    return _Position(len(segments), size, last_seq)


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        if file.seek(0, os.SEEK_END) > size:
            file.truncate(size)
            os.fsync(file.fileno())


def _retrieve(future: asyncio.Future[None]) -> None:
    """Keep asyncio from reporting a failure that is not waited for: the next call raises it."""
    if not future.cancelled():
        future.exception()


_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync

"""Log files of attempts: fast to write, limited in size, readable at stable offsets.

Standard library only: the agent uses it.

Offsets are *logical*: bytes ever written to the log. A log keeps its first and its last part:

- ``0.log``: the head, from offset 0;
- ``0.log.000000000067108864``: a later segment, named by the offset of its first byte. When there
  are too many, the oldest goes, and readers see a line saying how much is missing instead;
- ``0.idx``: ``<seconds since the epoch> <offset>`` lines: when what stands from there on was written.

Segments end at line ends where lines are of a sane length, so what is missing is whole lines.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from howdah.storage.files import open_regular

LINE_BYTES = 64 * 1024
"""A segment may grow by this much to end at a line's end."""

BLOCK_BYTES = 256 * 1024

_NEWLINE = ord("\n")

_INDEX_STEPS = ((10_000, 0.1), (50_000, 1.0), (1 << 62, 20.0))
"""Up to so many index lines: at most one in so many seconds. A month fits in 5 MB."""

_INDEX_LINE = re.compile(rb"^(\d{1,12}\.\d{3}) (\d{1,18})$", re.MULTILINE)

Written = tuple[int, float]
"""An offset, and when what stands there was written, in seconds since the epoch."""


class LogPart(NamedTuple):
    """A piece of a log."""

    offset: int
    """Logical offset of its first byte."""
    data: bytes
    next_offset: int
    """Where to go on reading. It is past ``offset + len(data)`` where a part is missing."""


class LogWriter:
    """Writes one attempt's log. Not for several threads at once."""

    def __init__(
        self,
        path: Path | str,
        max_bytes: int = 256 * 1024 * 1024,
        segments: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Continue the log at ``path`` (``….log``), or begin it; folders are made.

        About ``max_bytes`` are kept, in ``segments`` (at least 2) files: the first and the last.
        """
        self._path = Path(path)
        self._kept = max(segments, 2)
        self._segment_bytes = max(max_bytes // self._kept, 1)
        self._clock = clock
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._segments = _segments(self._path) or [_Segment(0, self._path)]
        last = self._segments[-1]
        self._file = _append_to(last.path)
        self._in_segment = os.fstat(self._file).st_size
        self._offset = last.start + self._in_segment
        self._mid_line = False
        """The last byte written was not a line's end."""
        self._index = _append_to(index_path(self._path))
        self._index_lines = os.fstat(self._index).st_size // 25
        self._index_due = 0.0
        self.lost: int = 0
        """Bytes that could not be written (disk full); `problem` says why."""
        self.problem: str = ""

    @property
    def offset(self) -> int:
        """Bytes written so far: the logical offset of the next byte."""
        return self._offset

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append. Never raises for a full or broken disk: a program must not stall on its log.

        What can't be written is counted in `lost`, and the log goes on when there is room again.
        """
        view = memoryview(data)
        before = self._offset
        try:
            now = self._clock()
            if now >= self._index_due:
                self._note(now)
            while view:
                room = self._segment_bytes - self._in_segment
                cut = _cut(view, room, self._mid_line) if len(view) > room else None
                if cut is None:
                    self._put(view)
                    break
                self._put(view[:cut])
                view = view[cut:]
                self._rotate()
        except OSError as error:
            self.problem = f"{self._path} can't be written: {error}"
            self.lost += len(data) - (self._offset - before)

    def close(self) -> None:
        """Let go of the files. Closing twice is harmless."""
        for descriptor in (self._file, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._index = -1

    def _put(self, view: memoryview) -> None:
        while view:  # a write may take a part only
            written = os.write(self._file, view)
            self._mid_line = view[written - 1] != _NEWLINE
            view = view[written:]
            self._offset += written
            self._in_segment += written

    def _rotate(self) -> None:
        segment = _Segment(self._offset, segment_path(self._path, self._offset))
        file = _append_to(segment.path)
        os.close(self._file)
        self._file, self._in_segment = file, 0
        self._segments.append(segment)
        while len(self._segments) > self._kept:
            # The head, number 0, stays.
            with contextlib.suppress(FileNotFoundError):
                self._segments.pop(1).path.unlink()

    def _note(self, now: float) -> None:
        os.write(self._index, b"%.3f %d\n" % (now, self._offset))
        self._index_lines += 1
        step = next(s for limit, s in _INDEX_STEPS if self._index_lines < limit)
        self._index_due = now + step


# -- reading -------------------------------------------------------------------------------------


def size(path: Path | str) -> int:
    """Bytes ever written to the log: the logical offset of its end.

    Raises:
        FileNotFoundError: there is no such log.
    """
    last = _existing(Path(path))[-1]
    return last.start + last.path.stat().st_size


def read(path: Path | str, offset: int = 0, limit: int = BLOCK_BYTES) -> LogPart:
    """At most ``limit`` bytes from logical ``offset`` on; negative offsets count from the end.

    In a missing part it gives the line that says so. At the end, or past it, the part is empty
    and its ``offset`` is the end. Works while the log is written.

    Raises:
        FileNotFoundError: there is no such log.
    """
    while True:
        segments = _existing(Path(path))
        try:
            return _read(segments, offset, limit)
        except FileNotFoundError:
            # The oldest segment went meanwhile; without the head there is no log at all.
            if not os.path.exists(segments[0].path):
                raise


def lines(path: Path | str, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Each line from ``offset`` to the present end, without its newline, and its offset.

    Lines longer than `BLOCK_BYTES` come in pieces.

    Raises:
        FileNotFoundError: there is no such log.
    """
    start, rest = offset, b""
    while True:
        part = read(path, offset)
        if not part.data:
            break
        if not rest:
            start = part.offset
        *whole, rest = (rest + part.data).split(b"\n")
        for line in whole:
            yield start, line
            start += len(line) + 1
        offset = part.next_offset
        if part.next_offset != part.offset + len(part.data) and not rest:
            start = offset
        if len(rest) >= BLOCK_BYTES:
            yield start, rest
            start, rest = start + len(rest), b""
    if rest:
        yield start, rest


def tail(path: Path | str, count: int) -> list[str]:
    """The last ``count`` lines, decoded leniently, of at most the last 4 MiB.

    Raises:
        FileNotFoundError: there is no such log.
    """
    end = size(path)
    if count <= 0:
        return []
    for length in (64 * 1024, 512 * 1024, 4096 * 1024):
        start = max(end - length, 0)
        found = [line for _, line in lines(path, start)]
        if start and found:
            del found[0]  # most likely a part of a line
        if len(found) >= count or not start:
            break
    return [line.decode(errors="replace") for line in found[-count:]]


class LogTimes:
    """When the parts of a log were written, as its index tells. Asked for one part after the other."""

    def __init__(self, path: Path | str) -> None:
        self._path = index_path(Path(path))
        self._read = 0
        self._known: list[Written] = []

    def between(self, start: int, end: int) -> tuple[Written, ...]:
        """The times of these bytes, ascending; the first may begin before ``start``.

        None where there is no index, which is no error: the log can be read without it.
        """
        self._read_on()
        first = max(bisect.bisect_right(self._known, start, key=lambda each: each[0]) - 1, 0)
        del self._known[:first]
        return tuple(self._known[: bisect.bisect_left(self._known, end, key=lambda each: each[0])])

    def offset_at(self, moment: float) -> int:
        """The offset of what was written from about ``moment`` on; 0 if there is no index."""
        self._read_on()
        return next((offset for offset, time in reversed(self._known) if time <= moment), 0)

    def _read_on(self) -> None:
        try:
            with open_regular(self._path) as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for when, offset in _INDEX_LINE.findall(whole):  # a full disk may have left half a line
            if not self._known or int(offset) > self._known[-1][0]:
                self._known.append((int(offset), float(when)))


# -- inside --------------------------------------------------------------------------------------


class _Segment(NamedTuple):
    start: int
    """Logical offset of its first byte."""
    path: Path


def files(path: Path | str) -> list[Path]:
    """All files of the log, its first segment first.

    Raises:
        FileNotFoundError: there is no such log.
    """
    found = [segment.path for segment in _existing(Path(path))]
    index = index_path(Path(path))
    return [*found, index] if index.exists() else found


def segment_path(path: Path, start: int) -> Path:
    """File of the segment that begins at that offset; ``path`` itself is the head."""
    return path.with_name(f"{path.name}.{start:018}") if start else path


def index_path(path: Path) -> Path:
    return path.with_suffix(".idx")


def _segments(path: Path) -> list[_Segment]:
    """The log's files by offset; empty if there is none."""
    prefix = f"{path.name}."
    try:
        names = {entry.name for entry in os.scandir(path.parent)}
    except FileNotFoundError:
        return []
    if path.name not in names:
        return []
    starts = (n.removeprefix(prefix) for n in names if n.startswith(prefix))
    later = sorted(int(start) for start in starts if start.isdecimal())
    return [_Segment(start, segment_path(path, start)) for start in (0, *later)]


def _existing(path: Path) -> list[_Segment]:
    segments = _segments(path)
    if not segments:
        raise FileNotFoundError(f"There is no log {path}")
    return segments


def _read(segments: list[_Segment], offset: int, limit: int) -> LogPart:
    last = segments[-1]
    end = last.start + last.path.stat().st_size
    if offset < 0:
        offset = max(end + offset, 0)
    if offset >= end:
        return LogPart(end, b"", end)
    place = bisect.bisect_right(segments, offset, key=lambda s: s.start) - 1
    segment = segments[place]
    with open_regular(segment.path) as file:
        file.seek(offset - segment.start)
        data = file.read(max(limit, 1)) or b""
        if data:
            return LogPart(offset, data, offset + len(data))
        if place + 1 == len(segments):
            return LogPart(offset, b"", offset)
        following = segments[place + 1].start
        stop = segment.start + os.fstat(file.fileno()).st_size
        file.seek(max(stop - segment.start - 1, 0))
        ends_line = file.read(1) == b"\n"
    if following == stop:
        return _read(segments, following, limit)
    return LogPart(offset, _missing(following - stop, ends_line), following)


def _missing(count: int, ends_line: bool) -> bytes:
    line = b"[howdah: %d bytes are missing here, over the log's size limit]\n" % count
    return line if ends_line else b"\n" + line


def _cut(view: memoryview, room: int, mid_line: bool) -> int | None:
    """How much of ``view`` still belongs to a segment with that room; None means all of it.

    After a line's end if there is one within `LINE_BYTES` of the limit, else wherever it falls.
    """
    if room <= 0 and not mid_line:
        return 0
    last = bytes(view[: max(room, 0)]).rfind(b"\n")
    if last >= 0:
        return last + 1
    limit = max(room, 0) + max(LINE_BYTES + min(room, 0), 0)
    first = bytes(view[max(room, 0) : limit]).find(b"\n")
    if first >= 0:
        return max(room, 0) + first + 1
    return None if len(view) <= limit else limit


def _append_to(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

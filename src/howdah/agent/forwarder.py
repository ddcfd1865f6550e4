"""The log forwarder: what programs print, from their pipes into the log and to the coordinator.

Standard output and standard error of all of a task's programs go into one log in the order they
arrive. A line is never torn by another stream's: its beginning is held back until it is whole, or
for `_HOLD_S`. Each stream's last lines are kept for the report of a failure.

The programs must not wait for us: pipes are as large as the system allows, reads are large, and a
log that cannot be written loses bytes instead of time (see `howdah.storage.logs`). What a
`LogSender` sends to the coordinator is read back from the file, so that a slow connection costs no
memory here: the follower just falls behind. Offsets are the log's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import select
import sys
import termios
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from howdah.core.messages import Task
from howdah.storage import logs
from howdah.storage.logs import LogWriter
from howdah.wire.channel import Channel, ChannelClosed
from howdah.wire.messages import LogChunk

PIPE_BYTES = 1024 * 1024
_BUFFER_BYTES = 256 * 1024
_READS = 4
"""Reads of one stream in a row; then the loop's other business."""
_HOLD_S = 0.1
"""How long a line's beginning waits for its end (prompts and progress bars have none)."""
_HOLD_BYTES = 64 * 1024
_BUSY_S = 0.01
_PAUSE_S = 0.005
"""A program that prints small pieces faster than one in `_BUSY_S` is read every `_PAUSE_S`: each
wake-up then brings many lines. Its pipe holds what comes meanwhile."""
_SMALL_BYTES = 16 * 1024

LINES = 40
LINE_LENGTH = 400
_KEPT_BYTES = 64 * 1024
_NEWEST_BYTES = 4 * 1024

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_PART_BYTES = 64 * 1024
_GATHER_S = 0.02
"""After a push, what comes is gathered for this long into the next one."""


class OutputPipe:
    """One pipe."""

    __slots__ = ("fd", "label", "pending", "tail")

    def __init__(self, fd: int, label: bytes) -> None:
        self.fd: int = fd
        self.label: bytes = label
        self.tail: Tail = Tail()
        self.pending: bytes = b""
        """The beginning of a line."""

    @property
    def open(self) -> bool:
        return self.fd >= 0


class ProgramOutput:
    """One program's two pipes."""

    def __init__(self, forwarder: LogForwarder, output: OutputPipe, error: OutputPipe) -> None:
        self._forwarder = forwarder
        self.output = output
        self.error = error
        self.last_read: float = 0.0
        self.paused: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> tuple[OutputPipe, ...]:
        """Those still open. Output first: what a program printed before an error."""
        return tuple(s for s in (self.output, self.error) if s.open)

    def tail(self) -> tuple[str, ...]:
        """The last lines of standard error where there are any, else of the output."""
        return self.error.tail.lines() or self.output.tail.lines()


class LogForwarder:
    """Moves bytes for one attempt."""

    def __init__(
        self, writer: LogWriter, moved: Callable[[], None], newest: NewestLine | None = None
    ) -> None:
        """``moved`` is called whenever the log has grown; ``newest`` gets its whole lines."""
        self._writer = writer
        self._moved = moved
        self._newest = newest
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._sources: list[ProgramOutput] = []
        self._open_line: OutputPipe | None = None
        """Whose unfinished line is the log's last."""
        self._flush: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()

    def pipe(self) -> tuple[int, int]:
        """Reading and writing end of a large pipe; the writing end is for the program."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # Refused beyond a user's share of pipe memory: then it is the usual 64 KiB.
            with contextlib.suppress(OSError):
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return reading, writing

    def add(self, output: int, error: int, label: str = "") -> ProgramOutput:
        """Forward a program's pipes from now on; ``label`` goes before each of its lines."""
        prefix = f"{label} | ".encode() if label else b""
        source = ProgramOutput(self, OutputPipe(output, prefix), OutputPipe(error, prefix))
        self._sources.append(source)
        self._ended.clear()
        self._resume(source)
        return source

    async def drained(self) -> None:
        """Wait until every pipe has been closed by all who could write to it."""
        if any(source.streams for source in self._sources):
            await self._ended.wait()

    def close(self) -> None:
        """Take what is in the pipes now, and let go of them."""
        for source in self._sources:
            if source.paused is not None:
                source.paused.cancel()
                source.paused = None
            for stream in source.streams:
                while self._read(stream) > 0:
                    pass
                if stream.open:
                    self._shut(stream)
        self._flush_all()
        self._view.release()
        self._buffer.clear()

    # -- reading ---------------------------------------------------------------------------------

    def _resume(self, source: ProgramOutput) -> None:
        source.paused = None
        for stream in source.streams:
            self._loop.add_reader(stream.fd, self._ready, source)

    def _ready(self, source: ProgramOutput) -> None:
        now = self._loop.time()
        busy = now - source.last_read < _BUSY_S
        source.last_read = now
        # What was printed before an error is in its pipe by the time the error is in its own.
        errors = _waiting(source.error) if source.error.open else 0
        most = self._read_some(source.output)
        if errors is None:
            most = max(most, self._read_some(source.error))
        elif errors:
            most = max(most, self._read(source.error, errors))
        if busy and 0 < most < _SMALL_BYTES:
            for stream in source.streams:
                self._loop.remove_reader(stream.fd)
            source.paused = self._loop.call_later(_PAUSE_S, self._resume, source)

    def _read_some(self, stream: OutputPipe) -> int:
        """Move what is there, within limits; returns the bytes of the largest piece."""
        most = 0
        for _ in range(_READS if stream.open else 0):
            count = self._read(stream)
            most = max(most, count)
            if count < _BUFFER_BYTES:
                break
        return most

    def _read(self, stream: OutputPipe, limit: int = _BUFFER_BYTES) -> int:
        """Move one buffer; returns its bytes, 0 if there are none or no more will come."""
        try:
            count = os.readv(stream.fd, [self._view[:limit]])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            count = 0
        if count == 0:
            self._shut(stream)
            return 0
        stream.tail.put(self._view[:count])
        self._take(stream, count)
        self._moved()
        return count

    def _shut(self, stream: OutputPipe) -> None:
        self._loop.remove_reader(stream.fd)
        os.close(stream.fd)
        stream.fd = -1
        self._put_pending(stream)
        if not any(source.streams for source in self._sources):
            self._ended.set()

    # -- lines -----------------------------------------------------------------------------------

    def _take(self, stream: OutputPipe, count: int) -> None:
        end = self._buffer.rfind(b"\n", 0, count) + 1
        if end:
            self._close_line(stream)
            if stream.label:
                self._put_labelled(stream, end)
            else:
                if stream.pending:
                    self._writer.write(stream.pending)
                self._writer.write(self._view[:end])
                if self._newest is not None:
                    self._newest.put(self._view[:end], stream.pending)
            self._open_line = None
            stream.pending = b""
        if end < count:
            stream.pending += bytes(self._view[end:count])
            if len(stream.pending) >= _HOLD_BYTES:
                self._put_pending(stream)
            elif self._flush is None:
                self._flush = self._loop.call_later(_HOLD_S, self._flush_all)

    def _put_labelled(self, stream: OutputPipe, end: int) -> None:
        text = stream.pending + bytes(self._view[:end])
        first = b"" if self._open_line is stream else stream.label
        text = first + text[:-1].replace(b"\n", b"\n" + stream.label) + b"\n"
        self._writer.write(text)
        if self._newest is not None:
            self._newest.put(text)

    def _close_line(self, stream: OutputPipe) -> None:
        """Another stream's line stands open: ours begins on a new one."""
        if self._open_line is not None and self._open_line is not stream:
            self._writer.write(b"\n")
            self._open_line = None

    def _put_pending(self, stream: OutputPipe) -> None:
        if not stream.pending:
            return
        self._close_line(stream)
        if stream.label and self._open_line is not stream:
            self._writer.write(stream.label)
        self._writer.write(stream.pending)
        stream.pending = b""
        self._open_line = stream

    def _flush_all(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for source in self._sources:
            for stream in (source.output, source.error):
                self._put_pending(stream)
        self._moved()


def _waiting(stream: OutputPipe) -> int | None:
    """Bytes in the pipe; None if all who could write to it are gone, so that no more will come."""
    poll = select.poll()
    poll.register(stream.fd, 0)
    if poll.poll(0):
        return None
    count = bytearray(4)
    fcntl.ioctl(stream.fd, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)


# -- last lines ----------------------------------------------------------------------------------


class Tail:
    """Keeps the end of what is put in; cheap for many small and for large pieces."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def put(self, data: bytes | memoryview) -> None:
        piece = bytes(data[-_KEPT_BYTES:])
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= _KEPT_BYTES:
            self._size -= len(self._pieces.popleft())
        if len(self._pieces) > 4096:  # many tiny pieces: their objects outweigh them
            self._pieces = deque([b"".join(self._pieces)])

    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first, without empty ones at the end."""
        return last_lines(b"".join(self._pieces))


class NewestLine:
    """The newest line of a log, for a coordinator that can't read the log; each is told once."""

    __slots__ = ("_lines", "_told")

    def __init__(self) -> None:
        self._lines = b""
        self._told = ""

    def put(self, lines: bytes | memoryview, before: bytes = b"") -> None:
        """More whole lines; ``before`` is the beginning of the first."""
        kept = bytes(lines[-_NEWEST_BYTES:])
        if before and len(kept) < _NEWEST_BYTES:
            kept = before[len(kept) - _NEWEST_BYTES :] + kept
        self._lines = kept

    def take(self) -> str | None:
        """The newest line, unless it was told before or is empty."""
        found = last_lines(self._lines, 1)
        if not found or found[0] == self._told:
            return None
        self._told = found[0]
        return self._told

    def forget(self) -> None:
        """Another coordinator is there: it is to be told too."""
        self._told = ""


def last_lines(data: bytes, count: int = LINES, length: int = LINE_LENGTH) -> tuple[str, ...]:
    """At most ``count`` lines of at most ``length`` characters from the end of ``data``.

    Bytes that are no UTF-8 are replaced, escape sequences and control characters left out, and of
    a line that was overwritten in place (a progress bar) the last state counts.
    """
    found = [_clean(line, length) for line in data.rstrip(b"\r\n").split(b"\n")[-count:]]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _clean(line: bytes, length: int) -> str:
    states = [state for state in line.split(b"\r") if state.strip()]
    text = (states[-1] if states else b"").decode(errors="replace")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text)).rstrip()
    return text if len(text) <= length else text[: length - 1] + "…"


# -- to the coordinator --------------------------------------------------------------------------


class LogSender:
    """Pushes one attempt's log over one connection, from an offset on."""

    def __init__(
        self,
        channel: Channel[Any],
        task: Task,
        attempt: int,
        path: Path,
        offset: int,
        end: Callable[[], int | None],
    ) -> None:
        """``end`` tells how long the log is as far as it is written; None: see the file."""
        self._channel = channel
        self._task = task
        self._attempt = attempt
        self._path = path
        self._times = logs.LogTimes(path)
        self._offset = offset
        self._end = end
        self._grown = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._pushing = asyncio.get_running_loop().create_task(self._push())

    def grown(self) -> None:
        self._caught_up.clear()
        self._grown.set()

    async def caught_up(self) -> None:
        """Wait until all that was there is sent, or can't be."""
        waiting = asyncio.ensure_future(self._caught_up.wait())
        try:
            await asyncio.wait({waiting, self._pushing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def stop(self) -> None:
        self._pushing.cancel()

    async def _push(self) -> None:
        try:
            while True:
                self._grown.clear()
                while (part := self._next()) is not None:
                    message = LogChunk(
                        task=self._task,
                        attempt=self._attempt,
                        offset=part.offset,
                        data=part.data,
                        times=self._times.between(part.offset, part.next_offset),
                    )
                    self._channel.send(message)
                    self._offset = part.next_offset
                    await self._channel.drain()
                    await asyncio.sleep(_GATHER_S if len(part.data) < _PART_BYTES else 0)
                self._caught_up.set()
                await self._grown.wait()
        except ChannelClosed:
            return

    def _next(self) -> logs.LogPart | None:
        end = self._end()
        if end is not None and self._offset >= end:
            return None
        try:
            part = logs.read(self._path, self._offset, _PART_BYTES)
        except OSError:
            return None
        return part if part.data else None


class LogFollowers:
    """Those of all logs of one container, over its present connection."""

    def __init__(self) -> None:
        self._all: dict[tuple[Task, int], LogSender] = {}

    def follow(
        self,
        channel: Channel[Any],
        task: Task,
        attempt: int,
        path: Path,
        offset: int,
        end: Callable[[], int | None],
    ) -> None:
        """Push that log from ``offset`` on, instead of what was pushed of it before."""
        self.leave(task, attempt)
        self._all[task, attempt] = LogSender(channel, task, attempt, path, offset, end)

    def leave(self, task: Task, attempt: int) -> None:
        if (follower := self._all.pop((task, attempt), None)) is not None:
            follower.stop()

    def leave_all(self) -> None:
        """The connection is gone: a new one asks anew."""
        for key in list(self._all):
            self.leave(*key)

    def grown(self, task: Task, attempt: int) -> None:
        if (follower := self._all.get((task, attempt))) is not None:
            follower.grown()

    async def caught_up(self, task: Task, attempt: int, within_s: float) -> None:
        """Wait until all of that log is sent, at most so long."""
        if (follower := self._all.get((task, attempt))) is not None:
            follower.grown()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await follower.caught_up()

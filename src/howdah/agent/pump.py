"""What programs print, from their pipes into the log.

Standard output and standard error of all of a task's programs go into one log in the order they
arrive. A line is never torn by another stream's: its beginning is held back until it is whole, or
for `_HOLD_S`. Each stream's last lines are kept for the story of a failure.

The programs must not wait for us: pipes are as large as the system allows, reads are large, and a
log that cannot be written loses bytes instead of time (see `howdah.storage.logs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import sys
import termios
from collections.abc import Callable

from howdah.agent.tail import NewestLine, Tail
from howdah.storage.logs import LogWriter

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


class Stream:
    """One pipe."""

    __slots__ = ("fd", "label", "pending", "tail")

    def __init__(self, fd: int, label: bytes) -> None:
        self.fd = fd
        self.label = label
        self.tail = Tail()
        self.pending = b""
        """The beginning of a line."""

    @property
    def open(self) -> bool:
        return self.fd >= 0


class Source:
    """One program's two pipes."""

    def __init__(self, pump: Pump, output: Stream, error: Stream) -> None:
        self._pump = pump
        self.output = output
        self.error = error
        self.last_read = 0.0
        self.paused: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Those still open. Output first: what a program printed before an error."""
        return tuple(s for s in (self.output, self.error) if s.open)

    def tail(self) -> tuple[str, ...]:
        """The last lines of standard error where there are any, else of the output."""
        return self.error.tail.lines() or self.output.tail.lines()


class Pump:
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
        self._sources: list[Source] = []
        self._open_line: Stream | None = None
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

    def add(self, output: int, error: int, label: str = "") -> Source:
        """Pump a program's pipes from now on; ``label`` goes before each of its lines."""
        prefix = f"{label} | ".encode() if label else b""
        source = Source(self, Stream(output, prefix), Stream(error, prefix))
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

    def _resume(self, source: Source) -> None:
        source.paused = None
        for stream in source.streams:
            self._loop.add_reader(stream.fd, self._ready, source)

    def _ready(self, source: Source) -> None:
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

    def _read_some(self, stream: Stream) -> int:
        """Move what is there, within limits; returns the bytes of the largest piece."""
        most = 0
        for _ in range(_READS if stream.open else 0):
            count = self._read(stream)
            most = max(most, count)
            if count < _BUFFER_BYTES:
                break
        return most

    def _read(self, stream: Stream, limit: int = _BUFFER_BYTES) -> int:
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

    def _shut(self, stream: Stream) -> None:
        self._loop.remove_reader(stream.fd)
        os.close(stream.fd)
        stream.fd = -1
        self._put_pending(stream)
        if not any(source.streams for source in self._sources):
            self._ended.set()

    # -- lines -----------------------------------------------------------------------------------

    def _take(self, stream: Stream, count: int) -> None:
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

    def _put_labelled(self, stream: Stream, end: int) -> None:
        text = stream.pending + bytes(self._view[:end])
        first = b"" if self._open_line is stream else stream.label
        text = first + text[:-1].replace(b"\n", b"\n" + stream.label) + b"\n"
        self._writer.write(text)
        if self._newest is not None:
            self._newest.put(text)

    def _close_line(self, stream: Stream) -> None:
        """Another stream's line stands open: ours begins on a new one."""
        if self._open_line is not None and self._open_line is not stream:
            self._writer.write(b"\n")
            self._open_line = None

    def _put_pending(self, stream: Stream) -> None:
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


def _waiting(stream: Stream) -> int | None:
    """Bytes in the pipe; None if all who could write to it are gone, so that no more will come."""
    poll = select.poll()
    poll.register(stream.fd, 0)
    if poll.poll(0):
        return None
    count = bytearray(4)
    fcntl.ioctl(stream.fd, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)

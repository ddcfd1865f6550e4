"""Writes to the terminal from a thread of its own, below which a status line stays put.

A terminal or pipe that is not read blocks its writer. With a thread in between, an
attached client still hears Ctrl-C and the coordinator; `Writer.room` slows the reader of logs
down instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable

from howdah.cli.display.terminal import is_terminal, tame_bytes

HIGH = 1024 * 1024
"""Bytes waiting to be written past which `Writer.room` waits."""
AT_ONCE = 16 * 1024
"""Bytes of one write: a pipe's comes back only once the reader has made room for all of them."""

_ERASE_LINE = b"\r\x1b[2K"


class Writer:
    """Output and error output, in the order they were given.

    ``closed`` is called on the loop, once, when standard output cannot be written any more: its
    reader has gone, or its disk is full. Standard error that cannot be written is left alone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        closed: Callable[[OSError], object],
        *,
        out: int = 1,
        err: int = 2,
    ) -> None:
        self._loop = loop
        self._closed = closed
        self._out = out
        self._err = err
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting = 0
        self.taken: int = 0
        """Bytes that have been written so far."""
        self._status: bytes | None = None
        self._shown: bytes | None = None
        self._broken = False
        self._ending = False
        self._changed = threading.Condition()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._thread = threading.Thread(target=self._run, name="howdah-output", daemon=True)
        self._thread.start()

    def out(self, data: bytes) -> None:
        """Write to standard output; to a terminal nothing that it would obey."""
        self._put(self._out, tame_bytes(data) if is_terminal(self._out) else data)

    def err(self, data: bytes) -> None:
        self._put(self._err, tame_bytes(data) if is_terminal(self._err) else data)

    def status(self, line: bytes | None) -> None:
        """Show this below everything else from now on (a terminal's standard error); None removes it."""
        with self._changed:
            self._status = None if line is None else tame_bytes(line)
            self._changed.notify()

    async def room(self) -> None:
        """Wait until what is to be written is not too much."""
        await self._has_room.wait()

    def close(self, timeout_s: float | None = None) -> bool:
        """Write what is left; whether that is done within ``timeout_s``. It goes on otherwise, and may be
        called again."""
        with self._changed:
            self._ending = True
            self._status = None
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _put(self, fd: int, data: bytes) -> None:
        with self._changed:
            if self._broken or not data:
                return
            self._queue.append((fd, data))
            self._waiting += len(data)
            if self._waiting > HIGH:
                self._has_room.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._queue or self._status != self._shown or self._ending):
                    self._changed.wait()
                batch, self._queue = self._queue, deque()
                status = self._status
                ending = self._ending and not batch
            try:
                self._write(batch, status)
            except OSError as error:
                self._break(error)
                return
            with self._changed:
                self._waiting -= sum(len(data) for _, data in batch)
                roomy = self._waiting <= HIGH
            if roomy:
                self._tell(self._has_room.set)
            if ending:
                return

    def _write(self, batch: deque[tuple[int, bytes]], status: bytes | None) -> None:
        if self._shown is not None:
            self._write_err(_ERASE_LINE)
        pending = bytearray()
        fd = self._out
        for to, data in batch:
            if to != fd and pending:
                self._write_to(fd, pending)
                pending.clear()
            fd = to
            pending += data
        self._write_to(fd, pending)
        if status is not None:
            self._write_err(status)
        self._shown = status

    def _write_to(self, fd: int, data: bytes | bytearray) -> None:
        if fd == self._err:
            self._write_err(data)
        else:
            self._write_all(fd, data)

    def _write_err(self, data: bytes | bytearray) -> None:
        with contextlib.suppress(OSError):
            self._write_all(self._err, data)

    def _write_all(self, fd: int, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            try:
                written = os.write(fd, rest[:AT_ONCE])
            except BlockingIOError:  # another process of the terminal made it non-blocking
                select.select((), (fd,), ())
                continue
            self.taken += written
            rest = rest[written:]

    def _break(self, error: OSError) -> None:
        with self._changed:
            self._broken = True
            self._queue.clear()
        self._tell(self._has_room.set)
        self._tell(lambda: self._closed(error))

    def _tell(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(callback)

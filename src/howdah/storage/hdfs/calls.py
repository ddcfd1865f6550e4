"""Calls into `hdfs_native` that can be given up, and its files closed without delay.

`hdfs_native` knows no time-outs for a NameNode that takes a connection and never answers (its
machine lost power, its process is stopped), and a thread inside Rust can't be interrupted. So each
call is made by a thread that may be left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from howdah.storage.hdfs.errors import HdfsError, NoNameNode, translate

ANSWER_S = 60.0
"""One call to a NameNode, or one piece of data to or from DataNodes, takes no longer (Hadoop's
``dfs.client.socket-timeout``)."""
_NAP_S = 0.5
"""How long `hdfs_native` sleeps when it closes a file a moment before the NameNode knows that its
last block is stored, which is most of the time."""

_T = TypeVar("_T")


def soon(work: Callable[..., _T], *arguments: Any) -> _T:
    """Call it in another thread, and wait for its result.

    Raises:
        NoNameNode: it has not returned within `ANSWER_S`; it is left to itself.
        BaseException: whatever it raises.
    """
    future = begin(work, *arguments)
    try:
        return future.result(ANSWER_S)
    except TimeoutError:
        if future.done():
            raise
        raise NoNameNode(f"HDFS has not answered within {ANSWER_S:g} s") from None


def begin(work: Callable[..., _T], *arguments: Any) -> Future[_T]:
    """The same without waiting."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            result = work(*arguments)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    _workers.put(run)
    return future


def opened(opening: Callable[..., Any], *arguments: Any) -> Any:
    """What writes to a file, as `hdfs_native.Client.create` or ``append`` gives it, but not as a file
    of Python's: those close themselves when they are collected as garbage, in whichever thread that
    happens, and would wait there for an HDFS that does not answer.
    """
    file = opening(*arguments)
    writer, file.inner = file.inner, _Closed()
    return writer


class _Closed:
    def close(self) -> None:
        """Nothing is left to do."""


def close(client: Any, writer: Any, path: str, size: int) -> None:
    """Close a writer of `hdfs_native` without its half-second nap.

    The NameNode hears of the last block from the DataNode about a millisecond after the client has
    asked it to complete the file; `hdfs_native` then sleeps for half a second before it asks again.
    The length a reader is told counts complete blocks only: when it is all of the file, the block
    is committed and stored, and recovering the lease does nothing but close the file.
    """
    closing = begin(writer.close)
    done = threading.Event()
    closing.add_done_callback(lambda _: done.set())
    deadline = time.monotonic() + ANSWER_S
    pause_s = 0.0015
    while not done.wait(pause_s):
        if time.monotonic() > deadline:
            raise NoNameNode(f"HDFS has not answered within {ANSWER_S:g} s")
        with contextlib.suppress(Exception):
            if size and soon(_closed_at, client, path, size):
                return
        pause_s = min(pause_s * 1.5, 0.1)
    closing.result()


def _closed_at(client: Any, path: str, size: int) -> bool:
    return len(client.read(path)) == size and bool(client.recover_lease(path))


class Appender:
    """A file open for writing at its end, by one thread at a time."""

    def __init__(self, client: Any, fs: str, path: str, writer: Any, size: int) -> None:
        self.path = path
        self.size: int = size
        """Bytes of the file with all that was written."""
        self._client = client
        self._fs = fs
        self._writer = writer
        self._closed = False

    def write(self, data: bytes) -> None:
        """Add the bytes. They are durable after `hsync`, visible to others after `close`.

        Raises:
            LeaseLost: another process has taken the file over.
            NoDataNode: a DataNode died: recover the lease, then append anew.
        """
        self._do("write", self._writer.write, data)
        self.size += len(data)

    def hsync(self) -> None:
        """Return once all that was written is on the DataNodes' disks.

        It asks the NameNode too, so after somebody else's `Hdfs.recover_lease` it fails.

        Raises:
            HdfsError: as for `write`; what was written since the last one may be there or not.
        """
        self._do("synchronise", self._writer.hsync)

    def write_durably(self, data: bytes) -> None:
        """`write` and `hsync` at once."""
        self._do("write", _write_durably, self._writer, data)
        self.size += len(data)

    def close(self) -> None:
        """End the file. Closing twice is harmless.

        Raises:
            HdfsError: what was written since the last `hsync` may be lost.
        """
        if self._closed:
            return
        self._closed = True
        try:
            close(self._client, self._writer, self.path, self.size)
        except Exception as error:
            raise self._problem("close", error) from error

    def _do(self, what: str, work: Callable[..., Any], *arguments: Any) -> None:
        try:
            soon(work, *arguments)
        except Exception as error:
            raise self._problem(what, error) from error

    def _problem(self, what: str, error: Exception) -> HdfsError:
        return translate(error, what, self.path, self._fs)


def _write_durably(writer: Any, data: bytes) -> None:
    writer.write(data)
    writer.hsync()


class _Workers:
    """As many threads as there are calls at a time."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: list[threading.Thread] = []

    def put(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._serve, name="hdfs", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._works.put(work)

    def end(self, timeout_s: float) -> None:
        """End those that come back in that time."""
        with self._lock:
            threads = list(self._threads)
        deadline = time.monotonic() + timeout_s
        for _ in threads:
            self._works.put(None)
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            work()
            del work
            with self._lock:
                self._idle += 1


_workers = _Workers()


@atexit.register
def _end_workers() -> None:
    # A thread of Python's that has been in Rust and runs while the interpreter goes down ends the
    # process by abort. Who naps over a file comes back in half a second.
    _workers.end(4 * _NAP_S)

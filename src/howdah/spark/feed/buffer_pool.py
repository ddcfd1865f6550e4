"""Memory that record batches are received into: used again when nobody looks at it any more.

New memory costs a page fault every 4 KiB, a tenth of the time a byte needs on its way. So a buffer
goes back to its pool when the last view of it, a record batch or a numpy array of the program's,
is gone.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from typing import Any

import pyarrow as pa

ALIGNMENT = 64
"""Bytes: what Arrow recommends for a buffer's start."""
SMALLEST = 64 * 1024
"""Bytes; less comes from Arrow's own pool."""
LARGEST_KEPT = 64 << 20

_HUGE = 2 << 20


class _Lease:
    """Held by every view of a buffer, which is free again when this dies."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory


class BufferPool:
    """A pool of memory. Threads may share it."""

    def __init__(self, keep_bytes: int = LARGEST_KEPT) -> None:
        self._keep = keep_bytes
        self._free: list[mmap.mmap] = []
        self._free_bytes = 0
        # Re-entrant: a finalizer may run within `take`, in the same thread.
        self._lock = threading.RLock()

    def take(self, size: int) -> tuple[pa.Buffer, memoryview]:
        """At least ``size`` bytes, aligned: to look at, and to write to."""
        if size < SMALLEST:
            small = pa.allocate_buffer(size)
            return small, memoryview(small).cast("B")
        memory = self._pick(size)
        lease = _Lease(memory)
        weakref.finalize(lease, self._put, memory).atexit = False
        view = memoryview(memory)
        address = _address(view)
        return pa.foreign_buffer(address, len(memory), lease), view

    def _pick(self, size: int) -> mmap.mmap:
        with self._lock:
            best = -1
            for index, memory in enumerate(self._free):
                # Not much more: rows may be kept for long.
                fits = size <= len(memory) <= size + size // 4
                if fits and (best < 0 or len(memory) < len(self._free[best])):
                    best = index
            if best >= 0:
                memory = self._free.pop(best)
                self._free_bytes -= len(memory)
                return memory
        return _new(_rounded(size))

    def _put(self, memory: mmap.mmap) -> None:
        with self._lock:
            self._free.append(memory)
            self._free_bytes += len(memory)
            while self._free and self._free_bytes > self._keep:
                self._free_bytes -= len(self._free.pop(0))


def _rounded(size: int) -> int:
    """Eighths of a power of two: little is wasted, and sizes that are alike fit each other."""
    step = max(1 << (size.bit_length() - 4), mmap.PAGESIZE)
    return -(-size // step) * step


def _new(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # not everywhere
    return memory


def _address(view: Any) -> int:
    return pa.py_buffer(view).address

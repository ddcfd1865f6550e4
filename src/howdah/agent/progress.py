"""When an attempt last showed progress: output, a report, or a change in its checkpoint folder.

CPU use is no sign: programs that wait for each other in a collective spin.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_LOOK_S = 2.0
"""Between two looks into the checkpoint folder."""
_ENTRIES = 2000
_DEPTH = 4

Fingerprint = tuple[int, int, int]
"""Entries, newest modification, total size."""


class Progress:
    """Remembers the last sign of life. Times are those of ``clock`` (monotonic seconds)."""

    def __init__(self, clock: Callable[[], float], folder: str | None = None) -> None:
        self._clock = clock
        self._folder = folder
        self._last = clock()
        self._seen = fingerprint(folder) if folder else None
        self._looked = self._last

    def shown(self) -> None:
        """It has just shown progress."""
        self._last = self._clock()

    def idle_s(self) -> float:
        """Seconds since the last sign."""
        now = self._clock()
        # Looking costs more than a counter: only when there was nothing else for a while.
        if self._folder and now - max(self._last, self._looked) >= _LOOK_S:
            self._looked = now
            seen = fingerprint(self._folder)
            if seen != self._seen:
                self._seen = seen
                self._last = now
        return now - self._last


def fingerprint(folder: str) -> Fingerprint:
    """A value that changes when files come, go or grow below ``folder``."""
    count = newest = total = 0
    waiting = [(folder, 0)]
    while waiting and count < _ENTRIES:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    count += 1
                    newest = max(newest, status.st_mtime_ns)
                    total += status.st_size
                    if depth < _DEPTH and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
    return count, newest, total

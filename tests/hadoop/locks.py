"""Record locks of the kernel: given back when a process ends, however it ends.

Unlike ``flock`` they are not inherited by a fork, so a child that lives on does not keep its
parent's. They are lost when the process closes *any* descriptor of the file: one `Lock` for a file
and process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Lock:
    """A lock file of which any number of processes may have a share, or one the whole."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def share(self) -> None:
        """Wait for a share."""
        fcntl.lockf(self._file, fcntl.LOCK_SH)

    def take(self) -> None:
        """Wait for the whole."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """The whole, if nobody else has a part of it; a share already held is kept otherwise."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Give back what is held."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give back what is held, for good."""
        os.close(self._file)

    def is_current(self) -> bool:
        """Is the file that was locked still the one at its path, or was that deleted?"""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False


def take_current(path: Path) -> Lock:
    """Wait for the whole of a lock whose file its holders may delete."""
    while True:
        lock = Lock(path)
        lock.take()
        if lock.is_current():
            return lock
        lock.close()

"""Logs that are written far away, as far as they were pushed here while somebody read them.

A running attempt's log is in its container, where the coordinator can't read it. What its agent
pushes is kept in a file of the local copy, so that readers go back and forth in it as in any log.
It begins when somebody first asks and grows while anybody does.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from howdah.core.messages import Task
from howdah.storage import logs
from howdah.storage.files import PRIVATE_FILE, PRIVATE_FOLDER
from howdah.storage.logs import LogPart

log = logging.getLogger(__name__)


class Spool:
    """All of one job, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[tuple[Task, int], int] = {}

    def path(self, task: Task, attempt: int) -> Path:
        return self._folder / f"{task.role}-{task.index}" / f"{attempt}.log"

    def size(self, task: Task, attempt: int) -> int:
        """Bytes of the log up to the last that is here."""
        return self._sizes.get((task, attempt), 0)

    def take(self, task: Task, attempt: int, offset: int, data: bytes) -> None:
        """Keep what was pushed: a few dozen kilobytes at a time, so no thread is needed.

        What can't be kept is missing for readers; the log itself is elsewhere.
        """
        size = self.size(task, attempt)
        if offset + len(data) <= size:
            return
        if offset < size:
            data, offset = data[size - offset :], size
        path = self.path(task, attempt)
        try:
            path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if offset > size:
                # A gap begins another segment; readers are told how much is missing.
                _append(path, b"")
                path = logs.segment_path(path, offset)
            else:
                path = logs.files(path)[-1] if size else path
            _append(path, data)
        except OSError as error:
            log.warning("what %s writes can't be kept for readers: %s", task, error)
            return
        self._sizes[task, attempt] = offset + len(data)

    def read(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart | None:
        """As `howdah.storage.logs.read`; None if nothing has come."""
        with contextlib.suppress(FileNotFoundError):
            return logs.read(self.path(task, attempt), offset, limit)
        return None

    def drop(self, task: Task, attempt: int) -> None:
        """The whole log is here now."""
        if self._sizes.pop((task, attempt), None) is not None:
            with contextlib.suppress(OSError):
                for path in logs.files(self.path(task, attempt)):
                    path.unlink()


def _append(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    with open(os.open(path, flags, PRIVATE_FILE), "wb") as file:
        file.write(data)

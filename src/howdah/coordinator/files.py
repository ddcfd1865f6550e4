"""The job directory's logs, as `howdah.coordinator.logs` reads them."""

from __future__ import annotations

import asyncio
import logging
import os

from howdah.coordinator.away import FarLogs
from howdah.core.messages import StacksTaken, Task
from howdah.storage import logs
from howdah.storage.files import PRIVATE_FOLDER
from howdah.storage.jobdir import JobDirectory
from howdah.storage.logs import LogPart

log = logging.getLogger(__name__)


def save_stacks(directory: JobDirectory, stacks: StacksTaken) -> str:
    """Write what an agent could not write itself; returns the path relative to the job directory.

    A few dozen kilobytes, and only when something hangs: no thread is needed.
    """
    if not stacks.text:
        return ""
    path = directory.stacks_path(stacks.task, stacks.attempt)
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(stacks.text.encode(errors="replace"))
    except OSError as error:
        log.warning("the stacks of %s can't be saved: %s", stacks.task, error)
        return ""
    return str(path.relative_to(directory.path))


class JobLogs:
    """Logs as files of the job directory. Reading happens in threads, never on the event loop.

    Where the directory is elsewhere, ``far`` brings those of ended attempts when they are read.
    """

    def __init__(self, directory: JobDirectory, far: FarLogs | None = None) -> None:
        self._directory = directory
        self._far = far

    async def read(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart | None:
        """At most ``limit`` bytes from logical offset ``offset``; None if there is no log."""
        path = self._directory.log_path(task, attempt)
        try:
            return await asyncio.to_thread(logs.read, path, offset, limit)
        except FileNotFoundError:
            if self._far is None:
                return None
            if not await self._far.ready(task, attempt):
                return await self._far.read(task, attempt, offset, limit)
            return await asyncio.to_thread(logs.read, path, offset, limit)

    async def ready(self, task: Task, attempt: int) -> None:
        """Have what is known of the log here, so that `size` tells it."""
        if self._far is not None and not self.size(task, attempt):
            await self._far.ready(task, attempt)

    async def last_line(self, task: Task, attempt: int) -> str | None:
        """The newest whole line, if there is any."""
        path = self._directory.log_path(task, attempt)
        try:
            lines = await asyncio.to_thread(logs.tail, path, 1)
        except FileNotFoundError:
            return None
        return lines[-1] if lines else None

    def size(self, task: Task, attempt: int) -> int:
        """Bytes ever written; 0 if there is no log."""
        try:
            return logs.size(self._directory.log_path(task, attempt))
        except FileNotFoundError:
            return self._far.size(task, attempt) if self._far is not None else 0

    def attempts(self, task: Task) -> list[int]:
        """Attempts with a log, ascending."""
        if self._far is not None:
            return list(self._far.attempts(task))
        return self._directory.log_attempts(task)

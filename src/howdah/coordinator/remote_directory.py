"""A job directory that is elsewhere: what the coordinator brings here, and takes there.

It works in a local copy. The journal has its own way there (`howdah.storage.copies.replica`). What else
grows is uploaded now and then; logs of ended attempts are copied there by the agents, and brought
when they are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from pathlib import Path

from howdah.core.messages import Task
from howdah.storage import layout, logs
from howdah.storage.files import PRIVATE_FILE, PRIVATE_FOLDER
from howdah.storage.logs import LogPart, Written

log: logging.Logger = logging.getLogger(__name__)

UPLOAD_S = (2.0, 5.0, 10.0, 20.0)
"""Pauses between uploads, the last again and again. Measurements, stacks and the coordinator's log
there are at most that old when a coordinator dies with its machine."""
BROUGHT_AGAIN_S = (2.0, 5.0, 10.0, 20.0, 60.0, 60.0, 60.0)
"""Before former measurements are brought again. What is measured meanwhile is held in memory, so not
for ever."""
_GROWING = ("metrics-*.jsonl", f"{layout.STACKS}/*.txt", f"{layout.LOGS}/coordinator.log")
_LOOK_AGAIN_S = 2.0
"""A log that was not there is not looked for sooner."""


async def keep_uploaded(url: str, local: Path) -> None:
    """Upload what grows, until cancelled."""
    from howdah.storage.folder_sync import Pusher
    from howdah.storage.stores.destinations import open_destination

    there = await asyncio.to_thread(open_destination, url, within=url)
    pusher = Pusher(local, there, patterns=_GROWING)
    for pause_s in itertools.chain(UPLOAD_S, itertools.repeat(UPLOAD_S[-1])):
        await asyncio.sleep(pause_s)
        try:
            await asyncio.to_thread(pusher.push)
        except OSError as error:
            log.warning("measurements and logs are not at %s yet: %s", url, error)


async def bring_metrics(url: str, local: Path) -> None:
    """Bring what former coordinators measured; new samples are added behind it."""
    from howdah.storage.copies.mirror import Mirror

    for pause_s in (*BROUGHT_AGAIN_S, None):
        try:
            await asyncio.to_thread(Mirror(url, local).bring_metrics)
            return
        except OSError as error:
            if pause_s is None:
                log.warning("former measurements are not shown, %s can't be read: %s", url, error)
                return
            log.warning("former measurements can't be brought yet: %s", error)
        await asyncio.sleep(pause_s)


class RemoteLogs:
    """Logs of attempts that ran elsewhere: of ended ones as they lie in the remote directory, of
    running ones what their agents have pushed."""

    def __init__(self, url: str, local: Path) -> None:
        self._url = url
        self._local = local
        self.pushed: SpillFiles = SpillFiles(local / layout.CONTAINERS / "spill")
        self._bringing: dict[tuple[Task, int], asyncio.Task[bool]] = {}
        self._absent: dict[tuple[Task, int], float] = {}

    async def bring(self, task: Task, attempt: int) -> bool:
        """Bring the log of an ended attempt into the local copy; whether it is there."""
        key = (task, attempt)
        if time.monotonic() < self._absent.get(key, 0.0):
            return False
        bringing = self._bringing.get(key)
        if bringing is None:
            bringing = asyncio.create_task(self._bring(task, attempt))
            self._bringing[key] = bringing
            bringing.add_done_callback(lambda _: self._bringing.pop(key, None))
        return await asyncio.shield(bringing)

    async def _bring(self, task: Task, attempt: int) -> bool:
        from howdah.storage.copies.mirror import Mirror

        found = False
        try:
            mirror = Mirror(self._url, self._local)
            found = await asyncio.to_thread(mirror.bring_log, task, attempt)
        except OSError as error:
            log.warning("the log of attempt %d of %s can't be brought: %s", attempt, task, error)
        if found:
            self._absent.pop((task, attempt), None)
            self.pushed.drop(task, attempt)
        else:
            self._absent[task, attempt] = time.monotonic() + _LOOK_AGAIN_S
        return found


class SpillFiles:
    """What agents have pushed of running attempts' logs, in files of the local copy, so that readers
    go back and forth in it as in any log.

    A file begins when its log is first read and grows for as long as there are readers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends: dict[tuple[Task, int], tuple[int, Path]] = {}
        """Bytes of a log up to the last that is here, and the segment that grows."""

    def path(self, task: Task, attempt: int) -> Path:
        return self._folder / f"{task.role}-{task.index}" / f"{attempt}.log"

    def size(self, task: Task, attempt: int) -> int:
        """Bytes of the log up to the last that is here."""
        return self._ends[task, attempt][0] if (task, attempt) in self._ends else 0

    def add(
        self, task: Task, attempt: int, offset: int, data: bytes, times: tuple[Written, ...] = ()
    ) -> None:
        """Keep what was pushed: a few dozen kilobytes at a time, so no thread is needed.

        What can't be kept is missing for readers; the log itself is elsewhere.
        """
        whole = self.path(task, attempt)
        size, path = self._ends.get((task, attempt), (0, whole))
        if offset + len(data) <= size:
            return
        if offset < size:
            data, offset = data[size - offset :], size
        try:
            path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if offset > size:
                # A gap begins another segment; readers are told how much is missing.
                _append(whole, b"")
                path = logs.segment_path(whole, offset)
            if times:
                index = "".join(f"{time:.3f} {place}\n" for place, time in times)
                _append(logs.index_path(whole), index.encode())
            _append(path, data)
        except OSError as error:
            log.warning("what %s writes can't be kept for readers: %s", task, error)
            return
        self._ends[task, attempt] = offset + len(data), path

    def read(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart | None:
        """As `howdah.storage.logs.read`; None if nothing has come."""
        with contextlib.suppress(FileNotFoundError):
            return logs.read(self.path(task, attempt), offset, limit)
        return None

    def drop(self, task: Task, attempt: int) -> None:
        """The whole log is here now."""
        if self._ends.pop((task, attempt), None) is not None:
            with contextlib.suppress(OSError):
                for path in logs.files(self.path(task, attempt)):
                    path.unlink()


def _append(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    with open(os.open(path, flags, PRIVATE_FILE), "wb") as file:
        file.write(data)

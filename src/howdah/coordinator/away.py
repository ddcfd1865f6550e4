"""A job whose directory is elsewhere: what the coordinator brings here, and takes there.

It works in a local copy, of which the journal is made durable there (`howdah.storage.replica`).
Logs of ended attempts are copied there by the agents; here they are brought when somebody reads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from howdah.core.events import Task
from howdah.core.states import Outcome
from howdah.spec.model import Job
from howdah.storage import layout, outputs
from howdah.storage.journal import Replica
from howdah.storage.layout import JobMeta

if TYPE_CHECKING:
    from howdah.coordinator.service import Coordinator

log = logging.getLogger(__name__)

PUSH_S = (2.0, 5.0, 10.0, 20.0)
"""Pauses, the last again and again. Measurements, stacks and the coordinator's log there are at most that old when a master dies."""
_GROWING = ("metrics-*.jsonl", f"{layout.STACKS}/*.txt", f"{layout.LOGS}/coordinator.log")
_LOOK_AGAIN_S = 2.0
"""A log that was not there is not looked for sooner."""


def journal_replica(meta: JobMeta) -> Replica | None:
    """What makes the journal of such a job durable; None for a local one."""
    if meta.url is None:
        return None
    from howdah.storage.replica import HdfsJournal

    return HdfsJournal(meta.url)


def meanwhile(coordinator: Coordinator) -> Sequence[Coroutine[Any, Any, None]]:
    """What goes on beside the driving until it is cancelled."""
    url = coordinator.meta.url
    return [] if url is None else [_keep_pushed(url, coordinator.directory.path)]


async def _keep_pushed(url: str, local: Path) -> None:
    """Take what grows there, now and then. It never ends the job."""
    from howdah.storage.follow import Pusher
    from howdah.storage.places import open_place

    pusher = Pusher(local, open_place(url), patterns=_GROWING)
    for pause_s in itertools.chain(PUSH_S, itertools.repeat(PUSH_S[-1])):
        await asyncio.sleep(pause_s)
        try:
            await asyncio.to_thread(pusher.push)
        except OSError as error:
            log.warning("measurements and logs are not on HDFS yet: %s", error)


def publish_outputs(job: Job, job_id: str, outcome: str | None) -> None:
    """If the job has succeeded, let its outputs be seen where its job file says."""
    table = job.outputs
    if table is None or table.store is None or outcome != Outcome.SUCCEEDED.value:
        return
    try:
        outputs.publish(table.store, job_id)
    except OSError as error:
        place = outputs.job_place(table.store, job_id)
        log.error("the outputs could not be published; they are in %s: %s", place, error)


def bring_metrics(meta: JobMeta, local: Path) -> None:
    """Bring what former masters measured; new samples are added behind it."""
    if meta.url is None:
        return
    from howdah.storage import mirror

    try:
        mirror.bring_metrics(meta.url, local)
    except OSError as error:
        log.warning("former measurements can't be brought: %s", error)


class FarLogs:
    """Logs of ended attempts, brought to the local copy when they are asked for."""

    def __init__(self, url: str, local: Path, newest_attempt: Callable[[Task], int]) -> None:
        self._url = url
        self._local = local
        self._newest_attempt = newest_attempt
        self._bringing: dict[tuple[Task, int], asyncio.Task[bool]] = {}
        self._absent: dict[tuple[Task, int], float] = {}

    def attempts(self, task: Task) -> Sequence[int]:
        """Attempts that may have a log."""
        return range(1, self._newest_attempt(task) + 1)

    async def bring(self, task: Task, attempt: int) -> bool:
        """Whether the log was there and is here now."""
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
        from howdah.storage import mirror

        found = False
        try:
            found = await asyncio.to_thread(mirror.bring_log, self._url, self._local, task, attempt)
        except OSError as error:
            log.warning("the log of attempt %d of %s can't be brought: %s", attempt, task, error)
        if found:
            self._absent.pop((task, attempt), None)
        else:
            self._absent[task, attempt] = time.monotonic() + _LOOK_AGAIN_S
        return found

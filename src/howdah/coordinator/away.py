"""A job whose directory is elsewhere: what the coordinator brings here, and takes there.

It works in a local copy, of which the journal is made durable there (`howdah.storage.replica`).
Logs of ended attempts are copied there by the agents; here they are brought when somebody reads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from howdah.coordinator.spool import Spool
from howdah.core.messages import Task
from howdah.core.state import Outcome
from howdah.spec.model import Job
from howdah.storage import layout, outputs
from howdah.storage.journal import Replica
from howdah.storage.layout import JobMeta
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogChunk

if TYPE_CHECKING:
    from howdah.coordinator.service import Coordinator

log = logging.getLogger(__name__)

PUSH_S = (2.0, 5.0, 10.0, 20.0)
"""Pauses, the last again and again. Measurements, stacks and the coordinator's log there are at most that old when a master dies."""
_GROWING = ("metrics-*.jsonl", f"{layout.STACKS}/*.txt", f"{layout.LOGS}/coordinator.log")
_PUSHED_S = 2.0
"""For what a running attempt has written so far, when somebody begins to read it."""
_HELD_S = 30.0
"""A log nobody has read for so long is not pushed any more."""
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
    """Logs that are not here: of ended attempts, brought when they are asked for; of running ones,
    as they are pushed while somebody asks."""

    def __init__(self, coordinator: Coordinator, url: str) -> None:
        self._coordinator = coordinator
        self._url = url
        self._local = coordinator.directory.path
        self._spool = Spool(self._local / layout.CONTAINERS / "spool")
        self._bringing: dict[tuple[Task, int], asyncio.Task[bool]] = {}
        self._absent: dict[tuple[Task, int], float] = {}
        self._asked: dict[tuple[Task, int], float] = {}
        """Running attempts somebody reads: when last."""
        self._holding: set[asyncio.Task[None]] = set()

    def attempts(self, task: Task) -> Sequence[int]:
        """Attempts that may have a log."""
        return range(1, self._coordinator.newest_attempt(task) + 1)

    def size(self, task: Task, attempt: int) -> int:
        """Bytes of a running attempt's log that are here."""
        return self._spool.size(task, attempt)

    def reported(self, task: Task, attempt: int) -> int:
        """Bytes of the log as its agent told last."""
        live = self._coordinator.live.of(task, attempt)
        return live.log_size if live is not None else 0

    def keep(self, chunk: LogChunk) -> None:
        """An agent has pushed a part."""
        self._spool.take(chunk.task, chunk.attempt, chunk.offset, chunk.data)

    async def ready(self, task: Task, attempt: int) -> bool:
        """Have what is known of the log here, as far as that takes no long; whether it is whole, as
        a file of the local copy."""
        if self._coordinator.holds(task, attempt):
            await self._follow(task, attempt)
            return False
        return await self._brought(task, attempt)

    async def read(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart | None:
        """A part of what was pushed; nothing yet of a running attempt is an empty log."""
        part = await asyncio.to_thread(self._spool.read, task, attempt, offset, limit)
        if part is None and self._coordinator.holds(task, attempt):
            return LogPart(0, b"", 0)
        return part

    # -- running attempts ------------------------------------------------------------------------

    async def _follow(self, task: Task, attempt: int) -> None:
        known = (task, attempt) in self._asked
        self._asked[task, attempt] = time.monotonic()
        if known:
            return
        holding = asyncio.create_task(self._hold(task, attempt))
        self._holding.add(holding)
        holding.add_done_callback(self._holding.discard)
        wanted = self.reported(task, attempt)
        deadline = time.monotonic() + _PUSHED_S
        while self._spool.size(task, attempt) < wanted and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def _hold(self, task: Task, attempt: int) -> None:
        """Be one who follows, for as long as there are others who read."""
        key = (task, attempt)
        try:
            with self._coordinator.logs.following(
                [task],
                lambda: None,
                wants=lambda of, number: (of, number) == key,
                start=lambda of, number, running: 0 if (of, number) == key else None,
            ):
                while (left_s := self._asked[key] + _HELD_S - time.monotonic()) > 0:
                    await asyncio.sleep(left_s)
        finally:
            self._asked.pop(key, None)

    # -- ended attempts --------------------------------------------------------------------------

    async def _brought(self, task: Task, attempt: int) -> bool:
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
            self._spool.drop(task, attempt)
        else:
            self._absent[task, attempt] = time.monotonic() + _LOOK_AGAIN_S
        return found

"""The live job, as its web app sees it: `howdah.coordinator.source.JobSource` over its parts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from howdah.coordinator.document import pages
from howdah.coordinator.inspection import unknown_task
from howdah.coordinator.source import NoLog, StatusChanged
from howdah.core.messages import Task
from howdah.core.plan import Plan
from howdah.spec.model import Job
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate, RecordUpdate, Sample, WebAddress
from howdah.wire.status import JobView

if TYPE_CHECKING:
    from howdah.coordinator.service import Coordinator


class LiveSource:
    """One coordinator's job."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.token = coordinator.directory.token()

    def view(self) -> JobView:
        return self._coordinator.status.view()

    def job(self) -> Job:
        return self._coordinator.job

    def plan(self) -> Plan:
        return self._coordinator.plan

    def records(self, after_seq: int) -> list[RecordUpdate]:
        return self._coordinator.story.after(after_seq)

    def subscribe(self) -> AsyncIterator[RecordUpdate | StatusChanged]:
        return _Subscription(self._coordinator)

    def log_attempts(self, task: Task) -> list[int]:
        self._check(task)
        return self._coordinator.files.attempts(task)

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        self._check(task)
        files = self._coordinator.files
        if offset < 0:
            await files.ready(task, attempt)
            offset = max(0, files.size(task, attempt) + offset)
        part = await files.read(task, attempt, offset, limit)
        if part is None:
            raise NoLog(f"attempt {attempt} of {task} has no log")
        return part

    async def follow_log(
        self, task: Task, attempt: int | None, offset: int
    ) -> AsyncIterator[LogUpdate]:
        self._check(task)
        coordinator = self._coordinator
        first = coordinator.newest_attempt(task) if attempt is None else attempt

        def start(task: Task, number: int, running: bool) -> int | None:
            if number != first:
                return None
            return offset if offset >= 0 else max(0, coordinator.logs.size(task, number) + offset)

        def wants(of: Task, number: int) -> bool:
            return of == task and (number == attempt if attempt is not None else number >= first)

        wake = asyncio.Event()
        with (
            coordinator.logs.following([task], wake.set, wants=wants, start=start) as follower,
            coordinator.status.changed.calling(wake.set),
        ):
            while True:
                finished = coordinator.finished.is_set()
                wake.clear()
                while (update := await follower.next()) is not None:
                    yield update
                over = not follower.cursors and (attempt is not None or finished)
                if over or (finished and not follower.waiting):
                    return
                await wake.wait()

    def metrics(self, task: Task, since: float) -> list[Sample]:
        self._check(task)
        return self._coordinator.metrics.since(task, since)

    async def stop(self, by: str, reason: str, firm: bool) -> None:
        await self._coordinator.stop(by, reason, firm)

    async def stacks(self, task: Task) -> str:
        return await self._coordinator.stacks(task)

    def web_targets(self) -> dict[str, WebAddress]:
        coordinator = self._coordinator
        serving = pages(coordinator.machine.state, coordinator.live)
        return {str(task): address for task, address in serving.items()}

    def _check(self, task: Task) -> None:
        tasks = self._coordinator.machine.state.tasks
        if str(task) not in tasks:
            raise unknown_task(task, tasks)


class _Subscription:
    """Records and status changes from the moment it is made."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._story = coordinator.story
        self._status = coordinator.status
        self._finished = coordinator.finished
        self._wake = asyncio.Event()
        self._seq = self._story.last_seq
        self._version = self._status.version
        self._ready: deque[RecordUpdate] = deque()
        self._closed = False
        self._story.grown.add(self._wake.set)
        self._status.changed.add(self._wake.set)

    def __aiter__(self) -> _Subscription:
        return self

    async def __anext__(self) -> RecordUpdate | StatusChanged:
        while not self._closed:
            self._wake.clear()
            finished = self._finished.is_set()
            if not self._ready:
                self._ready.extend(self._story.after(self._seq))
            if self._ready:
                update = self._ready.popleft()
                self._seq = update.seq
                return update
            if self._version != self._status.version:
                self._version = self._status.version
                return StatusChanged()
            if finished:
                break
            await self._wake.wait()
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the subscription."""
        self._closed = True
        self._story.grown.remove(self._wake.set)
        self._status.changed.remove(self._wake.set)
        self._wake.set()

"""The running job as clients and the web app see it.

All methods are called on the coordinator's event loop. The plain ones answer at once from memory
and must not block; what touches a file is ``async``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

from howdah.coordinator.agents.heartbeats import Metrics
from howdah.coordinator.agents.server import StackRequests
from howdah.coordinator.driver import EventDriver, JobOver
from howdah.coordinator.event_log import EventLog, Signal
from howdah.coordinator.job_logs import JobLogs
from howdah.coordinator.status import LiveState, StatusDocument, UnknownTask, pages
from howdah.core.messages import StopRequested, Task
from howdah.core.plan import Plan
from howdah.core.state import JobState
from howdah.spec.model import Job
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate, RecordUpdate, Sample, WebAddress
from howdah.wire.status import JobView

LINES_S = 1.0
"""For newest lines from a disk. One that stands still keeps no status back."""


class NoLog(LookupError):
    """The attempt has no log, or not yet."""


class LiveJob:
    """One coordinator's job."""

    def __init__(
        self,
        *,
        job_id: str,
        token: str,
        job: Job,
        plan: Plan,
        state: Callable[[], JobState],
        driver: EventDriver,
        status: StatusDocument,
        events: EventLog,
        logs: JobLogs,
        live: LiveState,
        metrics: Metrics,
        stacks: StackRequests,
    ) -> None:
        self.job_id = job_id
        self.token = token
        """The job's secret (`secrets/token`). Never shown, never logged."""
        self.status = status
        self.events = events
        self.logs = logs
        self.finished: asyncio.Event = asyncio.Event()
        """Set when final.json is written: watchers send what is left and end."""
        self.page: str | None = None
        """URL of the job page, once it is served."""
        self._job = job
        self._plan = plan
        self._state = state
        self._driver = driver
        self._live = live
        self._metrics = metrics
        self._stacks = stacks
        self._reading: asyncio.Task[bool] | None = None
        """Of newest lines."""

    def view(self) -> JobView:
        """The status document with live measurements laid over it."""
        return self.status.view()

    async def read_last_lines(self) -> None:
        """Have the tasks' newest lines in the next document. They are read while somebody watches: who
        only asks once would get none, or old ones."""
        if (reading := self._reading) is None or reading.done():
            read = self._live.read_last_lines(self.logs.last_line)
            reading = self._reading = asyncio.create_task(read, name="newest lines")
        await asyncio.wait({reading}, timeout=LINES_S)
        if reading.done() and reading.result():
            self.status.touch()

    def job(self) -> Job:
        return self._job

    def plan(self) -> Plan:
        """Roles as the machine sees them."""
        return self._plan

    def tasks(self) -> list[Task]:
        return [data.task for data in self._state().tasks.values()]

    def records(self, after_seq: int) -> list[RecordUpdate]:
        """Lines of the event log with ``seq > after_seq``, oldest first."""
        return self.events.after(after_seq)

    @property
    def grown(self) -> Signal:
        """Sent whenever the event log has more."""
        return self.events.grown

    def log_attempts(self, task: Task) -> list[int]:
        """Attempts of the task that have a log, ascending.

        Raises:
            UnknownTask: the job has no such task.
        """
        self._check(task)
        return self.logs.attempts(task)

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        """At most ``limit`` bytes of that attempt's log from logical offset ``offset``.

        A negative offset counts from the end of what is written. An offset past the end gives an
        empty part whose ``offset`` is the end.

        Raises:
            UnknownTask: the job has no such task.
            NoLog: that attempt has none.
        """
        self._check(task)
        if offset < 0:
            await self.logs.ready(task, attempt)
            offset = max(0, self.logs.file_size(task, attempt) + offset)
        part = await self.logs.read(task, attempt, offset, limit)
        if part is None:
            raise NoLog(f"attempt {attempt} of {task} has no log")
        return part

    async def follow_log(
        self, task: Task, attempt: int | None, offset: int
    ) -> AsyncIterator[LogUpdate]:
        """The attempt's log from ``offset`` on, as it grows; a negative one counts from the end.

        ``attempt=None`` follows the newest attempt, and goes on with the next one when it comes.
        The iterator ends when no more can come. ``aclose`` ends the following.

        Raises:
            UnknownTask: at the first step, if the job has no such task.
        """
        self._check(task)
        first = self.logs.newest_attempt(task) if attempt is None else attempt

        def start(task: Task, number: int) -> int:
            return offset if offset >= 0 else max(0, self.logs.size(task, number) + offset)

        def wants(of: Task, number: int) -> bool:
            return of == task and (number == attempt if attempt is not None else number >= first)

        wake = asyncio.Event()
        with (
            self.logs.following([task], wake.set, wants=wants, start=start) as follower,
            self.status.changed.calling(wake.set),
        ):
            while True:
                finished = self.finished.is_set()
                wake.clear()
                while (update := await follower.next()) is not None:
                    yield update
                over = not follower.cursors and (attempt is not None or finished)
                if over or (finished and not follower.waiting):
                    return
                await wake.wait()

    def metrics(self, task: Task, since: float) -> list[Sample]:
        """Samples of the task later than ``since`` (seconds since the epoch), oldest first.

        Raises:
            UnknownTask: the job has no such task.
        """
        self._check(task)
        return self._metrics.since(task, since)

    async def stop(self, by: str, reason: str, firm: bool) -> None:
        """Ask for the job's end; durable when it returns. A firm request shortens an earlier one.

        Raises:
            JobOver: the job has ended; the text says how.
        """
        try:
            await self._driver.durably(StopRequested(by=by, reason=reason, firm=firm))
        except JobOver:
            outcome = self._state().outcome
            if outcome is None:
                words = "the coordinator ends; ask again when the next one has taken the job over"
            else:
                words = f"the job is over already: {outcome.value}"
            raise JobOver(words) from None

    async def stacks(self, task: Task) -> str:
        """Stacks of the task's programs as they are now.

        Raises:
            UnknownTask: the job has no such task.
            RuntimeError: they could not be taken; the text says why.
        """
        return await self._stacks.ask(task)

    def web_targets(self) -> dict[str, WebAddress]:
        """Announced web pages by task name (``tensorboard:0``)."""
        serving = pages(self._state(), self._live)
        return {str(task): address for task, address in serving.items()}

    def own_address(self) -> tuple[str, int]:
        """Host and port of the job page.

        Raises:
            LookupError: it is not up yet, with words for the user.
        """
        parts = urlsplit(self.page or "")
        if parts.hostname is None or parts.port is None:
            raise LookupError("the job page is not up yet; try again in a moment")
        return parts.hostname, parts.port

    def page_of(self, task: Task) -> WebAddress:
        """The task's announced page.

        Raises:
            LookupError: there is none (yet), with words for the user.
        """
        announced = self.web_targets()
        address = announced.get(str(task))
        if address is None:
            known = ", ".join(sorted(announced)) or "none so far"
            raise LookupError(f"{task} has announced no page; tasks that have: {known}")
        return address

    def _check(self, task: Task) -> None:
        tasks = self._state().tasks
        if str(task) not in tasks:
            raise UnknownTask(task, tasks)

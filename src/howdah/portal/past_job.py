"""A job that nobody runs, as the web app wants a job: fed from its directory alone."""

from __future__ import annotations

import asyncio
import bisect
import logging
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator

import msgspec

from howdah.backends.base import BackendError
from howdah.client.following import offline_job
from howdah.client.lookup.site import site_of
from howdah.coordinator.clients.live_job import NoLog
from howdah.coordinator.driver import JobOver
from howdah.coordinator.event_log import Signal
from howdah.coordinator.status import UnknownTask
from howdah.coordinator.web.security import Refusal
from howdah.core.messages import JobSubmitted, Task
from howdah.core.plan import Plan
from howdah.spec.model import Job
from howdah.storage import journal, logs
from howdah.storage import metrics as stored_metrics
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import JournalError
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate, RecordUpdate, Sample, WebAddress
from howdah.wire.status import JobView, WebLink

log: logging.Logger = logging.getLogger(__name__)

CHUNK = 256 * 1024
SAMPLES = 100_000
"""Samples held of a job, some 40 MB; of more, only a part."""
COLLECTED_S = 600.0
"""So long after a job's end YARN has collected its logs: an attempt that has none then wrote nothing."""


class PastJob:
    """Has the methods of `howdah.coordinator.clients.live_job.LiveJob` that the web app uses.

    What it needs for nearly every answer is read when it is made, which takes a file or a network:
    make it in a thread.

    Args:
        directory: the job's.
        view: the status document where it is known better than the directory tells it.
        links: pages that there are of it all the same.

    Raises:
        StorageError: the job cannot be read.
        JournalError: the same.
    """

    def __init__(
        self,
        directory: JobDirectory,
        view: JobView | None = None,
        links: tuple[WebLink, ...] = (),
    ) -> None:
        self.directory = directory
        self.missing: str = ""
        """Why not all of its events could be brought here; empty if they could."""
        self._remote = None
        try:
            site = site_of(directory)
            if not site.at_hand:
                self._remote = site
                site.bring_story()
        except (StorageError, BackendError, OSError) as error:
            # What is here is shown all the same.
            self.missing = str(error)
            log.info("%s: not all of it could be brought here: %s", directory.job_id, error)
        # Pages of its tasks ended with them.
        self._view = msgspec.structs.replace(
            view or offline_job.view(directory), links=links, page=None
        )
        self._job = directory.job()
        try:
            self.token: str = directory.token()
        except StorageError:
            self.token = ""
        self._records: list[RecordUpdate] = []
        self._plan: Plan | None = None
        self._read_journal()
        # A directory may say anything: a role's name that is a path would lead out of it.
        self._tasks = {
            each.task: Task(each.role, each.index)
            for each in self._view.tasks
            if "/" not in each.role and "\0" not in each.role
        }
        self._attempts = {each.task: each.attempt for each in self._view.tasks}
        self._samples: dict[Task, list[Sample]] | None = None
        self._has_all_samples = False
        self._reading = threading.Lock()
        self._brought: set[Task] = set()

    def _read_journal(self) -> None:
        try:
            for entry in journal.read(self.directory.path):
                if isinstance(entry, journal.RecordEntry):
                    self._records.append(
                        RecordUpdate(seq=entry.seq, time=entry.now, record=entry.record)
                    )
                elif isinstance(entry.event, JobSubmitted):
                    self._plan = entry.event.plan
        except JournalError as error:
            log.warning("the events of %s are not all shown: %s", self.directory.job_id, error)

    # -- as LiveJob ------------------------------------------------------------------------------

    def view(self) -> JobView:
        """The status document."""
        return self._view

    async def read_last_lines(self) -> None:
        """The document has them."""

    def job(self) -> Job:
        """The resolved job file."""
        return self._job

    def plan(self) -> Plan:
        """Roles as the machine saw them."""
        if self._plan is None and self.missing:
            raise Refusal(503, f"its events cannot be brought here: {self.missing}")
        if self._plan is None:
            raise Refusal(404, f"{self.directory.job_id} was never planned: no coordinator began")
        return self._plan

    def tasks(self) -> list[Task]:
        """All tasks of the job."""
        return list(self._tasks.values())

    def records(self, after_seq: int) -> list[RecordUpdate]:
        """Lines of the event log with ``seq > after_seq``, oldest first."""
        return self._records[bisect.bisect_right(self._records, after_seq, key=lambda r: r.seq) :]

    @property
    def grown(self) -> Signal:
        """Never sent: nothing comes any more."""
        return Signal()

    def log_attempts(self, task: Task) -> list[int]:
        """Attempts of the task that have a log, ascending."""
        self._check(task)
        return self.directory.log_attempts(task)

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        """As `LiveJob.read_log`."""
        self._check(task)
        path = self.directory.log_path(task, attempt)
        try:
            return await asyncio.to_thread(logs.read, path, offset, limit)
        except FileNotFoundError:
            raise NoLog(f"attempt {attempt} of {task} has no log") from None

    async def follow_log(
        self, task: Task, attempt: int | None, offset: int
    ) -> AsyncIterator[LogUpdate]:
        """The attempt's log from ``offset`` to its end."""
        attempts = self.log_attempts(task)
        if attempt is None:
            if not attempts:
                return
            attempt = attempts[-1]
        if attempt not in attempts:
            return
        while True:
            part = await self.read_log(task, attempt, offset, CHUNK)
            if not part.data:
                return
            yield LogUpdate(task=task, attempt=attempt, offset=part.offset, data=part.data)
            offset = part.next_offset

    def metrics(self, task: Task, since: float) -> list[Sample]:
        """Samples of the task later than ``since``, oldest first."""
        self._check(task)
        own = (self._samples or {}).get(task, [])
        return own[bisect.bisect_right(own, since, key=lambda sample: sample.time) :]

    async def stop(self, by: str, reason: str, firm: bool) -> None:
        """There is nothing to stop."""
        said = self._view.outcome or "nobody runs it"
        raise JobOver(f"the job is over already: {said}")

    async def stacks(self, task: Task) -> str:
        """Programs that do not run have none."""
        raise RuntimeError("its programs do not run any more")

    def web_targets(self) -> dict[str, WebAddress]:
        """None: pages of tasks end with them."""
        return {}

    def _check(self, task: Task) -> None:
        if str(task) not in self._tasks:
            raise UnknownTask(task, self._tasks)

    # -- what is read when it is asked for -------------------------------------------------------

    def read_samples(self) -> None:
        """Read the measurements, if that was not done yet. In a thread.

        Raises:
            Refusal: they are elsewhere and cannot be brought now, and none are here.
        """
        with self._reading:
            if self._has_all_samples:
                return
            found: defaultdict[Task, list[Sample]] = defaultdict(list)
            count = 0
            problem: Exception | None = None
            if self._remote is not None:
                try:
                    self._remote.bring_metrics()
                except (BackendError, OSError) as error:
                    problem = error
                    log.info("%s: measurements not brought: %s", self.directory.job_id, error)
            for item in stored_metrics.read(self.directory.path):
                found[item.task].append(item.sample)
                count += 1
                if count > SAMPLES:  # each second one goes: the plots keep their shape
                    found = defaultdict(list, {task: own[::2] for task, own in found.items()})
                    count = sum(map(len, found.values()))
            if problem is not None and not found:
                raise Refusal(503, f"the measurements cannot be brought here: {problem}")
            self._has_all_samples = problem is None
            self._samples = {
                task: sorted(own, key=lambda sample: sample.time) for task, own in found.items()
            }

    def bring_logs(self, task: Task) -> None:
        """Bring the task's logs here, where they are elsewhere. In a thread.

        Raises:
            Refusal: they cannot be brought now, and none of them is here.
        """
        with self._reading:
            if self._remote is None or task in self._brought:
                return
            try:
                self._remote.bring_logs([task])
            except (BackendError, OSError) as error:
                log.info("the logs of %s could not be brought here: %s", task, error)
                if not self.directory.log_attempts(task):
                    raise Refusal(
                        503, f"the logs of {task} cannot be brought here: {error}"
                    ) from error
                return
            begun = range(1, self._attempts.get(str(task), 0) + 1)
            collected = time.time() - (self._view.finished or 0.0) > COLLECTED_S
            if collected or {*begun} <= {*self.directory.log_attempts(task)}:
                self._brought.add(task)

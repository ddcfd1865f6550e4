"""A job in memory, for the web app: tests change it and look at what the app says."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from howdah.coordinator.clients.live_job import NoLog
from howdah.coordinator.event_log import Signal
from howdah.coordinator.status import UnknownTask
from howdah.core.messages import Level, Record, Task
from howdah.core.plan import Plan, RolePlan
from howdah.spec.model import Job, Role
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate, RecordUpdate, Sample, WebAddress
from howdah.wire.status import FailureView, JobView, TaskView, WebLink

TOKEN = "t0ken-of-the-fake-job-9f8e7d6c5b4a"


def parse(name: str) -> Task:
    """``worker:1`` as a task."""
    role, _, index = name.rpartition(":")
    return Task(role, int(index))


class FakeJob:
    """Stands in for a `LiveJob`. Times are real; nothing happens by itself."""

    token = TOKEN

    def __init__(self, roles: dict[str, int] | None = None, *, submitted: float | None = None):
        roles = roles or {"chief": 1, "worker": 3}
        self.roles = roles
        start = time.time() if submitted is None else submitted
        tasks: list[TaskView] = []
        for role, count in roles.items():
            for index in range(count):
                ranked = role in ("chief", "worker")
                tasks.append(
                    TaskView(
                        task=f"{role}:{index}",
                        role=role,
                        index=index,
                        state="waiting",
                        attempt=0,
                        generation=0,
                        rank=len(tasks) if ranked else None,
                        tracking="tracked" if ranked else "sidecar",
                        since=start,
                    )
                )
        self.tasks = {task.task: task for task in tasks}
        self.head = JobView(
            job_id="digits-20261121-143502-k3f9",
            name="digits",
            framework="tensorflow",
            user="ada",
            backend="local",
            phase="allocating",
            generation=0,
            incarnation=1,
            submitted=start,
            directory="/home/ada/.howdah/jobs/ada/digits-20261121-143502-k3f9",
        )
        self.story: list[RecordUpdate] = []
        self.logs: dict[tuple[str, int], bytearray] = {}
        self.samples: dict[str, list[Sample]] = defaultdict(list)
        self.targets: dict[str, WebAddress] = {}
        self.stops: list[tuple[str, str, bool]] = []
        self.stack_text: str | None = 'Thread 1 (idle): "MainThread"\n    step (train.py:31)'
        self.views = 0
        self.grown = Signal()
        self._log_grew = asyncio.Event()

    # -- what tests do ----------------------------------------------------------------------------

    def task(self, name: str, **fields: Any) -> None:
        """Change a task."""
        self.tasks[name] = msgspec.structs.replace(self.tasks[name], **fields)

    def change(self, **fields: Any) -> None:
        """Change the job."""
        self.head = msgspec.structs.replace(self.head, **fields)

    def say(
        self,
        kind: str,
        text: str,
        *,
        level: Level = Level.INFO,
        task: str | None = None,
        attempt: int | None = None,
        at: float | None = None,
        **data: Any,
    ) -> RecordUpdate:
        """Add a line to the story."""
        update = RecordUpdate(
            seq=len(self.story) * 3 + 1,
            time=time.time() if at is None else at,
            record=Record(
                kind=kind,
                text=text,
                level=level,
                task=parse(task) if task else None,
                attempt=attempt,
                generation=self.head.generation or None,
                data=data,
            ),
        )
        self.story.append(update)
        self.grown.send()
        return update

    def fail(self, failure: FailureView) -> None:
        """Add a failure."""
        self.change(failures=(*self.head.failures, failure))

    def print(self, name: str, text: str | bytes, attempt: int | None = None) -> None:
        """The task writes to its log."""
        number = attempt or self.tasks[name].attempt or 1
        data = text.encode() if isinstance(text, str) else text
        self.logs.setdefault((name, number), bytearray()).extend(data)
        self._log_grew.set()
        self._log_grew = asyncio.Event()

    def measure(self, name: str, at: float | None = None, **fields: Any) -> None:
        """The task is measured."""
        sample = Sample(time=time.time() if at is None else at, **fields)
        self.samples[name].append(sample)

    def link(self, name: str, address: WebAddress) -> None:
        """The task announces a web page."""
        self.targets[name] = address
        link = WebLink(name=address.name, href=f"proxy/{name}/")
        self.change(links=(*self.head.links, link))

    @property
    def listeners(self) -> int:
        """Streams that are open."""
        return len(self.grown._listeners)

    # -- JobSource --------------------------------------------------------------------------------

    def view(self) -> JobView:
        self.views += 1
        return msgspec.structs.replace(self.head, tasks=tuple(self.tasks.values()))

    def job(self) -> Job:
        return Job(
            name="digits",
            framework="tensorflow",
            command="python train.py",
            roles={role: Role(instances=count) for role, count in self.roles.items()},
        )

    def plan(self) -> Plan:
        return Plan(
            job_id=self.head.job_id,
            roles=tuple(
                RolePlan(name=role, minimum=count, maximum=count)
                for role, count in self.roles.items()
            ),
        )

    async def read_last_lines(self) -> None:
        pass

    def records(self, after_seq: int) -> list[RecordUpdate]:
        return [update for update in self.story if update.seq > after_seq]

    def log_attempts(self, task: Task) -> list[int]:
        self._check(task)
        return sorted(attempt for name, attempt in self.logs if name == str(task))

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        self._check(task)
        data = self.logs.get((str(task), attempt))
        if data is None:
            raise NoLog(f"attempt {attempt} of {task} has no log")
        offset = max(0, len(data) + offset) if offset < 0 else min(offset, len(data))
        part = bytes(data[offset : offset + limit])
        return LogPart(offset, part, offset + len(part))

    async def follow_log(
        self, task: Task, attempt: int | None, offset: int
    ) -> AsyncIterator[LogUpdate]:
        self._check(task)
        attempts = self.log_attempts(task)
        number = attempt or (attempts[-1] if attempts else 1)
        at = offset
        while True:
            grew = self._log_grew
            data = self.logs.get((str(task), number))
            if data is not None:
                at = max(0, len(data) + at) if at < 0 else at
                if at < len(data):
                    part = bytes(data[at : at + 65536])
                    yield LogUpdate(task=task, attempt=number, offset=at, data=part)
                    at += len(part)
                    continue
            if attempt is None and (str(task), number + 1) in self.logs:
                number, at = number + 1, 0
                continue
            await grew.wait()

    def metrics(self, task: Task, since: float) -> list[Sample]:
        self._check(task)
        return [sample for sample in self.samples[str(task)] if sample.time > since]

    async def stop(self, by: str, reason: str, firm: bool) -> None:
        self.stops.append((by, reason, firm))

    async def stacks(self, task: Task) -> str:
        self._check(task)
        if self.stack_text is None:
            raise RuntimeError("py-spy may not look into other processes here")
        return self.stack_text

    def web_targets(self) -> dict[str, WebAddress]:
        return self.targets

    def _check(self, task: Task) -> None:
        if str(task) not in self.tasks:
            raise UnknownTask(task, self.tasks)

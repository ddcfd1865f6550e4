"""What was measured of a job, from its journal and its samples, for `howdah.client.advice`."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict

import msgspec

from howdah.backends.base import BackendError
from howdah.client.advice import (
    AGENTS,
    CONTAINERS,
    COORDINATOR,
    ENOUGH_SAMPLES,
    PREPARING,
    PROGRAMS,
    Evidence,
    Finding,
    RestartCause,
    RoleUse,
    StartPhase,
    advise,
)
from howdah.client.lookup.site import site_of
from howdah.core import messages as m
from howdah.core.messages import Task
from howdah.spec.model import Role
from howdah.spec.units import mebibytes
from howdah.storage import journal, metrics
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import JournalError
from howdah.wire.messages import Sample


def findings(directory: JobDirectory) -> list[Finding]:
    """What the rules find of a job. May wait for a network where the job runs elsewhere.

    Raises:
        JournalError: the journal is damaged.
        StorageError: the directory's documents are missing or damaged.
        BackendError: what was measured elsewhere cannot be brought.
    """
    site = site_of(directory)
    if not site.at_hand:
        if site.final() is None:
            site.bring_story()
        site.bring_metrics()
    return advise(evidence(directory))


def findings_if_known(directory: JobDirectory) -> list[Finding]:
    """As `findings`; none where they cannot be told, for those who have more important things to say."""
    try:
        return findings(directory)
    except (StorageError, JournalError, BackendError, OSError):
        return []


def evidence(directory: JobDirectory) -> Evidence:
    """What the job's directory tells.

    Raises:
        JournalError: the journal is damaged.
        StorageError: the directory's documents are missing or damaged.
    """
    job, submitted = directory.job(), directory.meta().submitted
    samples: dict[Task, list[Sample]] = defaultdict(list)
    for each in metrics.read(directory.path):
        samples[each.task].append(each.sample)
    events = _Journal(submitted)
    for entry in journal.read(directory.path):
        events.take(entry)
    final = directory.final()
    reported = [each.time for found in samples.values() for each in found if each.values]
    uses = [_use(name, role, samples, events.rates()) for name, role in job.roles.items()]
    end = (final.finished if final is not None else None) or time.time()
    return Evidence(
        roles=tuple(use for use in uses if use is not None),
        took_s=max(end - submitted, 0.0),
        start=events.start(min(reported, default=None)),
        restarts=tuple(events.restarts),
        has_checkpoint=job.checkpoint is not None,
        checkpoints=tuple(events.checkpoints),
        checkpoint_bytes=events.checkpoint_bytes,
    )


def _use(
    name: str, role: Role, samples: dict[Task, list[Sample]], rates: dict[Task, float]
) -> RoleUse | None:
    of_role = {task: found for task, found in samples.items() if task.role == name}
    if not of_role:
        return None
    return RoleUse(
        role=name,
        tasks=len(of_role),
        memory_mb=mebibytes(role.memory) if role.memory is not None else None,
        cores=role.cores,
        gpus=role.gpus,
        peak_memory_mb=max(
            (
                each.rss_mb
                for found in of_role.values()
                for each in found
                if each.rss_mb is not None
            ),
            default=None,
        ),
        busy_cores=_busiest([[each.cpu for each in found] for found in of_role.values()]),
        busy_gpus=_busiest([[each.gpu for each in found] for found in of_role.values()]),
        step_rates={str(task): rate for task, rate in rates.items() if task.role == name},
    )


def _busiest(tasks: list[list[float | None]]) -> float | None:
    """The mean of the task that used most; None where too little was measured."""
    known = [[each for each in found if each is not None] for found in tasks]
    return max(
        (statistics.fmean(found) for found in known if len(found) >= ENOUGH_SAMPLES), default=None
    )


class _Journal:
    """What advice needs of a journal, collected from its beginning."""

    def __init__(self, submitted: float) -> None:
        self._submitted = submitted
        self.checkpoints: list[float] = []
        self.checkpoint_bytes = 0
        self.restarts: list[RestartCause] = []
        self._saved = submitted
        """When the newest checkpoint was complete, or a program began after it."""
        self._newest = ""
        """Its name."""
        self._ended: m.Record | None = None
        """The end of a generation, until the next one."""
        self._started: dict[Task, float] = {}
        self._restored: set[Task] = set()
        self._rates: dict[Task, float] = {}
        self._phases: dict[str, float] = {}
        """When each phase of the start was over."""
        self._begun = False
        """The job ran, or failed before it did: what comes is no part of its first start."""
        self._failed: float | None = None
        """When it was first started again."""

    def take(self, entry: journal.EventEntry | journal.RecordEntry) -> None:
        if isinstance(entry, journal.RecordEntry):
            self._record(entry.record, entry.now)
        else:
            self._event(entry.event, entry.now)

    def rates(self) -> dict[Task, float]:
        """Steps a second of each task's newest attempt that has ended."""
        return self._rates

    def start(self, reported: float | None) -> tuple[StartPhase, ...]:
        """The phases of the start; ``reported``: when a program first reported something."""
        ends = dict(self._phases)
        if self._failed is not None and reported is not None and reported > self._failed:
            reported = None  # by an attempt after that start
        if PROGRAMS in ends and reported is not None:
            ends[PROGRAMS] = max(ends[PROGRAMS], reported)
        phases: list[StartPhase] = []
        before = self._submitted
        for name in (COORDINATOR, CONTAINERS, AGENTS, PREPARING, PROGRAMS):
            if name in ends:
                phases.append(StartPhase(name, max(ends[name] - before, 0.0)))
                before = max(ends[name], before)
        return tuple(phases)

    def _event(self, event: object, now: float) -> None:
        match event:
            case m.CoordinatorStarted(incarnation=1):
                self._phases[COORDINATOR] = now
            case m.ContainerGranted() if not self._begun:
                self._phases[CONTAINERS] = now
            case m.AgentRegistered() if not self._begun:
                self._phases[AGENTS] = now
            case m.TaskPrepared(task=task, restored=restored):
                if restored:
                    self._restored.add(task)
                    name, _, more = restored.partition(" ")
                    # Another job's, which a resumed one begins with, has that job's number.
                    is_own = not more.startswith("of ")
                    if is_own and name > self._newest and self.restarts:
                        self._newest = name
                        self.restarts[-1] = msgspec.structs.replace(self.restarts[-1], lost_s=0.0)
                if not self._begun:
                    self._phases[PREPARING] = now
            case m.TaskStarted(task=task):
                self._started[task] = self._saved = now
                self._rates.pop(task, None)
            case m.TaskExited(task=task, exit=end) | m.TaskSaving(task=task, exit=end):
                began = self._started.get(task, now)
                # One that was restored has not made all the steps that it counts.
                if end.step and now > began and task not in self._restored:
                    self._rates.setdefault(task, end.step / (now - began))
            case m.CheckpointSaved(name=name, size=size):
                self._saved = now
                self._newest = max(name, self._newest)
                self.checkpoints.append(now - self._submitted)
                self.checkpoint_bytes += size
            case _:
                pass

    def _record(self, record: m.Record, now: float) -> None:
        if record.kind == "running":
            if not self._begun:
                self._phases[PROGRAMS] = now
            self._begun = True
        elif record.kind == "generation-ended":
            self._ended = record
        elif record.kind == "restarting" and self._ended is not None:
            self._start_is_over(now)
            data = self._ended.data
            self.restarts.append(
                RestartCause(
                    cause=str(data.get("cause", "")),
                    task=data.get("task"),
                    what=str(record.data.get("why", self._ended.text)),
                    lost_s=max(now - self._saved, 0.0),
                )
            )
            self._ended = None
        elif record.kind == "task-restarting":
            self._start_is_over(now)
            self.restarts.append(
                RestartCause(
                    cause=str(record.data.get("cause", "")),
                    task=str(record.task),
                    what=str(record.data.get("why", record.text)),
                    lost_s=0.0,  # the others went on
                )
            )

    def _start_is_over(self, now: float) -> None:
        """What an attempt that was lost took is a failure's cost, whether or not the job ran before."""
        self._begun = True
        if self._failed is None:
            self._failed = now

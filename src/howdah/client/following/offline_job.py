"""A job as its directory tells it, with no coordinator to ask."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from howdah.client.following.log_lines import FollowerPosition, LogId
from howdah.core.messages import Task
from howdah.core.state import TaskState
from howdah.storage import journal, logs
from howdah.storage.jobdir import JobDirectory
from howdah.wire.messages import LogUpdate, RecordUpdate
from howdah.wire.status import JobView, TaskView

CHUNK = 256 * 1024
"""Bytes of a log read at a time."""

_OVER = frozenset(state.value for state in (TaskState.SUCCEEDED, TaskState.ENDED))

TAIL_BYTES = 4 * 1024 * 1024


def records(directory: JobDirectory, after_seq: int = 0) -> Iterator[RecordUpdate]:
    """The job's event log after ``after_seq``, oldest first.

    Raises:
        JournalError: the journal is damaged.
    """
    for entry in journal.read(directory.path):
        if isinstance(entry, journal.RecordEntry) and entry.seq > after_seq:
            yield RecordUpdate(seq=entry.seq, time=entry.now, record=entry.record)


def streams(directory: JobDirectory, tasks: Iterable[Task] = ()) -> list[LogId]:
    """The logs there are, of these tasks or of all, by task and attempt."""
    wanted = set(tasks) or _logged_tasks(directory)
    found = [LogId(t, attempt) for t in wanted for attempt in directory.log_attempts(t)]
    return sorted(found)


def log_file(path: Path, stream: LogId, offset: int, *, chunk: int = CHUNK) -> Iterator[LogUpdate]:
    """The attempt's log at that path from ``offset`` to its present end, ``chunk`` bytes at a time."""
    times = logs.LogTimes(path)
    while (part := logs.read(path, offset, chunk)).data:
        offset = part.next_offset
        yield LogUpdate(
            task=stream.task,
            attempt=stream.attempt,
            offset=part.offset,
            data=part.data,
            times=times.between(part.offset, offset),
        )


def tail_offset(directory: JobDirectory, stream: LogId, count: int) -> int:
    """Where the last ``count`` lines of an attempt's log begin (of at most its last 4 MiB)."""
    path = directory.log_path(stream.task, stream.attempt)
    end = logs.size(path)
    if count <= 0:
        return end
    start = max(end - TAIL_BYTES, 0)
    newest = deque((offset for offset, _ in logs.lines(path, start)), maxlen=count)
    return newest[0] if newest else end


def rest(
    directory: JobDirectory, position: FollowerPosition, *, logs: bool, tasks: Iterable[Task] = ()
) -> Iterator[RecordUpdate | LogUpdate]:
    """What a follower at ``position`` has not seen of a job that has ended."""
    for update in records(directory, position.seq):
        if position.is_new_record(update.seq):
            yield update
    for stream in streams(directory, tasks) if logs else ():
        path = directory.log_path(stream.task, stream.attempt)
        for part in log_file(path, stream, position.offsets.get(stream, 0)):
            position.new_bytes(stream, part.offset, part.data)
            yield part


def view(directory: JobDirectory) -> JobView:
    """The status document: the final one, or what the journal of an unfinished job comes to.

    Raises:
        JournalError: the journal is damaged.
        StorageError: the directory's documents are missing or damaged.
    """
    final = directory.final()
    if final is not None and (final.tasks or not any(directory.path.glob("events-*"))):
        return final
    told = _as_told(directory)
    return told if final is None else _with_tasks(final, told)


def ended(tasks: tuple[TaskView, ...]) -> tuple[TaskView, ...]:
    """Tasks that nobody runs any more, as the journal last saw them."""
    return tuple(
        each if each.state in _OVER else msgspec.structs.replace(each, state=TaskState.ENDED.value)
        for each in tasks
    )


def _with_tasks(final: JobView, told: JobView) -> JobView:
    """An end that no coordinator wrote knows nothing of tasks; the journal does, until then."""
    return msgspec.structs.replace(
        final,
        tasks=ended(told.tasks),
        failures=(*told.failures, *final.failures),
        started=told.started,
        generation=told.generation,
        restarts=told.restarts,
        checkpoint=told.checkpoint,
    )


def _as_told(directory: JobDirectory) -> JobView:
    from howdah.coordinator.driver import replay
    from howdah.core.machine import Machine
    from howdah.wire.status import JobIdentity
    from howdah.wire.status import view as view_of

    meta = directory.meta()
    identity = JobIdentity(
        name=directory.job().name,
        framework=directory.job().framework,
        user=meta.user,
        backend=meta.backend,
        queue=meta.queue,
        directory=str(directory.path),
    )
    machine = Machine()
    replay(machine, journal.read(directory.path))
    if machine.state.plan is not None:
        return view_of(machine.state, identity)
    return JobView(
        job_id=directory.job_id,
        name=identity.name,
        framework=identity.framework,
        user=identity.user,
        backend=identity.backend,
        queue=identity.queue,
        directory=identity.directory,
        phase="submitted",
        submitted=meta.submitted,
    )


def _logged_tasks(directory: JobDirectory) -> set[Task]:
    folders = [entry.name for entry in directory.logs.iterdir() if entry.is_dir()]
    named = [name.rpartition("-") for name in folders]
    return {Task(role, int(index)) for role, _, index in named if role and index.isdecimal()}

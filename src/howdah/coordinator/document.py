"""The status document: what the machine knows, with what is measured laid over it."""

from __future__ import annotations

import msgspec

from howdah.coordinator.live import LiveBoard
from howdah.core.messages import Task
from howdah.core.state import LIVE, JobState, TaskState
from howdah.wire.messages import WebAddress
from howdah.wire.status import JobIdentity, JobView, TaskView, WebLink, view

_LIVE = frozenset(state.value for state in LIVE)
_UP = frozenset((TaskState.STARTING.value, TaskState.RUNNING.value))


def document(
    state: JobState,
    identity: JobIdentity,
    live: LiveBoard,
    now: float,
    page: str | None,
    waits: str = "",
) -> JobView:
    """The document of the present moment; ``waits`` is why containers do not come. Pure."""
    plain = view(state, identity)
    if waits and plain.outcome is None and plain.reason:
        plain = msgspec.structs.replace(plain, reason=f"{plain.reason} ({waits})")
    tasks = tuple(_measured(task, state, live, now) for task in plain.tasks)
    links = tuple(
        WebLink(name=address.name, href=f"proxy/{task}/")
        for task, address in sorted(pages(state, live).items())
    )
    return msgspec.structs.replace(plain, tasks=tasks, links=links, page=page)


def pages(state: JobState, live: LiveBoard) -> dict[Task, WebAddress]:
    """Announced pages whose tasks still serve them."""
    serving: dict[Task, WebAddress] = {}
    for task, address in live.pages().items():
        data = state.tasks.get(str(task))
        if data is not None and data.state in LIVE and data.attempt == address.attempt:
            serving[task] = address
    return serving


def _measured(task: TaskView, state: JobState, live: LiveBoard, now: float) -> TaskView:
    data = state.tasks[task.task]
    last_line = data.exit.tail[-1] if data.exit and data.exit.tail else None
    measured = live.of(Task(task.role, task.index), task.attempt)
    if measured is None:
        return task if last_line is None else msgspec.structs.replace(task, last_line=last_line)
    if task.state in _LIVE:
        last_line = measured.last_line or last_line
    if task.state not in _UP:
        return msgspec.structs.replace(
            task, last_line=last_line, log_size=measured.log_size or None, step=measured.step
        )
    sample = measured.sample
    return msgspec.structs.replace(
        task,
        last_line=last_line,
        step=measured.step,
        progress_s=None if measured.progress is None else max(0.0, now - measured.progress),
        log_size=measured.log_size,
        cpu=sample.cpu if sample else None,
        rss_mb=sample.rss_mb if sample else None,
        gpu=sample.gpu if sample else None,
        gpu_memory_mb=sample.gpu_memory_mb if sample else None,
    )

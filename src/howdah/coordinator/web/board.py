"""The status document as versioned changes, shared by all who watch the page.

The document is made at most a few times a second, however many watch; each watcher is sent only
what changed since the version it has. With 1,000 tasks that beat every second a change is some
tens of kilobytes, where the document is half a megabyte.
"""

from __future__ import annotations

import collections
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from howdah.coordinator.source import JobSource
from howdah.coordinator.web.documents import StatusPatch
from howdah.coordinator.web.timeline import Timeline
from howdah.wire.status import JobView, TaskView

HISTORY = 120
"""Changes remembered; a watcher who has been away for longer gets the whole document."""

MIN_INTERVAL_S = 0.1
"""The document is not made more often than this, and takes at most a twentieth of the time."""

_COST_FACTOR = 20.0
_JOB_FIELDS = tuple(name for name in JobView.__struct_fields__ if name != "tasks")
_DIGITS = (("cpu", 2), ("rss_mb", 1), ("gpu", 2), ("gpu_memory_mb", 0))


class _Change(msgspec.Struct, frozen=True):
    number: int
    job: dict[str, Any]
    tasks: dict[str, dict[str, Any]]
    removed: tuple[str, ...]


class Board:
    """The newest document and how it came about.

    Args:
        source: the job.
        clock: seconds since the epoch.
        timer: a monotonic clock, in seconds.
    """

    def __init__(
        self, source: JobSource, clock: Callable[[], float], timer: Callable[[], float]
    ) -> None:
        self._source = source
        self._clock = clock
        self._timer = timer
        # A new coordinator counts from one again: the boot tells its versions from the old ones.
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._job: dict[str, Any] = {}
        self._tasks: dict[str, dict[str, Any]] = {}
        self._views: dict[str, TaskView] = {}
        self._changes: collections.deque[_Change] = collections.deque(maxlen=HISTORY)
        self._timeline: Timeline | None = None
        self._told_seq = 0
        self._made_at = -1e9
        self._interval_s = MIN_INTERVAL_S
        self._view: JobView | None = None

    @property
    def version(self) -> str:
        """Names the newest document."""
        return f"{self._boot}-{self._number}"

    @property
    def interval_s(self) -> float:
        """The document is worth looking at again after this long."""
        return self._interval_s

    def view(self) -> JobView:
        """The document, at most `interval_s` old."""
        self.refresh()
        assert self._view is not None
        return self._view

    def refresh(self, *, last: bool = False) -> None:
        """Make the document anew, unless that was just done and this is not the last time."""
        began = self._timer()
        if began - self._made_at < self._interval_s and not last:
            return
        view = self._source.view()
        self._take(view, self._clock())
        self._view = view
        self._made_at = self._timer()
        self._interval_s = max(MIN_INTERVAL_S, (self._made_at - began) * _COST_FACTOR)

    def patch(self, since: str) -> StatusPatch | None:
        """What changed since a version; None if nothing did, everything if it is not known."""
        boot, _, text = since.partition("-")
        number = int(text) if boot == self._boot and text.isdecimal() else -1
        oldest = self._changes[0].number if self._changes else 1
        if number == self._number and number > 0:
            return None
        if not max(oldest - 1, 1) <= number <= self._number:
            return StatusPatch(
                version=self.version,
                time=self._clock(),
                full=True,
                job=self._job,
                tasks=list(self._tasks.values()),
            )
        job: dict[str, Any] = {}
        tasks: dict[str, dict[str, Any]] = {}
        removed: dict[str, None] = {}
        for change in self._changes:
            if change.number <= number:
                continue
            job.update(change.job)
            for name in change.removed:
                tasks.pop(name, None)
                removed[name] = None
            for name, fields in change.tasks.items():
                removed.pop(name, None)
                tasks.setdefault(name, {"task": name}).update(fields)
        return StatusPatch(
            version=self.version,
            time=self._clock(),
            full=False,
            job=job,
            tasks=list(tasks.values()),
            removed=list(removed),
        )

    def _take(self, view: JobView, now: float) -> None:
        job = {name: getattr(view, name) for name in _JOB_FIELDS}
        job["timeline"] = self._spans(view)
        changed_job = {
            name: value for name, value in job.items() if self._job.get(name, job) != value
        }
        changed_tasks: dict[str, dict[str, Any]] = {}
        seen: dict[str, TaskView] = {}
        for task in view.tasks:
            seen[task.task] = task
            before = self._views.get(task.task)
            if before == task:
                continue
            known = self._tasks.get(task.task, {})
            fields = _shown(task, known, now)
            # Every field of a task is known or none is.
            changes = (
                {name: value for name, value in fields.items() if known[name] != value}
                if known
                else fields
            )
            if changes:
                changed_tasks[task.task] = changes
                self._tasks[task.task] = fields
        removed = tuple(name for name in self._views if name not in seen)
        for name in removed:
            self._tasks.pop(name, None)
        self._job, self._views = job, seen
        if changed_job or changed_tasks or removed or self._number == 0:
            self._number += 1
            self._changes.append(_Change(self._number, changed_job, changed_tasks, removed))

    def _spans(self, view: JobView) -> tuple[Any, ...]:
        if self._timeline is None:
            self._timeline = Timeline(view.submitted)
        for update in self._source.records(self._told_seq):
            self._timeline.add(update)
            self._told_seq = update.seq
        return self._timeline.spans


def _shown(task: TaskView, known: dict[str, Any], now: float) -> dict[str, Any]:
    """A task's fields, rounded to what a reader can see so that noise is not sent."""
    fields = msgspec.structs.asdict(task)
    for name, digits in _DIGITS:
        value = fields[name]
        if value is not None:
            fields[name] = round(value, digits)
    # "Seconds ago" changes by itself all the time; the moment it speaks of does not.
    progress_s = fields.pop("progress_s")
    moment = None if progress_s is None else round(now - progress_s, 1)
    before = known.get("progress_at")
    if moment is not None and before is not None and abs(moment - before) < 1.0:
        moment = before
    fields["progress_at"] = moment
    return fields

"""What is measured and announced, by task: shown, never journaled, gone with the coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from howdah.core.messages import Record, Task
from howdah.wire.messages import Heartbeat, Sample, WebAddress

PAGE_ANNOUNCED = "page-announced"
"""Kind of the record that lets the next coordinator know of a page."""
LINES = 64
"""Last lines read at a time."""


class LastLines(Protocol):
    """Where the last line of a log can be had."""

    async def last_line(self, task: Task, attempt: int) -> str | None: ...


class TaskLive:
    """The newest of one attempt. Changed in place: at 1,000 beats a second nothing is allocated."""

    __slots__ = (
        "attempt",
        "last_line",
        "last_line_size",
        "log_size",
        "progress",
        "sample",
        "step",
        "tells_lines",
    )

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.sample: Sample | None = None
        self.step: float | None = None
        self.progress: float | None = None
        """When it last showed progress, on the job's clock."""
        self.log_size = 0
        self.last_line: str | None = None
        self.last_line_size = 0
        """Size of the log when `last_line` was read."""
        self.tells_lines = False
        """Its agent says what is written: the log need not be read, and most likely can't be."""


class LiveBoard:
    """All tasks' newest measurements and announced pages."""

    def __init__(self) -> None:
        self._tasks: dict[Task, TaskLive] = {}
        self._web: dict[Task, WebAddress] = {}

    def of(self, task: Task, attempt: int) -> TaskLive | None:
        """That attempt's measurements, if there are any."""
        live = self._tasks.get(task)
        return live if live is not None and live.attempt == attempt else None

    def beat(self, task: Task, beat: Heartbeat, now: float) -> None:
        """Take a beat in; a new attempt starts from nothing, and an older one is not heard."""
        live = self._tasks.get(task)
        if live is None or live.attempt < beat.attempt:
            live = self._tasks[task] = TaskLive(beat.attempt)
        elif live.attempt > beat.attempt:
            return
        if beat.sample is not None:
            live.sample = beat.sample
        if beat.progress_s is not None:
            live.progress = now - beat.progress_s
        if beat.step is not None:
            live.step = beat.step
        if beat.last_line is not None:
            live.last_line, live.tells_lines = beat.last_line, True
        live.log_size = beat.log_size

    async def read_last_lines(self, logs: LastLines) -> None:
        """Read the newest line of logs that have grown, a few in a large job."""
        grown = [
            (task, live)
            for task, live in self._tasks.items()
            if live.log_size != live.last_line_size and not live.tells_lines
        ]
        for task, live in grown[:LINES]:
            size = live.log_size
            line = await logs.last_line(task, live.attempt)
            if not live.tells_lines:
                live.last_line = line
            live.last_line_size = size

    def announce(self, address: WebAddress) -> bool:
        """Take in where a task serves a page; whether that is news (see `announcement`)."""
        known = self._web.get(address.task)
        if known == address or (known is not None and known.attempt > address.attempt):
            return False
        self._web[address.task] = address
        return True

    def remember(self, records: Iterable[Record]) -> None:
        """Take announced pages from the story a former coordinator told."""
        for record in records:
            if record.kind == PAGE_ANNOUNCED and record.task and record.attempt:
                self.announce(WebAddress(task=record.task, attempt=record.attempt, **record.data))

    def pages(self) -> dict[Task, WebAddress]:
        """Announced pages by task."""
        return dict(self._web)


def announcement(address: WebAddress) -> Record:
    """The record of an announced page."""
    return Record(
        kind=PAGE_ANNOUNCED,
        text=f"{address.task} serves {address.name}",
        task=address.task,
        attempt=address.attempt,
        data={
            "name": address.name,
            "host": address.host,
            "port": address.port,
            "path": address.path,
            "keeps_prefix": address.keeps_prefix,
        },
    )

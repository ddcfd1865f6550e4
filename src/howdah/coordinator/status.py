"""The status document, made when somebody looks and no oftener than that is worth."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from howdah.coordinator.pulse import Pulse
from howdah.core.state import TaskState
from howdah.wire.messages import MAX_FRAME
from howdah.wire.status import JobView

SHORTEST_S = 0.2
"""Between two documents to the same watcher."""
LARGEST = MAX_FRAME - 64 * 1024
"""Bytes of a document that fits a frame."""
SHARE = 0.05
"""Of one core's time at most for making documents, however large the job."""


class Status:
    """The document of the present moment, kept until something changes."""

    def __init__(self, build: Callable[[], JobView]) -> None:
        self._build = build
        self._view: JobView | None = None
        self._json: bytes | None = None
        self._made = 0.0
        self._cost_s = 0.0
        self.version = 0
        """Grows with every change; a watcher compares it with the one it has sent."""
        self.changed = Pulse()

    def touch(self) -> None:
        """Something in the document is different now."""
        self.version += 1
        self._view = None
        self._json = None
        self.changed.fire()

    @property
    def pace_s(self) -> float:
        """How long a watcher waits between two documents."""
        return max(SHORTEST_S, self._cost_s / SHARE)

    def view(self) -> JobView:
        """The document, not older than `pace_s`."""
        begin = time.monotonic()
        if self._view is None or begin - self._made > self.pace_s:
            self._view = self._build()
            self._json = None
            self._made = time.monotonic()
            self._cost_s = self._made - begin
        return self._view

    def json(self) -> bytes:
        """The document as JSON."""
        view = self.view()
        if self._json is None:
            begin = time.monotonic()
            self._json = encoded(view)
            self._cost_s += time.monotonic() - begin
        return self._json


def encoded(view: JobView, largest: int = LARGEST) -> bytes:
    """The document as JSON of at most ``largest`` bytes.

    Of a job with too many tasks for that (some 8,000), as many are shown as fit, those that run
    and have nothing to tell left out first.
    """
    document = msgspec.json.encode(view)
    if len(document) <= largest:
        return document
    fit = int(len(view.tasks) * largest / len(document) * 0.9)
    chosen = sorted(view.tasks, key=lambda task: task.state == TaskState.RUNNING.value)[:fit]
    chosen.sort(key=lambda task: (task.role, task.index))
    return msgspec.json.encode(msgspec.structs.replace(view, tasks=tuple(chosen)))

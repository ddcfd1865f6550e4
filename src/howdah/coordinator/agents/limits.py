"""What one agent may have the coordinator keep.

Agents run beside people's programs. One that is taken over by its program, or gone wrong, can send
what it likes; it must not fill the journal, the log or the memory that all tasks of the job share.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from howdah.core.messages import Task
from howdah.core.plan import Plan
from howdah.spec.model import MAX_TASKS

BURST_BYTES = 8 * 1024 * 1024
REFILL_BYTES = 64 * 1024
"""A second. A busy agent sends a few hundred bytes, and some kilobytes when its programs end."""
EACH_BYTES = 1024
"""Counted for every message besides its own size: what the journal and the state hold of it."""
LARGEST_BYTES = 256 * 1024
"""Of one message that is kept. Status documents have to fit a frame with all of them."""

NAMES = 500
"""Names of values that a task's program may report."""
NAME_LENGTH = 200
LINE_LENGTH = 2000
"""Of a log's newest line, as it is shown."""

_encode = msgspec.json.Encoder().encode


class Allowances:
    """What each container's agent has left, over all its connections."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds."""
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, container_id: str, message: msgspec.Struct) -> bool:
        """Whether that message may be kept, and read again; it counts from now on."""
        text = _encode(message)
        size = len(text)
        try:
            # JSON has no infinity. The next coordinator could not read a journal with one.
            msgspec.json.decode(text, type=type(message))
        except msgspec.DecodeError:
            return False
        now = self._clock()
        left, since = self._left.get(container_id, (float(BURST_BYTES), now))
        left = min(left + max(now - since, 0.0) * REFILL_BYTES, BURST_BYTES)
        allowed = size <= LARGEST_BYTES and left >= size + EACH_BYTES
        self._left[container_id] = (left - size - EACH_BYTES if allowed else left, now)
        return allowed


def is_planned(task: Task, plan: Plan | None) -> bool:
    """Whether the job can have such a task. Files are named after tasks."""
    roles = () if plan is None else plan.roles
    return 0 <= task.index < MAX_TASKS and any(role.name == task.role for role in roles)


def few(values: dict[str, float]) -> dict[str, float]:
    """As many of the values as are kept, the first of them; the same object if all are."""
    # Asked for each heartbeat: names that together are no longer than one may be need no second look.
    if len(values) <= NAMES and (
        len("".join(values)) <= NAME_LENGTH or max(map(len, values)) <= NAME_LENGTH
    ):
        return values
    kept: dict[str, float] = {}
    for name, value in values.items():
        if len(kept) >= NAMES:
            break
        kept[name[:NAME_LENGTH]] = value
    return kept

"""What the job's web app needs of a coordinator, and nothing else.

`howdah.coordinator.service` implements it over the live job; tests implement it in memory. All
methods are called on the coordinator's event loop. The plain ones answer at once from memory and
must not block; whatever touches a file is ``async``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from howdah.core.messages import Task
    from howdah.core.plan import Plan
    from howdah.spec.model import Job
    from howdah.storage.logs import LogPart
    from howdah.wire.messages import LogUpdate, RecordUpdate, Sample, WebAddress
    from howdah.wire.status import JobView


class StatusChanged(msgspec.Struct, frozen=True, kw_only=True):
    """`JobSource.view` would give something else now. Several changes may come as one."""


class UnknownTask(LookupError):
    """The job has no task of that name; ``str()`` says which it has."""


class NoLog(LookupError):
    """The attempt has no log, or not yet."""


class JobSource(Protocol):
    """One job, as its web app sees it."""

    token: str
    """The job's secret (`secrets/token`). Never shown, never logged."""

    def view(self) -> JobView:
        """The status document with live measurements laid over it."""
        ...

    def job(self) -> Job:
        """The resolved job file."""
        ...

    def plan(self) -> Plan:
        """Roles as the machine sees them."""
        ...

    def records(self, after_seq: int) -> list[RecordUpdate]:
        """Lines of the job's story with ``seq > after_seq``, oldest first."""
        ...

    def subscribe(self) -> AsyncIterator[RecordUpdate | StatusChanged]:
        """New records as they come, and word that the status changed.

        Nothing that happens after the call is missed, even before the first ``anext``. Closing
        the iterator (``aclose``) ends the subscription; the job's end ends the iterator.
        """
        ...

    def log_attempts(self, task: Task) -> list[int]:
        """Attempts of the task that have a log, ascending.

        Raises:
            UnknownTask: the job has no such task.
        """
        ...

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        """At most ``limit`` bytes of that attempt's log from logical offset ``offset``.

        A negative offset counts from the end of what is written. An offset past the end gives an
        empty part whose ``offset`` is the end.

        Raises:
            UnknownTask: the job has no such task.
            NoLog: that attempt has none.
        """
        ...

    def follow_log(self, task: Task, attempt: int | None, offset: int) -> AsyncIterator[LogUpdate]:
        """The attempt's log from ``offset`` on, as it grows; a negative one counts from the end.

        ``attempt=None`` follows the newest attempt, and goes on with the next one when it comes.
        The iterator ends when no more can come. ``aclose`` ends the following.

        Raises:
            UnknownTask: at the first step, if the job has no such task.
        """
        ...

    def metrics(self, task: Task, since: float) -> list[Sample]:
        """Samples of the task later than ``since`` (seconds since the epoch), oldest first.

        Raises:
            UnknownTask: the job has no such task.
        """
        ...

    async def stop(self, by: str, reason: str, firm: bool) -> None:
        """Ask for the job's end; durable when it returns. Asking twice changes nothing."""
        ...

    async def stacks(self, task: Task) -> str:
        """Stacks of the task's programs as they are now.

        Raises:
            UnknownTask: the job has no such task.
            RuntimeError: they could not be taken; the text says why.
        """
        ...

    def web_targets(self) -> dict[str, WebAddress]:
        """Announced web pages by task name (``tensorboard:0``)."""
        ...

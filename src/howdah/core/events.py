"""Facts that reach the machine. Plain data: a journal of them replays into the exact state.

Every event about a task names the attempt it speaks of; one that speaks of an attempt that is
over is stale and changes nothing.
"""

from __future__ import annotations

import enum
from typing import Union

import msgspec

from howdah.core.plan import Plan


class Task(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A task's name: role and index, written ``worker:1``."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}:{self.index}"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events."""


class JobSubmitted(Event, frozen=True, kw_only=True):
    """The first event. ``seed`` feeds every random choice (jitter)."""

    plan: Plan
    seed: int = 0


class CoordinatorStarted(Event, frozen=True, kw_only=True):
    """A coordinator has replayed the journal; ``incarnation`` counts from 1.

    ``containers`` are those the backend still has; others it was given are gone.
    """

    incarnation: int
    containers: tuple[str, ...] = ()


class ContainerGranted(Event, frozen=True, kw_only=True):
    """The backend gives a container for an outstanding request."""

    request_id: int
    container_id: str
    node: str


class RequestRefused(Event, frozen=True, kw_only=True):
    """A request can never be granted: the job must end, with the backend's words."""

    request_id: int
    reason: str


class ContainerEndKind(enum.Enum):
    """Why a container ended, as the backend knows it."""

    EXITED = "exited"
    """Its agent ended; nobody says more."""
    RELEASED = "released"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out-of-memory"
    """The backend ended it over its memory (YARN exit status -103, -104)."""
    NODE_LOST = "node-lost"
    LAUNCH_FAILED = "launch-failed"
    """The agent could not be started; ``detail`` has the backend's diagnostics."""


class ContainerEnded(Event, frozen=True, kw_only=True):
    """A container is no more, and whatever ran in it."""

    container_id: str
    kind: ContainerEndKind
    detail: str = ""


class PreemptionNoticed(Event, frozen=True, kw_only=True):
    """The backend will take the container back in ``deadline_s`` seconds, if it said."""

    container_id: str
    deadline_s: float | None = None


class HeldPhase(enum.Enum):
    """What an agent holds of an attempt."""

    PREPARED = "prepared"
    RUNNING = "running"
    EXITED = "exited"


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt's programs ended. Of several processes, the first that failed."""

    code: int | None = None
    """Exit code, or None if a signal ended it."""
    signal: int | None = None
    out_of_memory: bool = False
    """Proven: the kernel's oom_kill counter of the cgroup grew, or the agent ended it over its limit."""
    port_taken: bool = False
    """It could not bind a port reserved for it."""
    failed_to_start: str = ""
    """Why the program could not be started, or its checkpoint not be restored."""
    timed_out: bool = False
    """The agent ended it at the role's run time-out."""
    stopped: bool | None = None
    """Whether it ended after the agent had been told to stop it; None where the agent does not say.
    False tells an end of its own from one of ours where both were on their way at once."""
    process: int = 0
    """Which of the task's processes (local rank)."""
    detail: str = ""
    """One line more, such as memory used against its limit."""
    tail: tuple[str, ...] = ()
    """Its last lines: standard error where there is any, else output."""
    answer: str | None = None
    """What the preprocess step printed for all programs (`howdah.frameworks.sidecars.ANSWER`)."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's own account of the attempt it holds, sent when it (re-)registers."""

    task: Task
    attempt: int
    generation: int
    phase: HeldPhase
    host: str = ""
    ports: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    joined: bool = False
    exit: Exit | None = None
    restored: str | None = None
    """As in `TaskPrepared`."""


class AgentRegistered(Event, frozen=True, kw_only=True):
    """An agent has connected, for the first time or again."""

    container_id: str
    host: str
    held: Held | None = None
    listen: tuple[str, int] | None = None
    """Where a new coordinator may dial it."""


class AgentDisconnected(Event, frozen=True, kw_only=True):
    """The connection to an agent closed; it may come back."""

    container_id: str


class AgentSilent(Event, frozen=True, kw_only=True):
    """An agent has missed its beats although its connection stands."""

    container_id: str
    silent_s: float


class TaskPrepared(Event, frozen=True, kw_only=True):
    """Checkpoint restored, ports reserved: the attempt could be started."""

    task: Task
    attempt: int
    host: str
    ports: tuple[int, ...] = ()
    restored: str | None = None
    """What was restored: checkpoint name, step if known, and checksum."""


class TaskStarted(Event, frozen=True, kw_only=True):
    """The user's program runs."""

    task: Task
    attempt: int
    pids: tuple[int, ...]


class TaskJoined(Event, frozen=True, kw_only=True):
    """The program has found its peers (see `howdah.core.plan.Join`)."""

    task: Task
    attempt: int


class TaskExited(Event, frozen=True, kw_only=True):
    """The attempt's programs have all ended."""

    task: Task
    attempt: int
    exit: Exit


class TaskHung(Event, frozen=True, kw_only=True):
    """No progress within the limit, as `howdah.core.progress` found."""

    task: Task
    attempt: int
    idle_s: float


class StacksTaken(Event, frozen=True, kw_only=True):
    """Stack dumps of an attempt are in the job directory, or could not be taken."""

    task: Task
    attempt: int
    innermost: str = ""
    """The user's innermost line, ``train.py:31 in step``."""
    path: str = ""
    problem: str = ""


class Progressed(Event, frozen=True, kw_only=True):
    """A milestone worth keeping: a checkpoint completed. Proves that uncharged restarts help."""

    task: Task
    attempt: int
    what: str


class StopRequested(Event, frozen=True, kw_only=True):
    """A user (or a signal to the client) wants the job stopped; ``firm`` means without grace."""

    by: str
    reason: str = ""
    firm: bool = False


class TimerDue(Event, frozen=True, kw_only=True):
    """A timer in the state has come due."""

    timer: str


AnyEvent = Union[  # noqa: UP007 - msgspec reads the union at run time
    JobSubmitted,
    CoordinatorStarted,
    ContainerGranted,
    RequestRefused,
    ContainerEnded,
    PreemptionNoticed,
    AgentRegistered,
    AgentDisconnected,
    AgentSilent,
    TaskPrepared,
    TaskStarted,
    TaskJoined,
    TaskExited,
    TaskHung,
    StacksTaken,
    Progressed,
    StopRequested,
    TimerDue,
]

"""What the machine wants done. Plain data; the coordinator carries it out, the simulator pretends to.

Each command may be repeated after a take-over: whoever carries it out must not mind.
"""

from __future__ import annotations

import enum
from typing import Any, Union

import msgspec

from howdah.core.events import Task


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One task's place in a topology."""

    task: Task
    attempt: int
    host: str
    ports: tuple[int, ...]
    rank: int | None
    """Rank of its first process in the world, or None for an unranked role."""
    processes: int = 1


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Who is where, for one generation. The same value for every member."""

    generation: int
    world_size: int
    members: tuple[Member, ...]

    def member(self, task: Task) -> Member:
        """That task's place.

        Raises:
            KeyError: the task is not part of this topology.
        """
        for member in self.members:
            if member.task == task:
                return member
        raise KeyError(str(task))

    def of_role(self, role: str) -> tuple[Member, ...]:
        """The role's members by index."""
        return tuple(m for m in self.members if m.task.role == role)


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all commands."""


class ContainerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One container for a role."""

    request_id: int
    role: str


class RequestContainers(Command, frozen=True, kw_only=True):
    """Ask the backend; repeating a known request id changes nothing."""

    requests: tuple[ContainerRequest, ...]
    avoid_nodes: tuple[str, ...] = ()


class CancelRequests(Command, frozen=True, kw_only=True):
    request_ids: tuple[int, ...]


class LaunchAgent(Command, frozen=True, kw_only=True):
    """Start an agent in a granted container."""

    container_id: str
    task: Task


class ReleaseContainer(Command, frozen=True, kw_only=True):
    """Give the container back; whatever runs in it ends."""

    container_id: str


class PrepareTask(Command, frozen=True, kw_only=True):
    """Tell the agent: restore the checkpoint, reserve ports, be ready to start this attempt."""

    container_id: str
    task: Task
    attempt: int
    generation: int
    ports: int
    keep_ports: tuple[int, ...] = ()
    """Ports the attempt must have again; otherwise new ones."""
    restore: str | None = None
    """The checkpoint all members of the generation restore; None means the newest in the store."""


class StartTask(Command, frozen=True, kw_only=True):
    """Start the user's program with this topology."""

    container_id: str
    task: Task
    attempt: int
    topology: Topology
    answer: str | None = None
    """What the preprocess step printed for all programs."""


class StopTask(Command, frozen=True, kw_only=True):
    """SIGTERM to the attempt's processes, SIGKILL after the grace; then `TaskExited` comes.

    A prepared attempt is dropped (its ports freed) and answered by `TaskExited` too.
    """

    container_id: str
    task: Task
    attempt: int
    grace_s: float


class DumpStacks(Command, frozen=True, kw_only=True):
    """Take the stacks of an attempt's processes; answered by `StacksTaken`."""

    container_id: str
    task: Task
    attempt: int


class NotifyCheckpoint(Command, frozen=True, kw_only=True):
    """Ask the program to save: `task.checkpoint_requested()` turns true."""

    container_id: str
    task: Task
    attempt: int
    reason: str


class Level(enum.Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Record(Command, frozen=True, kw_only=True):
    """A line of the job's story, for `howdah events`, pages and the journal."""

    kind: str
    """A stable kebab-case name: ``task-exited``, ``generation-started``, …"""
    text: str
    level: Level = Level.INFO
    task: Task | None = None
    attempt: int | None = None
    generation: int | None = None
    data: dict[str, Any] = {}


class FinishJob(Command, frozen=True, kw_only=True):
    """Everything is released: write the outcome and end."""


AnyCommand = Union[  # noqa: UP007 - msgspec reads the union at run time
    RequestContainers,
    CancelRequests,
    LaunchAgent,
    ReleaseContainer,
    PrepareTask,
    StartTask,
    StopTask,
    DumpStacks,
    NotifyCheckpoint,
    Record,
    FinishJob,
]

"""What the machine hears and what it says: events in, commands out. Plain data.

A journal of events replays into the exact state. The wire carries these very structs: what an agent
says is the event, what it is told is the command, completed by the coordinator where only it knows
the program (`howdah.wire.messages`).

Every event about a task names the attempt it speaks of; one that speaks of an attempt that is
over is stale and changes nothing. Every command may be repeated after a take-over: carrying it out
twice does no harm.
"""

from __future__ import annotations

import enum
from typing import Any, Union

import msgspec

from howdah.core.plan import Plan


class Task(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A task's name: role and index, written ``worker:1``."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}:{self.index}"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all events."""


class JobSubmitted(Event, frozen=True, kw_only=True):
    """The first event. ``seed`` feeds every random choice (jitter)."""

    plan: Plan
    seed: int = 0
    waited_s: float = 0.0
    """Since the cluster took the job, until its first coordinator began."""


class CoordinatorStarted(Event, frozen=True, kw_only=True):
    """A coordinator has replayed the journal; ``incarnation`` counts from 1.

    ``containers`` are those the backend still has; others it was given are gone.
    """

    incarnation: int
    containers: tuple[str, ...] = ()
    others_ended: bool = True
    """Whether nothing can run in the others; False where a backend does not name, or has given up,
    containers of nodes that do not answer: the agents of those may come back."""


class ContainerGranted(Event, frozen=True, kw_only=True):
    """The backend gives a container for an outstanding request."""

    request_id: int
    """0: of an earlier coordinator's, which the backend learns of only now."""
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
    proven: bool = True
    """False: the backend has given the container up, but cannot know that its processes have ended:
    the node does not answer."""
    unsaved: tuple[str, ...] = ()
    """What of its files the backend could not bring to the job directory, each with the reason, one line
    each."""


class PreemptionNoticed(Event, frozen=True, kw_only=True):
    """The backend will take the container back in ``deadline_s`` seconds, if it said."""

    container_id: str
    deadline_s: float | None = None


class HeldPhase(enum.Enum):
    """What an agent holds of an attempt."""

    PREPARED = "prepared"
    RUNNING = "running"
    SAVING = "saving"
    """Its programs have ended; the agent saves checkpoints and outputs."""
    EXITED = "exited"


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt's programs have written to their working folder, besides the folders that
    [checkpoint] and [outputs] name."""

    files: int
    size: int
    """In bytes."""
    names: tuple[str, ...] = ()
    """The first few, the largest first."""
    kept: int = 0
    """Files that were copied to `place`."""
    place: str = ""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt's programs ended. Of several processes, the first that failed."""

    code: int | None = None
    """Exit code, or None if a signal ended it."""
    signal: int | None = None
    out_of_memory: bool = False
    """Proven: the kernel's oom_kill counter of the cgroup grew, or the agent ended it over its limit."""
    port_taken: bool = False
    """It could not bind a port that Howdah had reserved for it. Any other port is the program's own
    choice, and its failure to bind one an error of the program."""
    port: int | None = None
    """The port it could not bind, where its last lines name one."""
    defect: str = ""
    """What its last lines say of a defect of its own, such as a module that is missing."""
    defect_certain: bool = False
    """Trying again would not help. Else it would not if the program has failed so twice."""
    exception: str = ""
    """The exception that ended it, and where it came from. Unlike a `defect` it may pass."""
    port_owner: str = ""
    """Another user of the host, ``mallory (uid 1001)``, who listens on a port that Howdah had reserved
    for it: its peers may be talking to a stranger."""
    failed_to_start: str = ""
    """Why the program could not be started, or its checkpoint not be restored."""
    transient: bool = False
    """What `failed_to_start` names may pass (a store in safe mode, a full disk, no free port): the
    attempt is made again after a pause. Otherwise trying again would not help."""
    timed_out: bool = False
    """The agent ended it at the role's run time-out."""
    stopped: bool | None = None
    """Whether it ended after the agent had been told to stop it; None where the agent does not say.
    False tells an end of its own from one of ours where both were on their way at once."""
    process: int = 0
    """Which of the task's processes (local rank)."""
    step: float | None = None
    """The last step it told."""
    detail: str = ""
    """One line more, such as memory used against its limit."""
    tail: tuple[str, ...] = ()
    """Its last lines: standard error where there is any, else output."""
    answer: str | None = None
    """What the preprocess step printed for all programs (`howdah.frameworks.sidecars.ANSWER`)."""
    unsaved: tuple[str, ...] = ()
    """What of its files is saved nowhere, each with the reason, one line each."""
    outputs: int = 0
    """Files of its output folders that were copied."""
    made: Made | None = None


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
    """Of an attempt that is saving or over."""
    save_s: float = 0.0
    """Of one that is saving: seconds it may still take."""
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
    host: str = ""
    """Where peers reach it; empty: where its agent registered from."""
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


class TaskSaving(Event, frozen=True, kw_only=True):
    """The attempt's programs have ended so; its agent saves what they left, for at most ``limit_s``
    seconds. `TaskExited` follows. Sent only where that takes longer than a moment."""

    task: Task
    attempt: int
    exit: Exit
    limit_s: float
    trouble: str = ""
    """What keeps it from saving; said again when that is known."""


class TaskExited(Event, frozen=True, kw_only=True):
    """The attempt is over: its programs have ended, what they left is saved or given up."""

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
    """Relative to the job directory; empty on the wire where the coordinator is to save ``text``."""
    text: str = ""
    """The stacks themselves, on the wire only: the journal has the path."""
    problem: str = ""


class CheckpointSaved(Event, frozen=True, kw_only=True):
    """A complete checkpoint is in the store. Proves progress: restart budgets begin anew."""

    task: Task
    attempt: int
    name: str
    """Of the version: ``000017``."""
    files: int = 0
    size: int = 0
    """Bytes."""
    checksum: str = ""


class StopRequested(Event, frozen=True, kw_only=True):
    """A user (or a signal to the client) wants the job stopped.

    Programs get their grace and time to save; ``firm``, at first or later, means neither. Asked again
    without being firm, it changes nothing.
    """

    by: str
    reason: str = ""
    firm: bool = False


class TimePassed(Event, frozen=True, kw_only=True):
    """`Machine.next_due` has come, or the coordinator could not act for ``late_s`` seconds: what it had
    decided was not carried out, and what it had been told not taken in."""

    late_s: float = 0.0


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
    TaskSaving,
    TaskExited,
    TaskHung,
    StacksTaken,
    CheckpointSaved,
    StopRequested,
    TimePassed,
]


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
    """Who is where, for one generation. The same value for every member of a gang.

    In mode each a task starts when it is ready, whoever else is: ``members`` are all planned tasks
    then, without hosts and ports, the same tuple at every start; ``own`` is the task that starts, and
    ``after`` are those it was started after.
    """

    generation: int
    world_size: int
    members: tuple[Member, ...]
    own: Member | None = None
    after: tuple[Member, ...] = ()

    def member(self, task: Task) -> Member:
        """That task's place.

        Raises:
            KeyError: the task is not part of this topology.
        """
        if self.own is not None and self.own.task == task:
            return self.own
        for member in self.members:
            if member.task == task:
                return member
        raise KeyError(str(task))

    def of_role(self, role: str) -> tuple[Member, ...]:
        """The role's members by index."""
        return tuple(m for m in self.members if m.task.role == role)


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all commands."""

    cause: str = ""
    """The event it follows from, such as ``TaskExited#417``: its kind and its place in the journal."""


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
    save_s: float = 0.0
    """Seconds after the programs' end in which checkpoints and outputs may be saved. The machine
    waits for that long and no longer."""


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

"""What the machine remembers: states, the tables of allowed moves, and the job's whole state.

`JobState` is plain data. Replaying a journal through `howdah.core.machine.Machine` gives an equal
one, which is how a new coordinator takes over and how a bug report becomes a test.
The picture of both tables in docs/design/003-states.md is generated from this file.
"""

from __future__ import annotations

import enum

import msgspec

from howdah.core.causes import FailureCause
from howdah.core.messages import Exit, Task, Topology
from howdah.core.plan import Plan


class TaskState(enum.Enum):
    """Where one task is."""

    WAITING = "waiting"
    """No container; one is asked for when its turn has come."""
    LAUNCHING = "launching"
    """A container is granted, its agent has not registered yet."""
    IDLE = "idle"
    """The agent is there and holds nothing."""
    PREPARING = "preparing"
    """The agent restores the checkpoint and reserves ports."""
    PREPARED = "prepared"
    """Ready: waits for the rest of the gang, or for the roles it comes after."""
    STARTING = "starting"
    """Told to start; not confirmed."""
    RUNNING = "running"
    """The user's program runs."""
    STOPPING = "stopping"
    """Told to stop; its end is awaited."""
    SUCCEEDED = "succeeded"
    """The program ended by itself with exit code 0."""
    ENDED = "ended"
    """The attempt is over otherwise: failed, stopped or lost."""


S = TaskState

TASK_MOVES: dict[tuple[TaskState, TaskState], str] = {
    (S.WAITING, S.LAUNCHING): "a container was granted",
    (S.LAUNCHING, S.IDLE): "its agent registered",
    (S.LAUNCHING, S.WAITING): "the container was lost or given back before its agent registered",
    (S.IDLE, S.PREPARING): "a new attempt begins",
    (S.IDLE, S.WAITING): "the container was lost or given back",
    (S.PREPARING, S.PREPARED): "checkpoint restored, ports reserved",
    (S.PREPARING, S.STOPPING): "the gang broke, or the job ends",
    (S.PREPARING, S.ENDED): "it could not be prepared, or its container was lost",
    (S.PREPARED, S.STARTING): "everyone it waits for is ready",
    (S.PREPARED, S.STOPPING): "the gang broke, or the job ends",
    (S.PREPARED, S.ENDED): "its agent dropped it, or its container was lost",
    (S.STARTING, S.RUNNING): "the program runs",
    (S.STARTING, S.STOPPING): "the gang broke, or the job ends",
    (S.STARTING, S.SUCCEEDED): "it ended with exit code 0 before its start was confirmed",
    (S.STARTING, S.ENDED): "it could not be started, failed at once, or was lost",
    (S.RUNNING, S.STOPPING): "the gang broke, or the job ends",
    (S.RUNNING, S.SUCCEEDED): "it ended with exit code 0",
    (S.RUNNING, S.ENDED): "it failed or was lost",
    (S.STOPPING, S.ENDED): "its end was confirmed, or its container was lost",
    (S.SUCCEEDED, S.IDLE): "the gang starts anew, its agent is still there",
    (S.SUCCEEDED, S.WAITING): "the gang starts anew, its container is gone",
    (S.ENDED, S.IDLE): "it is to be started again, its agent is still there",
    (S.ENDED, S.WAITING): "it is to be started again, its container is gone",
}
"""Every move a task can make, and why. Any other is a defect and raises `ImpossibleMove`."""

LIVE = frozenset({S.PREPARING, S.PREPARED, S.STARTING, S.RUNNING, S.STOPPING})
"""States in which an agent holds an attempt."""
UP = frozenset({S.STARTING, S.RUNNING})
"""States in which the user's program runs, or may."""
OVER = frozenset({S.SUCCEEDED, S.ENDED})


class JobPhase(enum.Enum):
    """Where the job is."""

    SUBMITTED = "submitted"
    ALLOCATING = "allocating"
    """Containers and agents are awaited."""
    STARTING = "starting"
    """The generation is formed; not everyone has joined yet."""
    RUNNING = "running"
    SETTLING = "settling"
    """Something failed: survivors are ended, evidence is awaited."""
    RESTARTING = "restarting"
    """The cause is known; a delay before the next generation."""
    FINISHING = "finishing"
    """The outcome is decided; programs are stopped, containers given back."""
    FINISHED = "finished"


P = JobPhase

JOB_MOVES: dict[tuple[JobPhase, JobPhase], str] = {
    (P.SUBMITTED, P.ALLOCATING): "containers are asked for",
    (P.ALLOCATING, P.STARTING): "enough agents are there: a generation is formed",
    (P.ALLOCATING, P.SETTLING): "a task outside the gang's barrier failed",
    (P.ALLOCATING, P.FINISHING): "stopped, refused or timed out",
    (P.STARTING, P.RUNNING): "everyone has joined",
    (P.STARTING, P.SETTLING): "a task failed",
    (P.STARTING, P.ALLOCATING): "the stage is done, the next one's containers are asked for",
    (P.STARTING, P.FINISHING): "done, stopped or timed out",
    (P.RUNNING, P.SETTLING): "a task failed, or the gang is to grow",
    (P.RUNNING, P.ALLOCATING): "the stage is done, the next one's containers are asked for",
    (P.RUNNING, P.FINISHING): "done, stopped or timed out",
    (P.SETTLING, P.RESTARTING): "the cause is known and a restart is due",
    (P.SETTLING, P.FINISHING): "no restart is left, or stopped or timed out",
    (P.RESTARTING, P.ALLOCATING): "the delay is over",
    (P.RESTARTING, P.FINISHING): "stopped or timed out",
    (P.FINISHING, P.FINISHED): "everything was given back",
}
"""Every move the job can make, and why."""


class Outcome(enum.Enum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    TIMED_OUT = "timed-out"


class ImpossibleMove(Exception):
    """A defect of the machine; the message is the story of the task or job."""


class Move(msgspec.Struct, array_like=True):
    """One move of a task's story."""

    time: float
    before: str
    after: str
    why: str


class TaskData(msgspec.Struct, kw_only=True):
    """All that is known of one task."""

    task: Task
    state: TaskState = TaskState.WAITING
    since: float = 0.0
    attempt: int = 0
    generation: int = 0
    request_id: int | None = None
    container_id: str | None = None
    host: str | None = None
    ports: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    started: float | None = None
    joined: bool = False
    member: bool = False
    """Belongs to the present generation's topology."""
    awaited: bool = False
    """Counted in `JobState.missing`: a member that has not joined yet."""
    exit: Exit | None = None
    """Of the newest attempt that ended."""
    counted: int = 0
    """Failures of its own fault, for roles that restart task by task."""
    retired: bool = False
    """Will not be started again: a sidecar whose attempts are spent."""
    restored: str | None = None
    story: list[Move] = []
    """The newest moves, for the day something impossible happens."""


class ContainerData(msgspec.Struct, kw_only=True):
    """A container that was granted and has not ended."""

    container_id: str
    node: str
    task: Task | None
    """None once it is being given back."""
    granted: float
    registered: bool = False
    connected: bool = False
    preempting: bool = False
    listen: tuple[str, int] | None = None
    """Where its agent hears a new coordinator's call."""


class FailureReport(msgspec.Struct, kw_only=True):
    """One sign of what went wrong."""

    task: Task
    attempt: int
    generation: int
    cause: FailureCause
    time: float
    what: str
    node: str | None = None
    container_id: str | None = None
    exit: Exit | None = None


class Failure(msgspec.Struct, kw_only=True):
    """A classified failure: the strongest evidence, and what it cost."""

    report: FailureReport
    counted: bool
    secondary: int = 0
    """Weaker signs that came with it."""
    lines: tuple[str, ...] = ()
    """What to show: last lines of the task, or where every rank stood."""


class StackNote(msgspec.Struct, kw_only=True):
    task: Task
    innermost: str
    path: str
    problem: str


class HangCheck(msgspec.Struct, kw_only=True):
    """Stacks are being taken; then the generation is ended."""

    task: Task
    attempt: int
    idle_s: float
    awaiting: list[Task]
    stacks: list[StackNote]


class JobState(msgspec.Struct, kw_only=True):
    """The whole job."""

    plan: Plan | None = None
    seed: int = 0
    phase: JobPhase = JobPhase.SUBMITTED
    since: float = 0.0
    submitted: float | None = None
    started: float | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    reason: str = ""
    advice: str = ""
    incarnation: int = 0
    generation: int = 0
    stage: int = 0
    topology: Topology | None = None
    """Of the present generation, once its barrier has opened."""
    rewired: bool = False
    """A member came back alone since the topology was made."""
    missing: int = 0
    """Members that have not joined yet."""
    tasks: dict[str, TaskData] = {}
    counts: dict[str, dict[str, int]] = {}
    """Tasks by role and state, kept up to date so that no step has to look at every task."""
    requests: dict[int, Task] = {}
    containers: dict[str, ContainerData] = {}
    timers: dict[str, float] = {}
    """Name to the time it comes due; the driver answers with `TimerDue`."""
    next_request: int = 1
    draws: int = 0
    """Random numbers used so far."""
    reports: list[FailureReport] = []
    failures: list[Failure] = []
    gang_charged: int = 0
    restarts: int = 0
    uncharged: int = 0
    """Uncharged restarts since the last progress."""
    setbacks: int = 0
    """Charged restarts since the last progress; the back-off grows with them."""
    allocations: int = 0
    """Times a part of the gang was given back; the next try waits longer."""
    node_faults: dict[str, int] = {}
    hang: HangCheck | None = None
    checkpoint: str | None = None
    """The newest complete checkpoint."""
    reform: bool = False
    """The settling gang was ended on purpose, to grow."""
    firm: bool = False
    """Stop without grace."""
    answer: str | None = None
    """What the preprocess step printed for all programs."""
    released: list[str] = []
    """Roles of the present generation that were waited for long enough: they no longer decide."""

    @property
    def job(self) -> Plan:
        """The plan of a submitted job."""
        if self.plan is None:
            raise ImpossibleMove("the first event of a job must be JobSubmitted")
        return self.plan

"""What the machine remembers: states, the tables of allowed moves, and the job's whole state.

Every time that something waits for is a field of what waits (`TaskData.deadline`,
`RestartUnit.retry_at`, …); `howdah.core.machine.Machine.next_due` is the earliest of them.

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

    # Key of every table: Enum's own is a Python function, and a tenth of the machine's time.
    __hash__ = object.__hash__


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
    (S.STOPPING, S.SUCCEEDED): "it had ended by itself with exit code 0",
    (S.STOPPING, S.ENDED): "its end was confirmed, or its container was lost",
    (S.SUCCEEDED, S.IDLE): "the gang restarts, its agent is still there",
    (S.SUCCEEDED, S.WAITING): "the gang restarts, its container is gone",
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
    FAILURE_WINDOW = "failure-window"
    """Something failed, or the gang is to grow: its programs are ended, failure reports awaited."""
    RESTARTING = "restarting"
    """The cause is known; a delay before the next generation."""
    FINISHING = "finishing"
    """The outcome is decided; programs are stopped, containers given back."""
    FINISHED = "finished"


P = JobPhase

JOB_MOVES: dict[tuple[JobPhase, JobPhase], str] = {
    (P.SUBMITTED, P.ALLOCATING): "containers are asked for",
    (P.ALLOCATING, P.STARTING): "enough agents are there: a generation is formed",
    (P.ALLOCATING, P.FAILURE_WINDOW): "a task outside the gang's barrier failed",
    (P.ALLOCATING, P.FINISHING): "done, stopped, refused or timed out",
    (P.STARTING, P.RUNNING): "everyone has joined",
    (P.STARTING, P.FAILURE_WINDOW): "a task failed",
    (P.STARTING, P.ALLOCATING): "the stage is done, the next one's containers are asked for",
    (P.STARTING, P.FINISHING): "done, stopped or timed out",
    (P.RUNNING, P.FAILURE_WINDOW): "a task failed, or the gang is to grow",
    (P.RUNNING, P.ALLOCATING): "the stage is done, the next one's containers are asked for",
    (P.RUNNING, P.FINISHING): "done, stopped or timed out",
    (P.FAILURE_WINDOW, P.RESTARTING): "the cause is known and a restart is due",
    (P.FAILURE_WINDOW, P.ALLOCATING): "the stage is done, whatever failed in it",
    (P.FAILURE_WINDOW, P.FINISHING): "no restart is left, or done, stopped or timed out",
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
    """One move of a task."""

    time: float
    before: str
    after: str
    why: str
    cause: str = ""
    """The event it follows from."""


class SaveRequest(msgspec.Struct, kw_only=True):
    """A program was asked to save a checkpoint; its agent may have been away."""

    reason: str
    until: float
    """A checkpoint is of use until then."""


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
    keep_ports: tuple[int, ...] = ()
    """Ports the present attempt was told to have again."""
    pids: tuple[int, ...] = ()
    started: float | None = None
    deadline: float | None = None
    """When its patience ends: of a started task to join its peers, of a stopping one to end."""
    joined: bool = False
    joined_at: float | None = None
    member: bool = False
    """Belongs to the present generation's topology."""
    awaited: bool = False
    """A member that has not joined yet."""
    reported: bool = False
    """Its present attempt's failure has been reported: it was known before the attempt was over."""
    exit: Exit | None = None
    """Of the newest attempt that ended."""
    trouble: str = ""
    """Why what its newest attempt left is not saved yet."""
    counted: int = 0
    """Failures that counted against a budget of its own, for roles that restart task by task."""
    retired: bool = False
    """Will not be started again: an optional task that cannot be had, or one that was tolerated to
    fail."""
    restored: str | None = None
    saved: str | None = None
    """Its newest checkpoint, of any attempt."""
    save_request: SaveRequest | None = None
    """What its present attempt was asked to save for, until it has."""
    moves: list[Move] = []
    """The newest moves, for the day something impossible happens."""


class ContainerData(msgspec.Struct, kw_only=True):
    """A container that was granted and may still hold processes."""

    container_id: str
    node: str
    task: Task | None
    """None once it is being given back."""
    former: Task | None = None
    """Of one that is being given back: whose attempt ran in it."""
    former_attempt: int = 0
    served: Task | None = None
    """Of one that is being given back: the task that had it, also where none of its attempts can live there."""
    over: bool = False
    """Of one that is being given back: the attempt's programs are known to have ended."""
    granted: float
    registered: bool = False
    connected: bool = False
    silent: bool = False
    """Its agent may live where it cannot be reached: nothing was heard, nothing was closed."""
    heard: float = 0.0
    """When its agent was last known to be in touch."""
    released: bool = False
    """The backend was told to take it back."""
    ended: bool = False
    """The backend has given it up, without proof that its processes have ended."""
    announced: bool = False
    """That its lease is waited for has been said."""
    noticed_until: float | None = None
    """So long a notice of preemption explains its end; what happens later is no preemption."""
    deadline: float | None = None
    """When its patience ends: for its agent to register or reconnect, for its end to be confirmed."""
    listen: tuple[str, int] | None = None
    """Where its agent hears a new coordinator's call."""


class FailureReport(msgspec.Struct, kw_only=True):
    """One report of what went wrong."""

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
    """A classified failure: the strongest report, and what it cost."""

    report: FailureReport
    counted: bool
    """Against the restart budget."""
    secondary: int = 0
    """Weaker reports that came with it."""
    lines: tuple[str, ...] = ()
    """What to show: last lines of the task, or where every rank stood."""


class UnitKind(enum.Enum):
    """What restarts together."""

    GANG = "gang"
    """All tasks of the present stage but sidecars."""
    TASK = "task"
    """A task of the gang that comes back alone (``restart = "task"``)."""
    SERVER = "server"
    """A task of an earlier stage that goes on beside the present one."""
    SIDECAR = "sidecar"


class RestartUnit(msgspec.Struct, kw_only=True):
    """What restarts together, and what that has cost so far.

    Only the gang's is always there; the others are made when their first failure is reported.
    """

    name: str
    kind: UnitKind
    window_until: float | None = None
    """The failure window is open until then, and longer while its programs are still ending."""
    explain_until: float | None = None
    """The backend's own word on a lost container is waited for until then."""
    retry_at: float | None = None
    """It is not started before this."""
    reports: list[FailureReport] = []
    counted: int = 0
    """Failures that counted against its budget."""
    setbacks: int = 0
    """Those of them without progress since: the back-off grows with them."""
    uncounted: int = 0
    """Failures that do not count, in a row without progress."""
    ports_taken: int = 0
    """Failures because somebody unknown took a reserved port."""
    last_failure: float | None = None


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
    until: float
    """They are not waited for longer."""


class Growth(msgspec.Struct, kw_only=True):
    """Agents have come that the running elastic gang has no program for."""

    at: float
    """More are waited for until then; then a checkpoint is asked for."""
    asked: bool = False
    checkpoint: str | None = None
    """The newest one when another was asked for."""
    until: float | None = None
    """It is not waited for longer."""


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
    tasks: dict[str, TaskData] = {}
    requests: dict[int, Task] = {}
    containers: dict[str, ContainerData] = {}
    units: dict[str, RestartUnit] = {}
    next_request: int = 1
    draws: int = 0
    """Random numbers used so far."""
    failures: list[Failure] = []
    restarts: int = 0
    allocations: int = 0
    """Times a part of the gang was given back; the next try waits longer."""
    growths: int = 0
    node_faults: dict[str, list[float]] = {}
    """When each node was at fault; long ago is forgotten."""
    avoided: tuple[str, ...] = ()
    """Nodes that the outstanding requests avoid."""
    avoided_until: float | None = None
    """They are avoided no longer if requests are still outstanding then."""
    hang: HangCheck | None = None
    growth: Growth | None = None
    growing: bool = False
    """The gang is being ended on purpose, to grow."""
    checkpoint: str | None = None
    """The newest complete checkpoint."""
    firm: bool = False
    """Stop without grace and without saving."""
    answer: str | None = None
    """What the preprocess step printed for all programs."""
    released: list[str] = []
    """Roles of the present generation that were waited for long enough: they no longer decide."""
    linger: dict[str, float] = {}
    """Roles whose time runs because the roles they linger after are done: until when."""
    total_until: float | None = None
    """The job must have ended."""
    allocation_until: float | None = None
    """The gang must have its containers."""
    hold_until: float | None = None
    """A part of the gang is held no longer without the rest."""
    elastic_until: float | None = None
    """A gang that has its minimum waits for more no longer."""

    @property
    def job(self) -> Plan:
        """The plan of a submitted job."""
        if self.plan is None:
            raise ImpossibleMove("the first event of a job must be JobSubmitted")
        return self.plan

    @property
    def unsaved(self) -> list[str]:
        """What of the tasks' newest attempts is saved nowhere, a line each."""
        return [
            f"{data.task}: {line}"
            for data in self.tasks.values()
            if data.exit is not None
            for line in data.exit.unsaved
        ]

"""Messages between agents, clients and the coordinator: tagged structs in msgpack frames.

A frame is a 4-byte big-endian length and a msgpack map whose ``type`` names the struct. Unknown
fields are ignored and new fields have defaults, so an older agent works with a newer coordinator;
`PROTOCOL` is exchanged in the first message and only a different major number is refused.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from howdah.core.messages import (
    CheckpointSaved,
    DumpStacks,
    Held,
    NotifyCheckpoint,
    Record,
    StacksTaken,
    StopTask,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
)

PROTOCOL = (1, 3)
"""Major, minor. The major number changes when old peers could misunderstand."""

UNSAID = (1, 0)
"""What a peer speaks that does not say: the first releases left out what was their default."""

EXEC_PROTOCOL = (1, 1)
"""The first that runs commands beside programs. Older peers would take `OpenExec` and `DialExec` for
no message at all, so they are not sent to them."""

SECRET_PROTOCOL = (1, 2)
"""The first whose agents show their container's secret."""

SHORT_TICKET_PROTOCOL = (1, 3)
"""The first whose coordinators take short tickets (`howdah.wire.tickets`)."""

MAX_FRAME = 4 * 1024 * 1024
"""Bytes of one frame's body; a peer that announces more is cut off before any is read."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all messages."""


# -- agent to coordinator ------------------------------------------------------------------------


class AgentHello(Message, frozen=True, kw_only=True):
    """First frame of an agent; says what it holds, so that either side can have been away."""

    protocol: tuple[int, int] = UNSAID
    job_id: str
    container_id: str
    host: str
    pid: int
    listen: tuple[str, int] | None = None
    """Where a new coordinator may dial this agent."""
    held: Held | None = None
    secret: str = ""
    """That of its container, from its launch file: agents of a job share a certificate. Never journaled."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Measurements of one attempt at one moment; absent what could not be read."""

    time: float
    """Seconds since the epoch: by its host's clock where an agent sends it, else by the job's."""
    cpu: float | None = None
    """Cores in use since the last sample (1.0 is one core)."""
    rss_mb: float | None = None
    """Resident memory of all the attempt's processes."""
    gpu: float | None = None
    """Mean utilisation of its GPUs, 0 to 1."""
    gpu_memory_mb: float | None = None
    io_read_mb: float | None = None
    """Since start."""
    io_write_mb: float | None = None
    values: dict[str, float] = {}
    """What the program reported through `howdah.task.report` since the last sample."""
    step: float | None = None
    """The newest step reported, in this sample's time or before."""


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One `howdah.task.report` of numbers."""

    time: float
    """As `Sample.time`."""
    step: float | None = None
    """The one of the report, or the newest before."""
    values: dict[str, float]


class Heartbeat(Message, frozen=True, kw_only=True):
    """Sent once a heartbeat interval; carries what changed."""

    attempt: int = 0
    sample: Sample | None = None
    points: tuple[Point, ...] = ()
    """Each report since the last heartbeat, oldest first; `Sample.values` has the newest of each name."""
    progress_s: float | None = None
    """Seconds since the attempt last showed progress (output, report, checkpoint files)."""
    log_size: int = 0
    step: float | None = None
    """The newest ``step`` reported."""
    total: float | None = None
    """The newest ``total`` reported: steps in all."""
    last_line: str | None = None
    """The log's newest whole line, if it changed; only where the coordinator can't read the log."""
    renew: bool = False
    """Whether it asks for `LeaseRenewed`."""


class LogChunk(Message, frozen=True, kw_only=True):
    """Bytes of an attempt's log from ``offset``; only while somebody follows."""

    task: Task
    attempt: int
    offset: int
    data: bytes
    times: tuple[tuple[int, float], ...] = ()
    """See `LogUpdate`."""


class WebAddress(Message, frozen=True, kw_only=True):
    """The task serves a web page (TensorBoard, a notebook) the job page should link to."""

    task: Task
    attempt: int
    name: str
    host: str
    port: int
    path: str = "/"
    keeps_prefix: bool = False
    """It expects the proxy's whole path (TensorBoard with ``--path_prefix``, Jupyter)."""
    secret: str = ""
    """What the page demands as a bearer token; empty where it demands none. Never journaled."""
    viewable: bool = True
    """Whether people who may only look at the job may look at it."""
    uid: int | None = None
    """User of the processes that listen there; None where the agent's system does not tell."""


class WebWithdrawn(Message, frozen=True, kw_only=True):
    """The task's own processes no longer listen where it served that page."""

    task: Task
    attempt: int
    name: str


class AgentNote(Message, frozen=True, kw_only=True):
    """Something a reader of the job's events should know (a checkpoint could not be copied)."""

    task: Task
    attempt: int
    text: str
    level: str = "warning"


class ExecHello(Message, frozen=True, kw_only=True):
    """First frame of a connection that `DialExec` asked for. It carries one command and nothing else."""

    job_id: str
    exec_id: str


class ExecEnded(Message, frozen=True, kw_only=True):
    """The command has ended, after all of its output; the last message about it."""

    code: int | None
    """As a shell has it: 128 and the signal's number, 126 and 127 where it could not be started. None
    where nobody knows, or nothing was started."""
    problem: str = ""
    """Why it did not end by itself, or could not be started; empty where it did."""


# -- coordinator to agent ------------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    """Answer to a hello of either kind."""

    protocol: tuple[int, int] = UNSAID
    incarnation: int = 1
    beat_s: float = 1.0
    lease_s: float = 30.0
    """When it was last heard by a coordinator so long ago, the agent ends its task and itself."""
    time: float | None = None
    """The job's clock: seconds since the epoch. Older coordinators do not say."""


class LeaseRenewed(Message, frozen=True, kw_only=True):
    """Answer to a heartbeat that asks for it: that, and all that was sent before it, was heard."""

    kept: bool = True
    """And is in the journal: a new coordinator knows of it. Older coordinators do not say."""


class Refuse(Message, frozen=True, kw_only=True):
    """The connection is refused or ended, and why; the agent does not come back."""

    reason: str


class Prepare(Message, frozen=True, kw_only=True):
    task: Task
    attempt: int
    generation: int
    ports: int
    keep_ports: tuple[int, ...] = ()
    checkpoint: dict[str, Any] | None = None
    """What to restore and to save: see `howdah.storage.checkpoints.versions.CheckpointSpec`."""
    outputs: dict[str, Any] | None = None
    """What to copy when the attempt ends: ``{folders, store}``, folders relative to the working
    folder, ``store`` this task's own place (a path or fsspec URL)."""
    save_s: float = 1800.0
    """Seconds after its programs' end in which checkpoints and outputs may be saved, if they end by
    themselves; `StopTask.save_s` counts if they are stopped."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One program: the environment is complete but for what the agent itself adds."""

    argv: tuple[str, ...]
    env: dict[str, str]
    label: str = ""
    """Prefix of its log lines when the task has several."""


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """A container's folder that is kept like one elsewhere; see `howdah.storage.folder_sync`."""

    way: str
    """``push`` or ``pull``."""
    folder: str
    place: str
    """URL."""


class Start(Message, frozen=True, kw_only=True):
    task: Task
    attempt: int
    generation: int
    processes: tuple[ProcessSpec, ...]
    probe: str = "now"
    """A `howdah.core.plan.Join` value."""
    peers: tuple[tuple[str, int], ...] = ()
    """All reserved addresses of the topology, for the probe."""
    run_s: float | None = None
    memory_mb: int | None = None
    """Enforced by the agent when set."""
    web: dict[str, Any] | None = None
    """``{name, port, keeps_prefix, locked}``: announce as `WebAddress` once the port listens."""
    answer_mark: str = ""
    """What stands before the answer in a line of its log: see `Exit.answer`."""
    mirror: Mirror | None = None
    """The task's TensorBoard folder, where programs can't see the job's."""


class FollowLog(Message, frozen=True, kw_only=True):
    """Push the attempt's log from ``offset`` on; ``on=False`` ends that."""

    task: Task
    attempt: int
    offset: int = 0
    on: bool = True


class NewCredentials(Message, frozen=True, kw_only=True):
    """What the container's credential file (``HADOOP_TOKEN_FILE_LOCATION``) holds from now on."""

    file: bytes


class DialExec(Message, frozen=True, kw_only=True):
    """Connect once more, with `ExecHello`, for a command beside that attempt's programs."""

    task: Task
    attempt: int
    exec_id: str
    """A secret: agents of a job, and programs that took their certificates, could answer for each
    other."""


class Shutdown(Message, frozen=True, kw_only=True):
    """End the task if any, then the agent."""

    grace_s: float = 0.0


class Moved(Message, frozen=True, kw_only=True):
    """A new coordinator calls: connect to it from now on. Sent to an agent's listening address."""

    incarnation: int
    host: str
    port: int


# -- client to coordinator -----------------------------------------------------------------------


class ClientHello(Message, frozen=True, kw_only=True):
    """First frame of a client."""

    protocol: tuple[int, int] = UNSAID
    job_id: str
    user: str = ""


class Watch(Message, frozen=True, kw_only=True):
    """Send `RecordUpdate`s after ``after_seq``, `StatusUpdate`s on change, and logs if asked."""

    after_seq: int = 0
    logs: bool = False
    tasks: tuple[Task, ...] = ()
    """Only these tasks' logs; none means all."""
    offsets: tuple[tuple[Task, int, int], ...] = ()
    """Task, attempt, offset: where to go on in logs the client has seen parts of already."""
    until_now: bool = False
    """Only what there is now: one `StatusUpdate` after it says that this was all."""


class AskStatus(Message, frozen=True, kw_only=True):
    """Answered by one `StatusUpdate`."""


class AskStop(Message, frozen=True, kw_only=True):
    firm: bool = False
    reason: str = ""
    by: str = ""
    """Who wants it, where that is not the client's user."""


class AskStacks(Message, frozen=True, kw_only=True):
    """Answered by `StacksReply`."""

    task: Task


class OpenTunnel(Message, frozen=True, kw_only=True):
    """Carry this connection to a page; answered by `Answer`, then `TunnelData` goes both ways."""

    task: Task | None = None
    """Whose announced page; None for the job page."""


class TunnelData(Message, frozen=True, kw_only=True):
    """Bytes of a tunnelled connection; none means that this side has ended."""

    data: bytes


class OpenExec(Message, frozen=True, kw_only=True):
    """Run a command beside the task's programs. The coordinator answers by `Answer` and sends this on to
    the task's agent; from then on this connection is the command's, until `ExecEnded`."""

    task: Task
    command: tuple[bytes, ...] = ()
    """As the system has it, in whatever encoding; a shell where it is empty."""
    terminal: bool = False
    """Give it a terminal of its own, so big and of that type, in place of three pipes."""
    rows: int = 24
    columns: int = 80
    term: str = ""


class ExecData(Message, frozen=True, kw_only=True):
    """Bytes of a command's standard streams; none of its input means that there is no more.

    The receiver answers each by `ExecTaken` when it has written it. At most `EXEC_WINDOW` of a direction
    are under way, of at most `EXEC_CHUNK` bytes: a receiver that is late holds up the command, and fills
    neither memory nor the sockets on the way, where connections whose peers do not read are cut off."""

    stream: int = 0
    """Its file descriptor there."""
    data: bytes


class ExecTaken(Message, frozen=True, kw_only=True):
    """One `ExecData` has been written."""


class ExecSignal(Message, frozen=True, kw_only=True):
    """Send that signal to the command's process group."""

    number: int


class ExecResize(Message, frozen=True, kw_only=True):
    """The client's terminal has another size."""

    rows: int
    columns: int


EXEC_WINDOW = 4
EXEC_CHUNK = 16 * 1024
"""Together what the system's own buffers take of a peer that does not read at all (64 KiB)."""


class RecordUpdate(Message, frozen=True, kw_only=True):
    """One line of the story; ``seq`` is its place in the journal."""

    seq: int
    time: float
    record: Record


class StatusUpdate(Message, frozen=True, kw_only=True):
    """The status document (`howdah.wire.status.JobView`) as JSON."""

    status: bytes


class LogUpdate(Message, frozen=True, kw_only=True):
    task: Task
    attempt: int
    offset: int
    data: bytes
    times: tuple[tuple[int, float], ...] = ()
    """Offsets, ascending, and when what stands from there on was written, in seconds since the epoch
    by the job's clock. The first may lie before ``offset``; empty where that is not known."""


class StacksReply(Message, frozen=True, kw_only=True):
    task: Task
    text: str = ""
    problem: str = ""


class Answer(Message, frozen=True, kw_only=True):
    """Outcome of a request: empty ``problem`` means done."""

    problem: str = ""
    path: str = "/"
    """Of a tunnel to a task's page: where to begin, with what lets one in."""


FromAgent = Union[  # noqa: UP007
    AgentHello,
    Heartbeat,
    TaskPrepared,
    TaskStarted,
    TaskJoined,
    TaskSaving,
    TaskExited,
    StacksTaken,
    CheckpointSaved,
    LogChunk,
    WebAddress,
    WebWithdrawn,
    AgentNote,
    ExecHello,
    ExecData,
    ExecTaken,
    ExecEnded,
]
ToAgent = Union[  # noqa: UP007
    Welcome,
    LeaseRenewed,
    Refuse,
    Prepare,
    Start,
    StopTask,
    DumpStacks,
    NotifyCheckpoint,
    FollowLog,
    NewCredentials,
    DialExec,
    Shutdown,
]
ToExec = Union[Refuse, OpenExec, ExecData, ExecTaken, ExecSignal, ExecResize]  # noqa: UP007
"""To an agent, over a command's own connection."""
FromClient = Union[  # noqa: UP007
    ClientHello,
    Watch,
    AskStatus,
    AskStop,
    AskStacks,
    OpenTunnel,
    TunnelData,
    OpenExec,
    ExecData,
    ExecTaken,
    ExecSignal,
    ExecResize,
]
ToClient = Union[  # noqa: UP007
    Welcome,
    Refuse,
    RecordUpdate,
    StatusUpdate,
    LogUpdate,
    StacksReply,
    Answer,
    TunnelData,
    ExecData,
    ExecTaken,
    ExecEnded,
]

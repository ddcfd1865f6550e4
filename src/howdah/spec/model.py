"""The job file as frozen structs: exactly what a user may write, with human units kept as written.

Every struct below is one table of the job file; field names become kebab-case keys.
Quantities stay the strings a user wrote (``"2g"``, ``"10s"``): `howdah.spec.units` turns them
into numbers where they are used, so a stored ``job.json`` is itself a valid job file.
The reference page and the JSON Schema are generated from these structs and their docstrings.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

DURATION_PATTERN = r"^(off|[0-9]+(\.[0-9]+)?(ms|s|m|h|d))$"
MEMORY_PATTERN = r"^[0-9]+(\.[0-9]+)?[kKmMgGtT]([iI]?[bB])?$"
COUNT_PATTERN = r"^[0-9]+(\.\.[0-9]+)?$"

Duration = Annotated[
    str,
    Meta(
        description='A time such as "500ms", "10s", "5m", "2h", "1d"; "off" for no limit.',
        pattern=DURATION_PATTERN,
    ),
]
Memory = Annotated[
    str,
    Meta(
        description='An amount of memory such as "512m", "2g", "1.5g" (powers of 1024).',
        pattern=MEMORY_PATTERN,
    ),
]
Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
MAX_TASKS = 100_000

Count = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_TASKS)] | Annotated[str, Meta(pattern=COUNT_PATTERN)],
    Meta(description='A number, or an elastic range "min..max" such as "2..8".'),
]
Processes = Annotated[
    Positive | Annotated[str, Meta(extra_json_schema={"enum": ["gpus"]})],
    Meta(description='A number, or "gpus" for one program a GPU of the container.'),
]
Command = Annotated[
    str | list[str],
    Meta(description="A shell command line, or a list of arguments that no shell sees."),
]
Keep = Annotated[
    Annotated[str, Meta(pattern="^all$")] | tuple[str, ...],
    Meta(description='"all", or a list of patterns.'),
]
CheckpointSource = Annotated[str, Meta(extra_json_schema={"enum": ["chief", "each"]})]
UNFINISHED = (
    *("*.tmp*", "*.part", "*.partial", "*tmp_*", "*_temp", "tmp-*", "*-tmp-*", "tmp????????"),
    *(".nfs*", ".~*", ".*.sw?", "._*", ".DS_Store", ".ipynb_checkpoints"),
)
"""Names that frameworks give what they have not finished, and editors and systems what is theirs. Other
hidden files count: without its ``.metadata`` a distributed checkpoint of PyTorch cannot be read."""
CheckpointSignal = Annotated[
    str,
    Meta(extra_json_schema={"enum": ["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP"]}),
]


class _Table(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
): ...


class Mode(enum.Enum):
    """When user programs start."""

    GANG = "gang"
    EACH = "each"


class Tracking(enum.Enum):
    """What a role's end means for the job.

    ``tracked`` roles decide success; ``untracked`` ones (parameter servers) are stopped when the
    tracked ones are done, but their failure is a failure; a ``sidecar`` never decides anything.
    """

    TRACKED = "tracked"
    UNTRACKED = "untracked"
    SIDECAR = "sidecar"


class Lingering(enum.Enum):
    """What becomes of a role that is still running after its time.

    ``fail``: the job has timed out; ``stop``: its tasks are stopped and no longer count; ``untrack``: they
    run on until the others are done, and their failure still fails the job.
    """

    FAIL = "fail"
    STOP = "stop"
    UNTRACK = "untrack"


class Restart(enum.Enum):
    """What is started again after a failure: the whole gang, the one task, or nothing."""

    GANG = "gang"
    TASK = "task"
    NEVER = "never"


class Compat(enum.Enum):
    """Whose programs the job runs."""

    TONY = "tony"


class Slots(enum.Enum):
    """What becomes of the Spark tasks that a job's programs are started by."""

    HELD = "held"
    SHARED = "shared"


class Timeouts(_Table, frozen=True, kw_only=True):
    """Time limits; "off" means none. A role's own value wins over the job's."""

    allocation: Duration = "off"
    """The whole gang must have its containers within this, or the job ends as timed out."""
    hold: Duration = "30s"
    """How long a part of the gang is held while the rest is waited for, before it is given back."""
    registration: Duration = "2m"
    """A container's agent must register within this after the container was granted."""
    startup: Duration = "10m"
    """Every task must have joined its peers within this after the programs were started."""
    total: Duration = "off"
    """The whole job must end within this."""
    hang: Duration = "off"
    """No output, report or checkpoint for this long is a hang."""
    run: Duration = "off"
    """One attempt of a task must end within this."""
    stop_grace: Duration = "10s"
    """From SIGTERM to SIGKILL when a task is stopped."""


class RoleTimeouts(_Table, frozen=True, kw_only=True):
    """A role's own limits; an absent one is the job's."""

    registration: Duration | None = None
    """A container's agent must register within this."""
    startup: Duration | None = None
    """This role's tasks must have joined their peers within this."""
    hang: Duration | None = None
    """No output, report or checkpoint of such a task for this long is a hang."""
    run: Duration | None = None
    """One attempt of such a task must end within this."""
    stop_grace: Duration | None = None
    """From SIGTERM to SIGKILL."""


class Placement(_Table, frozen=True, kw_only=True):
    """Where a role's containers should be, relative to each other and to others."""

    spread: bool = False
    """Each task on a node of its own."""
    pack: bool = False
    """All tasks on as few nodes as possible."""
    near: tuple[str, ...] = ()
    """Roles whose nodes are preferred."""
    apart: tuple[str, ...] = ()
    """Roles whose nodes are avoided."""
    racks: tuple[str, ...] = ()
    """Racks that are preferred."""


class Linger(_Table, frozen=True, kw_only=True):
    """How long a role may go on after others: for an evaluator or a worker that may never end."""

    after: tuple[str, ...]
    """The time begins when all tasks of these roles have succeeded."""
    limit: Duration
    """This role's tasks must have ended within this."""
    then: Lingering = Lingering.FAIL
    """fail: the job has timed out; stop: they are stopped, and the job does not wait for them; untrack: they
    run on, and the job does not wait for them."""


class Role(_Table, frozen=True, kw_only=True):
    """One role: a number of tasks that run the same command."""

    instances: Count = 1
    """How many tasks; ``"2..8"`` starts with two and grows to eight as containers come."""
    processes: Processes = 1
    """Programs (ranks) per task; ``"gpus"`` is one for each GPU of the container."""
    command: Command | None = None
    """What this role runs instead of the job's command."""
    memory: Memory | None = None
    """Memory of a container; enforced where it is given."""
    cores: Positive | None = None
    """CPU cores of a container."""
    gpus: NotNegative = 0
    """GPUs of a container: its own, never shared."""
    resources: dict[str, NotNegative] = {}
    """Any other countable resource by the cluster's name for it."""
    label: str | None = None
    """Node label the containers must be on."""
    placement: Placement = Placement()
    """Where its containers should be, relative to each other and to other roles'."""
    env: dict[str, str] = {}
    """Environment added to the job's, for this role."""
    after: tuple[str, ...] = ()
    """Roles whose tasks must be running before this role's programs start."""
    prepare: bool = False
    """It is of the stage before the others: their containers are asked for once the tracked tasks of
    this stage have succeeded. Untracked ones go on serving."""
    tracking: Tracking | None = None
    """tracked, untracked or sidecar; by default what the framework says of a role of this name."""
    stop_on_failure: bool | None = None
    """A failure of this role fails the job at once, whatever budget is left."""
    tolerate: bool = False
    """A task of this role that fails is not started again, and the job goes on without it. The chief's
    failure and that of all tracked tasks fail the job all the same."""
    restart: Restart | None = None
    """gang, task or never; by default what the framework needs."""
    attempts: Positive | None = None
    """How many lives each task of this role has; by default the job's ``attempts``."""
    linger: Linger | None = None
    """How long its tasks may go on when others are done."""
    ports: NotNegative | None = None
    """Ports reserved for each task; by default what the framework needs."""
    files: tuple[str, ...] = ()
    """Files and folders put beside the source for this role, added to the job's ``files``."""
    image: str | None = None
    """Docker image its containers run in, where the cluster's nodes have that runtime."""
    mounts: tuple[str, ...] = ()
    """Mounts of the Docker image, each ``/on/the/node:/in/the/image:ro`` (or ``:rw``, and
    ``+rshared`` and the like for how mounts are passed on)."""
    timeouts: RoleTimeouts = RoleTimeouts()
    """Time limits of this role, where they differ from the job's."""


class Master(_Table, frozen=True, kw_only=True):
    """The container of the job's own coordinator on a cluster."""

    memory: Memory = "512m"
    """Memory of its container; the cluster rounds up to its smallest container."""
    cores: Positive = 1
    """CPU cores of its container."""
    label: str | None = None
    """Node label it must be on."""
    attempts: Positive = 4
    """Lives of the coordinator within the validity interval; the cluster's own limit caps it."""
    validity: Duration = "10m"
    """Deaths of a coordinator longer ago than this no longer count."""
    startup: Duration = "off"
    """The coordinator must answer within this after the submission, or the job is ended by the
    command that follows it; while it waits in a queue, it does not answer."""


class Docker(_Table, frozen=True, kw_only=True):
    """How YARN's Docker runtime runs the containers of roles that have an ``image``."""

    network: str | None = None
    """Docker network of the containers, one that the cluster allows; by default the cluster's own."""
    ports: tuple[str, ...] = ()
    """Ports of the containers that the node passes on, each ``8080:80``, ``:80`` or ``10.0.0.1:8080:80``."""
    tmpfs: tuple[str, ...] = ()
    """Folders of the containers that are kept in memory."""
    runtime: str | None = None
    """Runtime that Docker uses, such as ``nvidia``."""
    client_config: str | None = None
    """URL of a ``config.json`` of Docker's client, whose credentials pull the image, such as
    ``hdfs:///user/me/docker.json``; the nodes read it."""
    delayed_removal: bool = False
    """Keep containers that have ended for a while, where the cluster allows it, to look into them."""


class Hadoop(_Table, frozen=True, kw_only=True):
    """How the job finds and uses a Hadoop cluster."""

    conf: str | None = None
    """Folder of the cluster's configuration on this machine; by default ``HADOOP_CONF_DIR``."""
    classpath: bool = False
    """Set ``CLASSPATH`` and what else libhdfs needs, for readers that use it (TensorFlow's and
    pyarrow's ``hdfs://``): the output of ``hadoop classpath --glob`` on the node."""
    container_env: dict[str, str] = {}
    """Variables of the containers themselves, for what a node reads before anything of the job runs:
    ``YARN_CONTAINER_RUNTIME_TYPE`` and the like. YARN expands ``$NAME`` in them. Programs get them too,
    unless ``env`` has the same name. Names that YARN or another key sets are refused."""
    docker: Docker = Docker()
    """How the containers of roles with an ``image`` are run."""
    name_nodes: tuple[str, ...] = ()
    """Other file systems the tasks use, such as ``hdfs://other:8020``: their tokens come along."""
    tokens: dict[str, dict[str, str]] = {}
    """Other services whose delegation tokens the job needs, by the name of the installed provider that gets
    them, such as ``[hadoop.tokens.hive]``; a table holds what that provider wants to know."""
    python: str | None = None
    """Python 3.11 or newer on the nodes for Howdah's own processes; by default one is shipped."""
    runtime: str | None = None
    """Archive that ``howdah pack --runtime`` made, a path or on HDFS, where all users of a cluster can
    have the same; by default it is packed at the first submission, and kept on the cluster."""
    keytab: str | None = None
    """File on this machine with a Kerberos key: it says who submits, instead of a ticket, and lets the job
    live for longer than its delegation tokens, a week. The job's master gets it; nobody else may read it."""
    principal: str | None = None
    """Whose key of ``keytab`` is meant, such as ``alice@EXAMPLE.COM``; by default the first one's."""
    autoscaling: bool = False
    """The cluster adds nodes while containers are waited for. A job that needs more than the nodes of
    today have is warned about then, and waits; otherwise it is refused."""


class Spark(_Table, frozen=True, kw_only=True):
    """How the job uses the slots of a Spark application."""

    slots: Slots | None = None
    """held: each Spark task lasts as long as the programs it has started, which live and die as its
    children. shared: the task ends, its slot is free for other tasks, and the programs outlive it. By
    default held, except where programs that Spark feeds would leave no slot to feed them."""


class Environment(_Table, frozen=True, kw_only=True):
    """The Python environment of the user's programs. At most one source."""

    python: str | None = None
    """An interpreter: a path (a relative one is in the source folder), or a name looked up on PATH.
    ``python`` and ``python3`` in commands are this one. Default: the one Howdah runs in."""
    requirements: str | None = None
    """A requirements file to build an environment from."""
    project: str | None = None
    """A folder with ``pyproject.toml``, and a lock file if there is one, to build an environment
    from."""
    venv: str | None = None
    """A virtual or conda environment on this machine: used where it is, or shipped as it is."""
    archive: str | None = None
    """A ready environment archive, a path or URL; ``bin/python`` is in it."""

    @property
    def is_made(self) -> bool:
        """Whether it is more than an interpreter that is there."""
        return any((self.requirements, self.project, self.venv, self.archive))


class Checkpoint(_Table, frozen=True, kw_only=True):
    """A folder that follows the job: saved to the store, brought back before a restart."""

    folder: str = "checkpoints"
    """The folder, relative to a task's working folder, its programs write checkpoints to; "." for what
    is new or changed in the working folder itself."""
    source: CheckpointSource | None = None
    """chief: the chief's folder, or that of the lowest rank that writes, is the job's and every task
    gets it back; each: a folder a task. By default chief in a gang whose tasks have ranks, else each."""
    keep: Positive = 3
    """How many complete checkpoints are kept in the store."""
    settle: Duration = "500ms"
    """Files unchanged for this long are taken as finished."""
    ignore: tuple[str, ...] = UNFINISHED
    """Names never copied: what frameworks write before they rename, and what nobody wrote."""
    save_limit: Duration = "30m"
    """When a task's programs have ended, its last checkpoint and its outputs may take this long to be
    saved. What is not saved by then is given up, and the job says so."""
    store: str | None = None
    """Where checkpoints go, a path (relative to the job file) or fsspec URL; by default inside the
    job directory."""
    signal: CheckpointSignal | None = None
    """Also sent when a checkpoint is asked for (a preemption, a gang that grows), to those of a
    task's processes that handle it."""


class Outputs(_Table, frozen=True, kw_only=True):
    """What is copied to the store when a task ends."""

    folders: tuple[str, ...] = ()
    """Folders relative to a task's working folder."""
    keep: Keep | None = None
    """Of the other files that are new or changed in a task's working folder: "all", or patterns of
    those that are kept ("*.pt", "logs", "runs/*.json"). By default all on this machine; on a cluster
    none, and the end of the job names them."""
    store: str | None = None
    """Where they go, a path (relative to the job file) or fsspec URL; each job has a folder named by
    its id there. By default they are inside the job directory."""


class TensorBoard(_Table, frozen=True, kw_only=True):
    """TensorBoard as a sidecar, opened through the job page."""

    folder: str = "tensorboard"
    """Where the programs write summaries: relative to the job directory, or a path or URL."""
    python: str | None = None
    """Interpreter that has tensorboard, when the job's own has not."""
    memory: Memory | None = None
    """Memory of its container; enforced where it is given."""


class Logs(_Table, frozen=True, kw_only=True):
    """Limits of what a task may print."""

    max_size: Memory = "256m"
    """Kept per attempt; past it the oldest middle part goes, first and last lines stay."""
    segments: Positive = 4
    """Files a log is rotated over."""


class Network(_Table, frozen=True, kw_only=True):
    """Addresses and ports, for hosts with several networks or a firewall."""

    address: str | None = None
    """The address or host name tasks advertise; by default found by the agent."""
    interface: str | None = None
    """Network interface whose address is advertised, handed to gloo and NCCL too; on YARN the
    coordinator, and on Spark the driver program, listens on it, and on no other."""
    ports: str = "20000-29999"
    """Range that the ports of tasks and agents are taken from, on a cluster the coordinator's too, and inside
    Spark those of the driver program and of the programs that Spark feeds; outside the kernel's ephemeral
    range."""


class Acl(_Table, frozen=True, kw_only=True):
    """Who else may see or change the job: user names, "*" for all, and groups as the cluster knows them."""

    view: tuple[str, ...] = ()
    """Who may see the job, its logs and its page."""
    view_groups: tuple[str, ...] = ()
    """Groups whose members may see them too."""
    modify: tuple[str, ...] = ()
    """Who may end it: at once, with ``howdah stop --now``."""
    modify_groups: tuple[str, ...] = ()
    """Groups whose members may do so too."""


class Preprocess(_Table, frozen=True, kw_only=True):
    """A command run once, before any role is started; its failure fails the job."""

    command: Command
    """What is run, in a copy of the source folder like any task."""
    memory: Memory | None = None
    """Memory of its container; enforced where it is given."""
    timeout: Duration = "off"
    """It must end within this."""
    env: dict[str, str] = {}
    """Environment added to the job's, for this step."""


class Limits(_Table, frozen=True, kw_only=True):
    """What a site allows one job. Only a site file may set it."""

    max_instances: NotNegative | None = None
    """Tasks of all roles together, elastic roles at their greatest."""
    max_memory: Memory | None = None
    """Memory of all containers together; every role must then say how much it needs."""
    max_cores: NotNegative | None = None
    """CPU cores of all containers together; a role that does not say counts as one a task."""
    max_gpus: NotNegative | None = None
    """GPUs of all containers together."""
    max_resources: dict[str, NotNegative] = {}
    """Any other resource, all containers together."""
    exec: bool | None = None
    """Whether a job's owner may run commands beside its programs (`howdah exec`); by default yes."""


class Job(_Table, frozen=True, kw_only=True):
    """A whole job file."""

    name: str = "job"
    """Shown in lists and pages; letters, digits, ``._-``. By default the job file's name."""
    framework: str = "command"
    """tensorflow, pytorch, jax, horovod, mpi, mxnet, xgboost, lightgbm, dask, ray or command."""
    compat: Compat | None = None
    """tony: programs are told what TonY told them (`TF_CONFIG` of every role, its `TASK_NUM`, `IS_CHIEF`
    and `JOB_ID`), commands are those of bash, and all tracked tasks are waited for, whatever the framework
    says."""
    mode: Mode = Mode.GANG
    """gang: no program starts before all are there; each: every task starts when it is ready."""
    command: Command | None = None
    """What every role runs that has no command of its own."""
    source: str | None = "."
    """Folder with your code, relative to the job file; tasks start in a copy of it. "" for none."""
    in_place: bool = False
    """Programs run in the source folder itself and write to it, on this machine only."""
    environment: Environment = Environment()
    """Which Python the programs run in."""
    env: dict[str, str] = {}
    """Environment variables of every program; any characters. Those that Howdah sets itself, such as a
    rank, are warned about."""
    roles: dict[str, Role] = {}
    """The roles by name: chief, worker, ps, evaluator, or what you and the framework call them."""
    restart: Restart | None = None
    """gang, task or never for every role that does not say; by default what the framework needs."""
    attempts: Positive = 3
    """The restart budget: how many lives each task has. Failures that are the job's own fault count
    against it; a lost machine or a preemption does not."""
    timeouts: Timeouts = Timeouts()
    """Time limits of the job and of every role that has none of its own."""
    checkpoint: Checkpoint | None = None
    """The checkpoint folder that follows the job; absent: scripts look after themselves."""
    outputs: Outputs | None = None
    """What is copied to the store when a task ends."""
    tensorboard: TensorBoard | None = None
    """TensorBoard as a sidecar; absent: none. An empty table is enough."""
    logs: Logs = Logs()
    """Limits of what a task may print."""
    network: Network = Network()
    """Addresses and ports the tasks use."""
    preprocess: Preprocess | None = None
    """A command run once, before any role is started."""
    files: tuple[str, ...] = ()
    """Files and folders put beside the source, each ``place`` or ``place -> name``: a path (relative
    to the job file) or fsspec URL; archives (``.zip``, ``.tar.gz``, ``.tgz``, ``.tar``) are unpacked
    when the name ends in ``/``; of a folder on HDFS it is the files in it."""
    master: Master = Master()
    """The container of the job's coordinator on a cluster."""
    hadoop: Hadoop = Hadoop()
    """How the job finds and uses a Hadoop cluster."""
    spark: Spark = Spark()
    """How the job uses the slots of a Spark application."""
    store: str | None = None
    """Base folder or URL of job directories; by default the site's, else ``~/.howdah/jobs``."""
    queue: str | None = None
    """The cluster's queue the job is submitted to."""
    priority: NotNegative | None = None
    """Priority in the queue; more is sooner."""
    tags: tuple[str, ...] = ()
    """Words to find the job by."""
    acl: Acl = Acl()
    """Who else may see or change the job."""
    limits: Limits = Limits()
    """What the site allows one job. Only a site file may set it."""

    @property
    def files_by_role(self) -> dict[str, tuple[str, ...]]:
        """``files`` of the job (``""``) and of the roles that have any."""
        found = {"": self.files, **{name: role.files for name, role in self.roles.items()}}
        return {name: lines for name, lines in found.items() if lines}

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
    """Time limits; "off" means none. A role's own value overrides the job's."""

    allocation: Duration = "off"
    """The whole gang must have its containers within this time, or the job ends as timed out."""
    hold: Duration = "30s"
    """How long the job holds a part of its gang while it waits for the rest. Then it gives the part
    back."""
    registration: Duration = "2m"
    """A container's agent must register within this time after the container was granted."""
    startup: Duration = "10m"
    """Every task must have joined its peers within this time after its programs started."""
    total: Duration = "off"
    """The whole job must end within this time."""
    hang: Duration = "off"
    """A task hangs if it has no output, report or checkpoint for this long."""
    run: Duration = "off"
    """One attempt of a task must end within this time."""
    stop_grace: Duration = "10s"
    """Time between SIGTERM and SIGKILL when a task is stopped."""


class RoleTimeouts(_Table, frozen=True, kw_only=True):
    """A role's own limits. If one is absent, the job's applies."""

    registration: Duration | None = None
    """A container's agent must register within this time."""
    startup: Duration | None = None
    """This role's tasks must have joined their peers within this time."""
    hang: Duration | None = None
    """A task of this role hangs if it has no output, report or checkpoint for this long."""
    run: Duration | None = None
    """One attempt of a task of this role must end within this time."""
    stop_grace: Duration | None = None
    """Time between SIGTERM and SIGKILL."""


class Placement(_Table, frozen=True, kw_only=True):
    """Where a role's containers should be, relative to each other and to others."""

    spread: bool = False
    """Put each task on a node of its own."""
    pack: bool = False
    """Put all tasks on as few nodes as possible."""
    near: tuple[str, ...] = ()
    """Roles whose nodes are preferred."""
    together: tuple[str, ...] = ()
    """Roles whose nodes are the only ones: each container is on a node where one of them has a container."""
    apart: tuple[str, ...] = ()
    """Roles whose nodes are avoided."""
    racks: tuple[str, ...] = ()
    """Racks that are preferred."""


class Linger(_Table, frozen=True, kw_only=True):
    """How long a role may go on after others, for an evaluator or a worker that may never end."""

    after: tuple[str, ...]
    """The time begins when all tasks of these roles have succeeded."""
    limit: Duration
    """This role's tasks must have ended within this time."""
    then: Lingering = Lingering.FAIL
    """What happens to tasks that still run. fail: the job has timed out; stop: they are stopped,
    and the job does not wait for them; untrack: they run on, and the job does not wait for them."""


class Role(_Table, frozen=True, kw_only=True):
    """One role: a number of tasks that run the same command."""

    instances: Count = 1
    """Number of tasks. ``"2..8"`` starts with two and grows to eight as containers come."""
    processes: Processes = 1
    """Programs (ranks) per task. ``"gpus"`` is one for each GPU of the container."""
    command: Command | None = None
    """What this role runs instead of the job's command."""
    memory: Memory | None = None
    """Memory of a container. If you set it, it is enforced."""
    cores: Positive | None = None
    """CPU cores of a container."""
    gpus: NotNegative = 0
    """GPUs of a container. They are never shared."""
    resources: dict[str, NotNegative] = {}
    """Any other countable resource, by the cluster's name for it."""
    label: str | None = None
    """Node label that the containers' nodes must have."""
    placement: Placement = Placement()
    """Where the role's containers should be, relative to each other and to those of other roles."""
    env: dict[str, str] = {}
    """Environment variables for this role, added to the job's."""
    after: tuple[str, ...] = ()
    """Roles whose tasks must be running before this role's programs start."""
    prepare: bool = False
    """The role belongs to the prepare stage. Containers for all other roles are requested once the
    tracked tasks of this stage have succeeded. Its untracked tasks go on running."""
    tracking: Tracking | None = None
    """tracked, untracked or sidecar. By default, the framework decides by the name of the role."""
    stop_on_failure: bool | None = None
    """A failure of this role fails the job at once, even if restart budget is left."""
    tolerate: bool = False
    """If a task of this role fails, the job goes on without it, and the task is not restarted. The
    job still fails if the chief fails, or if all tracked tasks fail."""
    restart: Restart | None = None
    """gang, task or never. By default, what the framework needs."""
    attempts: Positive | None = None
    """How many attempts each task of this role has. By default, the job's ``attempts``."""
    linger: Linger | None = None
    """How long its tasks may go on when other roles are done."""
    ports: NotNegative | None = None
    """Ports reserved for each task. By default, as many as the framework needs."""
    files: tuple[str, ...] = ()
    """Files and folders put beside the source for this role, added to the job's ``files``."""
    image: str | None = None
    """Docker image in which this role's containers run, if the cluster's nodes have that
    runtime."""
    mounts: tuple[str, ...] = ()
    """Mounts of the Docker image, each ``/on/the/node:/in/the/image:ro``. Use ``:rw`` to write, and
    ``+rshared`` and the like for mount propagation."""
    timeouts: RoleTimeouts = RoleTimeouts()
    """Time limits of this role, if they differ from the job's."""


class Master(_Table, frozen=True, kw_only=True):
    """The container of the job's coordinator on a cluster."""

    memory: Memory = "512m"
    """Memory of its container. The cluster rounds it up to its smallest container."""
    cores: Positive = 1
    """CPU cores of its container."""
    label: str | None = None
    """Node label that its node must have."""
    attempts: Positive = 4
    """How often the coordinator may be started within the validity interval. The cluster's own
    limit may be lower."""
    validity: Duration = "10m"
    """If a coordinator died longer ago than this, its death no longer counts."""
    startup: Duration = "off"
    """The coordinator must answer within this time after the submission. Otherwise the command that
    follows the job ends it. While the coordinator waits in a queue, it does not answer."""


class Docker(_Table, frozen=True, kw_only=True):
    """How YARN's Docker runtime runs the containers of roles that have an ``image``."""

    network: str | None = None
    """Docker network of the containers, one that the cluster allows. By default, the cluster's
    own."""
    ports: tuple[str, ...] = ()
    """Ports of the containers that the node forwards, each ``8080:80``, ``:80`` or
    ``10.0.0.1:8080:80``."""
    tmpfs: tuple[str, ...] = ()
    """Folders of the containers that are kept in memory."""
    runtime: str | None = None
    """Runtime that Docker uses, such as ``nvidia``."""
    client_config: str | None = None
    """URL of a ``config.json`` of Docker's client, such as ``hdfs:///user/me/docker.json``. The
    nodes read it, and use its credentials to pull the image."""
    delayed_removal: bool = False
    """Keep containers for a while after they have ended, if the cluster allows it, so that you can
    look into them."""


class Hadoop(_Table, frozen=True, kw_only=True):
    """How the job finds and uses a Hadoop cluster."""

    conf: str | None = None
    """Folder of the cluster's configuration on this machine. By default, ``HADOOP_CONF_DIR``."""
    classpath: bool = False
    """Set ``CLASSPATH`` and everything else that libhdfs needs, for readers that use it
    (TensorFlow's and pyarrow's ``hdfs://``). The value is the output of ``hadoop classpath --glob``
    on the node."""
    container_env: dict[str, str] = {}
    """Environment variables of the containers themselves, for what a node reads before anything of
    the job runs, such as ``YARN_CONTAINER_RUNTIME_TYPE``. YARN expands ``$NAME`` in them. Programs
    get them too, unless ``env`` has the same name. Names that YARN or another key sets are
    refused."""
    docker: Docker = Docker()
    """How the containers of roles with an ``image`` run."""
    name_nodes: tuple[str, ...] = ()
    """Other file systems that the tasks use, such as ``hdfs://other:8020``. The job gets tokens for
    them."""
    tokens: dict[str, dict[str, str]] = {}
    """Other services whose delegation tokens the job needs. The name of each table is that of the
    installed provider that gets the tokens, such as ``[hadoop.tokens.hive]``; the table has the
    provider's settings."""
    python: str | None = None
    """Python 3.11 or newer on the nodes, for Howdah's own processes. By default, Howdah ships
    one."""
    runtime: str | None = None
    """Archive made by ``howdah pack --runtime``, a path or a URL on HDFS, which all users of a
    cluster can share. By default, it is packed at the first submission and kept on the cluster."""
    keytab: str | None = None
    """File on this machine with a Kerberos key. Howdah uses it instead of your ticket, so that the
    job can live longer than its delegation tokens, which last a week. The job's master gets the
    key; nobody else may read it."""
    principal: str | None = None
    """The principal in ``keytab`` to use, such as ``alice@EXAMPLE.COM``. By default, the first
    one."""
    autoscaling: bool = False
    """The cluster adds nodes while containers are waited for. If a job needs more than today's
    nodes have, it waits, with a warning. Without this key, it is refused."""


class Spark(_Table, frozen=True, kw_only=True):
    """How the job uses the slots of a Spark application."""

    slots: Slots | None = None
    """held: each Spark task lasts as long as the programs that it has started, which are its
    children. shared: the task ends, other tasks can use its slot, and the programs outlive it. By
    default held, unless programs that Spark feeds would leave no slot to feed them."""


class Environment(_Table, frozen=True, kw_only=True):
    """The Python environment of your programs. Name at most one source."""

    python: str | None = None
    """An interpreter: a path (a relative one is in the source folder), or a name to look up on
    PATH. ``python`` and ``python3`` in commands mean this one. By default, the interpreter in which
    Howdah runs."""
    requirements: str | None = None
    """A requirements file from which an environment is built."""
    project: str | None = None
    """A folder with ``pyproject.toml``, and perhaps a lock file, from which an environment is
    built."""
    venv: str | None = None
    """A virtual or conda environment on this machine. On this machine it is used where it is; to a
    cluster it is shipped as it is."""
    archive: str | None = None
    """A ready environment archive, a path or URL, with ``bin/python`` in it."""

    @property
    def is_made(self) -> bool:
        """Whether it is more than an interpreter that is there."""
        return any((self.requirements, self.project, self.venv, self.archive))


class Checkpoint(_Table, frozen=True, kw_only=True):
    """A folder that follows the job. It is saved to the store and restored before a restart."""

    folder: str = "checkpoints"
    """The folder to which programs write checkpoints, relative to a task's working folder. "."
    means whatever is new or changed in the working folder itself."""
    source: CheckpointSource | None = None
    """chief: the job has one checkpoint folder, that of the chief or of the lowest rank that
    writes, and every task gets it back; each: every task has its own. By default chief in a gang
    whose tasks have ranks, otherwise each."""
    keep: Positive = 3
    """How many complete checkpoints the store keeps."""
    settle: Duration = "500ms"
    """A file that has not changed for this long counts as finished."""
    ignore: tuple[str, ...] = UNFINISHED
    """Names that are never copied: temporary files of frameworks, and files of editors and
    systems."""
    save_limit: Duration = "30m"
    """How long saving a task's last checkpoint and its outputs may take after its programs have
    ended. What is not saved by then is given up, and the job says so."""
    store: str | None = None
    """Where checkpoints go: a path (relative to the job file) or fsspec URL. By default, inside the
    job directory."""
    signal: CheckpointSignal | None = None
    """A signal that is also sent when a checkpoint is requested (a preemption, a gang that grows).
    Those of a task's processes that handle it get it."""


class Outputs(_Table, frozen=True, kw_only=True):
    """What is copied to the store when a task ends."""

    folders: tuple[str, ...] = ()
    """Folders relative to a task's working folder."""
    keep: Keep | None = None
    """Which of the other files that are new or changed in a task's working folder to keep: "all",
    or a list of patterns ("*.pt", "logs", "runs/*.json"). By default, all on this machine. On a
    cluster none are kept, and the summary of the job lists them."""
    store: str | None = None
    """Where outputs go: a path (relative to the job file) or fsspec URL, in a folder with the job's
    id. By default, inside the job directory."""


class TensorBoard(_Table, frozen=True, kw_only=True):
    """TensorBoard as a sidecar, which you open through the job page."""

    folder: str = "tensorboard"
    """Where programs write summaries: a folder relative to the job directory, or a path or URL."""
    python: str | None = None
    """Interpreter that has tensorboard, if the job's own does not."""
    memory: Memory | None = None
    """Memory of its container. If you set it, it is enforced."""


class Logs(_Table, frozen=True, kw_only=True):
    """Limits of what a task may print."""

    max_size: Memory = "256m"
    """How much of each attempt's log is kept. Beyond that the oldest part of the middle is dropped;
    the first and last lines stay."""
    segments: Positive = 4
    """Number of files into which a log is split."""


class Network(_Table, frozen=True, kw_only=True):
    """Addresses and ports, for hosts with several networks or a firewall."""

    address: str | None = None
    """The address or host name that tasks advertise. By default, the agent finds it."""
    interface: str | None = None
    """Network interface whose address tasks advertise; gloo and NCCL use it too. On YARN the
    coordinator listens on it and on no other; on Spark the driver program does."""
    ports: str = "20000-29999"
    """Range for the ports of tasks and agents, outside of the kernel's ephemeral range. On a
    cluster it also holds for the coordinator, and inside Spark for the driver program and for the
    programs that Spark feeds."""


class Acl(_Table, frozen=True, kw_only=True):
    """Who else may see or change the job: user names, "*" for everyone, and groups as the cluster
    knows them."""

    view: tuple[str, ...] = ()
    """Who may see the job, its logs and its page."""
    view_groups: tuple[str, ...] = ()
    """Groups whose members may see them, too."""
    modify: tuple[str, ...] = ()
    """Who may end the job, at once, with ``howdah stop --now``."""
    modify_groups: tuple[str, ...] = ()
    """Groups whose members may do so, too."""


class Preprocess(_Table, frozen=True, kw_only=True):
    """A command that runs once, before any role starts. If it fails, the job fails."""

    command: Command
    """What to run, in a copy of the source folder like any task."""
    memory: Memory | None = None
    """Memory of its container. If you set it, it is enforced."""
    timeout: Duration = "off"
    """The command must end within this time."""
    env: dict[str, str] = {}
    """Environment variables for this step, added to the job's."""


class Limits(_Table, frozen=True, kw_only=True):
    """What a site allows one job. Only a site file may set it."""

    max_instances: NotNegative | None = None
    """Tasks of all roles together; an elastic role counts with its greatest number."""
    max_memory: Memory | None = None
    """Memory of all containers together. Every role must then say how much it needs."""
    max_cores: NotNegative | None = None
    """CPU cores of all containers together. A role that does not say counts as one core per
    task."""
    max_gpus: NotNegative | None = None
    """GPUs of all containers together."""
    max_resources: dict[str, NotNegative] = {}
    """Any other resource, for all containers together."""
    exec: bool | None = None
    """Whether a job's owner may run commands beside its programs (`howdah exec`). By default,
    yes."""


class Job(_Table, frozen=True, kw_only=True):
    """A whole job file."""

    name: str = "job"
    """Name in lists and pages; letters, digits and ``._-``. By default, the job file's name."""
    framework: str = "command"
    """tensorflow, pytorch, jax, horovod, mpi, mxnet, xgboost, lightgbm, dask, ray or command."""
    compat: Compat | None = None
    """tony: programs get the variables that TonY gave them (`TF_CONFIG` of every role, its
    `TASK_NUM`, `IS_CHIEF` and `JOB_ID`), bash runs the commands, and the job waits for all tracked
    tasks, whatever the framework says."""
    mode: Mode = Mode.GANG
    """gang: no program starts before all tasks are ready; each: every task starts when it is
    ready."""
    command: Command | None = None
    """What every role runs that has no command of its own."""
    source: str | None = "."
    """Folder with your code, relative to the job file. Tasks start in a copy of it. "" means
    none."""
    ignore: tuple[str, ...] = ()
    """What of the source folder the tasks do not get: patterns as in a ``.gitignore``."""
    link: tuple[str, ...] = ()
    """Folders of the source folder that tasks get as links to your own, not as copies. Programs that
    open files in them by path find them; what walks through the source folder may pass them over."""
    in_place: bool = False
    """Programs run in the source folder itself and write to it. Only on this machine."""
    environment: Environment = Environment()
    """The Python environment in which the programs run."""
    env: dict[str, str] = {}
    """Environment variables of every program. Values may have any characters. Howdah warns about
    variables that it sets itself, such as a rank. They are written to the job directory, and the job's
    owner sees them on its page: passwords and tokens belong into ``secrets``."""
    secrets: dict[str, str] | tuple[str, ...] = {}
    """Environment variables of every program whose values only the programs get: each is
    ``"${env:NAME}"``, a variable where you submit, or ``"${file:path}"``, a file's text without its last
    line break (relative to the job file). A list of names takes variables of the same names. Values are
    read at submission and kept in the job directory's ``secrets`` folder; the job file, pages, dry runs
    and Howdah's logs have the references alone."""
    roles: dict[str, Role] = {}
    """The roles by name: chief, worker, ps, evaluator, or whatever you and the framework call
    them."""
    restart: Restart | None = None
    """gang, task or never, for every role that does not say. By default, what the framework
    needs."""
    attempts: Positive = 3
    """The restart budget: how many attempts each task has. Failures that are the job's own fault
    count against it; a lost machine or a preemption does not."""
    timeouts: Timeouts = Timeouts()
    """Time limits of the job, and of every role that has none of its own."""
    checkpoint: Checkpoint | None = None
    """The checkpoint folder that follows the job. If it is absent, scripts save by themselves."""
    outputs: Outputs | None = None
    """What is copied to the store when a task ends."""
    tensorboard: TensorBoard | None = None
    """TensorBoard as a sidecar. An empty table is enough; if it is absent, there is none."""
    logs: Logs = Logs()
    """Limits of what a task may print."""
    network: Network = Network()
    """Addresses and ports that the tasks use."""
    preprocess: Preprocess | None = None
    """A command that runs once, before any role starts."""
    files: tuple[str, ...] = ()
    """Files and folders put beside the source, each ``place`` or ``place -> name``. A place is a
    path (relative to the job file) or fsspec URL. An archive (``.zip``, ``.tar.gz``, ``.tgz``,
    ``.tar``) is unpacked if the name ends in ``/``. If the place is a folder on HDFS, the files in
    it are put there."""
    master: Master = Master()
    """The container of the job's coordinator on a cluster."""
    hadoop: Hadoop = Hadoop()
    """How the job finds and uses a Hadoop cluster."""
    spark: Spark = Spark()
    """How the job uses the slots of a Spark application."""
    store: str | None = None
    """Base folder or URL of job directories. By default, the site's, otherwise
    ``~/.howdah/jobs``."""
    queue: str | None = None
    """The cluster's queue to which the job is submitted."""
    priority: NotNegative | None = None
    """Priority in the queue. A higher number is sooner."""
    tags: tuple[str, ...] = ()
    """Words by which you can find the job."""
    acl: Acl = Acl()
    """Who else may see or change the job."""
    limits: Limits = Limits()
    """What the site allows one job. Only a site file may set it."""

    @property
    def files_by_role(self) -> dict[str, tuple[str, ...]]:
        """``files`` of the job (``""``) and of the roles that have any."""
        found = {"": self.files, **{name: role.files for name, role in self.roles.items()}}
        return {name: lines for name, lines in found.items() if lines}

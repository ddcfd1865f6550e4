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

Duration = Annotated[
    str,
    Meta(
        description='A time such as "500ms", "10s", "5m", "2h", "1d"; "off" where there is no limit.',
        pattern=r"^(off|\d+(\.\d+)?(ms|s|m|h|d))$",
    ),
]
Memory = Annotated[
    str,
    Meta(
        description='An amount of memory such as "512m", "2g", "1.5g" (powers of 1024).',
        pattern=r"^\d+(\.\d+)?[kKmMgGtT]([iI]?[bB])?$",
    ),
]
Count = Annotated[
    int | str,
    Meta(description='A number, or an elastic range "min..max" such as "2..8".'),
]
Command = Annotated[
    str | list[str],
    Meta(description="A shell command line, or a list of arguments that no shell sees."),
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


class Restart(enum.Enum):
    """What is started again after a failure: the whole gang, the one task, or nothing."""

    GANG = "gang"
    TASK = "task"
    NEVER = "never"


class Timeouts(_Table, kw_only=True):
    """Time limits; "off" means none. A role's own value wins over the job's."""

    allocation: Duration = "off"
    """The whole gang must have its containers within this, or the job ends as timed out."""
    hold: Duration = "30s"
    """How long a part of the gang is held while the rest is waited for, before all of it is given back."""
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


class RoleTimeouts(_Table, kw_only=True):
    """A role's own limits; an absent one is the job's."""

    registration: Duration | None = None
    startup: Duration | None = None
    hang: Duration | None = None
    run: Duration | None = None
    stop_grace: Duration | None = None


class Placement(_Table, kw_only=True):
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


class Role(_Table, kw_only=True):
    """One role: a number of tasks that run the same command."""

    instances: Count = 1
    """How many tasks; ``"2..8"`` starts with two and grows to eight as containers come."""
    processes: int | str = 1
    """Programs (ranks) per task; ``"gpus"`` is one for each GPU of the container."""
    command: Command | None = None
    """What this role runs instead of the job's command."""
    memory: Memory | None = None
    """Memory of a container; enforced where it is given."""
    cores: int | None = None
    """CPU cores of a container."""
    gpus: int = 0
    """GPUs of a container: its own, shared with nobody."""
    resources: dict[str, int] = {}
    """Any other countable resource by the cluster's name for it."""
    label: str | None = None
    """Node label the containers must be on."""
    placement: Placement = Placement()
    env: dict[str, str] = {}
    """Environment added to the job's, for this role."""
    after: tuple[str, ...] = ()
    """Roles whose tasks must be running before this role's programs start."""
    tracking: Tracking | None = None
    """tracked, untracked or sidecar; by default what the framework says of a role of this name."""
    stop_on_failure: bool | None = None
    """A failure of this role fails the job at once, whatever budget is left."""
    restart: Restart | None = None
    """gang, task or never; by default what the framework needs."""
    attempts: int | None = None
    """How many lives each task of this role has; by default the job's ``attempts``."""
    ports: int | None = None
    """Ports reserved for each task; by default what the framework needs."""
    timeouts: RoleTimeouts = RoleTimeouts()


class Environment(_Table, kw_only=True):
    """The Python environment of the user's programs. At most one source."""

    python: str | None = None
    """An interpreter: a path, or a name looked up on PATH. Default: the one Howdah runs in."""
    requirements: str | None = None
    """A requirements file to build an environment from (clusters)."""
    archive: str | None = None
    """A ready environment archive, a path or URL (clusters)."""


class Checkpoint(_Table, kw_only=True):
    """A folder of a task that follows the job: saved to the store, brought back before a restart."""

    folder: str = "checkpoints"
    """The folder, relative to a task's working folder, its programs write checkpoints to."""
    source: str = "chief"
    """"chief": rank 0's folder is the job's, every task gets it back; "each": every task has its own."""
    keep: int = 3
    """How many complete checkpoints are kept in the store."""
    settle: Duration = "500ms"
    """Files unchanged for this long are taken as finished."""
    ignore: tuple[str, ...] = ("*.tmp", "*.tmp.*", "*.part", "*.partial", "*tmp_*", ".*")
    """Names never copied: what frameworks write before they rename."""
    store: str | None = None
    """Where checkpoints go, a path or fsspec URL; by default inside the job directory."""


class Outputs(_Table, kw_only=True):
    """Folders copied to the store when a task ends."""

    folders: tuple[str, ...] = ()
    """Folders relative to a task's working folder."""
    store: str | None = None


class TensorBoard(_Table, kw_only=True):
    """TensorBoard beside the job, opened through the job page."""

    folder: str = "tensorboard"
    """Where the programs write summaries: relative to the job's shared folder, or a path or URL."""
    python: str | None = None
    """Interpreter that has tensorboard, when the job's own has not."""
    memory: Memory | None = None


class Logs(_Table, kw_only=True):
    """Limits of what a task may print."""

    max_size: Memory = "256m"
    """Kept per attempt; past it the oldest middle part goes, first and last lines stay."""
    segments: int = 4
    """Files a log is rotated over."""


class Network(_Table, kw_only=True):
    """Addresses and ports, for hosts with several networks or a firewall."""

    address: str | None = None
    """The address or host name tasks advertise; by default found by the agent."""
    interface: str | None = None
    """Network interface whose address is advertised, handed to gloo and NCCL too."""
    ports: str = "20000-29999"
    """Range the tasks' ports are taken from, outside the kernel's ephemeral range."""


class Acl(_Table, kw_only=True):
    """Who else may see or change the job: user names, "*" for all."""

    view: tuple[str, ...] = ()
    modify: tuple[str, ...] = ()


class Preprocess(_Table, kw_only=True):
    """A command run once, before any role is started; its failure fails the job."""

    command: Command
    memory: Memory | None = None
    timeout: Duration = "off"
    env: dict[str, str] = {}


class Limits(_Table, kw_only=True):
    """What a site allows one job. Only a site file may set it."""

    max_instances: int | None = None
    """Tasks of all roles together."""
    max_memory: Memory | None = None
    """Memory of all containers together."""
    max_cores: int | None = None
    max_gpus: int | None = None
    max_resources: dict[str, int] = {}
    """Any other resource, all containers together."""


class Job(_Table, kw_only=True):
    """A whole job file."""

    name: str = "job"
    """Shown in lists and pages; letters, digits, ``._-``."""
    framework: str = "command"
    """tensorflow, pytorch, jax, horovod, mpi, mxnet, xgboost, lightgbm, dask, ray or command."""
    mode: Mode = Mode.GANG
    """gang: nobody's program starts before all are there; each: every task starts when it is ready."""
    command: Command | None = None
    """What every role runs that has no command of its own."""
    source: str | None = "."
    """Folder with the user's code, relative to the job file; tasks start in a view of it."""
    environment: Environment = Environment()
    env: dict[str, str] = {}
    """Environment variables of every program; any characters."""
    roles: dict[str, Role] = {}
    restart: Restart | None = None
    """gang, task or never for every role that does not say; by default what the framework needs."""
    attempts: int = 3
    """Lives of each task: failures that are the job's own fault spend them, others do not."""
    timeouts: Timeouts = Timeouts()
    checkpoint: Checkpoint | None = None
    outputs: Outputs | None = None
    tensorboard: TensorBoard | None = None
    logs: Logs = Logs()
    network: Network = Network()
    preprocess: Preprocess | None = None
    store: str | None = None
    """Base folder or URL of job directories; by default the site's, else ``~/.howdah/jobs``."""
    queue: str | None = None
    priority: int | None = None
    tags: tuple[str, ...] = ()
    acl: Acl = Acl()
    limits: Limits = Limits()

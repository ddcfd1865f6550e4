"""The contract of a backend: it grants, launches and ends containers; nothing else.

A backend knows nothing of generations, restarts or frameworks. It reports facts as core events and
may repeat them; the machine decides. `tests/conformance` runs every backend through this contract.

Guarantees a backend gives:

1. A request id is granted at most once, or refused once; asking again for a known id is harmless.
2. `ContainerEnded` comes exactly once for every granted container, also after `release`.
3. When `ContainerEnded` has come, no process of the container is left; on clusters, whose own
   processes see less, the agent's watchdog may still be ending the last of them. Where the backend
   cannot know it, because the node does not answer, the event says so (``proven`` is false).
4. After a coordinator's death, `start` returns every container still held for the job.
5. A call never blocks the event loop and never raises for a container that is already gone.

Not guaranteed: that grants come in the order of requests, that a grant comes at all (a busy
cluster; the machine has the time-out), that `ContainerEnded` comes soon for a lost node.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.core.messages import ContainerRequest, Event, Task
from howdah.spec.model import Job, Placement
from howdah.spec.units import mebibytes
from howdah.storage.jobdir import JobDirectory, base_folder
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView

if TYPE_CHECKING:
    from howdah.spec.load import LoadedJob


class BackendError(Exception):
    """The backend cannot be used; the message is for the user: what, which value, what to do."""


class PerhapsSubmitted(BackendError):
    """Whether the backend has taken the job is not known. Its directory stays, to follow or to end it."""


class BackendAway(Exception):
    """The backend does not answer, or does not take this coordinator (any more). That is no fault of
    the job's: this coordinator ends, and the next one tries again."""


class OnlyOwners(BackendError):
    """Another user's job, whose directory and coordinator are its owner's; says what may be done.

    Attributes:
        called: what its cluster calls it, for `howdah.backends.registry.end`.
    """

    def __init__(self, text: str, called: str) -> None:
        super().__init__(text)
        self.called = called


class NoSuchBackend(BackendError):
    """Neither Howdah nor an installed package has a backend of that name."""


class RoleResources(msgspec.Struct, frozen=True, kw_only=True):
    """What each container of a role needs."""

    memory_mb: int | None = None
    cores: int | None = None
    gpus: int = 0
    resources: dict[str, int] = {}
    label: str | None = None
    placement: Placement = Placement()
    image: str | None = None
    mounts: tuple[str, ...] = ()


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are for a job's programs, as its containers see them.

    What is inside a container is written with `howdah.agent.launch.HERE`.
    """

    python: str
    """The interpreter of the programs."""
    bin: str = ""
    """Folder that makes the interpreter ``python``, where its own folder does not."""
    path: str
    """PATH."""
    python_path: str
    """Folder that holds `howdah.task` alone, for the programs' PYTHONPATH."""
    helpers: str | None = None
    """Folder of `howdah.frameworks.helpers`; None where it is this installation's."""
    source: str | None = None
    """What working folders are filled with."""
    origin: str | None = None
    """As in `howdah.agent.launch.AgentLaunch`."""
    keeps: bool = False
    """Whether what programs make in their working folders is kept unless the job file says which: the
    job directory is a folder of the same machine."""
    shared_dir: str
    """A folder all tasks see: a path, or a URL where there is none."""
    home: str
    """The job directory for programs and helpers: a path, or a URL."""
    tensorboard_dir: str
    tensorboard_url: str | None = None
    """Where event files of all tasks are kept, if `tensorboard_dir` is each container's own."""
    container_env: Mapping[str, str] = {}
    """Variables of ``hadoop.container-env``, where no container of a cluster has them already."""
    application: str = ""
    """The cluster's id of the job, where a cluster runs it."""
    files: Mapping[str, Mapping[str, str]] = {}
    """What agents put beside the source: paths by role (``""`` for all) and name."""


class PageReaders(msgspec.Struct, frozen=True, kw_only=True):
    """Who may read without the token: what a cluster's web proxy passes on.

    YARN's proxy drops ``Authorization`` and our cookie and says who reads in a cookie of its own,
    ``proxy-user``, unsigned. So it is known by nothing but its address, and all it gets is a look:
    GET and HEAD. The cluster's own web authentication decides what a name in that cookie is worth.
    """

    addresses: Set[str] = frozenset()
    """IP addresses the proxy connects from, as they are now."""
    users: frozenset[str] | None = None
    """Who may look; None for everybody the proxy lets in."""
    groups: frozenset[str] = frozenset()
    """Whose members may look too."""
    groups_of: Callable[[str], Awaitable[Collection[str]]] | None = None
    """A user's groups as the cluster knows them. Raises `BackendError` where it does not say."""


class Backend(Protocol):
    """One job's containers, as the coordinator uses them. All calls are on its event loop."""

    name: str
    lease_s: float
    """How long an agent may be without a coordinator."""
    give_back_s: float = 30.0
    """At the job's end, how long the end of a container that was released is waited for."""
    lists_all: bool
    """Whether `start` returns every container in which a program may still run; False where those of
    nodes that do not answer are left out."""
    host: str
    """Address at which agents, clients and browsers reach this coordinator."""
    bind: str
    """Address it listens on."""
    ports: tuple[int, int] | None
    """First and last of the range that its ports are taken from; any, if None."""
    page_readers: PageReaders
    """Who may read the job's page without its token; known once `start` has returned."""
    queue: str
    """The cluster's queue that the job is in, which need not be the one it asks for; empty where there
    is none. Known once `start` has returned."""
    submitted: float | None = None
    """When the cluster took the job, in seconds since the epoch; None where its coordinator begins at once."""

    def places(self, job: Job, directory: JobDirectory) -> Places:
        """Where the containers of this (expanded) job find things."""
        ...

    async def announce(self, address: CoordinatorAddress) -> None:
        """The coordinator is reachable there. Called before `start` (the page's port is 0 then) and
        again when the page comes up."""
        ...

    async def finished(self, view: JobView) -> None:
        """The job has ended so, ``final.json`` is written; comes before `close`. Both also come
        without `start`, where the job had ended before this coordinator began."""
        # Whoever asks reads it in the job directory.

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        """Connect; facts go to ``emit`` from now on. Returns ids of containers still held.

        Raises:
            BackendError: the job can never run there; it ends with these words.
            BackendAway: not now, or not with this coordinator.
        """
        ...

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        """Ask for containers; granted or refused through ``emit``, now or later."""
        ...

    async def waiting(self) -> str:
        """Why containers that were asked for do not come, in words for people; empty if that cannot
        be told. May ask a cluster: not for every tenth of a second."""
        ...

    async def cancel(self, request_ids: Sequence[int]) -> None:
        """Take requests back; one already granted is the machine's to release."""
        ...

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        """Start the agent; a failure is reported as `ContainerEnded` (launch failed)."""
        ...

    async def release(self, container_id: str) -> None:
        """End whatever runs in the container and give it back."""
        ...

    async def superseded(self) -> str:
        """Wait until this coordinator may no longer act for its job, because another has it;
        returns why. Where that cannot be, as by default, it never returns."""
        import asyncio  # submissions, which need no loop, have this module too

        return await asyncio.Future()

    async def credentials(self) -> bytes:
        """Wait until the containers' credential files are out of date; returns what they hold then.
        Where there are none, as by default, it never returns."""
        import asyncio

        return await asyncio.Future()

    async def close(self) -> None:
        """The job is over, everything was released: let go of the backend."""
        ...


class Running(enum.Enum):
    """Whether a job has somebody who runs it."""

    YES = "yes"
    NOT_YET = "not-yet"
    """Submitted, and its coordinator has not begun."""
    NO = "no"
    """Nobody does, and nobody will by itself."""


class Lost(msgspec.Struct, frozen=True):
    """A job that has not ended and that nobody runs, in words without a full stop."""

    what: str
    """What became of it, and why, as far as is known."""
    remedy: str
    """The commands that go on with it."""

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a submission, for people: ``uploading environment``, bytes done and in all."""

    what: str = ""
    done: int = 0
    total: int | None = None
    note: str = ""
    """What a user should know of it afterwards."""


class SubmissionCancelled(Exception):
    """`Submission.cancel` was obeyed: the job was not submitted, and nothing of it is left."""


class Submission(Protocol):
    """The client's side of a backend, for one new job. Made before the job is loaded, so that what
    takes time can begin; nothing has happened until `go`."""

    def base(self, job: Job) -> Path:
        """The folder of this machine in which the job directory, or the copy of it, is made.

        Raises:
            StorageError: the job names a place where it cannot be.
        """
        return base_folder(job.store)

    def check(self, job: Job, loaded: LoadedJob) -> None:
        """Refuse an expanded job that can never run there, before it has a directory.

        ``loaded`` is where it came from: its file, its source folder.

        Raises:
            BackendError: with every reason, each with the nearest possible value.
        """
        ...

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        """The job directory is complete (documents, secrets): start the job.

        Raises:
            BackendError: it could not be started; nothing of it is left there.
            SubmissionCancelled: `cancel` was called in time.
        """
        ...

    def cancel(self) -> None:
        """Let a `go` in another thread end soon, unless the job has been submitted. Nothing by
        default, for a `go` that takes no time."""

    def close(self) -> None:
        """Let go; without `go` before, nothing has happened. May be called again."""
        ...


class Site(Protocol):
    """A submitted job as a client finds it. What is kept elsewhere than in its directory on this
    machine is nothing by default."""

    at_hand: bool
    """Answers come from files of this machine, at once. Where not, calls wait for a network: they
    are for threads, and not for every hundredth of a second."""

    def coordinator(self) -> CoordinatorAddress | None:
        """Where its coordinator is now, as far as is known."""
        ...

    def final(self) -> JobView | None:
        """How it ended, None while it has not. Then its whole story (journal, stacks) is in the
        local directory too."""
        ...

    def running(self) -> Running: ...

    def waiting(self) -> str:
        """Why it waits, in words (queue full, no node with that label, …); empty if it does not."""
        return ""

    def bring_story(self) -> None:
        """Bring the journal and the stacks, as they are now, into the local directory."""

    def bring_metrics(self) -> None:
        """Bring the measurements, as they are now, into the local directory."""

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        """Bring the logs of these tasks (none: all) that are kept elsewhere into the directory."""

    def has_remote_summaries(self) -> bool:
        """Whether summaries of TensorBoard in the job's directory are kept elsewhere.

        Raises:
            BackendError: that cannot be found out now.
        """
        return False

    def bring_summaries(self, folder: Path, most: int) -> int:
        """Copy them into that folder if they have no more than ``most`` bytes; returns how many they have.

        Raises:
            BackendError: they cannot be read.
            OSError: they cannot be written.
        """
        return 0

    def size_elsewhere(self) -> int:
        """Bytes of what is kept elsewhere of the job's directory.

        Raises:
            BackendError: they cannot be counted.
        """
        return 0

    def remove_elsewhere(self) -> int:
        """Remove what is kept elsewhere of a job that has ended; bytes freed.

        Raises:
            BackendError: something of it is left.
        """
        return 0

    def lost(self) -> Lost:
        """What may have become of a job that nobody runs, and what to do."""
        ...

    def left_running(self, *, thorough: bool = False) -> str:
        """What of a job that nobody runs still does, and until when, as words after its id; empty if nothing does.

        ``thorough``: processes that have lost their agent as well, which takes a look at all of the machine.
        """
        return ""

    def revive(self) -> None:
        """Run a job again that nobody runs any more, where it was.

        Raises:
            BackendError: it cannot be; the text says what can be done instead.
        """
        ...

    def end(self, reason: str) -> None:
        """End a job whose coordinator does not answer; nothing of it is left running.

        Raises:
            BackendError: it could not be ended.
        """
        ...


def role_resources(job: Job) -> dict[str, RoleResources]:
    """Resources of every role of an expanded job (`howdah.frameworks.planning.expand`)."""
    return {
        name: RoleResources(
            memory_mb=None if role.memory is None else mebibytes(role.memory),
            cores=role.cores,
            gpus=role.gpus,
            resources=role.resources,
            label=role.label,
            placement=role.placement,
            image=role.image,
            mounts=role.mounts,
        )
        for name, role in job.roles.items()
    }

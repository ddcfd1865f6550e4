"""What a framework is to Howdah: defaults for roles, and a topology turned into environment.

A framework is one file with one class and a line in `howdah.frameworks.registry`, or an entry
point in the group ``howdah.frameworks``. It is pure: no I/O, no clock.

A new framework derives from `Framework` and overrides what differs: the base class is the rule for
a set of programs that know nothing of each other.
"""

from __future__ import annotations

import msgspec

from howdah.core.messages import Member, Topology
from howdah.core.plan import Completion, Join
from howdah.spec.model import Command, Job, Mode, Restart, Role, Tracking
from howdah.spec.units import instance_range


class RoleDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a role of some name unless the job file says otherwise."""

    tracking: Tracking = Tracking.TRACKED
    restart: Restart = Restart.GANG
    stop_on_failure: bool = False
    ranked: bool = True
    chief: bool = False
    ports: int = 1
    """Ports each task needs at least."""
    sticky_ports: bool = False
    join: Join = Join.NETWORK
    watched: bool = True
    after: tuple[str, ...] = ()
    """Roles to be waited for, of those the job has."""
    restart_grace_s: float = 0.5


SIDECAR = RoleDefaults(
    tracking=Tracking.SIDECAR,
    restart=Restart.TASK,
    ranked=False,
    join=Join.NOW,
    watched=False,
    restart_grace_s=2.0,
)
"""A sidecar: nothing waits for it, nothing depends on it."""

INDEPENDENT = RoleDefaults(restart=Restart.TASK, ranked=False, join=Join.NOW, restart_grace_s=2.0)
"""A program of a role the framework does not know: it counts, but is no part of the framework."""


SERVER = RoleDefaults(tracking=Tracking.UNTRACKED, ranked=False, watched=False)
"""A role that only serves the ranked ones: its end is not the job's, its silence is no hang."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a job this framework cannot run: dotted key, what is wrong, what to do."""

    key: str
    message: str


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page a task serves on one of its reserved ports."""

    name: str
    port: int = 0
    """Which of the task's ports, counted from 0."""
    keeps_prefix: bool = False
    """It expects the proxy's whole path."""
    locked: bool = False
    """It demands the attempt's page token."""


class Framework:
    """Rules of one framework; sources are in each file. The base: plain independent programs."""

    name: str = ""
    many_processes: bool = True
    """A task may run several programs (``processes``)."""

    def completion(self, job: Job) -> Completion:
        """Which success ends the job."""
        return Completion.ALL

    def collective(self, job: Job) -> bool:
        """Its ranked programs form one group that none of them can rejoin alone."""
        return False

    def check(self, job: Job) -> list[Problem]:
        """What is wrong with the job's roles for this framework; empty if nothing."""
        return []

    def role(self, job: Job, role: str) -> RoleDefaults:
        """Defaults for that role of the job."""
        return INDEPENDENT

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        """Variables of one process (``process`` is its local rank) under this topology."""
        return {}

    def helpers(self, job: Job) -> dict[str, Role]:
        """Roles the framework adds by itself (a tracker, a rendezvous server): name → role."""
        return {}

    def command(self, job: Job, role: str) -> Command | None:
        """What a role runs that has no command of its own, where that is not the job's."""
        return None

    def launcher(self, job: Job, role: str) -> str | None:
        """A helper script that is started in the command's stead, with the command as arguments."""
        return None

    def page(self, job: Job, role: str) -> WebPage | None:
        """The web page each task of the role serves, if it does."""
        return None


class Collective(Framework):
    """Chief, master and workers form one synchronous group that none of their programs can rejoin alone.

    All are ranked, restarted together, and joined once they hold a connection to a peer.
    """

    rendezvous: str = ""
    """The role that serves where they meet, one task of it; none if a program of theirs does."""

    def collective(self, job: Job) -> bool:
        return True

    def check(self, job: Job) -> list[Problem]:
        return (
            needs_one_of(job, "chief", "worker")
            + at_most_one(job, "chief", "master", self.rendezvous)
            + only_gang(job)
        )

    def role(self, job: Job, role: str) -> RoleDefaults:
        if role == self.rendezvous:
            return SERVER
        if role not in ("chief", "master", "worker"):
            return INDEPENDENT
        return RoleDefaults(chief=role == chief_role(job, "worker"))


def processes(role: Role) -> int:
    """Programs per task; ``"gpus"`` is one for each GPU of the container."""
    if role.processes == "gpus":
        return max(role.gpus, 1)
    return int(role.processes)


def chief_role(job: Job, *ranked: str) -> str | None:
    """The role rank 0 belongs to: ``chief`` or ``master`` if the job has it, else the first ranked.

    Source: TensorFlow's distributed training guide ("if chief is absent, worker 0 is the chief");
    the same convention serves all frameworks here.
    """
    for name in ("chief", "master", *ranked):
        if name in job.roles and job.roles[name].tracking is not Tracking.SIDECAR:
            return name
    return None


def tracked_roles(job: Job) -> list[str]:
    """Roles that no line of the job file makes untracked or a sidecar, of the last stage."""
    return [
        name
        for name, role in job.roles.items()
        if role.tracking in (None, Tracking.TRACKED) and not role.prepare
    ]


def needs_one_of(job: Job, *names: str, what: str = "the role that trains") -> list[Problem]:
    """A problem if the job has none of these roles; ``what`` the last one is."""
    if any(name in job.roles for name in names):
        return []
    has = ", ".join(job.roles) or "none"
    return [
        Problem(
            key="roles",
            message=f"{job.framework} needs a role named {' or '.join(names)}, and the job's "
            f"roles are: {has}. Call {what} {names[-1]}.",
        )
    ]


def at_most_one(job: Job, *names: str) -> list[Problem]:
    """A problem for each of these roles that has more than one instance."""
    return [
        Problem(
            key=f"roles.{name}.instances",
            message=f"a {job.framework} job has one {name}, not {job.roles[name].instances}; "
            "set it to 1.",
        )
        for name in names
        if name in job.roles and instance_range(job.roles[name].instances)[1] > 1
    ]


def only_gang(job: Job) -> list[Problem]:
    """A problem if the job wants its tasks started one by one."""
    if job.mode is Mode.GANG:
        return []
    return [
        Problem(
            key="mode",
            message=f'"each" does not go with {job.framework}: its programs need the addresses of '
            'all others when they start. Use mode = "gang", or framework = "command" for '
            "programs that do not depend on each other.",
        )
    ]

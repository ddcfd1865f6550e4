"""The job as the machine sees it: numbers and policies, no commands, paths or environment.

`howdah.frameworks.planning` makes a plan from a job file and what the framework needs.
Times are seconds; ``None`` means no limit.
"""

from __future__ import annotations

import enum

import msgspec

from howdah.spec.model import Lingering, Mode, Restart, Tracking


class Join(enum.Enum):
    """How a started program proves that it has found its peers (see `howdah.agent.monitoring.probes`)."""

    NOW = "now"
    """Started is enough: the program has no peers, or never shows them."""
    NETWORK = "network"
    """It listens on a port reserved for it, holds a connection to a peer's, or reports a step."""
    REPORT = "report"
    """It says so (`howdah.task.joined`): its network shows nothing, or too early."""


class Completion(enum.Enum):
    """Which success ends the job."""

    ALL = "all"
    """Every tracked task has succeeded."""
    CHIEF = "chief"
    """The chief role's success is enough; other tracked tasks are stopped then."""


class RolePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One role. Its tasks are ``name:0`` to ``name:{maximum - 1}``."""

    name: str
    minimum: int
    maximum: int
    processes: int = 1
    tracking: Tracking = Tracking.TRACKED
    restart: Restart = Restart.GANG
    stop_on_failure: bool = False
    tolerated_from: int | None = None
    """Tasks from this index on may fail: they are not started again, and the job goes on without
    them. None: no task may."""
    ranked: bool = True
    """Its processes have ranks in the job's world (chief, worker), or not (ps, evaluator, sidecar)."""
    chief: bool = False
    """Rank 0 is here, and under `Completion.CHIEF` its success is the job's."""
    stage: int = 0
    """Containers of a stage are asked for once all tracked tasks of earlier stages have succeeded."""
    after: tuple[str, ...] = ()
    lingers_after: tuple[str, ...] = ()
    """Once all tasks of these roles have succeeded, this role's tasks have `linger_s` left."""
    linger_s: float | None = None
    linger_then: Lingering = Lingering.FAIL
    attempts: int = 3
    ports: int = 1
    sticky_ports: bool = False
    """A restarted task must come back at the same address, or the whole gang restarts."""
    join: Join = Join.NETWORK
    watched: bool = True
    """Silence of its tasks counts towards a hang (servers that only serve are not watched)."""
    registration_s: float | None = 120.0
    startup_s: float | None = 600.0
    hang_s: float | None = None
    run_s: float | None = None
    grace_s: float = 10.0
    """SIGTERM to SIGKILL when the job is stopped or done."""
    restart_grace_s: float = 0.5
    """SIGTERM to SIGKILL for the survivors of a broken gang: a broken collective saves nothing more."""
    save_s: float = 1800.0
    """After its programs' end, how long an attempt's last checkpoint and outputs may take to be saved."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole job."""

    job_id: str
    roles: tuple[RolePlan, ...]
    mode: Mode = Mode.GANG
    completion: Completion = Completion.ALL
    allocation_s: float | None = None
    hold_s: float = 30.0
    total_s: float | None = None
    lease_s: float = 30.0
    """An agent that cannot reach a coordinator for so long ends its programs and itself."""
    give_back_s: float = 30.0
    """At the job's end, a container whose end is not confirmed is not waited for longer."""
    failure_window_s: float = 0.3
    """From the first failure report to its classification: a late report may be the stronger one."""
    reconnect_s: float = 5.0
    """A lost connection is no lost agent before this."""
    takeover_s: float = 20.0
    """How long a new coordinator waits for the agents of its predecessor."""
    elastic_wait_s: float = 3.0
    """An elastic gang that has its minimum waits this long for more before it starts. Before it grows,
    too, and twice as long before each further growth."""
    grow_save_s: float = 60.0
    """How long a gang that is about to grow may take to save the checkpoint it was asked for."""
    checkpoints: bool = False
    """Its programs save checkpoints that Howdah knows of."""
    outputs: bool = False
    """Its programs fill output folders that Howdah copies."""
    backoff_s: float = 1.0
    """Delay before the second restart without progress; doubled each time, with jitter, up to
    `backoff_max_s`. The first comes at once."""
    backoff_max_s: float = 60.0
    retry_limit: int = 20
    """Restarts that do not count against the budget, in a row without progress, before the job ends."""
    progress_s: float = 600.0
    """A unit that had no failure for so long has made progress, as one that saved a checkpoint has."""
    node_faults: int = 3
    """Faults on one node before it is avoided."""
    avoid_s: float = 60.0
    """What could not be had without the avoided nodes by then is asked for again with them."""
    node_fault_s: float = 3600.0
    """A fault so long ago is forgotten."""

    def role(self, name: str) -> RolePlan:
        """The role of that name.

        Raises:
            KeyError: there is none.
        """
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

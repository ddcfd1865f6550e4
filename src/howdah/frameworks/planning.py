"""From a job file to the plan the machine follows: add roles, find problems, fill in rules.

Three pure steps: `expand` makes every role of the job explicit, `problems` says what cannot work,
`plan` puts numbers and policies together. What a user wrote always wins over a framework's default;
a role's value wins over the job's.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from howdah.core.plan import Completion, Join, Plan, RolePlan
from howdah.frameworks import checks, registry, sidecars, tony
from howdah.frameworks.base import (
    INDEPENDENT,
    SIDECAR,
    Framework,
    Problem,
    RoleDefaults,
    processes,
)
from howdah.spec.model import Checkpoint, Duration, Job, Lingering, Mode, Restart, Role, Tracking
from howdah.spec.units import instance_range, seconds

DEFAULT_ROLE = "worker"

T = TypeVar("T")


def expand(job: Job) -> Job:
    """The job with everything written out: helpers, sidecars, framework commands, whose checkpoints.

    A job without roles gets one of a single task (``worker``). Expanding twice changes nothing.

    Raises:
        UnknownFramework: there is no such framework.
    """
    framework = registry.get(job.framework)
    roles = dict(job.roles)
    if not roles:
        roles[DEFAULT_ROLE] = Role()
        job = msgspec.structs.replace(job, roles=roles)
    helpers = {n: role for n, role in framework.helpers(job).items() if n not in roles}
    job = msgspec.structs.replace(job, roles={**helpers, **roles})
    added: dict[str, Role] = {}
    step = sidecars.preprocess_role(job)
    if step is not None and sidecars.PREPROCESS not in roles:
        added[sidecars.PREPROCESS] = step
    for name, role in job.roles.items():
        if role.command is None and (own := framework.command(job, name)) is not None:
            role = msgspec.structs.replace(role, command=own)
        if name == sidecars.TENSORBOARD and role.tracking is None:
            role = msgspec.structs.replace(role, tracking=Tracking.SIDECAR)
        added[name] = role
    board = sidecars.tensorboard_role(job)
    if board is not None and sidecars.TENSORBOARD not in roles:
        added[sidecars.TENSORBOARD] = board
    job = msgspec.structs.replace(job, roles=added)
    if job.checkpoint is not None and job.checkpoint.source is None:
        ranked = any(framework.role(job, name).ranked for name in job.roles)
        source = "chief" if ranked and job.mode is Mode.GANG else "each"
        table = msgspec.structs.replace(job.checkpoint, source=source)
        job = msgspec.structs.replace(job, checkpoint=table)
    return job


def problems(job: Job) -> list[Problem]:
    """What cannot work, all of it; empty if the job can be planned. Takes either form of a job."""
    try:
        expanded = expand(job)
    except registry.UnknownFramework as error:
        return [Problem(key="framework", message=str(error))]
    framework = registry.get(job.framework)
    rules = {name: role_defaults(expanded, name) for name in expanded.roles}
    found = framework.check(expanded)
    known = {problem.key for problem in found}
    # A role that is missing is the reason for much else: one problem a key says enough.
    return found + [p for p in checks.check(expanded, framework, rules) if p.key not in known]


def plan(job: Job, job_id: str, *, lease_s: float = 30.0, give_back_s: float = 30.0) -> Plan:
    """The plan of an expanded job that has no problems; ``lease_s``, for agents, and ``give_back_s`` are
    the backend's."""
    framework = registry.get(job.framework)
    join = _network_join(job)
    stages = _stages(job)
    roles = tuple(_role_plan(job, name, join, stages[name]) for name in job.roles)
    times = job.timeouts
    return Plan(
        job_id=job_id,
        roles=roles,
        mode=job.mode,
        completion=_completion(job, framework, roles),
        allocation_s=seconds(times.allocation),
        hold_s=seconds(times.hold) or 0.0,
        total_s=seconds(times.total),
        lease_s=lease_s,
        give_back_s=give_back_s,
        checkpoints=job.checkpoint is not None,
        outputs=job.outputs is not None and bool(job.outputs.folders),
    )


def _stages(job: Job) -> dict[str, int]:
    """The preprocess step, the roles that prepare, all others: numbered from 0 as there are any."""
    kinds = {name: _kind(job, name) for name in job.roles}
    present = sorted({*kinds.values()})
    return {name: present.index(kind) for name, kind in kinds.items()}


def _kind(job: Job, name: str) -> int:
    if name == sidecars.PREPROCESS and job.preprocess is not None:
        return 0
    return 1 if job.roles[name].prepare else 2


def role_defaults(job: Job, name: str) -> RoleDefaults:
    """What the framework says of a role, after what its ``tracking`` in the job file implies.

    Roles that prepare are no part of the framework: they are gone, or serve, when it begins.
    """
    found = sidecars.defaults(job, name) or registry.get(job.framework).role(job, name)
    if job.roles[name].prepare:
        found = msgspec.structs.replace(INDEPENDENT, ports=max(found.ports, 1))
    tracking = job.roles[name].tracking
    if tracking is None or tracking is found.tracking:
        return found
    if tracking is Tracking.SIDECAR:
        return msgspec.structs.replace(SIDECAR, ports=found.ports)
    return msgspec.structs.replace(found, tracking=tracking)


def _role_plan(job: Job, name: str, network: Join, stage: int) -> RolePlan:
    role = job.roles[name]
    rules = role_defaults(job, name)
    minimum, maximum = instance_range(role.instances)
    linger = role.linger
    return RolePlan(
        name=name,
        minimum=minimum,
        maximum=maximum,
        processes=processes(role),
        tracking=rules.tracking,
        restart=_restart(job, role, rules),
        stop_on_failure=_first(role.stop_on_failure, rules.stop_on_failure),
        tolerated_from=_tolerated_from(job, name, rules),
        ranked=rules.ranked,
        chief=rules.chief,
        stage=stage,
        after=_after(job, role, rules),
        lingers_after=linger.after if linger is not None else (),
        linger_s=seconds(linger.limit) if linger is not None else None,
        linger_then=linger.then if linger is not None else Lingering.FAIL,
        attempts=_first(role.attempts, job.attempts),
        ports=_first(role.ports, _ports(job, name, rules)),
        sticky_ports=rules.sticky_ports,
        join=_join(job, name, rules, network),
        watched=rules.watched,
        registration_s=_limit(role.timeouts.registration, job.timeouts.registration),
        startup_s=_limit(role.timeouts.startup, job.timeouts.startup),
        hang_s=_limit(role.timeouts.hang, job.timeouts.hang),
        run_s=_limit(role.timeouts.run, job.timeouts.run),
        grace_s=_limit(role.timeouts.stop_grace, job.timeouts.stop_grace) or 0.0,
        restart_grace_s=rules.restart_grace_s,
        save_s=save_s(job),
    )


def save_s(job: Job) -> float:
    """How long the last checkpoint and the outputs of a task may take to be saved."""
    table = job.checkpoint or Checkpoint()
    return seconds(table.save_limit) or 0.0


def _restart(job: Job, role: Role, rules: RoleDefaults) -> Restart:
    """The role's word, else the job's, else the framework's.

    The job's ``gang`` does not reach roles that belong to no group (an evaluator, a sidecar); its
    ``never`` does not reach sidecars, which decide nothing.
    """
    if role.restart is not None:
        return role.restart
    if job.restart is None or rules.tracking is Tracking.SIDECAR:
        return rules.restart
    if job.restart is Restart.GANG and not rules.ranked and rules.restart is Restart.TASK:
        return rules.restart
    return job.restart


def _after(job: Job, role: Role, rules: RoleDefaults) -> tuple[str, ...]:
    wanted = dict.fromkeys((*rules.after, *role.after))
    return tuple(name for name in wanted if name in job.roles)


def _ports(job: Job, name: str, rules: RoleDefaults) -> int:
    """What the framework needs, and one more for the chief's own TensorBoard (TonY's TB_PORT).

    Where TensorBoard is a sidecar of the job, the chief needs none.
    """
    chief = name == tony.chief_role(job) if tony.exact(job) else rules.chief
    own_board = chief and sidecars.TENSORBOARD not in job.roles
    return rules.ports + (1 if own_board else 0)


def _join(job: Job, name: str, rules: RoleDefaults, network: Join) -> Join:
    """How a role shows that it is there. One that others wait for must serve before they start, also
    where it has no peers itself."""
    if rules.join is not Join.NETWORK:
        return rules.join
    waited_for = any(
        name in _after(job, other, role_defaults(job, each)) for each, other in job.roles.items()
    )
    return Join.NETWORK if waited_for else network


def _network_join(job: Job) -> Join:
    """A program that may be alone has no peers to prove: then started is enough."""
    peers = 0
    for name, role in job.roles.items():
        rules = role_defaults(job, name)
        if rules.join is not Join.NOW and rules.tracking is not Tracking.SIDECAR:
            peers += instance_range(role.instances)[0] * processes(role)
    return Join.NETWORK if peers > 1 else Join.NOW


def _completion(job: Job, framework: Framework, roles: tuple[RolePlan, ...]) -> Completion:
    """The framework's rule, unless the chief is not tracked: then only all can decide.

    TonY waits for all (``TonySession.updateSessionStatus``).
    """
    if tony.exact(job):
        return Completion.ALL
    chief_decides = any(role.chief and role.tracking is Tracking.TRACKED for role in roles)
    if job.mode is Mode.GANG and chief_decides:
        return framework.completion(job)
    return Completion.ALL


def _limit(own: Duration | None, common: Duration) -> float | None:
    return seconds(common if own is None else own)


def _tolerated_from(job: Job, name: str, rules: RoleDefaults) -> int | None:
    """The chief's failure is never tolerated; it is the first task of its role."""
    if not job.roles[name].tolerate:
        return None
    chief = rules.chief or (tony.exact(job) and name == tony.chief_role(job))
    return 1 if chief else 0


def _first(own: T | None, default: T) -> T:
    return default if own is None else own

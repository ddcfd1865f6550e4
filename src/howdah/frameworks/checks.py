"""What is wrong with a job's roles, whatever the framework: one function a rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from howdah.frameworks import sidecars
from howdah.frameworks.base import Framework, Problem, RoleDefaults, present
from howdah.spec.model import Job, Restart, Role, Tracking
from howdah.spec.units import instance_range, seconds

Rules = Mapping[str, RoleDefaults]
"""Defaults of every role of an expanded job."""

OURS = frozenset(
    "HOWDAH_" + name
    for name in (
        "JOB_ID ROLE INDEX ATTEMPT GENERATION RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE "
        "IS_CHIEF HOST PORTS PORT CLUSTER SHARED_DIR TENSORBOARD_DIR CHECKPOINT_DIR LOG_DIR "
        "OUTPUT_DIR TASK_SOCKET CHECKPOINT_REQUEST RESTORED CONTAINER PYTHON HELPERS"
    ).split()
)
"""Variables Howdah sets itself."""

_ROLE_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?", re.IGNORECASE)


def check(job: Job, framework: Framework, rules: Rules) -> list[Problem]:
    """All problems of an expanded job that no framework needs to know of."""
    found: list[Problem] = []
    found += _tables(job)
    found += _time_limits(job)
    found += _variables("env", job.env)
    for name, role in job.roles.items():
        found += _role(job, framework, name, role, rules[name])
    found += _order(job, rules)
    found += _outcome(job, rules)
    return found


def _role(
    job: Job, framework: Framework, name: str, role: Role, rules: RoleDefaults
) -> Iterator[Problem]:
    key = f"roles.{name}"
    if not _ROLE_NAME.fullmatch(name):
        yield Problem(
            key=key,
            message=f"{name!r} is no role name; use letters, digits, - and _, such as worker.",
        )
    if role.command is None and job.command is None:
        yield Problem(
            key=f"{key}.command",
            message=f"role {name} has nothing to run; give it a command, or give the job one "
            "that all roles run.",
        )
    elif role.command in ("", []) or (role.command is None and job.command in ("", [])):
        yield Problem(
            key=f"{key}.command" if role.command is not None else "command",
            message='the command is empty; write what is to be run, such as "python train.py".',
        )
    yield from _variables(f"{key}.env", role.env)
    yield from _processes(framework, key, role)
    if role.ports is not None and role.ports < rules.ports:
        yield Problem(
            key=f"{key}.ports",
            message=f"a {name} task of {job.framework} needs {rules.ports} "
            f"port{'s' if rules.ports != 1 else ''}, not {role.ports}; leave ports out or raise it.",
        )
    restart = role.restart or job.restart
    tasks = sum(instance_range(r.instances)[1] for r in job.roles.values())
    if restart is Restart.TASK and rules.ranked and tasks > 1 and framework.collective(job):
        yield Problem(
            key=f"{key}.restart" if role.restart is not None else "restart",
            message=f'"task" does not go with {job.framework}: a {name} started again alone '
            "cannot rejoin its peers and hangs. Leave restart out, or use "
            '"gang" or "never"; for independent programs use framework = "command".',
        )


def _processes(framework: Framework, key: str, role: Role) -> Iterator[Problem]:
    if role.processes == "gpus":
        if role.gpus < 1:
            yield Problem(
                key=f"{key}.processes",
                message='"gpus" means one program for each GPU, and the role has none; '
                f"set {key}.gpus or give a number.",
            )
        return
    try:
        number = int(role.processes)
    except ValueError:
        number = 0
    if number < 1:
        yield Problem(
            key=f"{key}.processes",
            message=f'{role.processes!r} is neither a number of at least 1 nor "gpus".',
        )
    elif number > 1 and not framework.many_processes:
        yield Problem(
            key=f"{key}.processes",
            message=f"a task of {framework.name} is one program, not {number}; "
            "use more instances instead.",
        )


def _variables(key: str, env: Mapping[str, str]) -> Iterator[Problem]:
    for name in env:
        if name in OURS:
            yield Problem(
                key=f"{key}.{name}",
                message=f"{name} is set by Howdah for every program; remove it.",
            )


def _tables(job: Job) -> Iterator[Problem]:
    for name, made in (
        (sidecars.PREPROCESS, sidecars.preprocess_role(job)),
        (sidecars.TENSORBOARD, sidecars.tensorboard_role(job)),
    ):
        if made is not None and job.roles[name] != made:
            yield Problem(
                key=f"roles.{name}",
                message=f"the table [{name}] makes a role of this name, and the job has one "
                "of its own; remove either.",
            )


def _time_limits(job: Job) -> Iterator[Problem]:
    if seconds(job.timeouts.hold) is None:
        yield Problem(
            key="timeouts.hold",
            message='"off" would let two jobs each hold a part of the machines for ever; '
            'give a time such as "30s".',
        )
    graces = {"timeouts.stop-grace": job.timeouts.stop_grace}
    for name, role in job.roles.items():
        if role.timeouts.stop_grace is not None:
            graces[f"roles.{name}.timeouts.stop-grace"] = role.timeouts.stop_grace
    for key, value in graces.items():
        if seconds(value) is None:
            yield Problem(
                key=key,
                message='"off" would leave a program that ignores SIGTERM running for ever; '
                'give a time such as "10s".',
            )


def _order(job: Job, rules: Rules) -> Iterator[Problem]:
    """Roles to wait for exist, start in the same stage, and do not wait for each other."""
    for name, role in job.roles.items():
        for other in role.after:
            key = f"roles.{name}.after"
            if other not in job.roles:
                known = ", ".join(r for r in job.roles if r != name) or "none"
                yield Problem(
                    key=key, message=f"there is no role {other!r}; the others are: {known}."
                )
            elif other == name:
                yield Problem(key=key, message=f"role {name} cannot wait for itself; remove it.")
    waits = {
        name: [o for o in (*rules[name].after, *role.after) if o in job.roles and o != name]
        for name, role in job.roles.items()
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = error.args[1]
        yield Problem(
            key=f"roles.{circle[0]}.after",
            message="these roles wait for each other and none would ever start: "
            + " → ".join(circle)
            + "; remove one of the waits.",
        )


def _outcome(job: Job, rules: Rules) -> Iterator[Problem]:
    """Some role must decide how the job ends."""
    deciding = [
        name
        for name in job.roles
        if rules[name].tracking is Tracking.TRACKED
        and name != sidecars.PREPROCESS
        and present(job, name)
    ]
    if not deciding:
        yield Problem(
            key="roles",
            message="no role decides when the job is done: "
            + ", ".join(f"{name} is {rules[name].tracking.value}" for name in job.roles)
            + '. Give one that trains tracking = "tracked" and at least one instance.',
        )

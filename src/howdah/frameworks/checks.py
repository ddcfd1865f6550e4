"""What is wrong with a job's roles once its framework's rules are known: one function a rule.

What is wrong without knowing a framework (names, quantities, folders) is `howdah.spec.checks.rules`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from howdah.frameworks import sidecars
from howdah.frameworks.base import Framework, Problem, RoleDefaults, processes
from howdah.spec.model import Job, Restart, Role, Tracking
from howdah.spec.units import instance_range

Rules = Mapping[str, RoleDefaults]
"""Defaults of every role of an expanded job."""


def check(job: Job, framework: Framework, rules: Rules) -> list[Problem]:
    """All problems of an expanded job that no framework needs to find itself."""
    found = list(_tables(job))
    for name, role in job.roles.items():
        found += _role(job, framework, name, role, rules[name])
    found += _order(job, rules)
    found += _outcome(job, rules)
    return found


def _role(
    job: Job, framework: Framework, name: str, role: Role, rules: RoleDefaults
) -> Iterator[Problem]:
    key = f"roles.{name}"
    if role.command is None and job.command is None:
        yield Problem(
            key=f"{key}.command",
            message=f"role {name} has nothing to run; give it a command, or give the job one "
            "that all such roles run.",
        )
    if processes(role) > 1 and not framework.many_processes:
        yield Problem(
            key=f"{key}.processes",
            message=f"a task of {framework.name} is one program, not {processes(role)}; "
            "use more instances instead.",
        )
    if role.ports is not None and role.ports < rules.ports:
        yield Problem(
            key=f"{key}.ports",
            message=f"a {name} task of {job.framework} needs {rules.ports} "
            f"port{'s' if rules.ports != 1 else ''}, not {role.ports}; leave ports out or raise it.",
        )
    restart = role.restart or job.restart
    tasks = sum(instance_range(job.roles[r].instances)[1] for r in job.roles)
    if restart is Restart.TASK and rules.ranked and tasks > 1 and framework.collective(job):
        yield Problem(
            key=f"{key}.restart" if role.restart is not None else "restart",
            message=f'"task" does not go with {job.framework}: a {name} started again alone '
            'cannot rejoin its peers and hangs. Leave restart out, or use "gang" or "never"; '
            'for independent programs use framework = "command".',
        )


def _stands(job: Job, rules: Rules, name: str) -> str:
    if job.roles[name].prepare:
        return f"{name} only prepares"
    return f"{name} is {rules[name].tracking.value}"


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


def _order(job: Job, rules: Rules) -> Iterator[Problem]:
    """Roles to wait for exist, and do not wait for each other, the framework's own waits included."""
    for name, role in job.roles.items():
        for other in role.after:
            if other not in job.roles:
                known = ", ".join(r for r in job.roles if r != name) or "none"
                yield Problem(
                    key=f"roles.{name}.after",
                    message=f"there is no role {other!r}; the others are: {known}.",
                )
            elif role.prepare and not job.roles[other].prepare:
                yield Problem(
                    key=f"roles.{name}.after",
                    message=f"{name} prepares, and {other} does not: it is started only when {name} "
                    "is done. Leave the wait out, or let both prepare.",
                )
    waits = {
        name: [o for o in (*rules[name].after, *role.after) if o in job.roles and o != name]
        for name, role in job.roles.items()
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = _turned(job, error.args[1][:-1])
        yield Problem(
            key=f"roles.{circle[0]}.after",
            message=" waits for ".join((*circle, circle[0]))
            + ": none of them would ever start; remove one of the waits.",
        )


def _turned(job: Job, circle: list[str]) -> list[str]:
    """A circle of waits from a role on whose wait the job file asks for: the framework's must stay.

    graphlib names what is waited for first; a reader expects "a waits for b".
    """
    circle = circle[::-1]
    for start, name in enumerate(circle):
        if circle[(start + 1) % len(circle)] in job.roles[name].after:
            return circle[start:] + circle[:start]
    return circle


def _outcome(job: Job, rules: Rules) -> Iterator[Problem]:
    """Some role must decide how the job ends."""
    deciding = [
        name
        for name in job.roles
        if rules[name].tracking is Tracking.TRACKED
        and name != sidecars.PREPROCESS
        and not job.roles[name].prepare
    ]
    if not deciding:
        yield Problem(
            key="roles",
            message="no role decides when the job is done: "
            + ", ".join(_stands(job, rules, name) for name in job.roles)
            + '. Give one that trains tracking = "tracked".',
        )

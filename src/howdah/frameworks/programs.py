"""From a topology to the programs of one task: command and environment. Pure.

Environment, later ones winning: a few defaults; the job's ``env``; the role's ``env``; Howdah's own
HOWDAH_* and TonY's names; the framework's. So no ``env`` of a job file can tell a program a wrong
rank or address; `howdah.frameworks.overridden_variables` says which are lost. Hints such as network interfaces
are the framework's only where a job has none.

Linux starts no program with a variable longer than 128 KiB. The addresses of some 5,000 tasks are:
beyond that HOWDAH_CLUSTER and CLUSTER_SPEC are left out, and any other variable is an error.

The agent adds what only it knows: folders of the task, the report socket, devices, PYTHONPATH.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from howdah.core.messages import Member, Task, Topology
from howdah.core.plan import Plan
from howdah.frameworks import addresses, registry, tony
from howdah.frameworks.base import WebPage
from howdah.frameworks.sidecars import is_tensorboard, tensorboard_page
from howdah.spec.model import Command, Job, Mode
from howdah.wire.messages import ProcessSpec

_OPERATORS = re.compile(r"[;|()&]")
_BUILT_INS = frozenset(
    "! . : [ [[ alias bg break case cd command continue do done echo elif else esac eval exec exit "
    "export false fc fg fi for function getopts hash if in jobs kill local printf pwd read "
    "readonly return select set shift source test then time times trap true type ulimit umask "
    "unalias unset until wait while { builtin declare enable let mapfile popd pushd readarray shopt "
    "typeset".split()
)
LONGEST = 128 * 1024
"""Bytes of one environment string, ``NAME=value`` and a zero byte, that Linux accepts
(MAX_ARG_STRLEN)."""

SH = "/bin/sh"
BASH = "/bin/bash"
"""What TonY gives commands to (``Utils.executeShell``), and every NodeManager has."""

HELPERS = str(Path(__file__).with_name("helpers"))
"""Folder of the scripts helper roles run, where this package is installed."""


class VariableTooLong(ValueError):
    """A program can't be started with a variable that long; the text says which one it is."""


class ProgramPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths on the host the programs run on."""

    python: str
    """Interpreter of the user's environment, absolute. Its folder comes first on PATH."""
    bin: str = ""
    """A folder that comes before even that: where the interpreter has another name."""
    path: str = "/usr/local/bin:/usr/bin:/bin"
    """PATH of the host."""
    shared_dir: str
    """A folder all tasks see."""
    tensorboard_dir: str
    """Where summaries go; a path or URL."""
    helpers: str = HELPERS
    container_env: Mapping[str, str] = {}
    """Variables of ``hadoop.container-env``, where no container has them already."""
    application: str = ""
    """The cluster's id of the job, where a cluster runs it."""


def programs(
    job: Job,
    plan: Plan,
    topology: Topology,
    task: Task,
    attempt: int,
    places: ProgramPaths,
    *,
    answer: str | None = None,
    master: tuple[str, int] | None = None,
) -> tuple[ProcessSpec, ...]:
    """The programs of one attempt, one for each of the task's processes.

    ``job`` is the expanded job; ``answer`` is what its preprocess step printed for all programs;
    ``master`` is where the coordinator is at the moment.

    Raises:
        KeyError: the task is not part of the topology.
        MissingPeer: the framework must name a task the topology lacks.
        VariableTooLong: no program can be started with one of its variables.
    """
    member = addresses.member_of(topology, task)
    framework = registry.get(job.framework)
    command = job.roles[task.role].command or job.command
    if command is None:
        raise ValueError(f"role {task.role} has no command")  # planning.problems reports it
    arguments = argv(command, BASH if tony.exact(job) else SH)
    launcher = framework.launcher(job, task.role)
    if launcher is not None:
        arguments = (places.python, os.path.join(places.helpers, launcher), *arguments)
    cluster = _cluster(job, plan, topology, member)
    found: list[ProcessSpec] = []
    for process in range(member.processes):
        env = _defaults(places)
        env |= places.container_env
        env |= job.env
        env |= job.roles[task.role].env
        env |= _howdah(plan, topology, member, process, attempt, places)
        env |= _tony(job, plan, topology, member, process, attempt, places.application)
        env |= cluster
        if answer is not None:
            env["MODEL_PARAMS"] = answer
        if master is not None:
            env |= {"AM_HOST": master[0], "AM_PORT": str(master[1])}
        env |= framework.environment(job, topology, member, process)
        _check_lengths(env, task, len(topology.members))
        label = str(process) if member.processes > 1 else ""
        found.append(ProcessSpec(argv=arguments, env=env, label=label))
    return tuple(found)


def web(job: Job, topology: Topology, task: Task) -> dict[str, Any] | None:
    """What the task serves for the job page, as `howdah.wire.messages.Start.web` wants it."""
    member = addresses.member_of(topology, task)
    page: WebPage | None
    if is_tensorboard(job, task.role):
        page = tensorboard_page(job)
    else:
        page = registry.get(job.framework).page(job, task.role)
    if page is not None and page.port < len(member.ports):
        return {
            "name": page.name,
            "port": member.ports[page.port],
            "keeps_prefix": page.keeps_prefix,
            "locked": page.locked,
        }
    own = _tensorboard_port(job, member)
    if own is not None:
        # Few programs start one themselves.
        return {"name": "TensorBoard", "port": own, "keeps_prefix": False, "expected": False}
    return None


def _defaults(places: ProgramPaths) -> dict[str, str]:
    folders = (places.bin, os.path.dirname(places.python), places.path)
    return {"PYTHONUNBUFFERED": "1", "PATH": os.pathsep.join(filter(None, folders))}


def _cluster(job: Job, plan: Plan, topology: Topology, member: Member) -> dict[str, str]:
    """Where the others are, as far as one variable can hold it. TonY has none in mode each."""
    if job.mode is Mode.GANG:
        text = addresses.cluster_text(job, topology)
        found = {"HOWDAH_CLUSTER": text, "CLUSTER_SPEC": text}
    else:
        found = {"HOWDAH_CLUSTER": addresses.planned_text(job, plan, topology, member)}
    return {name: value for name, value in found.items() if _length(name, value) <= LONGEST}


def _length(name: str, value: str) -> int:
    """Bytes of the environment string."""
    return len(os.fsencode(name)) + len(os.fsencode(value)) + 2


def _check_lengths(env: dict[str, str], task: Task, tasks: int) -> None:
    """Refuse, in words, what Linux would refuse with "Argument list too long"."""
    for name, value in env.items():
        if len(value) >= LONGEST // 8 and (length := _length(name, value)) > LONGEST:
            raise VariableTooLong(
                f"the variable {name} of {task} has {length} bytes, in a job of {tasks} tasks, and "
                f"Linux starts no program with a variable longer than {LONGEST}; use fewer tasks, "
                "or put what is long into a file"
            )


def _howdah(
    plan: Plan,
    topology: Topology,
    member: Member,
    process: int,
    attempt: int,
    places: ProgramPaths,
) -> dict[str, str]:
    task = member.task
    env = {
        "HOWDAH_JOB_ID": plan.job_id,
        "HOWDAH_ROLE": task.role,
        "HOWDAH_INDEX": str(task.index),
        "HOWDAH_ATTEMPT": str(attempt),
        "HOWDAH_GENERATION": str(topology.generation),
        "HOWDAH_WORLD_SIZE": str(topology.world_size),
        "HOWDAH_LOCAL_RANK": str(process),
        "HOWDAH_LOCAL_WORLD_SIZE": str(member.processes),
        "HOWDAH_IS_CHIEF": _truth(_is_chief(member, process)),
        "HOWDAH_HOST": member.host,
        "HOWDAH_PORTS": ",".join(map(str, member.ports)),
        "HOWDAH_SHARED_DIR": places.shared_dir,
        "HOWDAH_TENSORBOARD_DIR": places.tensorboard_dir,
        "HOWDAH_PYTHON": places.python,
        "HOWDAH_HELPERS": places.helpers,
    }
    if member.rank is not None:
        env["HOWDAH_RANK"] = str(member.rank + process)
    if member.ports:
        env["HOWDAH_PORT"] = str(member.ports[0])
    return env


def _tony(
    job: Job,
    plan: Plan,
    topology: Topology,
    member: Member,
    process: int,
    attempt: int,
    application: str,
) -> dict[str, str]:
    """The variables a script written for TonY reads."""
    chief = _is_chief(member, process)
    env = tony.variables(job, plan, topology, member, attempt, chief=chief, application=application)
    port = _tensorboard_port(job, member)
    if is_tensorboard(job, member.task.role) and member.ports:
        port = member.ports[0]
    if port is not None:
        env["TB_PORT"] = str(port)
    return env


def _is_chief(member: Member, process: int) -> bool:
    return member.rank is not None and member.rank + process == 0


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _tensorboard_port(job: Job, member: Member) -> int | None:
    """The chief's spare port, for a TensorBoard that the script starts itself."""
    needed = registry.get(job.framework).role(job, member.task.role).ports
    chief = tony.is_chief(job, member.task) if tony.exact(job) else member.rank == 0
    if chief and len(member.ports) > needed:
        return member.ports[needed]
    return None


def argv(command: Command, shell: str = SH) -> tuple[str, ...]:
    """What to execute. A list is taken as it is; a string is given to the shell.

    Where the string is a single program call, the shell is told to become that program
    (``exec``). So the process Howdah started is the user's own: a signal that ends it is seen as
    that signal, not as the shell's exit code 128 + n.
    """
    if not isinstance(command, str):
        return tuple(command)
    text = command.strip()
    return (shell, "-c", f"exec {text}" if is_single_call(text) else text)


def is_single_call(text: str) -> bool:
    """Whether ``exec`` may be put before the command without changing what it does.

    Decided narrowly: one line, no operator outside quotes that starts a second command, and a
    first word that is a program's name rather than an assignment, keyword or shell built-in.
    """
    if "\n" in text:
        return False
    quoted_away = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "q", text)
    without_duplication = re.sub(r"\d*>&(\d+|-)", "", quoted_away)
    if _OPERATORS.search(without_duplication):
        return False
    try:
        words = shlex.split(text)
    except ValueError:  # an unbalanced quote: the shell will say so in its own words
        return False
    return bool(words) and "=" not in words[0] and words[0] not in _BUILT_INS

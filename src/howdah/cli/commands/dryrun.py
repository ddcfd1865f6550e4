"""``howdah run --dry-run``: what would be started, made by the code that would start it.

Only what chance decides is an example: the job's id, ports and container ids.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from howdah.agent.checkpoints import UNSAVED
from howdah.agent.host.processes import marker
from howdah.agent.launch import AgentLaunch
from howdah.agent.monitoring.pages import PAGE_TOKEN
from howdah.agent.programs import Additions, complete_environment
from howdah.agent.workfolder import TASK, place
from howdah.backends.local import container_paths
from howdah.cli.display.formatting import Paint, wants_colour
from howdah.cli.display.terminal import echo, echo_json
from howdah.client.errors import BadInput, ExitCode
from howdah.client.submission import checks
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.coordinator.agents.launch_specs import LaunchSpecs
from howdah.core.messages import LaunchAgent, StartTask, Task, Topology
from howdah.core.plan import Plan
from howdah.core.ranks import topology
from howdah.core.state import TaskData
from howdah.frameworks import planning
from howdah.spec.load import LoadedJob, substitute_job_id
from howdah.spec.model import Job
from howdah.spec.secrets import references
from howdah.spec.units import instance_range, port_range
from howdah.storage.jobdir import JobDirectory, base_folder, new_job_id, user_name
from howdah.storage.layout import JobMeta
from howdah.version import __version__
from howdah.wire.addresses import AddressError, advertised

EXAMPLE_PORT = 40000
"""The coordinator's: it gets any that is free."""


class DryProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One program (rank) of a task."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    """What Howdah sets of it: the rest is the environment of the machine. Values of ``[secrets]`` are left
    out."""
    rank: int | None


class DryTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task, in one container."""

    task: str
    container: str
    host: str
    ports: tuple[int, ...]
    working_folder: str
    log: str
    programs: tuple[DryProgram, ...]


class DryRole(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all tasks of a role."""

    role: str
    instances: str
    tracking: str
    restart: str
    attempts: int
    after: tuple[str, ...]
    stage: int
    memory: str | None
    cores: int | None
    gpus: int


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--dry-run --json`` prints."""

    job_id: str
    """An example: every run gets its own."""
    directory: str
    source: str | None
    job: Job
    """With all roles written out."""
    plan: Plan
    topology: Topology
    roles: tuple[DryRole, ...]
    tasks: tuple[DryTask, ...]
    notes: tuple[str, ...] = ()
    """What is not honoured where it would run, and what could not be tried from this machine."""


def show(loaded: LoadedJob, backend: str, *, as_json: bool) -> int:
    """Print the dry run of a job. Nothing is started; its stores are tried, and left as they were."""
    run = dry_run(loaded, backend)
    if as_json:
        echo_json(run)
    else:
        paint = Paint(wants_colour(sys.stdout))
        echo("\n".join(describe(run, paint)), color=paint.colour)
    return ExitCode.SUCCEEDED


def dry_run(loaded: LoadedJob, backend: str) -> DryRun:
    """Everything `howdah.client.submission.submit.submit` and the processes it starts would come to.

    Raises:
        BadInput: this host has no address such as the job wants.
        JobFileError: as `howdah.client.submission.submit.submit`.
    """
    job_id = new_job_id(loaded.job.name)
    job = substitute_job_id(planning.expand(loaded.job), job_id)
    notes = checks.check(loaded, job, backend, probe=False) + checks.refused_here(loaded, backend)
    plan = planning.plan(job, job_id)
    directory = JobDirectory(base_folder(job.store) / job_id)
    meta = JobMeta(
        job_id=job_id,
        user=user_name(),
        backend="local",
        submitted=time.time(),
        job_file=str(loaded.path) if loaded.path else None,
        source=str(loaded.source) if loaded.source else None,
        folder=str(loaded.folder),
        howdah=__version__,
    )
    places = container_paths.places_with(job, directory, meta.source)
    unread = dict.fromkeys(references(job), "(secret)")
    specs = LaunchSpecs(job, plan, directory, 0.0, places, ContainerSecrets(None), unread)
    specs.master = ("127.0.0.1", EXAMPLE_PORT)
    members = _example_tasks(job, plan)
    formed = topology(plan, 1, members)
    tasks = [_dry_task(specs, job, formed, data) for data in members]
    planned = {role.name for role in plan.roles}
    return DryRun(
        job_id=job_id,
        directory=str(directory.path),
        source=meta.source,
        job=job,
        plan=plan,
        topology=formed,
        roles=tuple(_dry_role(job, plan, name) for name in job.roles if name in planned),
        tasks=tuple(tasks),
        notes=notes,
    )


def _dry_role(job: Job, plan: Plan, name: str) -> DryRole:
    role, planned = job.roles[name], plan.role(name)
    return DryRole(
        role=name,
        instances=str(role.instances),
        tracking=planned.tracking.value,
        restart=planned.restart.value,
        attempts=planned.attempts,
        after=planned.after,
        stage=planned.stage,
        memory=role.memory,
        cores=role.cores,
        gpus=role.gpus,
    )


def _example_tasks(job: Job, plan: Plan) -> list[TaskData]:
    """All tasks, as they would be when prepared: one after the other through the port range."""
    try:
        host = advertised(job.network.address, job.network.interface, ("127.0.0.1", 0))
    except AddressError as error:
        raise BadInput(str(error)) from error
    port, _ = port_range(job.network.ports)
    tasks: list[TaskData] = []
    for role in plan.roles:
        for index in range(role.maximum):
            ports = tuple(range(port, port + role.ports))
            port += role.ports
            task = Task(role.name, index)
            container = f"c{len(tasks) + 1:04d}"
            tasks.append(
                TaskData(task=task, attempt=1, host=host, ports=ports, container_id=container)
            )
    return tasks


def _dry_task(specs: LaunchSpecs, job: Job, formed: Topology, data: TaskData) -> DryTask:
    container = data.container_id or ""
    launch = specs.launch(LaunchAgent(container_id=container, task=data.task))
    start = specs.start(
        StartTask(container_id=container, task=data.task, attempt=1, topology=formed)
    )
    log = Path(launch.log_dir, f"{data.task.role}-{data.task.index}", "1.log")
    additions = msgspec.structs.replace(_additions(job, launch), log_dir=str(log.parent))
    rank = formed.member(data.task).rank
    return DryTask(
        task=str(data.task),
        container=container,
        host=data.host or "",
        ports=data.ports,
        working_folder=str(Path(launch.work_dir, TASK)),
        log=str(log),
        programs=tuple(
            DryProgram(
                argv=spec.argv,
                environment=_told(spec.env, additions),
                rank=None if rank is None else rank + number,
            )
            for number, spec in enumerate(start.processes)
        ),
    )


def _told(env: Mapping[str, str], additions: Additions) -> dict[str, str]:
    """The variables that the shell does not bring, with the values that they have in it (PATH is added to)."""
    whole = complete_environment(os.environ, env, additions)
    return {name: whole[name] for name in complete_environment({}, env, additions)}


def describe(run: DryRun, paint: Paint) -> list[str]:
    """The dry run for people: job, roles, and every task with what is its own."""
    lines = [f"{paint(run.job.name, bold=True)}: {in_words(run.job)}; nothing was started", ""]
    notes = [note.replace("\n", f"\n{'':17}") for note in run.notes]
    lines += [
        f"  {paint('Job directory', bold=True)}  {run.directory}",
        f"  {paint('Source folder', bold=True)}  {run.source or 'none'}",
        *(f"  {paint('Note', bold=True)}           {note}" for note in notes),
        "",
        *_role_table(run, paint),
    ]
    common = _common(run)
    lines += ["", paint("Environment of every program, besides your own shell's:", bold=True)]
    lines += [f"  {name}={value}" for name, value in sorted(common.items())]
    for task in run.tasks:
        lines += ["", paint(f"{task.task}", "cyan", bold=True)]
        lines.append(f"  in      {task.working_folder}")
        ports = ", ".join(map(str, task.ports))
        lines.append(f"  at      {task.host}" + (f", ports {ports}" if ports else ""))
        lines.append(f"  log     {task.log}")
        for program in task.programs:
            rank = "" if program.rank is None else f"  (rank {program.rank})"
            lines.append(f"  runs    {paint(shlex.join(program.argv), bold=True)}{rank}")
            own = {
                name: value
                for name, value in sorted(program.environment.items())
                if name not in common
            }
            lines += [f"          {name}={value}" for name, value in own.items()]
    return lines


def _common(run: DryRun) -> dict[str, str]:
    """What every program is told with the same value."""
    environments = [program.environment for task in run.tasks for program in task.programs]
    first = environments[0] if environments else {}
    return {
        name: value
        for name, value in first.items()
        if all(e.get(name) == value for e in environments)
    }


def _role_table(run: DryRun, paint: Paint) -> list[str]:
    from howdah.cli.display.formatting import TableColumn, render

    columns = (
        TableColumn("ROLE"),
        TableColumn("INSTANCES", right=True),
        TableColumn("TRACKING"),
        TableColumn("RESTART"),
        TableColumn("ATTEMPTS", right=True),
        TableColumn("AFTER"),
        TableColumn("MEMORY", right=True),
        TableColumn("CORES", right=True),
        TableColumn("GPUS", right=True),
    )
    rows = [
        (
            role.role,
            role.instances,
            role.tracking,
            role.restart,
            str(role.attempts),
            ", ".join(role.after),
            role.memory or "",
            "" if role.cores is None else str(role.cores),
            str(role.gpus) if role.gpus else "",
        )
        for role in run.roles
    ]
    return render(columns, rows, paint, indent="  ")


def in_words(job: Job) -> str:
    """``2 workers and 1 ps, tensorflow``."""
    parts: list[str] = []
    for name, role in planning.expand(job).roles.items():
        least, most = instance_range(role.instances)
        count = str(least) if least == most else f"{least} to {most}"
        plural = "s" if most != 1 and not name.endswith("s") else ""
        parts.append(f"{count} {name}{plural}")
    roles = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return f"{roles}, {job.framework}"


def _additions(job: Job, launch: AgentLaunch) -> Additions:
    """What the task's agent would add."""
    work = Path(launch.work_dir)
    checkpoints = work / UNSAVED
    if job.checkpoint is not None:
        checkpoints = place(work / TASK, job.checkpoint.folder)
    return Additions(
        marker=marker(launch.job_id, launch.container_id),
        checkpoint_dir=str(checkpoints),
        output_dir=str(work / "outputs"),
        log_dir="",
        task_socket=str(work / "task.sock"),
        checkpoint_request=str(work / "checkpoint-request"),
        certificates=(launch.ca, launch.certificate, launch.key),
        page_token_file=str(work / PAGE_TOKEN),
        shared_dir=launch.shared_dir,
        python_path=launch.python_path,
    )

"""The status document: one shape for CLI ``--json``, HTTP API, pages and ``final.json``.

`view` (below, pure) makes it from a `JobState`; the coordinator lays live measurements over it.
Times are seconds since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from howdah.core.causes import KERNEL_KILL, RULES, FailureCause, signal_name
from howdah.core.messages import Exit, Made, Task
from howdah.core.state import Failure, JobPhase, JobState, Outcome, TaskData, TaskState


class _View(msgspec.Struct, frozen=True, kw_only=True): ...


class WebLink(_View, frozen=True, kw_only=True):
    """A page of the job: its name and address relative to the job page."""

    name: str
    href: str


class FailureView(_View, frozen=True, kw_only=True):
    """One failure: what the summary says first."""

    task: str | None
    attempt: int | None
    generation: int
    cause: str
    """A `howdah.core.causes.FailureCause` value such as ``user-code``."""
    what: str
    """``worker:1 exited with code 42``"""
    advice: str
    exit_code: int | None = None
    signal: str | None = None
    time: float = 0.0
    counted: bool = False
    tail: tuple[str, ...] = ()


class TaskView(_View, frozen=True, kw_only=True):
    """One task."""

    task: str
    role: str
    index: int
    state: str
    """A `howdah.core.state.TaskState` value."""
    attempt: int
    generation: int
    rank: int | None = None
    tracking: str = "tracked"
    host: str | None = None
    container: str | None = None
    node: str | None = None
    ports: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    since: float | None = None
    """When it entered its state."""
    started: float | None = None
    joined: bool = False
    exit_code: int | None = None
    signal: str | None = None
    counted: int = 0
    """Failures that count against the restart budget of a task that restarts alone."""
    made: Made | None = None
    """What its last attempt has left in its working folder."""
    last_line: str | None = None
    # Live, absent in a finished job:
    cpu: float | None = None
    rss_mb: float | None = None
    gpu: float | None = None
    gpu_memory_mb: float | None = None
    step: float | None = None
    total: float | None = None
    """Steps in all, as the program reported."""
    left_s: float | None = None
    """Seconds until all steps are made, at the pace of this attempt so far; to two digits."""
    progress_s: float | None = None
    log_size: int | None = None


class JobView(_View, frozen=True, kw_only=True):
    """One job."""

    job_id: str
    name: str
    framework: str
    user: str
    backend: str
    queue: str = ""
    """The cluster's queue that it is in, as the cluster told; empty where it has not, or has none."""
    phase: str
    """A `howdah.core.state.JobPhase` value."""
    outcome: str | None = None
    """succeeded, failed, stopped or timed-out once it is decided."""
    exit_code: int | None = None
    """What ``howdah run`` exits with."""
    reason: str = ""
    """Why, in one line: of the outcome, or of the waiting."""
    pending_reason: str = ""
    """Why containers that are awaited do not come, as far as the backend knows; `reason` has it too."""
    advice: str = ""
    generation: int = 0
    incarnation: int = 0
    restarts: int = 0
    submitted: float | None = None
    started: float | None = None
    """When the first program ran."""
    finished: float | None = None
    tasks: tuple[TaskView, ...] = ()
    failures: tuple[FailureView, ...] = ()
    """Oldest first; the one that ended the job is the one its reason begins with."""
    checkpoint: str | None = None
    """The newest complete one."""
    unsaved: tuple[str, ...] = ()
    """What of its checkpoints, outputs and TensorBoard files is saved nowhere, a line each with task and
    reason; and where outputs are that could not be published."""
    links: tuple[WebLink, ...] = ()
    directory: str = ""
    page: str | None = None
    lost: bool = False
    """It has not ended, and has no coordinator any more. Only a client can find that."""

    @property
    def ending(self) -> bool:
        """Its outcome is decided, and its programs are still being ended or saved."""
        return self.outcome is not None and self.phase == JobPhase.FINISHING.value and not self.lost

    @property
    def over(self) -> bool:
        """It has its outcome, and nothing of it runs any more."""
        return self.outcome is not None and not self.ending

    @property
    def live(self) -> bool:
        """It has a coordinator that can be asked."""
        return not self.over and not self.lost


class JobIdentity(_View, frozen=True, kw_only=True):
    """What the state does not know: who and where."""

    name: str
    framework: str
    user: str
    backend: str
    directory: str
    queue: str = ""


EXIT_CODES = {
    Outcome.SUCCEEDED: 0,
    Outcome.FAILED: 1,
    Outcome.TIMED_OUT: 4,
    Outcome.STOPPED: 130,
}
"""What ``howdah run`` exits with; 2 (bad input) and 3 (backend refused) end before a job exists."""
UNSAVED_CODE = 5
"""The same for a job that succeeded, but not all of whose checkpoints and outputs could be saved."""


def exit_code(outcome: Outcome, unsaved: tuple[str, ...]) -> int:
    """What ``howdah run`` exits with when the job has ended so."""
    if outcome is Outcome.SUCCEEDED and unsaved:
        return UNSAVED_CODE
    return EXIT_CODES[outcome]


def view(state: JobState, identity: JobIdentity) -> JobView:
    """The status document of a state, without live measurements."""
    plan = state.job
    outcome = state.outcome
    unsaved = tuple(getattr(state, "unsaved", ()))
    members = state.topology.members if state.topology is not None else ()
    ranks = {member.task: member.rank for member in members}
    return JobView(
        job_id=plan.job_id,
        name=identity.name,
        framework=identity.framework,
        user=identity.user,
        backend=identity.backend,
        queue=identity.queue,
        directory=identity.directory,
        phase=state.phase.value,
        outcome=outcome.value if outcome else None,
        exit_code=exit_code(outcome, unsaved) if outcome else None,
        reason=state.reason or _waiting_for(state),
        advice=state.advice,
        generation=state.generation,
        incarnation=state.incarnation,
        restarts=state.restarts,
        submitted=state.submitted,
        started=state.started,
        finished=state.finished,
        tasks=tuple(_task_view(state, data, ranks) for data in state.tasks.values()),
        failures=tuple(_failure_view(failure) for failure in state.failures),
        checkpoint=state.checkpoint,
        unsaved=unsaved,
    )


def awaiting_containers(state: JobState) -> list[TaskData]:
    """Tasks whose containers are waited for: before the job runs any, then those that restart alone.

    What an elastic gang would grow by is not waited for.
    """
    asked = [data for data in state.tasks.values() if data.request_id is not None]
    if state.phase is JobPhase.ALLOCATING:
        return asked
    if state.phase in (JobPhase.STARTING, JobPhase.RUNNING):
        return [data for data in asked if str(data.task) in state.units]
    return []


def _waiting_for(state: JobState) -> str:
    """Why nothing runs yet, or a task does not, in one line."""
    if state.phase in (JobPhase.FAILURE_WINDOW, JobPhase.RESTARTING):
        return _waiting_for_saving(state)
    without = [str(data.task) for data in awaiting_containers(state)]
    if without and state.phase is not JobPhase.ALLOCATING:
        return f"waiting for containers: {_some(without)}"
    if state.phase is not JobPhase.ALLOCATING:
        return ""
    launching = [str(d.task) for d in state.tasks.values() if d.state is TaskState.LAUNCHING]
    if state.units["gang"].retry_at is not None:
        return "the gang did not fit; all containers were given back and are asked for again soon"
    parts: list[str] = []
    if without:
        parts.append(f"waiting for containers: {_some(without)}")
    if launching:
        parts.append(f"agents starting: {_some(launching)}")
    return "; ".join(parts)


def _waiting_for_saving(state: JobState) -> str:
    saving = [
        data
        for data in state.tasks.values()
        if data.state is TaskState.STOPPING and data.exit is not None
    ]
    if not saving:
        return ""
    names = _some([str(data.task) for data in saving])
    trouble = next((f": {data.trouble}" for data in saving if data.trouble), "")
    return f"waiting until what was made is saved: {names}{trouble}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _task_view(state: JobState, data: TaskData, ranks: Mapping[Task, int | None]) -> TaskView:
    role = state.job.role(data.task.role)
    container = state.containers.get(data.container_id) if data.container_id else None
    return TaskView(
        task=str(data.task),
        role=data.task.role,
        index=data.task.index,
        state=data.state.value,
        attempt=data.attempt,
        generation=data.generation,
        rank=ranks.get(data.task) if data.member else None,
        tracking=role.tracking.value,
        host=data.host,
        container=data.container_id,
        node=container.node if container else None,
        ports=data.ports,
        pids=data.pids,
        since=data.since,
        started=data.started,
        joined=data.joined,
        exit_code=data.exit.code if data.exit else None,
        signal=signal_name(data.exit.signal) if data.exit and data.exit.signal else None,
        counted=data.counted,
        made=data.exit.made if data.exit else None,
    )


_MISSING = re.compile(
    r"(?:FileNotFoundError|No such file or directory): [^'\"]*['\"](?P<quoted>[^'\"]+)['\"]"
    r"|FileNotFoundError: (?P<bare>\S+) not found"
    r"|(?P<told>[^\s'\":]*[./][^\s'\":]*)['\"]?: No such file or directory"
)
"""Python's words for a file that is not there; NumPy's; those of commands of the system."""


_DENIED = re.compile(r"(?:^|[\s:])(?P<name>[^\s:]+): [Pp]ermission denied$")
"""A shell's words for a command that is not executable."""
_NO_MODULE = re.compile(
    r"No module named '?(?P<name>\w+)(?!.* a package).*[,(] ?Python: (?P<python>[^)]+)"
)
"""In an `Exit.defect`; not of a module that another one of that name hides."""


def _start_advice(exit: Exit, lines: Sequence[str]) -> str | None:
    """What to do about a program that cannot start; None where nothing is known but that."""
    if exit.code == 126 and (found := _DENIED.search("\n".join(lines).strip())):
        name = found["name"]
        by = "python" if name.endswith(".py") else "sh"
        return f"{name} is not executable: `chmod +x {name}`, or start it by its interpreter, such as `{by} {name}`."
    if found := _NO_MODULE.search(exit.defect):
        return (
            f"The Python that ran the program has no module {found['name']}. Install the package that has it "
            f"there (`{found['python']} -m pip install …`), or name it in the requirements of `[environment]`, or a "
            "Python that has it as `environment.python`. A module of your own belongs into the source folder."
        )
    return None


def _missing_file(lines: Sequence[str]) -> str | None:
    """The relative path that a program's end names as not found, if it does."""
    if any("_execute_child" in line for line in lines):  # a program that subprocess was to start
        return None
    for line in reversed([line for line in lines if line.strip()][-3:]):
        if (found := _MISSING.search(line)) and "shared object" not in line:
            name = found["quoted"] or found["bare"] or found["told"]
            return None if name.startswith(("/", "~")) or ":" in name else name
    return None


def _advice(failure: Failure) -> str:
    """What to do about that failure."""
    cause, exit, role = failure.report.cause, failure.report.exit, failure.report.task.role
    if cause is FailureCause.USER_CODE and exit is not None and exit.port is not None:
        return (
            f"Port {exit.port} was in use. Howdah did not reserve it: the program chose it itself, "
            "and two programs on one machine can't have the same port. Use `HOWDAH_PORT`, which is "
            "each task's own, or ask for more with the role's `ports` and read `HOWDAH_PORTS`."
        )
    if cause is FailureCause.USER_CODE and (missing := _missing_file(failure.lines)) is not None:
        return (
            f"{missing} is not where the program ran: in a copy of the source folder, unless the job is "
            "in-place. Name the file under `files`, which puts it beside the program, or give an absolute path "
            "that each machine of the job has. On this machine alone, `howdah run --in-place` runs the "
            "program in the source folder itself. To a cluster goes what no .gitignore leaves out: `howdah pack`."
        )
    if cause is FailureCause.START_FAILED and exit is not None:
        return _start_advice(exit, failure.lines) or RULES[cause].advice
    if cause is FailureCause.OUT_OF_MEMORY:
        less = "lower the batch size or the number of data-loading workers"
        if exit is None or KERNEL_KILL not in exit.detail:
            return f"Raise `roles.{role}.memory`, which limits each of the role's containers, or {less}."
        return (
            f"The kernel found no memory left. On YARN, raise `roles.{role}.memory`; in Spark's executors, "
            "`spark.executor.memoryOverhead`; on one machine, run fewer tasks at once, or raise the limit of "
            f"the container or session that Howdah runs in. Or {less}."
        )
    return RULES[cause].advice


def _failure_view(failure: Failure) -> FailureView:
    report = failure.report
    exit = report.exit
    return FailureView(
        task=str(report.task),
        attempt=report.attempt,
        generation=report.generation,
        cause=report.cause.value,
        what=report.what,
        advice=_advice(failure),
        exit_code=exit.code if exit else None,
        signal=signal_name(exit.signal) if exit and exit.signal else None,
        time=report.time,
        counted=failure.counted,
        tail=failure.lines,
    )

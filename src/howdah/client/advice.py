"""What a job could do better with what it was given: one small rule for each kind of waste. Pure.

A rule is given what was measured (`Evidence`) and says what it found, with the figures it used. It says
nothing where too little was measured. `howdah.client.advice_inputs` reads a job's directory.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

ENOUGH_SAMPLES = 3
"""Measurements of a task below which nothing is said of its use of cores or GPUs."""


class Severity(enum.IntEnum):
    """How much is wasted."""

    LOW = 1
    MODERATE = 2
    SEVERE = 3
    CRITICAL = 4


class RoleUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a role's tasks asked for, and used."""

    role: str
    tasks: int
    memory_mb: int | None = None
    """Asked for by each; None: no limit."""
    cores: int | None = None
    gpus: int = 0
    peak_memory_mb: float | None = None
    """The most that any of its tasks has used."""
    busy_cores: float | None = None
    """Mean of the task that used most."""
    busy_gpus: float | None = None
    """Mean utilisation of the task that used them most, 0 to 1."""
    step_rates: dict[str, float] = {}
    """Steps a second, by task, of those that report them."""


class StartPhase(msgspec.Struct, frozen=True):
    """A part of the time before the job's programs worked."""

    name: str
    seconds: float


class RestartCause(msgspec.Struct, frozen=True, kw_only=True):
    """A failure after which tasks were started again."""

    cause: str
    task: str | None
    what: str
    lost_s: float
    """Since the newest checkpoint, or since the programs began without one; 0 where the checkpoint that the
    tasks went on from was saved while there was no coordinator."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a job."""

    roles: tuple[RoleUse, ...] = ()
    took_s: float = 0.0
    """From its submission to its end, or until now."""
    start: tuple[StartPhase, ...] = ()
    """What came before its programs worked, in order."""
    restarts: tuple[RestartCause, ...] = ()
    has_checkpoint: bool = False
    """The job file has a ``[checkpoint]``."""
    checkpoints: tuple[float, ...] = ()
    """When each was complete, in seconds since the submission."""
    checkpoint_bytes: int = 0
    """Of all of them."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found."""

    rule: str
    """Its stable name, such as ``memory-over-asked``."""
    severity: Severity
    score: float
    """Severity times the tasks concerned: by this, findings are sorted."""
    text: str
    """What was found, with the figures."""
    change: str
    """What to do: a line of the job file where there is one."""
    figures: dict[str, float]
    """What the rule used, with units in the names."""


# -- memory ----------------------------------------------------------------------------------------

MEMORY_USED = (
    (0.5, Severity.CRITICAL),
    (0.6, Severity.SEVERE),
    (0.7, Severity.MODERATE),
    (0.8, Severity.LOW),
)
"""TonY's: the largest part of the memory asked for that was used, and how severe less than that is."""
MEMORY_SMALL_MB = 2048
"""TonY's: who asks for no more is never told to ask for less."""
MEMORY_SLACK_MB = 2 * 1024
"""TonY's: twice YARN's default smallest container above what was used is no waste."""
MEMORY_TIGHT = 0.9
"""Of the memory asked for; a task that used more is near its end."""


def memory_over_asked(evidence: Evidence) -> Iterator[Finding]:
    """Less than 80 % of the memory was used, by more than 2 GiB, of more than 2 GiB."""
    for use in evidence.roles:
        if use.memory_mb is None or use.peak_memory_mb is None:
            continue
        part = use.peak_memory_mb / use.memory_mb
        severity = next((each for limit, each in MEMORY_USED if part <= limit), None)
        too_little = use.memory_mb <= max(MEMORY_SMALL_MB, use.peak_memory_mb + MEMORY_SLACK_MB)
        if severity is None or too_little:
            continue
        enough = _rounded(use.peak_memory_mb * 1.2)
        yield _finding(
            "memory-over-asked",
            severity,
            use,
            f"{_tasks(use)} used at most {_mib(use.peak_memory_mb)} of the {_mib(use.memory_mb)} "
            f"that each asked for ({part:.0%})",
            f'roles.{use.role}.memory = "{enough}m"',
            asked_mb=use.memory_mb,
            peak_mb=use.peak_memory_mb,
        )


def memory_under_asked(evidence: Evidence) -> Iterator[Finding]:
    """More than 90 % of the memory was used: a little more, and the task is ended."""
    for use in evidence.roles:
        if use.memory_mb is None or use.peak_memory_mb is None:
            continue
        part = use.peak_memory_mb / use.memory_mb
        if part <= MEMORY_TIGHT:
            continue
        yield _finding(
            "memory-under-asked",
            Severity.SEVERE,
            use,
            f"{_tasks(use)} used up to {_mib(use.peak_memory_mb)} of {_mib(use.memory_mb)} "
            f"({part:.0%}): past that limit a task is ended",
            f'roles.{use.role}.memory = "{_rounded(use.peak_memory_mb * 1.25)}m"',
            asked_mb=use.memory_mb,
            peak_mb=use.peak_memory_mb,
        )


# -- cores and GPUs --------------------------------------------------------------------------------

CORES_USED = 0.5
"""Of the cores asked for: who uses less, and a whole core less, is told."""
GPU_USED = 0.3
"""Mean utilisation below which GPUs count as idle."""
GPU_STARVED = 0.6
"""Below this, with all cores busy, the input is what is waited for."""
CORES_BUSY = 0.9


def cores_idle(evidence: Evidence) -> Iterator[Finding]:
    """Less than half of the cores was used, and at least one whole core was idle."""
    for use in evidence.roles:
        if use.cores is None or use.busy_cores is None:
            continue
        needed = max(1, math.ceil(use.busy_cores))
        if use.busy_cores >= CORES_USED * use.cores or use.cores - needed < 1:
            continue
        yield _finding(
            "cores-idle",
            Severity.LOW if use.busy_cores >= CORES_USED / 2 * use.cores else Severity.MODERATE,
            use,
            f"{_tasks(use)} kept {use.busy_cores:.1f} of {use.cores} cores busy",
            f"roles.{use.role}.cores = {needed}",
            asked_cores=use.cores,
            busy_cores=use.busy_cores,
        )


def gpu_idle(evidence: Evidence) -> Iterator[Finding]:
    """GPUs were used for less than 30 %, or less than 60 % while all cores were busy."""
    for use in evidence.roles:
        if not use.gpus or use.busy_gpus is None:
            continue
        starved = (
            use.busy_gpus < GPU_STARVED
            and use.cores is not None
            and use.busy_cores is not None
            and use.busy_cores >= CORES_BUSY * use.cores
        )
        if not starved and use.busy_gpus >= GPU_USED:
            continue
        text = f"the GPUs of {_tasks(use)} were used for {use.busy_gpus:.0%}"
        change = "give each step more work (a larger batch), or load data in more processes"
        if starved and use.cores is not None:
            text += f" while all {use.cores} cores were busy: they wait for input"
            change = f"roles.{use.role}.cores = {2 * use.cores}"
        yield _finding(
            "gpu-starved" if starved else "gpu-idle",
            Severity.SEVERE if use.busy_gpus >= GPU_USED / 3 else Severity.CRITICAL,
            use,
            text,
            change,
            gpus=use.gpus,
            busy_gpus=use.busy_gpus,
        )


# -- time ------------------------------------------------------------------------------------------

STRAGGLER = 0.7
"""Of the median rate of a role's tasks; a slower one holds the others up."""
STRAGGLER_TASKS = 3
"""Tasks below which there is no telling who is slow."""
SLOW_START = 1 / 3
"""Of the job's whole time."""
SLOW_START_S = 10.0
"""A start that is shorter is not slow."""


def stragglers(evidence: Evidence) -> Iterator[Finding]:
    """A task made less than 70 % of the steps a second that its role's median made."""
    for use in evidence.roles:
        if len(use.step_rates) < STRAGGLER_TASKS:
            continue
        median = statistics.median(use.step_rates.values())
        slow = {task: rate for task, rate in use.step_rates.items() if rate < STRAGGLER * median}
        if not slow:
            continue
        slowest = min(slow, key=lambda task: slow[task])
        others = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
        yield _finding(
            "straggler",
            Severity.SEVERE if slow[slowest] < STRAGGLER / 2 * median else Severity.MODERATE,
            use,
            f"{slowest}{others} made {slow[slowest]:.3g} steps a second, the median of role "
            f"{use.role} is {median:.3g}",
            f"look at its share of the data and at its node: howdah stack, howdah logs {slowest}",
            slowest_steps_s=slow[slowest],
            median_steps_s=median,
        )


def slow_start(evidence: Evidence) -> Iterator[Finding]:
    """A third of the time, and more than 10 s, went by before the programs worked."""
    total = sum(phase.seconds for phase in evidence.start)
    if total < SLOW_START_S or total < SLOW_START * evidence.took_s:
        return
    longest = max(evidence.start, key=lambda phase: phase.seconds)
    parts = ", ".join(f"{each.name} {each.seconds:.1f} s" for each in evidence.start)
    yield Finding(
        rule="slow-start",
        severity=Severity.MODERATE if total < 2 * SLOW_START * evidence.took_s else Severity.SEVERE,
        score=Severity.MODERATE * max(sum(use.tasks for use in evidence.roles), 1),
        text=f"{total:.1f} s of {evidence.took_s:.1f} s went by before the programs worked: {parts}",
        change=_START_REMEDY[longest.name],
        figures={"start_s": total, "took_s": evidence.took_s, "longest_s": longest.seconds},
    )


COORDINATOR, CONTAINERS, AGENTS, PREPARING, PROGRAMS = (
    "coordinator",
    "containers",
    "agents",
    "preparing",
    "programs",
)
"""Phases of a start: waiting for each to be there; the programs' own until they meet or report."""
_START_REMEDY = {
    COORDINATOR: "the cluster was slow to start it: another `queue`, or a smaller [master]",
    CONTAINERS: "the job waited for room: fewer or smaller tasks, or another `queue`",
    AGENTS: "shipped archives took long: less in [environment] and files (howdah pack shows them)",
    PREPARING: "checkpoints and files took long to come: checkpoint.keep does not help, a store "
    "that is nearer does",
    PROGRAMS: "the programs took that long to import and load: import less, load data lazily",
}


# -- checkpoints and restarts ----------------------------------------------------------------------

LOST = 0.25
"""Of the job's time: more that is done again is too much."""
LOST_S = 5.0
COSTLY_EVERY_S = 10.0
"""Checkpoints that follow each other faster are more than any failure makes up for."""
COSTLY_NUMBER = 5
COSTLY_MB = 10.0
"""In all: smaller ones cost next to nothing."""
REPEATED = 3
"""Restarts for the same reason after which one more will not help."""


def checkpoint_too_rare(evidence: Evidence) -> Iterator[Finding]:
    """A quarter of the time, and more than 5 s, was lost with failures since the last checkpoint."""
    lost = sum(failure.lost_s for failure in evidence.restarts)
    if lost < LOST_S or lost < LOST * evidence.took_s:
        return
    times = len(evidence.restarts)
    change = f"save a checkpoint about every {max(lost / times / 4, 1):.0f} s"
    if not evidence.has_checkpoint:
        change = '[checkpoint] with folder = "checkpoints", and save to it'
    yield Finding(
        rule="checkpoint-too-rare",
        severity=Severity.SEVERE if lost >= 2 * LOST * evidence.took_s else Severity.MODERATE,
        score=Severity.MODERATE * max(sum(use.tasks for use in evidence.roles), 1),
        text=f"{lost:.1f} s of {evidence.took_s:.1f} s were lost in {times} "
        f"restart{'s' if times > 1 else ''}: what came after the last checkpoint is done again",
        change=change,
        figures={"lost_s": lost, "took_s": evidence.took_s, "restarts": times},
    )


def checkpoint_too_costly(evidence: Evidence) -> Iterator[Finding]:
    """At least five checkpoints, 10 MB in all, followed each other within less than 10 s on average."""
    saved = evidence.checkpoints
    megabytes = evidence.checkpoint_bytes / 1e6
    if len(saved) < COSTLY_NUMBER or megabytes < COSTLY_MB:
        return
    every_s = (saved[-1] - saved[0]) / (len(saved) - 1)
    if every_s >= COSTLY_EVERY_S:
        return
    yield Finding(
        rule="checkpoint-too-costly",
        severity=Severity.LOW if megabytes < 1000 else Severity.MODERATE,
        score=Severity.LOW,
        text=f"a checkpoint was saved every {every_s:.1f} s: {len(saved)} of them, "
        f"{megabytes:.1f} MB in all, each written, copied and hashed",
        change=f"save less often than every {COSTLY_EVERY_S:.0f} s",
        figures={
            "every_s": every_s,
            "checkpoints": len(saved),
            "megabytes": megabytes,
        },
    )


def repeated_restarts(evidence: Evidence) -> Iterator[Finding]:
    """The same task failed for the same reason three times."""
    reasons = Counter((each.task, each.what, each.cause) for each in evidence.restarts)
    if not reasons:
        return
    (task, what, cause), times = reasons.most_common(1)[0]
    if times < REPEATED:
        return
    yield Finding(
        rule="repeated-restarts",
        severity=Severity.SEVERE,
        score=Severity.SEVERE * max(sum(use.tasks for use in evidence.roles), 1),
        text=f"{times} restarts for the same reason: {what} [{cause}]",
        change=f"it fails the same way each time: howdah logs {task or ''}".rstrip()
        + "; attempts = 1 shows it sooner",
        figures={"restarts": times},
    )


RULES: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    memory_over_asked,
    memory_under_asked,
    cores_idle,
    gpu_idle,
    stragglers,
    slow_start,
    checkpoint_too_rare,
    checkpoint_too_costly,
    repeated_restarts,
)


def advise(evidence: Evidence) -> list[Finding]:
    """What all rules find, the worst first."""
    found = [finding for rule in RULES for finding in rule(evidence)]
    return sorted(found, key=lambda each: (-each.severity, -each.score, each.rule))


def _finding(
    rule: str, severity: Severity, use: RoleUse, text: str, change: str, **figures: float
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        score=severity * use.tasks,
        text=text,
        change=change,
        figures=figures,
    )


def _tasks(use: RoleUse) -> str:
    return f"{use.role}:0" if use.tasks == 1 else f"the {use.tasks} tasks of role {use.role}"


def _mib(amount: float) -> str:
    return f"{amount:.0f} MiB" if amount < 10240 else f"{amount / 1024:.1f} GiB"


def _rounded(megabytes: float) -> int:
    """To 64 MiB."""
    return max(64, math.ceil(megabytes / 64) * 64)

"""Causes of failure: how strong a report of each is, whether it counts, what to tell the user.

A generation seldom ends with one report: a lost node is noticed last, after its peers' connection
errors. So reports are collected for a while and the strongest one names the cause.
"""

from __future__ import annotations

import enum
import signal as signals

import msgspec

from howdah.core.messages import ContainerEndKind, Exit


class FailureCause(enum.Enum):
    """Why something failed."""

    NODE_LOST = "node-lost"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out-of-memory"
    LAUNCH_FAILED = "launch-failed"
    COORDINATOR_LOST = "coordinator-lost"
    AGENT_LOST = "agent-lost"
    SIGNAL = "signal"
    PORT_HIJACKED = "port-hijacked"
    PORT_TAKEN = "port-taken"
    HANG = "hang"
    RUN_TIMEOUT = "run-time-out"
    STARTUP_TIMEOUT = "start-up-time-out"
    NOT_READY = "not-ready"
    START_FAILED = "start-failed"
    USER_CODE = "user-code"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One cause's rules."""

    strength: int
    """The strongest report of a generation's end is its cause; equals are ranked by time."""
    counted: bool
    """Counts against the restart budget (`attempts`). What does not count backs off all the same."""
    free: int | None = None
    """Of one that does not count: so many of a unit, later ones do; None: all, as long as no more
    than `Plan.retry_limit` come in a row without progress."""
    again: bool = True
    """May be tried again at all."""
    node_fault: bool = False
    """Counts against the node."""
    advice: str


RULES: dict[FailureCause, Rule] = {
    FailureCause.NODE_LOST: Rule(
        strength=90,
        counted=False,
        node_fault=True,
        advice="The machine went away; nothing in the job is at fault. If one node is lost again "
        "and again, tell its administrators.",
    ),
    FailureCause.PREEMPTED: Rule(
        strength=85,
        counted=False,
        advice="The cluster took the container back for another queue. Checkpoint often, or run in "
        "a queue that is not preempted.",
    ),
    FailureCause.OUT_OF_MEMORY: Rule(
        strength=80,
        counted=True,
        advice="The task needed more memory than its container has. Raise the role's `memory`, or "
        "lower the batch size or the number of data-loading workers.",
    ),
    FailureCause.LAUNCH_FAILED: Rule(
        strength=70,
        counted=False,
        node_fault=True,
        advice="The container's agent could not be started or did not register. Its diagnostics "
        "are above; `howdah doctor` checks what a node needs.",
    ),
    FailureCause.COORDINATOR_LOST: Rule(
        strength=65,
        counted=False,
        advice="The container ended while no coordinator lived. Nothing in the job is at fault.",
    ),
    FailureCause.AGENT_LOST: Rule(
        strength=60,
        counted=False,
        node_fault=True,
        advice="The agent beside the task died or fell silent, so its program was ended. If it "
        "repeats, look for memory pressure on the node or something that kills processes there.",
    ),
    FailureCause.SIGNAL: Rule(
        strength=50,
        counted=True,
        advice="Something outside Howdah sent the signal: a person, the kernel's out-of-memory "
        "killer (see the node's kernel log), or a supervisor of the machine.",
    ),
    FailureCause.PORT_HIJACKED: Rule(
        strength=47,
        counted=True,
        advice="Another user of the machine listens on a port that was reserved for the task, and may "
        "have talked to its peers. Ask that user, or an administrator. Set `[network] ports` to a range "
        "that nobody else uses, or run on machines of your own.",
    ),
    FailureCause.PORT_TAKEN: Rule(
        strength=45,
        counted=False,
        free=3,  # chance brings one; who brings more shall not restart a job for nothing
        advice="Another program took a port that Howdah had reserved. New ports are chosen at each "
        "restart; if it repeats, give Howdah a range of its own with `[network] ports`.",
    ),
    FailureCause.NOT_READY: Rule(
        strength=42,
        counted=False,
        advice="What the task needs before its program can start was not there, and may come back: "
        "see the reason. It was tried again with growing pauses; if the store, the disk or the ports "
        "are still missing, mend that and `howdah rerun --resume`.",
    ),
    FailureCause.HANG: Rule(
        strength=40,
        counted=True,
        advice="No output, report or checkpoint came for the hang limit. The stacks of all ranks "
        "show where each one stood; a rank that stands elsewhere than its peers is the suspect. "
        "Raise `[timeouts] hang` if the silence was work.",
    ),
    FailureCause.RUN_TIMEOUT: Rule(
        strength=40,
        counted=True,
        advice="If the work only needs longer, raise the `run` time-out (`timeout` of a "
        "`[preprocess]` step); if not, its last lines show how far it came.",
    ),
    FailureCause.STARTUP_TIMEOUT: Rule(
        strength=40,
        counted=True,
        again=False,
        advice="The named tasks never met their peers. Look at their logs: a program that does "
        "other work first, waits for input, or never sets up its framework looks like this. Raise "
        "`[timeouts] startup` if it was only slow.",
    ),
    FailureCause.START_FAILED: Rule(
        strength=30,
        counted=True,
        again=False,
        advice="The program cannot run as it is, so it is not tried again. Check the command, the "
        "interpreter and its packages, and the source folder with `howdah run --dry-run`.",
    ),
    FailureCause.USER_CODE: Rule(
        strength=30,
        counted=True,
        advice="The program ended with an error. Its last lines are shown; the whole log is one "
        "`howdah logs` away.",
    ),
}

KERNEL_KILL = "the kernel's out-of-memory killer ended it"
"""Begins an `Exit.detail`: not the agent ended it, at the role's ``memory``."""

_OWN_SIGNALS = frozenset(
    {
        signals.SIGABRT,
        signals.SIGSEGV,
        signals.SIGBUS,
        signals.SIGFPE,
        signals.SIGILL,
        signals.SIGPIPE,
    }
)
"""What a program brings upon itself (an assertion, a crash, a write to a peer that has gone), often
as a secondary failure of a lost peer."""

_NOT_STARTED = {126: "cannot be executed", 127: "was not found"}
"""Exit codes of a POSIX shell for a command it could not run."""


def of_exit(exit: Exit) -> FailureCause:
    """The class of a failed attempt, from its exit alone."""
    if exit.out_of_memory:
        return FailureCause.OUT_OF_MEMORY
    if exit.port_owner:
        return FailureCause.PORT_HIJACKED
    if exit.port_taken:
        return FailureCause.PORT_TAKEN
    if exit.failed_to_start and exit.transient:
        return FailureCause.NOT_READY
    if exit.failed_to_start or exit.code in _NOT_STARTED or exit.defect_certain:
        return FailureCause.START_FAILED
    if exit.timed_out:
        return FailureCause.RUN_TIMEOUT
    number = _signal_of(exit)
    if number is not None and number not in _OWN_SIGNALS:
        return FailureCause.SIGNAL
    return FailureCause.USER_CODE


_MAY_BE_PREEMPTED = (ContainerEndKind.EXITED, ContainerEndKind.RELEASED, ContainerEndKind.NODE_LOST)
"""Kinds of an end that a preemption may look like; the others say themselves why."""


def of_container(kind: ContainerEndKind, preempting: bool) -> FailureCause:
    """The class of a container's end that nobody asked for; ``preempting``: that was announced."""
    if kind is ContainerEndKind.PREEMPTED or (preempting and kind in _MAY_BE_PREEMPTED):
        return FailureCause.PREEMPTED
    return {
        ContainerEndKind.NODE_LOST: FailureCause.NODE_LOST,
        ContainerEndKind.OUT_OF_MEMORY: FailureCause.OUT_OF_MEMORY,
        ContainerEndKind.LAUNCH_FAILED: FailureCause.LAUNCH_FAILED,
    }.get(kind, FailureCause.AGENT_LOST)


def describe_exit(exit: Exit, run_s: float | None = None) -> str:
    """``exited with code 42``, ``was killed by SIGKILL``, …: goes after the task's name.

    ``run_s`` is the task's run time-out in seconds.
    """
    if exit.failed_to_start:
        return f"could not start: {exit.failed_to_start}"
    if exit.port_owner:
        return f"lost its port {exit.port} to another user of the machine: {exit.port_owner} listens on it"
    if exit.port_taken and exit.code is None and exit.signal is None:
        return "could not start" + _port_taken(exit)
    if exit.out_of_memory:
        return "ran out of memory" + (f" ({exit.detail})" if exit.detail else "")
    if exit.timed_out:
        return "ran longer than its run time-out" + (f" of {run_s:g}s" if run_s else "")
    if exit.code in _NOT_STARTED:
        return f"exited with code {exit.code}: its command {_NOT_STARTED[exit.code]}"
    number = _signal_of(exit)
    if number is not None:
        name = signal_name(number)
        how = f"'s user process was killed ({name})"
        if exit.code is not None:
            how += f": its shell exited with code {exit.code}"
        return how
    error = exit.defect or exit.exception
    return f"exited with code {exit.code}" + (f": {error}" if error else "") + _port_taken(exit)


def _port_taken(exit: Exit) -> str:
    number = "" if exit.port is None else f" {exit.port}"
    if exit.port_taken:
        why = f" ({exit.detail})" if exit.detail and exit.code is not None else ""
        return f": the port{number} that was reserved for it was taken{why}"
    if exit.port is not None:
        return f": it could not bind port{number}, which it chose itself and which is in use"
    return ""


def name_and(task: object, what: str) -> str:
    """A task's name and what became of it, as one sentence."""
    return f"{task}{what}" if what.startswith("'") else f"{task} {what}"


def _signal_of(exit: Exit) -> int | None:
    if exit.signal is not None:
        return exit.signal
    # A shell reports a signalled child as 128 + number; only these are ever sent from outside.
    if exit.code in (128 + signals.SIGKILL, 128 + signals.SIGTERM):
        return exit.code - 128
    return None


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"

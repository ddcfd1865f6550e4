"""Why a container ended: YARN's exit status and diagnostics, as the machine's words. Pure."""

from __future__ import annotations

import re

from howdah.core.messages import ContainerEndKind
from howdah.hadoop.ids import ContainerId

# ContainerExitStatus
INVALID = -1000
ABORTED = -100
DISKS_FAILED = -101
PREEMPTED = -102
KILLED_EXCEEDED_VMEM = -103
KILLED_EXCEEDED_PMEM = -104
KILLED_BY_APPMASTER = -105
KILLED_BY_RESOURCEMANAGER = -106
KILLED_AFTER_APP_COMPLETION = -107
KILLED_BY_CONTAINER_SCHEDULER = -108
KILLED_FOR_EXCESS_LOGS = -109

CANNOT_RUN = 126
NOT_FOUND = 127
"""What a shell returns for a program that it can't start, or that is not there."""
BOOT_FAILED = 90
"""`howdah.backends.yarn.boot` could not become an agent, and has said why on its standard error."""

DETAIL_CHARS = 3000
"""Of diagnostics, the end of which says most, are kept."""

_MEMORY = re.compile(r"\bCurrent usage: (.*?)\.(?= Killing container|$)", re.MULTILINE)
_PROCESS = re.compile(r"^\s*\|- \d+ \d+ \d+ \d+ \((.*?)\) \d+ \d+ \d+ (\d+) (.*)$", re.MULTILINE)
"""A line of the NodeManager's dump of a container's processes: name, resident pages, command line."""
_LARGEST = 3
_COMMAND_CHARS = 40

_LOST = re.compile(r"\blost\b", re.IGNORECASE)
_NOISE = re.compile(
    r"""^(
        \[[-\d\s:.,]+\]\s*$
        | (\[[^]]*\]\s*)?Exception\ from\ container-launch\.?\s*$
        | Container\ id:\ .*
        | Shell\ output:\ .*
        | \s+at\ [\w.$/]+\(.*\)\s*
        | .*\bPrivilegedOperationException\b.*
        | (\[[^]]*\]\s*)?Last\ \d+\ bytes\ of\ \S+\ :\s*$
        | (\[[^]]*\]\s*)?Container\ exited\ with\ a\ non-zero\ exit\ code\ \d+\.\s*(Error\ file:.*)?$
        | For\ more\ detailed\ output,\ check\ the\ application\ tracking\ page.*
        | \s*
    )$""",
    re.VERBOSE,
)


def is_proof(status: int) -> bool:
    """Whether the status is the node's own, so that the container's processes have ended. The
    ResourceManager makes up these: of lost nodes, released and preempted containers."""
    return status not in (ABORTED, PREEMPTED)


def kind(status: int, diagnostics: str, *, releasing: bool) -> ContainerEndKind:
    """What a completed container's status means; ``releasing``: we had given it back."""
    if releasing and status not in (PREEMPTED, KILLED_EXCEEDED_VMEM, KILLED_EXCEEDED_PMEM):
        return ContainerEndKind.RELEASED
    match status:
        case 0:
            return ContainerEndKind.EXITED
        case _ if status == PREEMPTED:
            return ContainerEndKind.PREEMPTED
        case _ if status in (KILLED_EXCEEDED_VMEM, KILLED_EXCEEDED_PMEM):
            return ContainerEndKind.OUT_OF_MEMORY
        case _ if status == KILLED_BY_CONTAINER_SCHEDULER:
            return ContainerEndKind.PREEMPTED
        case _ if status == DISKS_FAILED:
            return ContainerEndKind.NODE_LOST
        case _ if status == ABORTED:
            # "Container released on a *lost* node"; else it expired, or a scheduler took it back.
            if _LOST.search(diagnostics):
                return ContainerEndKind.NODE_LOST
            return ContainerEndKind.RELEASED
        case _ if status == KILLED_BY_RESOURCEMANAGER:
            return ContainerEndKind.PREEMPTED
        case _ if status in (INVALID, CANNOT_RUN, NOT_FOUND, BOOT_FAILED):
            return ContainerEndKind.LAUNCH_FAILED
        case _:
            return ContainerEndKind.EXITED


def detail(status: int, diagnostics: str) -> str:
    """What people want to read of it: the status in words, and diagnostics without their frame."""
    words = _WORDS.get(status) or f"exit status {status}"
    over_memory = status in (KILLED_EXCEEDED_VMEM, KILLED_EXCEEDED_PMEM)
    text = (over_memory and _use_of_memory(diagnostics)) or tidy(diagnostics)
    return f"{words}: {text}" if text else words


def output(container: ContainerId) -> str:
    """Where its output is: before its agent begins, only YARN has that."""
    application = container.attempt.application
    return f"All that it wrote: yarn logs -applicationId {application} -containerId {container}"


def _use_of_memory(diagnostics: str) -> str:
    """What was used, and by what, instead of a dump of all processes; empty if it is not there."""
    used = _MEMORY.search(diagnostics)
    if used is None:
        return ""
    found = [(int(pages), name, line) for name, pages, line in _PROCESS.findall(diagnostics)]
    whole = sum(pages for pages, *_ in found)
    largest = [
        f"{_command(name, line)} ({pages / whole:.0%})"
        for pages, name, line in sorted(found, reverse=True)[:_LARGEST]
        if pages * 10 > whole
    ]
    return f"{used[1]}, most of it by {', '.join(largest)}" if largest else used[1]


def _command(name: str, line: str) -> str:
    program, _, arguments = line.strip().partition(" ")
    text = f"{program.rpartition('/')[2] or name} {arguments}".strip()
    return text if len(text) <= _COMMAND_CHARS else text[: _COMMAND_CHARS - 1].rstrip() + "…"


def tidy(diagnostics: str) -> str:
    """Diagnostics without time stamps, Java stack traces and headings; at most `DETAIL_CHARS`, from
    the end."""
    lines = [line.rstrip() for line in diagnostics.splitlines() if not _NOISE.match(line)]
    lines = [re.sub(r"^\s*\[\d{4}-\d\d-\d\d [\d:.,]+\]\s*", "", line) for line in lines]
    text = "\n".join(line for line in lines if line.strip() and line.strip() != "N/A")
    return text[-DETAIL_CHARS:]


_WORDS = {
    0: "it ended by itself",
    INVALID: "YARN could not start it",
    ABORTED: "YARN took it back",
    DISKS_FAILED: "the node's disks failed",
    PREEMPTED: "YARN preempted it",
    KILLED_EXCEEDED_VMEM: "YARN ended it over its virtual memory"
    " (yarn.nodemanager.vmem-check-enabled)",
    KILLED_EXCEEDED_PMEM: "YARN ended it over its memory",
    KILLED_BY_APPMASTER: "it was stopped",
    KILLED_BY_RESOURCEMANAGER: "the ResourceManager ended it",
    KILLED_AFTER_APP_COMPLETION: "the application is over",
    KILLED_BY_CONTAINER_SCHEDULER: "the NodeManager needed its place for another container",
    KILLED_FOR_EXCESS_LOGS: "YARN ended it over the size of its logs",
    CANNOT_RUN: "its command could not be run",
    NOT_FOUND: "its command was not found",
    BOOT_FAILED: "the agent could not begin",
}

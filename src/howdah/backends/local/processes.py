"""Who is left of a container, and whether a process is still the one it was.

A process id is used again; a process id with its start time is not. Looking and signalling are
`howdah.agent.host.processes`'; here are looks at all processes at once (some 30 µs each), because one
look serves all containers that end together.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from howdah.agent.host.processes import HAS_PROC, MARKER, Stat, command_line, stat
from howdah.backends.local.messages import AgentProcess

__all__ = [
    "MARKER",
    "PROCESS",
    "Seen",
    "alive",
    "belonging",
    "is_guard",
    "open_descriptor",
    "read_process",
    "snapshot",
    "start_of",
    "strays",
]

PROCESS = "agent.json"
"""In a container's folder: an `AgentProcess`."""

_MARKER_BYTES = b"\0" + MARKER.encode() + b"="


class Seen(msgspec.Struct, frozen=True):
    """One living process as it was when looked at."""

    stat: Stat
    marker: str | None = None
    """Value of its `MARKER`, if it has one and we may read it."""


def start_of(pid: int) -> int | None:
    """When the process began, in the system's own measure; None if it is gone or a zombie."""
    found = stat(pid)
    return None if found is None or found.zombie else found.start


def alive(pid: int, start: int) -> bool:
    """Whether that very process still runs."""
    return start_of(pid) == start


def snapshot() -> list[Seen]:
    """All processes whose environment this user may read, and its own children."""
    return _proc_snapshot() if HAS_PROC else _psutil_snapshot()


def belonging(
    processes: Iterable[Seen], marker: str, sessions: Iterable[int] = ()
) -> dict[int, Stat]:
    """Those that carry the marker or sit in one of the sessions, and all that hang on them.

    A program may drop its environment, or leave its group; its session or its parent gives it
    away. Only one that does all of that, and whose parent has ended, is out of sight.
    """
    everything = list(processes)
    wanted = set(sessions)
    found = {
        p.stat.pid: p.stat for p in everything if p.marker == marker or p.stat.session in wanted
    }
    # A marked program's session is its own; but never ours, nor one from outside the namespace.
    wanted |= {p.stat.session for p in everything if p.marker == marker and p.stat.pid in found} - {
        0,
        os.getsid(0),
    }
    while True:
        more = {
            p.stat.pid: p.stat
            for p in everything
            if p.stat.pid not in found and (p.stat.parent in found or p.stat.session in wanted)
        }
        if not more:
            return found
        found |= more


def strays(known: Collection[str] = ()) -> dict[str, list[int]]:
    """Processes by job whose marker they carry, if neither agent nor daemon is there, but of ``known`` jobs."""
    everything = {seen.stat.pid: seen for seen in snapshot()}

    def cared_for(pid: int) -> bool:
        while pid in everything:
            if any(word.endswith("/backends/local/boot.py") for word in command_line(pid)):
                return True
            pid = everything[pid].stat.parent
        return False

    found: dict[str, list[int]] = {}
    for pid, seen in everything.items():
        job_id = (seen.marker or "").partition("/")[0]
        if job_id and job_id not in known and not cared_for(pid):
            found.setdefault(job_id, []).append(pid)
    return found


def is_guard(pid: int) -> bool:
    """Whether that is an agent's watchdog (`howdah.agent.watchdog`), which ends by itself."""
    try:
        with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
            return file.read(64).strip() == b"howdah-watchdog"
    except OSError:
        return False


def open_descriptor(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where there are none.

    Raises:
        ProcessLookupError: there is no such process.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, a sandbox, or no descriptors left
        return None


def _proc_snapshot() -> list[Seen]:
    user = os.getuid()
    found: list[Seen] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - the fastest way
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if user != 0 and os.stat(f"/proc/{name}").st_uid != user:  # noqa: PTH116
                continue
            status = stat(int(name))
            if status is not None and not status.zombie:
                found.append(Seen(status, _marker(name)))
    return found


def _marker(pid: str) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environment = b"\0"
            while part := file.read(65536):
                environment += part
    except OSError:
        return None
    start = environment.find(_MARKER_BYTES)
    if start < 0:
        return None
    start += len(_MARKER_BYTES)
    return environment[start : environment.find(b"\0", start)].decode(errors="replace")


def _psutil_snapshot() -> list[Seen]:
    import psutil

    found: list[Seen] = []
    for process in psutil.process_iter():
        status = stat(process.pid)
        if status is None or status.zombie:
            continue
        marker = None
        with contextlib.suppress(psutil.Error, OSError):
            marker = process.environ().get(MARKER)
        found.append(Seen(status, marker))
    return found


def read_process(folder: Path) -> AgentProcess | None:
    """Who is, or was, the agent of the container in ``folder``; None if nobody ever was."""
    try:
        return msgspec.json.decode((folder / PROCESS).read_bytes(), type=AgentProcess)
    except (OSError, msgspec.DecodeError):
        return None

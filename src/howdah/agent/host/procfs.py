"""Processes as Linux shows them under /proc. `howdah.agent.host.processes` is what others use.

Everything here may race with processes that come and go: what has vanished is left out. A process
is identified by its pid and start time together, so that a reused pid is never taken for another.
Plain `os` calls instead of pathlib: this runs every second beside a training program.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# prctl(2)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Stat(NamedTuple):
    """What /proc/<pid>/stat tells of one process."""

    pid: int
    parent: int
    group: int
    session: int
    zombie: bool
    start: int
    """Clock ticks from boot to its start; pid and start together are unique."""
    cpu_s: float
    """CPU seconds of it and of its children that ended and were waited for."""
    rss_bytes: int


class Usage(NamedTuple):
    """What some processes use together."""

    processes: int
    cpu_s: float
    rss_bytes: int


def stat(pid: int) -> Stat | None:
    """That process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(1024)
    except OSError:
        return None
    # The name is in parentheses and may contain anything, parentheses too.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 22:
        return None
    ticks = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    return Stat(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        # Of a process whose main thread alone has ended, the other threads still run.
        zombie=fields[0] in (b"Z", b"X") and int(fields[17]) <= 1,
        start=int(fields[19]),
        cpu_s=ticks / _TICKS,
        rss_bytes=int(fields[21]) * _PAGE,
    )


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def descendants(root: int, skip: Collection[int] = ()) -> dict[int, Stat]:
    """The living processes below ``root``, by pid, without those in ``skip`` and below them."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return _by_children(root, skip)
    return _by_parents(root, skip)


def _by_children(root: int, skip: Collection[int]) -> dict[int, Stat]:
    """Costs a few reads for each of our own processes, however many the machine has."""
    found: dict[int, Stat] = {}
    waiting = _children(root)
    while waiting:
        pid = waiting.pop()
        if pid in skip or pid in found:
            continue
        status = stat(pid)
        if status is None:
            continue
        waiting += _children(pid)
        if not status.zombie:
            found[pid] = status
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    folder = f"/proc/{pid}/task"
    try:
        threads = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return children
    # A child is listed with the thread that made it, and any may end while we look.
    for thread in threads:
        with contextlib.suppress(OSError, ValueError):
            with open(f"{folder}/{thread}/children", "rb", buffering=0) as file:
                while part := file.read(65536):
                    children += map(int, part.split())
    return children


def _by_parents(root: int, skip: Collection[int]) -> dict[int, Stat]:
    below: dict[int, list[Stat]] = {}
    for pid in all_pids():
        if (status := stat(pid)) is not None:
            below.setdefault(status.parent, []).append(status)
    found: dict[int, Stat] = {}
    waiting = list(below.get(root, ()))
    while waiting:
        status = waiting.pop()
        if status.pid in skip or status.pid in found:
            continue
        waiting += below.get(status.pid, ())
        if not status.zombie:
            found[status.pid] = status
    return found


def marked(variable: str, value: str, skip: Collection[int] = ()) -> dict[int, Stat]:
    """Living processes whose environment has ``variable=value``, by pid.

    It is the environment they were started with: processes that were only forked have it from
    their parent. One that was started with an emptied environment is not found.
    """
    wanted = f"{variable}={value}".encode()
    found: dict[int, Stat] = {}
    for pid in all_pids():
        if pid not in skip and _has_entry(pid, wanted):
            status = stat(pid)
            if status is not None and not status.zombie:
                found[pid] = status
    return found


def _has_entry(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            data = b""
            while part := file.read(65536):
                data += part
    except OSError:
        return False  # gone, or another user's
    return wanted in data and wanted in data.split(b"\0")


def send_signal(process: Stat, number: int) -> bool:
    """Signal exactly that process; False if it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # a kernel, a sandbox or a Python without pidfd_open
        return _send_plainly(process, number)
    try:
        # The handle is on the process that has the pid now: is that still the same one?
        if not _same(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):
        return _send_plainly(process, number)
    finally:
        os.close(handle)
    return True


def _send_plainly(process: Stat, number: int) -> bool:
    if not _same(process):
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
    return True


def _same(process: Stat) -> bool:
    now = stat(process.pid)
    return now is not None and now.start == process.start


def usage(processes: Iterable[Stat]) -> Usage:
    """What they use together, as of the moment they were looked at."""
    count, cpu_s, rss = 0, 0.0, 0
    for process in processes:
        count += 1
        cpu_s += process.cpu_s
        rss += process.rss_bytes
    return Usage(count, cpu_s, rss)


def shared_out_bytes(pids: Iterable[int]) -> int | None:
    """Their memory with each shared page split among its users (PSS); None if it can't be read.

    Much dearer than `usage`: for when resident memory, which counts shared pages once for each
    process, would be unfair.
    """
    total, readable = 0, False
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
                        readable = True
                        break
        except OSError:
            continue
    return total if readable else None


def io_bytes(pids: Iterable[int]) -> tuple[int, int] | None:
    """Bytes read and written (system calls, so pages of the cache too); None if unreadable."""
    read = written = 0
    readable = False
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
                lines = file.read(512).split(b"\n")
            read += int(lines[0].split()[1])
            written += int(lines[1].split()[1])
            readable = True
        except (OSError, IndexError, ValueError):
            continue
    return (read, written) if readable else None


def handles(pid: int, number: int) -> bool:
    """Whether the process has a handler for that signal, so that it does not die of it."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            for line in file.read(8192).split(b"\n"):
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def command_line(pid: int) -> list[str]:
    """Its arguments; empty if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(65536)
    except OSError:
        return []
    return [part.decode(errors="replace") for part in data.rstrip(b"\0").split(b"\0")]


def program(pid: int) -> str:
    """Path of its executable; empty if that can't be read."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    except OSError:
        return ""


def socket_inodes(pids: Iterable[int]) -> set[int]:
    """Inodes of all sockets these processes have open."""
    inodes: set[int] = set()
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(int(target[8:-1]))
    return inodes


def become_subreaper() -> bool:
    """Have orphaned descendants become our children, so that none leaves our tree."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> bool:
    """Have the kernel send this process SIGTERM when the thread that started it is gone."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def name_process(name: str) -> None:
    """Set the name ``ps`` and ``top`` show for this process (15 bytes); for its main thread to call."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(name.encode()[:15])


def _prctl(option: int, value: int | bytes) -> bool:
    import ctypes

    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def prefer_as_oom_victim(pid: int, *, first: bool = False) -> None:
    """When memory runs out, the kernel shall end the program before its agent; ``first``: before all."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/oom_score_adj", "rb", buffering=0) as file:
            own = int(file.read(16))
        with open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"%d" % (1000 if first else min(own + 300, 1000)))

"""The same as `howdah.agent.host.procfs` where there is no /proc (macOS), as well as it goes.

Through psutil, which is a dependency there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import psutil

from howdah.agent.host.procfs import Stat as Stat
from howdah.agent.host.procfs import Usage as Usage
from howdah.agent.host.procfs import usage as usage


def _stat(process: Any) -> Stat | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            return Stat(
                pid=process.pid,
                parent=process.ppid(),
                group=os.getpgid(process.pid),
                session=os.getsid(process.pid),
                zombie=process.status() == psutil.STATUS_ZOMBIE,
                start=int(process.create_time() * 1000),
                cpu_s=times.user + times.system,
                rss_bytes=process.memory_info().rss,
            )
    except (psutil.Error, OSError):
        return None


def stat(pid: int) -> Stat | None:
    """That process, or None if it is gone."""
    try:
        return _stat(psutil.Process(pid))
    except psutil.Error:
        return None


def _living(processes: Iterable[Any]) -> dict[int, Stat]:
    seen = (_stat(process) for process in processes)
    return {s.pid: s for s in seen if s is not None and not s.zombie}


def descendants(root: int, skip: Collection[int] = ()) -> dict[int, Stat]:
    """The living processes below ``root``, by pid, without those in ``skip`` and below them."""
    found: dict[int, Stat] = {}
    try:
        waiting = psutil.Process(root).children()
        while waiting:
            process = waiting.pop()
            if process.pid not in skip and process.pid not in found:
                found |= _living([process])
                waiting += process.children()
    except psutil.Error:
        pass
    return found


def marked(variable: str, value: str, skip: Collection[int] = ()) -> dict[int, Stat]:
    """Living processes whose environment has ``variable=value``, by pid."""
    found: list[Any] = []
    for process in psutil.process_iter():
        try:
            if process.pid not in skip and process.environ().get(variable) == value:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return _living(found)


def send_signal(process: Stat, number: int) -> bool:
    """Signal exactly that process; False if it is gone."""
    now = stat(process.pid)
    if now is None or now.start != process.start:
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
    return True


def shared_out_bytes(pids: Iterable[int]) -> int | None:
    """Not available on this system."""
    return None


def io_bytes(pids: Iterable[int]) -> tuple[int, int] | None:
    """Not available on this system."""
    return None


def command_line(pid: int) -> list[str]:
    """Its arguments; empty if it is gone."""
    try:
        return psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return []


def program(pid: int) -> str:
    """Path of its executable; empty if that can't be read."""
    try:
        return psutil.Process(pid).exe()
    except (psutil.Error, OSError):
        return ""


def socket_inodes(pids: Iterable[int]) -> set[int]:
    """Not available on this system: see `connections`."""
    return set()


def become_subreaper() -> bool:
    """macOS has no such thing: orphans go to launchd and are found by their marker only."""
    return False


def end_with_parent() -> bool:
    """Not available on this system."""
    return False


def name_process(name: str) -> None:
    """Not available on this system."""


def prefer_as_oom_victim(pid: int, *, first: bool = False) -> None:
    """Not available on this system."""


def connections(pids: Iterable[int]) -> list[tuple[int, str, int, bool]]:
    """TCP sockets of these processes: local port, peer's address and port, and whether it listens."""
    found: list[tuple[int, str, int, bool]] = []
    for pid in pids:
        try:
            sockets = psutil.Process(pid).net_connections("tcp")
        except (psutil.Error, OSError):
            continue
        for socket in sockets:
            listens = socket.status == psutil.CONN_LISTEN
            if listens or socket.status == psutil.CONN_ESTABLISHED:
                peer = socket.raddr or ("", 0)
                found.append((socket.laddr[1], peer[0], peer[1], listens))
    return found


def handles(pid: int, number: int) -> bool:
    """Not known on this system, and a wrong guess would end the program."""
    return False

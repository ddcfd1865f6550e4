"""What a test run may leave behind, and how to see it."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from howdah.agent import ports
from howdah.backends import gpus
from tests.changing_folders import all_below

MARKER = "HOWDAH_TEST_RUN"


HOST_WIDE = {str(ports.BASE / f"howdah-{os.getuid()}"), str(gpus.LOCK_FOLDER)}
"""Shared by all tests that run now: port locks of one user, GPU locks of all."""

OTHERS = ("howdah-ray-", "howdah-model", "howdah-board-", "howdah-prune-")
"""Begin the names of folders that other workers' tests have meanwhile: Ray's short-lived ones, files of
models, kept for as long as the process that has loaded them, and those of portals."""


class Leftover(NamedTuple):
    """A process that carries the run's marker."""

    pid: int
    command: str
    test: str
    """The test that was running when it was started."""


def processes() -> list[Leftover]:
    """Living processes with this run's marker, or that of a worker of it, in their environment, but this one."""
    run = os.environ[MARKER]
    found: list[Leftover] = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            environment = process.environ()
            marker = environment.get(MARKER, "")
            if marker != run and not marker.startswith(f"{run}/"):
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            command = " ".join(process.cmdline())[:200] or process.name()
            test = environment.get("PYTEST_CURRENT_TEST", "")
            found.append(Leftover(process.pid, command, test))
        except (psutil.Error, OSError):
            continue  # it ended while we looked, or is not ours
    return found


def wait_gone(timeout_s: float) -> list[Leftover]:
    """Processes of this run that are still there after at most ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(KeyboardInterrupt):  # in a hurry, but not to leave something
        while processes() and time.monotonic() < deadline:
            time.sleep(0.05)
    return processes()


def end(left: Iterable[Leftover]) -> None:
    """Kill them."""
    for process in left:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def sockets(folder: Path) -> list[Path]:
    """Unix sockets anywhere below the folder."""
    return [path for path in all_below(folder) if path.is_socket()]


class Picture(NamedTuple):
    """What could be left behind, at one moment."""

    processes: frozenset[tuple[int, str]]
    listening: frozenset[tuple[str, int]]
    """Addresses on which this run's processes listen."""
    folders: frozenset[str]
    """Entries of the temporary folders whose names are ours."""

    @staticmethod
    def take() -> Picture:
        own = processes()
        listening: set[tuple[str, int]] = set()
        for pid in [os.getpid(), *(p.pid for p in own)]:
            try:
                connections = psutil.Process(pid).net_connections("tcp")
            except (psutil.Error, OSError):
                continue
            listening |= {
                (c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN
            }
        places = {tempfile.gettempdir(), os.environ["HOWDAH_RUNTIME_DIR"]}
        folders = {
            str(path)
            for place in places
            for path in (
                all_below(Path(place)) if place.endswith("/run") else Path(place).iterdir()
            )
            if path.name.startswith("howdah") and not path.name.startswith(OTHERS)
        } - HOST_WIDE
        return Picture(
            frozenset((p.pid, p.command) for p in own), frozenset(listening), frozenset(folders)
        )

    def added(self, before: Picture) -> list[str]:
        """What is here and was not there before, in words."""
        return [
            *(f"process {pid}: {command}" for pid, command in self.processes - before.processes),
            *(f"listening on {host}:{port}" for host, port in self.listening - before.listening),
            *(f"temporary {path}" for path in self.folders - before.folders),
        ]

    @staticmethod
    def wait_equal(before: Picture, timeout_s: float) -> list[str]:
        """What is still added to ``before`` after at most ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while (added := Picture.take().added(before)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return added

"""Where the drill's jobs run: what there is to hit, how it comes back, and what must not be left."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory, base_folder
from tests import leaks
from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError
from tests.hadoop.leftovers import processes, wait_same
from tests.hadoop.options import Gpus, Options
from tests.hadoop.shared import Use
from tests.processes import runs

MARKER = "HOWDAH_DRILL"
GONE_S = 40.0
"""For the last processes of a job that is over."""
REST_S = 8.0
"""What has been hit is left alone so long after it is back: two blows at once to a pair that keeps
each other alive end both, by design."""


class Place(Protocol):
    """One backend."""

    kinds: tuple[str, ...]
    """What can be hit."""

    def env(self) -> dict[str, str]:
        """For the client."""
        ...

    def hit(self, kind: str, job_id: str, choose: Callable[[int], int], stop_s: float) -> str:
        """Kill one of that kind, or stop it for ``stop_s`` seconds if that is more than 0; what it
        was, or nothing if there was none. ``choose`` picks one of so many."""
        ...

    def heal(self) -> None:
        """Wait until all that was hit is back."""
        ...

    def leftovers(self) -> list[str]:
        """What is still there of jobs that are over."""
        ...

    def close(self) -> None: ...


class _Blows:
    """Signals to processes; stopped ones are continued in time."""

    def __init__(self) -> None:
        self._timers: list[threading.Timer] = []

    def strike(self, process: psutil.Process, stop_s: float) -> bool:
        try:
            if stop_s <= 0:
                process.kill()
                return True
            process.suspend()
        except psutil.Error:
            return False
        self.later(stop_s, lambda: _resume(process))
        return True

    def later(self, wait_s: float, work: Callable[[], None]) -> None:
        timer = threading.Timer(wait_s, work)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def wait(self) -> None:
        while self._timers:
            self._timers.pop().join()


class LocalPlace:
    """This machine's own backend."""

    kinds: tuple[str, ...] = ("program", "agent", "watchdog", "coordinator", "node daemon")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blows = _Blows()
        self._mark = f"{os.getpid()}-{time.time():.0f}"
        self._resting_until = 0.0
        (folder / "run").mkdir()

    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            MARKER: self._mark,
            "HOWDAH_HOME": str(self._folder / "home"),
            "HOWDAH_RUNTIME_DIR": str(self._folder / "run"),
            "HOWDAH_SITE": "",
            "HOWDAH_BACKEND": "local",
        }

    def hit(self, kind: str, job_id: str, choose: Callable[[int], int], stop_s: float) -> str:
        pair = kind in ("coordinator", "node daemon")
        if pair and time.monotonic() < self._resting_until:
            return ""
        found = self._of_kind(kind, job_id)
        if not found:
            return ""
        process = found[choose(len(found))]
        if not self._blows.strike(process, stop_s):
            return ""
        if pair:
            self._resting_until = time.monotonic() + stop_s + REST_S
        return str(process.pid)

    def heal(self) -> None:
        self._blows.wait()

    def leftovers(self) -> list[str]:
        deadline = time.monotonic() + GONE_S
        while (left := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.2)
        found = [f"process {each.pid}: {_command(each)}" for each in left]
        return found + [str(path) for path in leaks.sockets(self._folder / "run")]

    def close(self) -> None:
        for process in self._marked():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _of_kind(self, kind: str, job_id: str) -> list[psutil.Process]:
        if kind in ("coordinator", "node daemon"):
            file = layout.COORDINATOR if kind == "coordinator" else "node.json"
            directory = JobDirectory(base_folder(None, self.env()) / job_id)
            return _named_in(directory.path / file)
        return [each for each in self._marked() if kind_of(each) == kind]

    def _marked(self) -> list[psutil.Process]:
        return [each for each in _all() if _environment(each).get(MARKER) == self._mark]


class YarnPlace:
    """A real Hadoop of the drill's own, with three nodes."""

    kinds: tuple[str, ...] = (
        "program",
        "agent",
        "watchdog",
        "coordinator",
        "nodemanager",
        "resourcemanager",
        "namenode",
        "datanode",
    )
    _BACK_S = 4.0
    """A killed daemon is started again after so long."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        options = Options(labels=False, gpus=Gpus.NONE, node_memory_mib=4096, master_attempts=30)
        # Containers' paths are long as it is.
        place = Path(tempfile.gettempdir()) / f"hwt-hadoop-drill-{os.getpid()}"
        self._use = Use(place, options)
        self._cluster: Cluster = self._use.cluster
        self._blows = _Blows()
        self._resting: dict[str, float] = {}

    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            **self._cluster.env(),
            "HOWDAH_HOME": str(self._folder / "home"),
            "HOWDAH_SITE": "",
            "HOWDAH_BACKEND": "yarn",
        }

    def hit(self, kind: str, job_id: str, choose: Callable[[int], int], stop_s: float) -> str:
        if kind not in self.kinds[4:]:
            found = [each for each in processes(self._cluster) if kind_of(each) == kind]
            process = found[choose(len(found))] if found else None
            hit = process is not None and self._blows.strike(process, stop_s)
            return str(process.pid) if process is not None and hit else ""
        number = 1 + choose(3)
        name = f"{kind}{number}" if kind == "nodemanager" else kind
        if time.monotonic() < self._resting.get(name, 0.0) or not self._cluster.is_running(name):
            return ""
        away_s = stop_s or self._BACK_S
        self._resting[name] = time.monotonic() + away_s + REST_S
        if stop_s > 0:
            self._cluster.pause(name)
            self._blows.later(away_s, lambda: self._cluster.resume(name))
        else:
            self._cluster.kill(name)
            self._blows.later(away_s, lambda: self._cluster.start(name))
        return name

    def heal(self) -> None:
        self._blows.wait()
        for daemon in self._cluster.site.daemons:
            if not self._cluster.is_running(daemon.name):
                with contextlib.suppress(ClusterError):
                    self._cluster.start(daemon.name)
        self._cluster.wait_ready()

    def leftovers(self) -> list[str]:
        left = wait_same(self._cluster, frozenset(), "application", GONE_S)
        return sorted({*left, *(f"process {p.pid}: {_command(p)}" for p in self._containers())})

    def close(self) -> None:
        self._use.end()

    def _containers(self) -> list[psutil.Process]:
        return [each for each in processes(self._cluster) if runs(each)]


def kind_of(process: psutil.Process) -> str:
    """What of a job it is; empty for what is not hit."""
    try:
        name, words = process.name(), process.cmdline()
    except psutil.Error:
        return ""
    if name == "howdah-agent":
        return "agent"
    if name == "howdah-watchdog":
        return "watchdog"
    if "program.py" in words:
        return "program"
    if "howdah.coordinator" in words and "bash" not in words[0]:
        return "coordinator"
    return ""


def _named_in(file: Path) -> list[psutil.Process]:
    """The living process that a document of a job directory names."""
    import json

    with contextlib.suppress(OSError, ValueError, KeyError, psutil.Error):
        return [psutil.Process(json.loads(file.read_text())["pid"])]
    return []


def _all() -> list[psutil.Process]:
    own = os.getpid()
    return [each for each in psutil.process_iter() if each.pid != own and runs(each)]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:150]
    except psutil.Error:
        return "?"


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal.SIGCONT)

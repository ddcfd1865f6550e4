"""What an agent costs: memory, processor time at rest, and what it does to a program that prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from benchmarks import processes
from benchmarks.jobs import Place, Stuck, ended, events, place, python, until
from benchmarks.results import Goal, Measure, Of, measure, progress
from howdah.backends.local.processes import read_process
from howdah.core.messages import Task, TaskStarted
from howdah.storage import logs
from howdah.storage.jobdir import JobDirectory


class Settings(msgspec.Struct, frozen=True):
    runs: int = 5
    agents: int = 4
    settle_s: float = 3.0
    idle_s: float = 30.0
    megabytes: int = 300
    paced_megabytes: int = 250
    paced_rate: int = 50
    """Megabytes (10**6 bytes) a second."""


QUICK = Settings(runs=1, agents=1, settle_s=0.1, idle_s=1.0, megabytes=8, paced_megabytes=5)


class Printed(msgspec.Struct, frozen=True):
    """What printer.py reports."""

    bytes: int
    seconds: float
    writing_s: float
    longest_s: float

    @property
    def rate(self) -> float:
        """Megabytes (10**6 bytes) a second."""
        return self.bytes / self.seconds / 1e6


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    with place() as there:
        measures = _idle(there, settings)
        measures += _printing(there, settings)
    return measures, []


# -- at rest -------------------------------------------------------------------------------------


def _idle(there: Place, settings: Settings) -> list[Measure]:
    progress(f"{settings.agents} agents at rest for {settings.idle_s:g} s")
    directory = there.submit(settings.agents, ["sleep", "100000"])
    try:
        until(lambda: _started(directory) == settings.agents, "the start of all programs")
        time.sleep(settings.settle_s)
        agents = _agents(directory)
        watchdogs = [child.pid for pid in agents for child in _watchdogs(pid)]
        address = until(directory.coordinator, "a coordinator")
        before = {pid: processes.cpu_s(pid) for pid in [*agents, *watchdogs, address.pid]}
        begin = time.monotonic()
        time.sleep(settings.idle_s)
        used = {pid: processes.cpu_s(pid) - cpu for pid, cpu in before.items()}
        seconds = time.monotonic() - begin
        held = [processes.memory(pid) for pid in agents]
        coordinator = processes.memory(address.pid)
        measures = [
            measure("agent RSS", "MB", [m.rss for m in held], goal=Goal(Of.OURS, 30)),
            measure("agent USS (its own pages)", "MB", [m.uss for m in held]),
            measure(
                "agent at rest, of one core",
                "%",
                [100 * used[pid] / seconds for pid in agents],
                goal=Goal(Of.OURS, 0.3),
            ),
            measure("watchdog USS", "MB", [processes.memory(pid).uss for pid in watchdogs]),
            measure("coordinator RSS, with page", "MB", [coordinator.rss]),
            measure("coordinator at rest, of one core", "%", [100 * used[address.pid] / seconds]),
        ]
        if held[0].pss is not None:
            pss = [m.pss or 0.0 for m in held]
            measures.insert(1, measure("agent PSS (shared pages by share)", "MB", pss))
        return measures
    finally:
        there.stop(directory)


def _started(directory: JobDirectory) -> int:
    return sum(isinstance(event, TaskStarted) for _, event in events(directory))


def _agents(directory: JobDirectory) -> list[int]:
    found = [read_process(folder) for folder in sorted(directory.containers.iterdir())]
    return [process.pid for process in found if process is not None]


def _watchdogs(agent: int) -> list[psutil.Process]:
    children = psutil.Process(agent).children()
    return [child for child in children if child.name() == "howdah-watchdog"]


# -- a program that prints -----------------------------------------------------------------------


def _printing(there: Place, settings: Settings) -> list[Measure]:
    peers: dict[str, Callable[[float, float], Printed]] = {
        "> file": lambda size, rate: _bare(there, '"$@" > printed', size, rate),
        "| cat > file": lambda size, rate: _bare(there, '"$@" | cat > printed', size, rate),
    }
    measures: list[Measure] = []
    for name, peer in peers.items():
        progress(f"{settings.megabytes} MB as fast as it goes, against {name}")
        rounds = [
            (_under_howdah(there, settings.megabytes, 0), peer(settings.megabytes, 0))
            for _ in range(settings.runs)
        ]
        goal = Goal(Of.OURS, 50, at_least=True) if name == "> file" else None
        measures.append(
            measure(
                "log, as fast as it goes",
                "MB/s",
                [ours.rate for ours, _ in rounds],
                [bare.rate for _, bare in rounds],
                peer_name=name,
                goal=goal,
            )
        )
    rate = settings.paced_rate
    progress(f"{settings.paced_megabytes} MB at {rate} MB/s")
    rounds = [
        (
            _under_howdah(there, settings.paced_megabytes, rate),
            peers["> file"](settings.paced_megabytes, rate),
        )
        for _ in range(settings.runs)
    ]

    def one(name: str, unit: str, of: Callable[[Printed], float], goal: Goal | None) -> Measure:
        ours, bare = [of(o) for o, _ in rounds], [of(b) for _, b in rounds]
        return measure(name, unit, ours, bare, peer_name="> file", goal=goal)

    return [
        *measures,
        one(f"program at {rate} MB/s, in all", "s", lambda p: p.seconds, Goal(Of.RATIO, 1.02)),
        one(f"program at {rate} MB/s, in writes", "s", lambda p: p.writing_s, None),
        one(f"program at {rate} MB/s, longest write", "ms", lambda p: p.longest_s * 1000, None),
    ]


def _under_howdah(there: Place, megabytes: float, rate: float) -> Printed:
    report = there.folder / "report.json"
    report.unlink(missing_ok=True)
    directory = there.submit(1, python("printer.py", report, megabytes, rate))
    view = there.gone(directory)
    if view.outcome != "succeeded":
        raise Stuck(f"the printing job {view.outcome}: {view.reason}")
    printed = _read(report)
    log = directory.log_path(Task("worker", 0), 1)
    if (size := logs.size(log)) != printed.bytes:
        raise Stuck(f"{printed.bytes} bytes were printed, {size} are in {log}")
    _remove(directory)
    return printed


def _bare(there: Place, line: str, megabytes: float, rate: float) -> Printed:
    report = there.folder / "report.json"
    report.unlink(missing_ok=True)
    program = python("printer.py", report, megabytes, rate)
    with ended(there.start(["sh", "-c", line, "sh", *program], {})) as process:
        process.wait()
    printed = _read(report)
    (there.source / "printed").unlink()
    return printed


def _read(report: Path) -> Printed:
    return msgspec.json.decode(report.read_bytes(), type=Printed)


def _remove(directory: JobDirectory) -> None:
    """Hundreds of megabytes of log."""
    for file in directory.logs.glob("worker-0/*"):
        file.unlink()

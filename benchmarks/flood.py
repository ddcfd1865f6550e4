"""What a job notices of thousands of connections that prove nothing, with few descriptors."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks import processes
from benchmarks.coordinator import python as module
from benchmarks.jobs import LIMIT_S, howdah, place, python, until
from benchmarks.results import Goal, Measure, Of, measure, progress
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress, task_log

_STEP = re.compile(rb"step (\d+) ([0-9.]+)")


class Settings(msgspec.Struct, frozen=True):
    runs: int = 1
    descriptors: int = 1024
    """Of every process of the job, the hard limit too."""
    strangers: int = 10_000
    """Half of them at the port of agents and clients, half at the page's."""
    seconds: float = 60.0
    settle_s: float = 10.0
    """Before the flood; the steps of that time are compared with."""
    ask_s: float = 0.25
    """Between two requests of the owner, each over a connection of its own."""


QUICK = Settings(runs=1, strangers=300, seconds=2.0, settle_s=1.0)


class Seen(msgspec.Struct, frozen=True):
    """One run."""

    answers: list[float]
    """Seconds, of the owner's requests during the flood; one that failed took its whole time limit."""
    failed: int
    pace: float
    """Steps of training a second during the flood, of those before."""
    pause_s: float
    """The longest time without a step."""
    memory: float
    """Megabytes the coordinator grew by, at most."""
    log_kb: float
    made: int
    """Connections of strangers."""
    coordinators: int


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    runs: list[Seen] = []
    for run in range(settings.runs):
        progress(f"{settings.strangers} strangers, {run + 1} of {settings.runs}")
        runs.append(_run(settings))

    def one(what: str, unit: str, figures: list[float], goal: Goal | None = None) -> Measure:
        return measure(what, unit, figures, goal=goal)

    return [
        one("slowest answer", "s", [max(r.answers) for r in runs], Goal(Of.OURS, 1.0)),
        one("median answer", "s", [sorted(r.answers)[len(r.answers) // 2] for r in runs]),
        one("requests not answered", "", [float(r.failed) for r in runs], Goal(Of.OURS, 0)),
        one("training's pace, of that before", "", [r.pace for r in runs]),
        one("longest pause in training", "s", [r.pause_s for r in runs]),
        one("coordinator grew", "MB", [r.memory for r in runs], Goal(Of.OURS, 50)),
        one("coordinator's log grew", "KB", [r.log_kb for r in runs], Goal(Of.OURS, 100)),
        one("coordinators", "", [float(r.coordinators) for r in runs], Goal(Of.OURS, 1)),
        one("connections of strangers", "", [float(r.made) for r in runs]),
    ], []


def _run(settings: Settings) -> Seen:
    with place() as there:
        line = [*howdah(), "submit", "--framework", "command", "--role", "worker=2", "--"]
        limited = ["sh", "-c", f'ulimit -n {settings.descriptors}; exec "$@"', "sh"]
        submitting = there.start([*limited, *line, *python("steps.py")], {})
        said, _ = submitting.communicate(timeout=LIMIT_S)
        directory = JobDirectory(there.jobs / said.decode().strip())
        address = until(lambda: _with_page(directory), "the page")
        logs = [directory.path / task_log("worker", index, 1) for index in range(2)]
        for log in logs:
            until(lambda log=log: log.exists() and log.stat().st_size, "a step")
        time.sleep(settings.settle_s)
        before = processes.memory(address.pid).rss
        own_log = directory.logs / "coordinator.log"
        size = own_log.stat().st_size
        grown = 0.0
        answers: list[float] = []
        failed = 0
        begin = time.time()
        with _flood(address, settings) as flood:
            while time.time() - begin < settings.seconds:
                asked = time.monotonic()
                failed += not _answered(address, directory)
                answers.append(time.monotonic() - asked)
                grown = max(grown, processes.memory(address.pid).rss - before)
                time.sleep(settings.ask_s)
        steps = [_steps(log) for log in logs]
        now = directory.coordinator()
        return Seen(
            answers=answers,
            failed=failed,
            pace=min(_pace(each, begin, settings) for each in steps),
            pause_s=max(_pause_s(each, begin) for each in steps),
            memory=grown,
            log_kb=(own_log.stat().st_size - size) / 1000,
            made=sum(flood),
            coordinators=now.incarnation if now else 0,
        )


def _with_page(directory: JobDirectory) -> CoordinatorAddress | None:
    address = directory.coordinator()
    return address if address is not None and address.http_port else None


def _answered(address: CoordinatorAddress, directory: JobDirectory) -> bool:
    link = http.client.HTTPConnection(address.host, address.http_port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {directory.token()}", "Connection": "close"}
        link.request("GET", "/api/v1/job", headers=headers)
        return link.getresponse().status == 200
    except OSError:
        return False
    finally:
        link.close()


@contextlib.contextmanager
def _flood(address: CoordinatorAddress, settings: Settings) -> Iterator[list[int]]:
    """The strangers; afterwards the list has how many connections they made."""
    half = str(settings.strangers // 2)
    processes_ = [
        module("benchmarks.strangers", address.host, str(port), half, stdout=subprocess.PIPE)
        for port in (address.port, address.http_port)
    ]
    made: list[int] = []
    try:
        yield made
    finally:
        for process in processes_:
            with contextlib.suppress(subprocess.TimeoutExpired):
                said, _ = process.communicate(timeout=LIMIT_S)
                made.append(int(said or 0))
            process.kill()
            process.wait()


def _steps(log: Path) -> list[tuple[int, float]]:
    return [(int(step), float(when)) for step, when in _STEP.findall(log.read_bytes())]


def _pace(steps: list[tuple[int, float]], begin: float, settings: Settings) -> float:
    def a_second(first: float, last: float) -> float:
        return sum(first <= when < last for _, when in steps) / (last - first)

    usual = a_second(begin - settings.settle_s, begin)
    return a_second(begin, begin + settings.seconds) / usual if usual else 0.0


def _pause_s(steps: list[tuple[int, float]], begin: float) -> float:
    times = [begin, *(when for _, when in steps if when >= begin)]
    return max((b - a for a, b in itertools.pairwise(times)), default=LIMIT_S)

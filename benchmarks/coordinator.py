"""What a coordinator costs with thousands of agents, and how soon its successor has them again."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import processes, standin
from benchmarks.jobs import Stuck, ended, until
from benchmarks.results import Goal, Measure, Of, measure, progress
from howdah.storage.jobdir import JobDirectory

ROOT = Path(__file__).parents[1]
LIMIT_S = 300.0
"""For all agents to come. Theirs is the same machine: 5,000 handshakes cost both sides 20 s."""


class Settings(msgspec.Struct, frozen=True):
    runs: int = 3
    agents: tuple[int, ...] = (1000, 5000)
    fleets: int = 2
    """Processes the agents live in."""
    settle_s: float = 5.0
    window_s: float = 15.0
    """Over which processor time is counted."""


QUICK = Settings(runs=1, agents=(40,), settle_s=0.5, window_s=1.0)


class Seen(msgspec.Struct, frozen=True):
    """One run."""

    started_s: float
    """From the coordinator's start until all agents run their programs."""
    cpu: float
    """Of one core."""
    watched_cpu: float
    """The same while a client follows the job (status documents, no logs)."""
    rss: float
    taken_over_s: float
    """From kill -9 until its successor has all agents; its own start included."""
    taken_over_rss: float


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    measures: list[Measure] = []
    for agents in settings.agents:
        runs: list[Seen] = []
        for run in range(settings.runs):
            progress(f"{agents} agents, {run + 1} of {settings.runs}")
            runs.append(_run(settings, agents))
        measures += _measures(agents, runs)
    return measures, []


def _measures(agents: int, runs: list[Seen]) -> list[Measure]:
    share = 100 * 1000 / agents
    # Of few agents the coordinator's own ticks are most of the share, of many the goal is another.
    cpu = Goal(Of.OURS, 6) if agents >= 1000 else None
    rss = Goal(Of.OURS, 100) if agents <= 1000 else None

    def one(what: str, unit: str, figures: list[float], goal: Goal | None = None) -> Measure:
        return measure(f"{agents} agents, {what}", unit, figures, goal=goal)

    return [
        one("of one core per 1,000", "%", [r.cpu * share for r in runs], cpu),
        one("the same while watched", "%", [r.watched_cpu * share for r in runs], cpu),
        one("coordinator RSS", "MB", [r.rss for r in runs], rss),
        one("successor's RSS", "MB", [r.taken_over_rss for r in runs], rss),
        one("start to all running", "s", [r.started_s for r in runs]),
        one("kill -9 to all registered", "s", [r.taken_over_s for r in runs]),
    ]


def _run(settings: Settings, agents: int) -> Seen:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hwb-", dir="/tmp"))
        directory = JobDirectory(Path(folder) / "fleet-20261121-120000-aaaa")
        standin.make_job(directory, agents)
        begin = time.monotonic()
        coordinator = stack.enter_context(_coordinator(directory))
        until((directory.path / standin.LAUNCHED).exists, "the grant of all containers")
        fleets = Fleets(stack, directory, agents, settings.fleets)
        fleets.until(incarnation=1, running=True)
        started_s = time.monotonic() - begin
        time.sleep(settings.settle_s)
        cpu = share(coordinator.pid, settings.window_s)
        rss = processes.memory(coordinator.pid).rss
        with _watching(directory):
            time.sleep(settings.settle_s / 2)
            watched_cpu = share(coordinator.pid, settings.window_s)
        killed = time.monotonic()
        coordinator.kill()
        coordinator.wait()  # its lock on the journal goes with it, which takes a moment
        successor = stack.enter_context(_coordinator(directory))
        fleets.until(incarnation=2, running=True)
        taken_over_s = time.monotonic() - killed
        time.sleep(settings.settle_s)
        return Seen(
            started_s=started_s,
            cpu=cpu,
            watched_cpu=watched_cpu,
            rss=rss,
            taken_over_s=taken_over_s,
            taken_over_rss=processes.memory(successor.pid).rss,
        )


def share(pid: int, window_s: float) -> float:
    """Processor time a process takes over that time, of one core."""
    before, begin = processes.cpu_s(pid), time.monotonic()
    time.sleep(window_s)
    return (processes.cpu_s(pid) - before) / (time.monotonic() - begin)


@contextlib.contextmanager
def _coordinator(directory: JobDirectory) -> Iterator[subprocess.Popen[bytes]]:
    process = python("benchmarks.standin", str(directory.path), stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _watching(directory: JobDirectory) -> Iterator[None]:
    """One attached client."""
    line = [str(directory.path)]
    with ended(python("benchmarks.watcher", *line, stdout=subprocess.DEVNULL)) as watcher:
        yield
        if watcher.poll() is not None:
            raise Stuck("the watching client has ended")


def python(module: str, *arguments: str, stdout: int, **popen: Any) -> subprocess.Popen[bytes]:
    """Run a module of ours; it ends with its standard input."""
    line = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=stdout, **popen)


class Fleets:
    """The processes that agents live in."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        directory: JobDirectory,
        agents: int,
        count: int,
        *,
        first: int = 1,
        pattern: str = standin.CONTAINER_ID,
    ) -> None:
        """``pattern`` makes container ids of numbers from ``first`` on."""
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._count = min(count, agents)
        for number in range(self._count):
            size = agents // self._count + (number < agents % self._count)
            arguments = [str(directory.path), str(first), str(size), pattern]
            process = python("benchmarks.fleet", *arguments, stdout=subprocess.PIPE)
            stack.enter_context(until_input_ends(process))
            threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
            first += size

    def _read(self, lines: Any) -> None:
        for line in lines:
            self._said.put(json.loads(line))
        self._said.put({})

    def until(self, *, incarnation: int, running: bool) -> None:
        """Wait until all agents are with that coordinator.

        Raises:
            Stuck: they are not, in time, or a process of theirs has ended.
        """
        deadline = time.monotonic() + LIMIT_S
        ready = 0
        while ready < self._count:
            try:
                said = self._said.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise Stuck(f"not all agents are with coordinator {incarnation}") from None
            if not said:
                raise Stuck("a process of the benchmark's agents has ended")
            ready += said["incarnation"] == incarnation and bool(said["running"]) is running


@contextlib.contextmanager
def until_input_ends(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let it live for so long, then end it by its standard input."""
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()

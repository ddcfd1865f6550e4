"""From a command to its programs' first lines, and to its end."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.jobs import Place, Stuck, ended, place, python
from benchmarks.results import Goal, Measure, Of, measure, progress

_LINE = re.compile(rb"started ([0-9.]+)")
_LOOP = 'n=$1; shift; i=0; while [ $i -lt $n ]; do "$@" & i=$((i+1)); done; wait'


class Settings(msgspec.Struct, frozen=True):
    runs: int = 9
    tasks: tuple[int, ...] = (1, 8, 32)
    torchrun_tasks: int = 8


QUICK = Settings(runs=1, tasks=(1, 2), torchrun_tasks=0)


class Launch(msgspec.Struct, frozen=True):
    """Seconds from the command."""

    first_seen: float
    """The first program's line was read from the command's output."""
    last_seen: float
    last_ran: float
    """The last program wrote its line, by its own clock."""
    exit: float


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    measures: list[Measure] = []
    left_out: list[str] = []
    with place() as there:
        for tasks in settings.tasks:
            progress(f"launch of {tasks} against a shell loop")
            ours, loop = _rounds(
                settings.runs, lambda n=tasks: _howdah(there, n), lambda n=tasks: _loop(there, n)
            )
            goal = Goal(Of.DIFFERENCE, 0.5) if tasks == 8 else None
            measures += _measures(tasks, ours, loop, "shell loop", goal)
        if settings.torchrun_tasks:
            tasks = settings.torchrun_tasks
            if importlib.util.find_spec("torch") is None:
                left_out.append("torchrun: torch is not installed (make bench installs it)")
            else:
                progress(f"launch of {tasks} against torchrun")
                ours, torchrun = _rounds(
                    settings.runs, lambda: _howdah(there, tasks), lambda: _torchrun(there, tasks)
                )
                measures += _measures(tasks, ours, torchrun, "torchrun", Goal(Of.RATIO, 1.0))
    return measures, left_out


def _rounds(
    runs: int, ours: Callable[[], Launch], peer: Callable[[], Launch]
) -> tuple[list[Launch], list[Launch]]:
    """Taken in turn, after one of each that does not count (files not read yet)."""
    ours(), peer()
    pairs = [(ours(), peer()) for _ in range(runs)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _measures(
    tasks: int, ours: Sequence[Launch], peer: Sequence[Launch], peer_name: str, goal: Goal | None
) -> list[Measure]:
    def one(what: str, field: str, goal: Goal | None = None) -> Measure:
        return measure(
            f"{tasks} tasks, {what}",
            "s",
            [getattr(launch, field) for launch in ours],
            [getattr(launch, field) for launch in peer],
            peer_name=peer_name,
            goal=goal,
        )

    return [
        one("first line seen", "first_seen"),
        one("last task's line seen", "last_seen", goal),
        one("last program runs", "last_ran"),
        one("exit", "exit", Goal(Of.RATIO, 1.0) if peer_name == "torchrun" else None),
    ]


def _howdah(there: Place, tasks: int) -> Launch:
    launch = _watch(lambda: there.run(tasks, python("started.py")), tasks)
    there.gone(there.newest())  # its daemon's last steps are not the next one's burden
    return launch


def _loop(there: Place, tasks: int) -> Launch:
    line = ["sh", "-c", _LOOP, "sh", str(tasks), *python("started.py")]
    return _watch(lambda: there.start(line, {}), tasks)


def _torchrun(there: Place, tasks: int) -> Launch:
    options = ["--standalone", f"--nproc-per-node={tasks}"]
    line = [sys.executable, "-m", "torch.distributed.run", *options, *python("started.py")[1:]]
    return _watch(lambda: there.start(line, {"OMP_NUM_THREADS": "1"}), tasks)


def _watch(start: Callable[[], subprocess.Popen[bytes]], tasks: int) -> Launch:
    wall, begin = time.time(), time.monotonic()
    seen: list[float] = []
    ran: list[float] = []
    with ended(start()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := _LINE.search(line):
                seen.append(time.monotonic() - begin)
                ran.append(float(found[1]) - wall)
        process.wait()
        over = time.monotonic() - begin
    if len(seen) != tasks or process.returncode != 0:
        raise Stuck(f"{len(seen)} of {tasks} lines, exit code {process.returncode}")
    return Launch(first_seen=seen[0], last_seen=seen[-1], last_ran=max(ran), exit=over)

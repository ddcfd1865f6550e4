"""From the death of a program to the coordinator's knowing, and to the whole gang's new start."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time

import msgspec

from benchmarks.jobs import Place, ended, events, place, python, until
from benchmarks.results import Goal, Measure, Of, measure, progress
from howdah.core.messages import TaskExited

_LINE = re.compile(rb"life (\d+) (\d+) ([0-9.]+)")


class Settings(msgspec.Struct, frozen=True):
    runs: int = 7
    tasks: int = 4
    settle_s: float = 1.0
    """Between the start of all and the kill."""
    torchrun: bool = True


QUICK = Settings(runs=1, tasks=2, settle_s=0.1, torchrun=False)


class Reaction(msgspec.Struct, frozen=True):
    """Seconds after the kill."""

    again: float
    """The last program of the gang's second life ran."""
    seen: float = 0.0
    """The coordinator had the event."""


class _Lives:
    """What the programs say, read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._found: list[tuple[int, int, float]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _LINE.search(line):
                self._found.append((int(found[1]), int(found[2]), float(found[3])))

    def all(self, life: int, tasks: int) -> list[tuple[int, float]]:
        """Process ids and starts of that life, once all have spoken."""
        found = [(pid, when) for number, pid, when in list(self._found) if number == life]
        return found if len(found) == tasks else []


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    left_out: list[str] = []
    torchrun = settings.torchrun and importlib.util.find_spec("torch") is not None
    if settings.torchrun and not torchrun:
        left_out.append("torchrun: torch is not installed (make bench installs it)")
    ours: list[Reaction] = []
    peer: list[Reaction] = []
    with place() as there:
        for run in range(settings.runs):
            progress(f"kill -9 of one of {settings.tasks} programs, {run + 1} of {settings.runs}")
            ours.append(_howdah(there, settings))
            if torchrun:
                peer.append(_torchrun(there, settings))
    seen = [reaction.seen * 1000 for reaction in ours]
    again = [reaction.again for reaction in ours]
    return [
        measure("death seen by the coordinator", "ms", seen, goal=Goal(Of.OURS, 100)),
        measure(
            "gang runs again",
            "s",
            again,
            [reaction.again for reaction in peer],
            peer_name="torchrun" if peer else "",
            goal=Goal(Of.OURS, 2.0),
        ),
    ], left_out


def _howdah(there: Place, settings: Settings) -> Reaction:
    process = there.run(settings.tasks, python("survivor.py"), "restart=gang")
    with ended(process):
        killed, again = _kill_one(process, settings)
        directory = there.newest()
        seen = next(now for now, event in events(directory) if isinstance(event, TaskExited))
    there.gone(directory)
    return Reaction(again=again, seen=seen - killed)


def _torchrun(there: Place, settings: Settings) -> Reaction:
    options = ["--standalone", f"--nproc-per-node={settings.tasks}", "--max-restarts=1"]
    line = [sys.executable, "-m", "torch.distributed.run", *options, *python("survivor.py")[1:]]
    process = there.start(line, {"OMP_NUM_THREADS": "1"})
    with ended(process):
        return Reaction(again=_kill_one(process, settings)[1])


def _kill_one(process: subprocess.Popen[bytes], settings: Settings) -> tuple[float, float]:
    """When one program was killed, and how long until all ran again."""
    lives = _Lives(process)
    first = until(lambda: lives.all(1, settings.tasks), "the start of all programs")
    time.sleep(settings.settle_s)
    killed = time.time()
    os.kill(first[-1][0], signal.SIGKILL)
    second = until(lambda: lives.all(2, settings.tasks), "their second life")
    return killed, max(when for _, when in second) - killed

"""What really happened in a job, from what its programs wrote down."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import msgspec

TOGETHER_S = 1.0
"""Two attempts of one task that both ran for longer than this ran side by side."""


class Line(msgspec.Struct, frozen=True):
    """A line of `tests.chaos.program`."""

    job: str
    task: str
    attempt: int
    generation: int
    pid: int
    what: str
    step: int
    time: float


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One job's."""

    problems: tuple[str, ...] = ()
    restarts: int = 0
    """Lives of programs beyond the first of each task."""
    steps_lost: int = 0
    """Steps of all programs that were done again."""


def lines(ledger: Path, job: str) -> list[Line]:
    """The job's lines; a line that a kill has cut is left out."""
    found: list[Line] = []
    for text in ledger.read_bytes().splitlines() if ledger.exists() else []:
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.DecodeError:
            continue
        if line.job == job:
            found.append(line)
    return found


def judge(told: list[Line], tasks: int, steps: int) -> Truth:
    """Whether every task came to its last step, and no two of its lives ran at a time."""
    lives: dict[str, list[list[Line]]] = defaultdict(list)
    by_life: dict[tuple[str, int, int], list[Line]] = {}
    for line in told:
        key = (line.task, line.attempt, line.pid)
        if key not in by_life:
            by_life[key] = []
            lives[line.task].append(by_life[key])
        by_life[key].append(line)
    problems: list[str] = []
    lost = 0
    if len(lives) != tasks:
        problems.append(f"{len(lives)} of {tasks} tasks ever ran")
    for task, of_task in sorted(lives.items()):
        best = 0
        for life in of_task:
            begun = life[0].step
            done = [line.step for line in life if line.what == "step"]
            if done != list(range(begun + 1, begun + 1 + len(done))):
                problems.append(f"attempt {life[0].attempt} of {task} left steps out")
            lost += max(0, best - begun)
            best = max([best, begun, *done])
        if of_task[-1][-1].what != "end" or best != steps:
            problems.append(f"{task} ended at step {of_task[-1][-1].step} of {steps}")
        for former, later in itertools.pairwise(of_task):
            together_s = former[-1].time - later[0].time
            if together_s > TOGETHER_S:
                problems.append(
                    f"attempts {former[0].attempt} and {later[0].attempt} of {task} ran side by "
                    f"side for {together_s:.1f} s"
                )
    restarts = sum(len(of_task) - 1 for of_task in lives.values())
    return Truth(problems=tuple(problems), restarts=restarts, steps_lost=lost)

"""Each benchmark in its smallest setting, for what it prints; and how figures are put together."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.results import Goal, Of, Result, measure, table

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that it ends what it has started
            try:
                process.communicate(timeout=60)
            finally:
                process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@pytest.mark.parametrize(
    "name", ["launch", "coordinator", "flood", "agent", "reaction", "training", "portal"]
)
def test_every_benchmark_runs_and_prints_its_figures(name: str) -> None:
    done = run(name, "--quick")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = msgspec.json.decode(line, type=Result)
    assert result.benchmark == name
    assert result.machine.cores >= 1
    assert result.settings["runs"] == 1
    assert result.measures
    for each in result.measures:
        assert each.ours >= 0 and each.runs, each.name
        assert (each.peer is None) == (each.ratio is None), each.name
        assert bool(each.goal) == (each.met is not None), each.name
    assert f"{name}:" in done.stderr
    assert "ratio" in done.stderr


def test_an_unknown_benchmark_is_named() -> None:
    done = run("lunch")
    assert done.returncode == 2
    assert "no benchmark lunch" in done.stderr
    assert not done.stdout


def test_a_ratio_is_the_median_of_what_ran_side_by_side() -> None:
    slowed = measure("start", "s", [1.0, 20.0, 3.0], [2.0, 20.0, 2.0], peer_name="loop")
    assert (slowed.ours, slowed.peer) == (3.0, 2.0)
    assert slowed.ratio == 1.0, "of 0.5, 1.0 and 1.5"
    assert slowed.difference == 0.0, "of -1, 0 and 1"
    assert slowed.met is None


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(Of.OURS, 3.0), True),
        (Goal(Of.OURS, 2.9), False),
        (Goal(Of.RATIO, 1.5), True),
        (Goal(Of.DIFFERENCE, 0.9), False),
        (Goal(Of.RATIO, 1.6, at_least=True), False),
    ],
)
def test_a_goal_is_held_against_the_figure_it_speaks_of(goal: Goal, met: bool) -> None:
    assert measure("start", "s", [3.0], [2.0], goal=goal).met is met


def test_a_goal_against_a_peer_that_was_left_out_is_neither_met_nor_missed() -> None:
    assert measure("start", "s", [3.0], goal=Goal(Of.RATIO, 1.0)).met is None


def test_a_reader_sees_what_was_missed() -> None:
    done = run("training", "--quick", "--json")
    assert done.stderr.count("met") + done.stderr.count("MISSED") == 0, "only JSON was asked for"
    result = msgspec.json.decode(done.stdout, type=Result)
    missed = measure("steps", "steps/s", [1.0], [2.0], goal=Goal(Of.RATIO, 0.99, at_least=True))
    told = table(msgspec.structs.replace(result, measures=(missed,), left_out=("torch",)))
    assert "MISSED" in told
    assert "left out: torch" in told

"""Training survives the death of any process: workers, their coordinator, then workers again."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.acceptance.checks import TRAININGS
from tests.acceptance.jobs import Example, Job, identity
from tests.cli.howdah import job_file, node_pid, start, until
from tests.cli.inside import howdah
from tests.processes import runs

LONG = "--epochs 40 --sleep 0.8"
"""Longer than a take-over and all that is looked at meanwhile."""


def steps(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^step (\d+) ", text, re.M)]


@pytest.mark.timeout(600)  # two starts of a framework, on a machine that does other things too
@pytest.mark.parametrize(
    ("name", "first", "victim"),
    [
        ("pytorch", "worker:0", "worker:1"),
        pytest.param("tensorflow", "chief:0", "worker:0", marks=pytest.mark.nightly),
    ],
)
def test_training_outlives_its_coordinator_and_a_killed_worker(
    name: str, first: str, victim: str, tmp_path: Path
) -> None:
    """The first it never notices; the second costs no more than the steps since the last checkpoint."""
    job = Example(name, tmp_path).run(options=LONG)
    job.until_printed(r"step 2 ")
    before = {task: identity(job.programs(task)) for task in (first, victim)}
    node, coordinator = job.node(), job.coordinator()
    node.suspend()  # so that no new coordinator comes before we have looked
    coordinator.send_signal(signal.SIGKILL)
    reached = steps(job.log(first, 1))[-1]
    until(
        lambda: steps(job.log(first, 1))[-1] >= reached + 2,
        "two steps without any coordinator",
    )
    node.resume()
    until(
        lambda: (address := job.directory.coordinator()) and address.incarnation == 2,
        "the second coordinator",
    )
    until(lambda: any("took over" in line for line in job.story()), "the take-over")
    after = {task: identity(job.programs(task)) for task in (first, victim)}
    assert after == before, "the same processes"
    until(
        lambda: howdah("status", job.directory.job_id).text.count(" running") >= 2,
        "both tasks known to run",
    )

    job.kill(victim)
    job.end(within_s=400)
    view = job.directory.final()
    assert view is not None
    assert (view.generation, view.incarnation) == (2, 2)
    (failure,) = view.failures
    assert failure.what == f"{victim}'s user process was killed (SIGKILL)"
    assert (failure.cause, failure.signal) == ("signal", "SIGKILL")
    again = job.log(first, 2)
    resumed = re.search(r"resumed from \S+ step (\d+) checksum (\w{64})", again)
    assert resumed, again
    assert int(resumed[1]) >= 1
    assert steps(again)[0] == int(resumed[1]) + 1, "it goes on right behind the checkpoint"
    assert any("restored checkpoint" in line for line in job.story())
    assert job.numbers(r"final accuracy (\d\.\d+)")[-1] >= TRAININGS[name].accuracy


SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.mark.timeout(180)
def test_a_killed_agent_takes_its_program_along_and_is_replaced(tmp_path: Path) -> None:
    file = job_file(tmp_path, SLEEPS, roles={"worker": {"instances": 2}}, restart="gang")
    job = Job(start("run", str(file)))
    job.until_printed("worker:1 .* up")
    program = job.programs("worker:1")[0]
    agent = program.parent()
    assert agent is not None
    agent.send_signal(signal.SIGKILL)
    until(lambda: not runs(program), "the end of the dead agent's program", 30.0)
    until(lambda: len(job.lines("worker:1 .* up")) == 2, "the second attempt")
    job.run.signal(signal.SIGINT)
    job.end(130)
    until(lambda: not job.marked(), "the end of everything")


COUNTS = """
import os, time
for n in range(1200):
    print("n", n, flush=True)
    time.sleep(0.1)
    if os.path.exists({end!r}):
        break
"""


@pytest.mark.timeout(180)
def test_a_killed_node_daemon_is_replaced_and_the_programs_live_on(tmp_path: Path) -> None:
    end = tmp_path / "end"
    script = COUNTS.format(end=str(end))
    job = Job(start("run", str(job_file(tmp_path, script, roles={"worker": {"instances": 2}}))))
    for worker in (0, 1):
        job.until_printed(f"worker:{worker} .* n 3")
    before = identity(job.programs("worker:0"))
    node = job.node()
    node.send_signal(signal.SIGKILL)
    until(
        lambda: (pid := node_pid(job.directory)) is not None and pid != node.pid, "another daemon"
    )
    assert identity(job.programs("worker:0")) == before
    end.touch()
    job.end()
    view = job.directory.final()
    assert view is not None
    assert view.generation == 1
    until(lambda: not job.marked(), "the end of everything")

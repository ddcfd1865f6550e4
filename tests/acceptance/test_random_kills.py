"""Whatever part of Howdah is killed, and whenever: the job ends right and leaves nothing."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import psutil
import pytest

from tests.acceptance.jobs import Job
from tests.cli.howdah import job_file, start, until

pytestmark = pytest.mark.nightly

STEPS = 8
PROGRAM = f"""
import time
for step in range({STEPS}):
    print("step", step, flush=True)
    time.sleep(0.15)
"""
ROUNDS = 6
MOMENTS = ("directory", "coordinator", *(f"step {n}$" for n in range(STEPS)))


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("leaves_nothing")
def test_a_job_ends_right_whatever_is_killed_whenever(
    tmp_path: Path, chance: random.Random
) -> None:
    file = job_file(tmp_path, PROGRAM, roles={"worker": {"instances": 2}}, attempts=5)
    for _ in range(ROUNDS):
        job = Job(start("run", str(file)))
        # Coordinator and node daemon start each other again; both at once are another test.
        kills = [(chance.choice(MOMENTS), chance.choice(("coordinator", "agent", "node")))]
        if chance.random() < 0.5:
            kills.append((chance.choice(MOMENTS), "agent"))
        told: list[object] = []
        for moment, part in sorted(kills, key=lambda kill: MOMENTS.index(kill[0])):
            _wait_for(job, moment)
            told.append((moment, part, _kill(job, part, chance)))
        code = job.run.end(60)
        assert code == 0, f"{told}:\n{job.run.text}\n{job.run.told}"
        until(lambda job=job: not job.marked(), f"the end of everything after {told}")


def _wait_for(job: Job, moment: str) -> None:
    if moment == "directory":
        assert job.directory.path.exists()
    elif moment == "coordinator":
        until(lambda: job.directory.coordinator() or job.directory.final(), "a coordinator")
    else:
        # A job whose program ended meanwhile may never print it again.
        until(lambda: job.lines(moment) or job.directory.final(), moment, 60)


def _kill(job: Job, part: str, chance: random.Random) -> str:
    """SIGKILL it, if there is one at this moment."""
    with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
        node = job.node()
        address = job.directory.coordinator()
        coordinator = address.pid if address is not None else None
        if part == "node":
            victim = node
        elif part == "coordinator":
            victim = psutil.Process(coordinator) if coordinator is not None else None
        else:
            agents = [child for child in node.children() if child.pid != coordinator]
            victim = chance.choice(agents) if agents and coordinator is not None else None
        if victim is not None:
            victim.kill()
            return f"killed {victim.pid}"
    return "there was none"

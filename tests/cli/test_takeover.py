"""What the command line still knows after the coordinator's death."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cli.howdah import job_file, newest, start, until
from tests.cli.inside import howdah

FIRST_ENDS_AT_STEP_7 = """
import os
import pathlib
import time

from howdah import task

if task.context().index == 0:
    task.report(step=7)
else:
    print("waits", flush=True)
    while not pathlib.Path(os.environ["GATE"]).exists():
        time.sleep(0.05)
"""


def test_the_steps_of_tasks_that_had_ended_are_still_shown(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    roles = {"worker": {"instances": 2}}
    file = job_file(tmp_path, FIRST_ENDS_AT_STEP_7, env={"GATE": str(gate)}, roles=roles)
    run = start("run", str(file))
    run.until_line("waits")
    directory = newest()
    until(
        lambda: "worker:0 succeeded" in howdah("events", directory.job_id).text,
        "the end of worker:0",
    )
    address = until(directory.coordinator, "a coordinator")
    os.kill(address.pid, signal.SIGKILL)
    until(
        lambda: (now := directory.coordinator()) and now.incarnation == 2, "the second coordinator"
    )
    gate.touch()
    assert run.end() == 0, run.told
    (line,) = (line for line in run.out if line.split()[:2] == ["worker:0", "succeeded"])
    assert "7" in line.split(), run.text

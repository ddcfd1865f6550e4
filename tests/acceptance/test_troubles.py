"""What goes wrong is found, named and ended: missing peers, hangs, failures, many jobs at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.jobs import Example, Job
from tests.cli.howdah import job_file, start, until

# To be imported alone takes a framework most of a minute on a busy machine.
MISSING = [
    ("tensorflow", "chief:0", "worker:0", "70s"),
    ("lightgbm", "worker:0", "worker:1", "60s"),
]


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_a_peer_that_never_comes_ends_the_job_at_the_startup_timeout_by_name(
    tmp_path: Path,
) -> None:
    """Of two jobs at once: each waits for nothing but its time."""
    jobs: list[Job] = []
    for name, _, missing, limit in MISSING:
        example = Example(name, tmp_path)
        role, index = missing.split(":")
        absent = f"""bash -c 'if [ "$HOWDAH_ROLE:$HOWDAH_INDEX" = {role}:{index} ];
            then exec sleep 600; else exec {example.command}; fi' """.replace("\n", " ").strip()
        jobs.append(example.run(**{"command": absent, "timeouts.startup": limit}))
    for job, (_, present, missing, limit) in zip(jobs, MISSING, strict=True):
        job.end(4)
        view = job.directory.final()
        assert view is not None
        assert view.outcome == "timed-out"
        assert f"start-up time-out after {limit}: {missing} never joined" in view.reason
        assert view.reason.endswith(f"waiting for it: {present}")
        assert missing in job.run.told + job.run.text
        until(lambda job=job: not job.marked(), "the end of everything")


HANGS = {
    "sleeps": ("command", "worker:0", "sleep_for_ever", """
import time
def sleep_for_ever():
    time.sleep(600)
def main(rank):
    for step in range(1, 4):
        print("step", step, flush=True)
    sleep_for_ever()
"""),
    "spins": ("command", "worker:1", "spin", """
import time
def spin():
    while True:
        pass
def wait():
    time.sleep(600)
def main(rank):
    for step in range(1, 4):
        print("step", step, flush=True)
    spin() if rank == 1 else wait()
"""),
    "waits in a collective": ("pytorch", "worker:1", "all_reduce_alone", """
import time, torch
import torch.distributed as dist
def all_reduce_alone():
    dist.all_reduce(torch.ones(1))
def lag():
    time.sleep(600)
def main(rank):
    dist.init_process_group("gloo")
    for step in range(1, 4):
        dist.all_reduce(torch.ones(1))
        print("step", step, flush=True)
    all_reduce_alone() if rank == 1 else lag()
"""),
}  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "kind",
    [each if each == "sleeps" else pytest.param(each, marks=pytest.mark.nightly) for each in HANGS],
)
def test_a_hang_is_found_and_the_stacks_of_all_ranks_name_the_line(
    kind: str, tmp_path: Path
) -> None:
    framework, culprit, function, script = HANGS[kind]
    script += '\nimport os\nmain(int(os.environ["HOWDAH_INDEX"]))\n'
    file = job_file(
        tmp_path,
        script,
        framework=framework,
        roles={"worker": {"instances": 2}},
        restart="gang",
        attempts=1,
        timeouts={"hang": "10s", "stop-grace": "1s"},
    )
    job = Job(start("run", str(file))).end(1)
    view = job.directory.final()
    assert view is not None
    failure = view.failures[0]
    assert failure.cause == "hang"
    lines = {line.split(":", 2)[1].strip(): line for line in failure.tail}
    assert len(lines) == 2, failure.tail
    stood = next(line for line in failure.tail if line.startswith(culprit))
    assert "train.py" in stood
    assert function in stood, failure.tail
    stacks = {path.name for path in (job.directory.path / "stacks").iterdir()}
    assert len(stacks) == 2, stacks
    assert function in job.run.text + job.run.told
    until(lambda: not job.marked(), "the end of everything")


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_twenty_jobs_at_once_all_end_right_and_leave_nothing(
    tmp_path: Path, leaves_nothing: None
) -> None:
    script = """
import os, socket, subprocess, sys
subprocess.Popen(["sleep", "300"], start_new_session=True)
held = socket.create_server(("127.0.0.1", int(os.environ["HOWDAH_PORT"])))
print("port", os.environ["HOWDAH_PORT"], flush=True)
"""
    file = job_file(tmp_path, script, roles={"worker": {"instances": 2}}, restart="gang")
    runs = [start("run", str(file), "--json") for _ in range(20)]
    for run in runs:
        assert run.end(200) == 0, run.told
    summaries = [run.documents()[-1]["status"] for run in runs]
    assert [s["outcome"] for s in summaries] == ["succeeded"] * 20
    assert [s["restarts"] for s in summaries] == [0] * 20, "no two took the same port"
    assert len({s["job_id"] for s in summaries}) == 20


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_program_over_its_memory_limit_is_named_out_of_memory(tmp_path: Path) -> None:
    script = """
import time
blocks = []
for number in range(200):
    blocks.append(bytearray(8_000_000)); time.sleep(0.05)
"""
    file = job_file(
        tmp_path, script, roles={"worker": {"memory": "128m"}}, restart="never", attempts=1
    )
    job = Job(start("run", str(file))).end(1)
    view = job.directory.final()
    assert view is not None
    assert view.failures[0].cause == "out-of-memory"
    assert "128" in view.failures[0].what
    assert json.loads((job.directory.path / "final.json").read_text())["exit_code"] == 1

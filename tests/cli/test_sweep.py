"""``howdah sweep`` and `howdah.sweep`: trials that are jobs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import howdah as howdah_api
from howdah.client.lookup.find import find
from howdah.storage.jobdir import JobDirectory, base_folder, list_jobs
from tests.cli.howdah import ended_at_last, job_file, start, until
from tests.cli.inside import howdah

PROGRAM = """
import os
from howdah import task

rate, size = float(os.environ["rate"]), int(os.environ.get("size", "1"))
task.report(step=1, loss=rate * size if rate < 1 else 0.0)
if rate > 1:
    raise SystemExit("it diverged")
"""
ONCE = {"roles": {"worker": {"attempts": 1}}}


def test_trials_are_compared_and_one_that_fails_keeps_none_from_running(tmp_path: Path) -> None:
    file = str(job_file(tmp_path, PROGRAM, tags=["mine"], **ONCE))
    given = ("sweep", file, "--set", "rate=0.5,2", "--set", "size=2,4", "--at-once", "2")
    run = howdah(*given, "--by", "loss", code=1)
    rows = [line.split() for line in run.out]
    assert rows[0][:5] == ["TRIAL", "RATE", "SIZE", "STATE", "LOSS"]
    assert [row[1:5] for row in rows[1:3]] == [
        ["0.5", "2", "succeeded", "1"],
        ["0.5", "4", "succeeded", "2"],
    ]
    assert [row[3] for row in rows[3:]] == ["failed", "failed"]
    assert all("exited with code 1" in line for line in run.out[3:])
    tag = next(line for line in run.err if "trials, tag" in line).split()[-1]
    assert howdah("list", "--tag", tag, "--tag", "mine").text.count("test-") == 4
    assert howdah("list", "--tag", tag, "--tag", "rate=0.5").text.count("test-") == 2


@pytest.mark.nightly
def test_a_trial_that_can_no_longer_be_submitted_ends_no_other(tmp_path: Path) -> None:
    program = """
import os, time
from howdah import task
rate = os.environ["rate"]
os.chdir(os.path.dirname(__file__))
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
if rate == "1":
    open("begun", "w").close()
    wait("go")
if rate == "2":
    wait("begun")
    os.rename("train.py", "renamed.py")
task.report(loss=float(rate))
"""
    command = [sys.executable, str(tmp_path / "job" / "train.py")]
    file = job_file(tmp_path, program, command=command, **ONCE)
    run = start("sweep", str(file), "--set", "rate=1,2,3,4", "--at-once", "2")
    with ended_at_last():
        run.until_line("trial 4 of 4 (rate=4) failed: ")
        (file.parent / "go").touch()
        assert run.end() == 1
    rows = [line.split() for line in run.out[1:]]
    assert [row[1:4] for row in rows] == [
        ["1", "succeeded", "1"],
        ["2", "succeeded", "2"],
        ["3", "failed", "-"],
        ["4", "failed", "-"],
    ]
    assert all("there is no file" in line for line in run.out[3:])


def test_nothing_is_started_where_one_trial_cannot_be_run_and_by_a_dry_run(tmp_path: Path) -> None:
    file = str(job_file(tmp_path, PROGRAM, **ONCE))
    refused = howdah("sweep", file, "--set", "roles.worker.instances=1,some", code=2)
    assert "is not a number of tasks" in refused.told
    shown = howdah("sweep", file, "--set", "rate=log:0.01..1", "--random", "3", "--dry-run")
    assert len(shown.out) == 4
    assert "There are no jobs" in howdah("list").text


def has_reported(job: JobDirectory) -> bool:
    return "reported" in howdah("logs", job.job_id).text


def test_a_signal_stops_the_trials_that_run_and_begins_no_more(tmp_path: Path) -> None:
    program = """
import os, time
from howdah import task
task.report(loss=float(os.environ["rate"]))
print("reported", flush=True)
time.sleep(600)
"""
    file = str(job_file(tmp_path, program, **ONCE))
    run = start("sweep", file, "--set", "rate=1,2,3", "--at-once", "2")
    run.until_line("trial 1 of 3 (rate=1) has begun")
    run.until_line("trial 2 of 3 (rate=2) has begun")
    until(lambda: all(map(has_reported, list_jobs(base_folder()))), "both have reported")
    run.signal(signal.SIGTERM)
    assert run.end() == 130
    rows = [line.split() for line in run.out[1:]]
    assert [row[1:4] for row in rows] == [
        ["1", "stopped", "1"],
        ["2", "stopped", "2"],
        ["3", "not", "begun"],
    ]


@pytest.mark.nightly
def test_slips_of_the_keyboard_are_told(tmp_path: Path) -> None:
    file = str(job_file(tmp_path, PROGRAM, env={"rate": "0.5"}, **ONCE))
    told = howdah("sweep", file, "--set", "rte=0.5,0.25", "--by", "accuracy").told
    assert (
        "rte is a new variable: the job's [env] has none of that name; did you mean rate?" in told
    )
    assert "no trial reported 'accuracy'; reported were loss" in told
    assert "new variable" not in howdah("sweep", file, "--set", "rate=1,2", "--dry-run").told
    for_all = ("--set", "quueue=prod", "--set", "rate=1,2")
    told = howdah("sweep", file, *for_all, "--dry-run").told
    assert (
        "quueue is a new variable: the job's [env] has none of that name; did you mean queue?"
        in told
    )


def test_a_sweep_from_python(tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.mkdir()
    (script / "train.py").write_text(PROGRAM)
    job = howdah_api.Job(
        name="swept",
        source=str(script),
        command=[sys.executable, "train.py"],
        roles={},
        env={"rate": "1"},
    )
    with pytest.warns(RuntimeWarning) as told:
        trials = howdah_api.sweep(job, {"rate": [0.5, 0.25], "quueue": ["prod"]}, at_once=2)
    [warning] = [each for each in told if "new variable" in str(each.message)]
    assert str(warning.message).startswith("quueue is a new variable: ")
    assert warning.filename == __file__
    assert [(trial.parameters, trial.values) for trial in trials] == [
        ({"env.rate": "0.5"}, {"loss": 0.5}),
        ({"env.rate": "0.25"}, {"loss": 0.25}),
    ]
    for trial in trials:
        assert trial.job_id is not None
        assert find(trial.job_id, None).job().env["rate"] == trial.parameters["env.rate"]

"""The Airflow operator, over a stand-in of its base class, and in a real Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from howdah.storage.jobdir import JobDirectory
from tests.cli.howdah import HOWDAH, job_file, newest, until
from tests.cli.test_unsaved import SPOILS_ITS_STORE
from tests.hadoop import artifacts

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STAND_IN = HERE / "stand_in"
AIRFLOW = "apache-airflow-task-sdk>=1.0"
"""Airflow 3's operators; an own environment, for it brings a hundred packages."""


class Airflow(NamedTuple):
    """Where the operator runs."""

    python: str
    path: str

    def run(self, folder: Path, *tasks: dict[str, Any]) -> list[dict[str, Any]]:
        """Execute tasks one after the other; what each told."""
        env = {
            **os.environ,
            "PYTHONPATH": self.path,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        given: list[str] = []
        for task in tasks:
            task = {"howdah": list(HOWDAH), "backend": "local", **task}
            # Our own interpreter must not see the stand-in.
            task["env"] = {"PYTHONPATH": str(ROOT), **task.get("env", {})}
            given.append(json.dumps(task))
        done = subprocess.run(
            [self.python, str(HERE / "airflow_task.py"), *given],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def one(self, folder: Path, **task: Any) -> dict[str, Any]:
        (told,) = self.run(folder, task)
        return told


def _install(place: Path) -> None:
    tool = [str(ROOT / "tools" / "setup"), "--tool"]
    venv = str(place / "venv")
    make = [*tool, "venv", "--quiet", "--python", sys.executable, venv]
    install = [*tool, "pip", "install", "--quiet", "--python", f"{venv}/bin/python", AIRFLOW]
    for command in (make, install):
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])


@pytest.fixture
def airflow() -> Airflow:
    """The stand-in: the real one takes long to be imported."""
    return Airflow(sys.executable, os.pathsep.join([str(STAND_IN), str(ROOT / "src")]))


@pytest.fixture
def real_airflow() -> Airflow:
    try:
        place = artifacts.once("airflow-3", _install)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Airflow cannot be installed here: {error}")
    return Airflow(str(place / "venv" / "bin" / "python"), str(ROOT / "src"))


@pytest.mark.timeout(600)
def test_a_real_airflow_runs_ends_and_kills_jobs(real_airflow: Airflow, tmp_path: Path) -> None:
    good = job_file(tmp_path / "good", "print('fine')")
    bad = job_file(tmp_path / "bad", "import sys; sys.exit(42)", attempts=1)
    long = job_file(tmp_path / "long", "import time; time.sleep(600)")
    succeeded, failed, killed = real_airflow.run(
        tmp_path,
        {"job": str(good), "settings": {"name": "day-{{ ds }}"}},
        {"job": str(bad)},
        {"job": str(long), "kill": True},
    )
    assert succeeded["is_operator"]
    assert succeeded["returned"]["outcome"] == "succeeded"
    assert succeeded["xcom"]["job_id"].startswith("day-2026-11-21-")
    assert "worker:0 exited with code 42" in failed["failed"]
    directory = JobDirectory(newest().path.parent / killed["xcom"]["job_id"])
    assert until(directory.final, "the end of the job").outcome == "stopped"


def test_a_job_that_succeeds_gives_its_id_and_outcome(airflow: Airflow, tmp_path: Path) -> None:
    script, env = "import sys; print(sys.argv)", {"JOB_NAME": "mine"}
    file = job_file(tmp_path, script, roles={"worker": {"instances": 1}}, env=env)
    told = airflow.one(
        tmp_path, job=str(file), settings={"roles.worker.instances": 2, "name": "day-{{ ds }}"}
    )
    assert told["is_operator"]
    assert told["retries"] == 2
    (lost,) = told["warned"]
    assert lost.startswith("env.JOB_NAME: Howdah sets it for the programs of worker")
    directory = newest()
    assert directory.job().name == "day-2026-11-21"
    assert directory.job().roles["worker"].instances == 2
    assert told["xcom"] == {"job_id": directory.job_id}
    assert told["returned"] == {
        "job_id": directory.job_id,
        "outcome": "succeeded",
        "reason": "all tracked tasks succeeded",
        "directory": str(directory.path),
    }


def test_a_job_that_fails_may_be_tried_again_and_says_why(airflow: Airflow, tmp_path: Path) -> None:
    script = "import sys; print('ValueError: no data', file=sys.stderr); sys.exit(42)"
    file = job_file(tmp_path, script, attempts=1)
    told = airflow.one(tmp_path, job=str(file))
    assert "failed_for_good" not in told
    assert "worker:0 exited with code 42" in told["failed"]
    assert "ValueError: no data" in told["failed"]


def test_a_job_that_could_not_save_all_is_not_run_again_and_says_what(
    airflow: Airflow, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    outputs = {"folders": ["made"], "store": store}
    file = job_file(tmp_path, SPOILS_ITS_STORE, env={"STORE": store}, outputs=outputs)
    told = airflow.one(tmp_path, job=str(file))
    first, line = told["failed_for_good"].splitlines()
    assert first.endswith("succeeded, but not all of it could be saved:")
    assert line.startswith("    worker:0: ")
    assert store in line


def test_a_job_that_can_never_run_is_not_tried_again(airflow: Airflow, tmp_path: Path) -> None:
    told = airflow.one(tmp_path, job="nowhere.toml")
    assert "there is no such file" in told["failed_for_good"]


def test_ending_the_task_stops_the_job(airflow: Airflow, tmp_path: Path) -> None:
    file = job_file(tmp_path, "import time; time.sleep(600)")
    told = airflow.one(tmp_path, job=str(file), kill=True)
    directory = JobDirectory(newest().path.parent / told["xcom"]["job_id"])
    view = until(directory.final, "the end of the job")
    assert view.outcome == "stopped"
    assert "its Airflow task was ended" in view.reason
    assert "returned" not in told


def test_a_command_and_tonys_options_may_be_given(airflow: Airflow, tmp_path: Path) -> None:
    told = airflow.one(
        tmp_path,
        arguments=["-conf", "tony.worker.instances=1", "-executes", "echo {{ ds }}"],
        env={"HOWDAH_SITE": ""},
    )
    assert told["returned"]["outcome"] == "succeeded"
    assert told["command"][-1] == "echo 2026-11-21"


def test_a_missing_howdah_is_said_in_words(airflow: Airflow, tmp_path: Path) -> None:
    told = airflow.one(tmp_path, howdah=["/nowhere/howdah"], job="job.toml")
    assert told["failed_for_good"].startswith("/nowhere/howdah cannot be run: No such file")

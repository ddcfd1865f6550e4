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
def real_airflow() -> Airflow:
    try:
        place = artifacts.once("airflow-3", _install)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Airflow cannot be installed here: {error}")
    return Airflow(str(place / "venv" / "bin" / "python"), str(ROOT / "src"))


@pytest.mark.nightly
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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each operator told, by name: all in one process, over the stand-in, as the real Airflow takes
    long to be imported."""
    folder = tmp_path_factory.mktemp("airflow")
    store = str(folder / "store")
    succeeds = job_file(
        folder / "succeeds",
        "import sys; print(sys.argv)",
        roles={"worker": {"instances": 1}},
        env={"JOB_NAME": "mine"},
    )
    fails = job_file(
        folder / "fails",
        "import sys; print('ValueError: no data', file=sys.stderr); sys.exit(42)",
        attempts=1,
    )
    unsaved = job_file(
        folder / "unsaved",
        SPOILS_ITS_STORE,
        env={"STORE": store},
        outputs={"folders": ["made"], "store": store},
    )
    long = job_file(folder / "long", "import time; time.sleep(600)")
    tasks: dict[str, dict[str, Any]] = {
        "succeeds": {
            "job": str(succeeds),
            "settings": {"roles.worker.instances": 2, "name": "day-{{ ds }}"},
        },
        "fails": {"job": str(fails)},
        "unsaved": {"job": str(unsaved)},
        "never runs": {"job": "nowhere.toml"},
        "ended": {"job": str(long), "kill": True},
        "tony": {
            "arguments": ["-conf", "tony.worker.instances=1", "-executes", "echo {{ ds }}"],
            "env": {"HOWDAH_SITE": ""},
        },
        "no howdah": {"howdah": ["/nowhere/howdah"], "job": "job.toml"},
    }
    path = os.pathsep.join([str(STAND_IN), str(ROOT / "src")])
    found = Airflow(sys.executable, path).run(folder, *tasks.values())
    return {**dict(zip(tasks, found)), "store": {"path": store}}


def directory_of(told: dict[str, Any]) -> JobDirectory:
    return JobDirectory(newest().path.parent / told["xcom"]["job_id"])


def test_a_job_that_succeeds_gives_its_id_and_outcome(told: dict[str, dict[str, Any]]) -> None:
    mine = told["succeeds"]
    assert mine["is_operator"]
    assert mine["retries"] == 2
    (lost,) = mine["warned"]
    assert lost.startswith("env.JOB_NAME: Howdah sets it for the programs of worker")
    directory = directory_of(mine)
    assert directory.job().name == "day-2026-11-21"
    assert directory.job().roles["worker"].instances == 2
    assert mine["returned"] == {
        "job_id": directory.job_id,
        "outcome": "succeeded",
        "reason": "all tracked tasks succeeded",
        "directory": str(directory.path),
    }


def test_a_job_that_fails_may_be_tried_again_and_says_why(told: dict[str, dict[str, Any]]) -> None:
    mine = told["fails"]
    assert "failed_for_good" not in mine
    assert "worker:0 exited with code 42" in mine["failed"]
    assert "ValueError: no data" in mine["failed"]


def test_a_job_that_could_not_save_all_is_not_run_again_and_says_what(
    told: dict[str, dict[str, Any]],
) -> None:
    first, line = told["unsaved"]["failed_for_good"].splitlines()
    assert first.endswith("succeeded, but not all of it could be saved:")
    assert line.startswith("    worker:0: ")
    assert told["store"]["path"] in line


def test_what_can_never_run_is_not_tried_again(told: dict[str, dict[str, Any]]) -> None:
    assert "there is no such file" in told["never runs"]["failed_for_good"]
    words = "/nowhere/howdah cannot be run: No such file"
    assert told["no howdah"]["failed_for_good"].startswith(words)


def test_ending_the_task_stops_the_job(told: dict[str, dict[str, Any]]) -> None:
    view = until(directory_of(told["ended"]).final, "the end of the job")
    assert view.outcome == "stopped"
    assert "its Airflow task was ended" in view.reason
    assert "returned" not in told["ended"]


def test_a_command_and_tonys_options_may_be_given(told: dict[str, dict[str, Any]]) -> None:
    assert told["tony"]["returned"]["outcome"] == "succeeded"
    assert told["tony"]["command"][-1] == "echo 2026-11-21"

"""`howdah run` and `howdah submit` on Spark: in an application of their own, or of spark-submit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from howdah.client.lookup.find import find
from tests.changing_folders import all_below
from tests.spark.backend_jobs import container_folders, eventually, marked
from tests.spark.versions import environment

# Each starts a Spark of its own; test_backend.py runs a job file in the session of the others.
pytestmark = pytest.mark.nightly

HOWDAH = (sys.executable, "-m", "howdah")
ARGUMENTS = (
    "--master local[2] --driver-memory 512m --conf spark.ui.enabled=false "
    "--conf spark.driver.host=127.0.0.1 pyspark-shell"
)


@pytest.fixture(autouse=True)
def nothing_left_by_others() -> None:
    """What containers that other tests have killed left behind goes with the next container, a minute later."""
    for folder in container_folders():
        shutil.rmtree(folder, ignore_errors=True)


def howdah(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOWDAH, *arguments],
        cwd=cwd,
        env={**os.environ, **environment(), "PYSPARK_SUBMIT_ARGS": ARGUMENTS, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )


def job_file(folder: Path) -> None:
    (folder / "train.py").write_text(
        'import os\nprint("I am", os.environ["HOWDAH_RANK"], flush=True)\n'
    )
    (folder / "job.toml").write_text(
        'name = "both"\ncommand = "python train.py"\n[roles.worker]\ninstances = 2\n'
    )


def programs() -> list[psutil.Process]:
    """Driver programs of our own that run."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if "howdah.backends.spark.standalone_driver" in process.cmdline():
                if process.environ().get("HOWDAH_TEST_RUN") == os.environ["HOWDAH_TEST_RUN"]:
                    found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_job_file_runs_attached_in_an_application_of_its_own(tmp_path: Path) -> None:
    job_file(tmp_path)
    # Nobody names a Python: executors that are this machine's use this one.
    done = howdah("run", "job.toml", "--backend", "spark", cwd=tmp_path, PYSPARK_PYTHON="")
    assert done.returncode == 0, done.stderr
    assert "I am 0" in done.stdout and "I am 1" in done.stdout
    eventually(lambda: not programs(), "the application has ended")
    assert not container_folders()
    left = [path.name for path in all_below(Path(os.environ["HOWDAH_HOME"]))]
    assert not [name for name in left if name.startswith(".spark-")]


def test_a_submitted_job_outlives_its_command_and_is_looked_at_and_stopped_as_usual(
    tmp_path: Path,
) -> None:
    done = howdah(
        *("submit", "--json", "--backend", "spark", "--", "sh", "-c", "echo begun; sleep 200"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    job_id = json.loads(done.stdout)["job_id"]
    log = find(job_id).logs / "worker-0" / "1.log"
    eventually(lambda: log.exists() and "begun" in log.read_text(), "it runs")
    status = howdah("status", job_id, cwd=tmp_path)
    assert "running" in status.stdout, status.stdout
    assert "begun" in howdah("logs", job_id, cwd=tmp_path).stdout
    beside = howdah(
        "exec", job_id, "worker:0", "--", "sh", "-c", "echo $HOWDAH_JOB_ID; exit 9", cwd=tmp_path
    )
    assert (beside.returncode, beside.stdout) == (9, f"{job_id}\n"), beside.stderr
    assert howdah("stop", job_id, cwd=tmp_path).returncode == 0
    eventually(lambda: not programs(), "the application has ended")
    assert marked(job_id) == [] and not container_folders()
    assert (find(job_id).logs / "spark.log").exists()


def test_under_spark_submit_the_job_is_in_that_application(tmp_path: Path) -> None:
    job_file(tmp_path)
    (tmp_path / "howdah_main.py").write_text(
        "import sys\nfrom howdah.cli.main import main\nsys.exit(main())\n"
    )
    env = {**os.environ, **environment()}
    submit = Path(env["SPARK_HOME"]) / "bin" / "spark-submit"
    done = subprocess.run(
        [
            *(str(submit), *ARGUMENTS.split()[:-1], "howdah_main.py"),
            *("run", "job.toml", "--backend", "spark"),
        ],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert "I am 1" in done.stdout
    assert programs() == [] and not container_folders()


def test_the_doctor_makes_a_session_to_look_at(tmp_path: Path) -> None:
    slow = ARGUMENTS.replace("pyspark-shell", "--conf spark.speculation=true pyspark-shell")
    done = howdah("doctor", "--backend", "spark", cwd=tmp_path, PYSPARK_SUBMIT_ARGS=slow)
    assert done.returncode == 3, done.stderr
    assert "ok  slots: 2 at the same time" in done.stdout
    assert "NO  speculation: spark.speculation = true: every job is refused" in done.stdout
    assert "ok  ports: executors reach the driver at 127.0.0.1" in done.stdout

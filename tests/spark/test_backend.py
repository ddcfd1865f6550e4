"""The Spark backend in one JVM: jobs in the slots of a session, and their ends."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.backends.base import BackendError, Running
from howdah.backends.local.node import supervision
from howdah.cli.main import main
from howdah.client.lookup.find import find
from howdah.client.lookup.site import running
from howdah.spark import Cluster
from howdah.spec.model import Slots
from tests.processes import runs
from tests.spark import versions
from tests.spark.backend_jobs import Started, container_folders, eventually, marked, pids, wait_for

pytestmark = pytest.mark.usefixtures("no_container_left")


def tell(word: str) -> tuple[str, str, str]:
    """What a function sees of its place."""
    print(f"rank {os.environ['HOWDAH_RANK']} says {word}", flush=True)
    return word, os.environ["HOWDAH_RANK"], os.environ["HOWDAH_SPARK_FOLDER"]


def gone(wanted: list[int]) -> bool:
    return not any(runs(pid) for pid in wanted)


@pytest.mark.both_sparks
@pytest.mark.parametrize(
    ("slots", "far"),
    [
        pytest.param(Slots.HELD, True, id="held, by executors that do not see the job directory"),
        pytest.param(Slots.SHARED, False, id="shared", marks=pytest.mark.nightly),
    ],
)
def test_functions_run_in_slots_and_their_values_and_logs_come_home(
    spark: Any, slots: Slots, far: bool
) -> None:
    job = Started(spark, tell, ("hello",), slots=slots, far=far)
    found = job.values()
    assert {rank: value[:2] for rank, value in found.items()} == {
        0: ("hello", "0"),
        1: ("hello", "1"),
    }
    log = job.directory.logs / "worker-1" / "1.log"
    assert "rank 1 says hello" in log.read_text()
    assert marked(job.job_id) == []


def test_a_killed_coordinator_is_replaced_and_the_functions_go_on(
    spark: Any, tmp_path: Path
) -> None:
    job = Started(spark, wait_for, (str(tmp_path / "go"),), roles={"worker": 1})
    eventually(lambda: pids(tmp_path), "it runs")
    assert spark.range(0, 100, 1, 2).count() == 100  # the slots are free meanwhile
    assert running(find(job.job_id)) is Running.YES
    killed = job.submission.coordinator_pid
    os.kill(killed, signal.SIGKILL)

    def replaced() -> bool:
        address = job.directory.coordinator()
        return address is not None and address.incarnation == 2

    eventually(replaced, "there is another coordinator")
    (tmp_path / "go").touch()
    assert sorted(job.values().values()) == pids(tmp_path)


def test_a_job_file_runs_in_the_application_of_its_program(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("import os; print('I am', os.environ['HOWDAH_RANK'])\n")
    (tmp_path / "job.toml").write_text('command = "python train.py"\n[roles.worker]\n')
    monkeypatch.chdir(tmp_path)
    assert main(["run", "job.toml", "--backend", "spark"]) == 0
    assert "I am 0" in capfd.readouterr().out
    assert spark.range(3).count() == 3


@pytest.mark.nightly
def test_a_job_given_up_for_its_coordinator_says_what_that_said_last(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "MAX_RAPID", 0)  # the first death is one too many
    job = Started(spark, wait_for, (str(tmp_path / "go"),), roles={"worker": 1})
    eventually(lambda: pids(tmp_path), "it runs")
    os.kill(job.submission.coordinator_pid, signal.SIGKILL)
    view = job.ended()
    last = job.story().strip().splitlines()[-1].split(maxsplit=3)[3]  # without its stamp and level
    assert view.outcome == "failed"
    assert view.reason.endswith(f"it was killed by SIGKILL: {last}")


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_cancelling_the_job_group_ends_a_foreground_job(spark: Any, tmp_path: Path) -> None:
    context = spark.sparkContext
    context.setJobGroup("cell-7", "a cell of a notebook")
    try:
        job = Started(spark, wait_for, (str(tmp_path / "go"),), slots=Slots.HELD)
        eventually(lambda: len(pids(tmp_path)) == 2, "both run")
        context.cancelJobGroup("cell-7")
        view = job.ended()
        assert gone(pids(tmp_path))
        assert view.outcome == "stopped", view.reason
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.nightly
@pytest.mark.parametrize("slots", Slots, ids=lambda slots: slots.value)
def test_executors_that_do_not_reach_the_driver_say_so_at_once(spark: Any, slots: Slots) -> None:
    job = Started(spark, tell, ("x",), slots=slots, host="nobody.invalid")
    view = job.ended()
    assert view.outcome == "failed"
    assert "does not reach the coordinator at nobody.invalid:" in view.reason


@pytest.mark.nightly
def test_a_killed_container_process_costs_its_container_and_the_job_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    job = Started(spark, wait_for, (str(tmp_path / "go"),), roles={"worker": 1})
    first = eventually(lambda: pids(tmp_path), "it runs")
    agent = psutil.Process(first[0]).parent()
    assert agent is not None
    process = agent.parent()
    assert process is not None and "howdah.backends.spark.container" in process.cmdline()
    left = container_folders()
    process.kill()
    eventually(lambda: len(pids(tmp_path)) == 2, f"it runs again: {job.story()}")
    eventually(lambda: gone(first), "the first one has ended")
    (tmp_path / "go").touch()
    job.values()
    for folder in left:  # the next container process on the host would, a minute later
        shutil.rmtree(folder)


def test_too_few_slots_are_refused_at_once_with_the_setting(spark: Any) -> None:
    with pytest.raises(
        BackendError, match=r"spark\.master = local\[2\].*needs 3 slots.*local\[3\]"
    ):
        Started(spark, tell, ("x",), roles={"worker": 3})


@pytest.mark.nightly
def test_a_job_waits_for_slots_that_are_busy_and_says_so(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "busy").mkdir()
    gate = tmp_path / "busy" / "go"

    def block(batches: Any) -> Any:
        while not gate.exists():
            time.sleep(0.02)
        yield from batches

    busy = threading.Thread(
        target=lambda: spark.range(0, 2, 1, 2).mapInArrow(block, "id long").collect(), daemon=True
    )
    busy.start()
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    eventually(
        lambda: sum(e.numRunningTasks() for e in tracker.getExecutorInfos()) == 2, "slots are busy"
    )
    job = Started(spark, tell, ("late",))

    def words() -> str:
        from howdah.client.api import connect

        waiting = connect(job.job_id).status().reason
        return waiting if "busy" in waiting else ""

    try:
        assert "of the Spark application's 2 are busy" in eventually(words, "it says why")
    finally:
        gate.touch()
        busy.join(30)
    assert job.values()[1][0] == "late"


@pytest.mark.both_sparks
def test_a_resource_profile_that_spark_does_not_take_is_refused_in_its_words(spark: Any) -> None:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1)).build
    with pytest.raises(BackendError) as refused:
        Cluster.start(spark, tell, workers=2, resources=profile, on_log=None)
    told = str(refused.value).splitlines()
    assert "can never run the job" in told[0]
    reasons = {
        versions.Version.NEWEST: "Spark refuses it here: TaskResourceProfiles are only",
        versions.Version.OLDER: f"Spark {spark.version} has no profiles for DataFrames, Spark 4 has",
    }
    assert f"resource profile: {reasons[versions.running()]}" in told[1]
    assert len(told) == 2

"""Slots that a cluster holds while it is fed, on a master with two workers of two cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.backends.base import BackendError
from howdah.backends.spark.facts import IDLE
from howdah.spark import Cluster
from tests.spark import programs, sessions
from tests.spark.faulty import count, ended, eventually, slowly_with_notes
from tests.spark.servers import Standalone

# Sessions of their own: how often tasks are tried, and dynamic allocation, are settings of an application.
pytestmark = pytest.mark.nightly

ROWS = 4000


@pytest.fixture(scope="module")
def two_cores(spark_folder: Path) -> Iterator[Standalone]:
    with Standalone(spark_folder / "two-cores", cores=2) as cluster:
        yield cluster


PLAIN: dict[str, str] = {}
ONE_FAILURE = {"spark.task.maxFailures": "1"}
DYNAMIC = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


@pytest.fixture(scope="module")
def held(two_cores: Standalone, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session of two executors with two cores each, and further settings."""
    settings = {**two_cores.settings(), "spark.cores.max": "4", **request.param}
    with sessions.session(two_cores.folder, settings) as made:
        yield made


def running_tasks(spark: Any) -> int:
    """Tasks that run now, as Spark's status API has it."""
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(each.numRunningTasks() for each in infos)


def executor_of(pid: int) -> psutil.Process:
    """The executor whose child, or child's child, that process is."""
    for each in psutil.Process(pid).parents():
        if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline()):
            return each
    raise AssertionError(f"process {pid} is no executor's: {psutil.Process(pid).parents()}")


def noted(folder: Path, after: int = 0) -> list[int]:
    """The training processes of the first generation after that one that is fed, by rank."""

    def whole() -> list[Path]:
        # One that forms while Spark still ends tasks of the one before may not come to be fed.
        for generation in range(after + 1, after + 5):
            files = [folder / f"{rank}.{generation}" for rank in (0, 1)]
            if all(file.exists() for file in files):
                return files
        return []

    found = eventually(f"a generation after {after} is fed", whole, 90)
    return [int(file.read_text()) for file in found]


@pytest.mark.parametrize(
    "held",
    [PLAIN, ONE_FAILURE],
    indirect=True,
    ids=["tasks are tried again", "one failure ends all"],
)
def test_a_cluster_holds_its_slots_and_lives_and_dies_with_its_executors(
    held: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster.start(held, slowly_with_notes, str(tmp_path), workers=2)
    try:
        assert "slots=" not in capfd.readouterr().out
        eventually("both slots are held", lambda: running_tasks(held) == 2, 30)
        reports: list[Any] = []
        feeding = threading.Thread(
            target=lambda: reports.append(cluster.train(held.range(0, ROWS, 1, 4), align="none"))
        )
        feeding.start()
        before = noted(tmp_path)
        killed = executor_of(before[0])
        killed.kill()
        after = noted(tmp_path, after=1)
        assert not programs.wait_ended(before)
        assert killed.pid not in {executor_of(pid).pid for pid in after}
        (tmp_path / "go").touch()
        feeding.join(120)
        assert [report.rows for report in reports] == [ROWS]
        assert sum(cluster.results(60).values()) == ROWS
    finally:
        cluster.stop()
    eventually("the slots are free", lambda: running_tasks(held) == 0, 30)
    ended(cluster.job_id)


@pytest.mark.parametrize("held", [PLAIN], indirect=True, ids=["tasks are tried again"])
def test_clusters_hold_slots_as_long_as_one_is_left_to_feed_them(
    held: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster.start(held, count, workers=2) as one:
        eventually("both slots are held", lambda: running_tasks(held) == 2, 30)
        with Cluster.start(held, count, workers=2) as two:
            said = capfd.readouterr().out
            assert "the cluster takes 2 of the application's 4 slots and other clusters 2" in said
            eventually("its tasks have ended", lambda: running_tasks(held) == 2, 30)
            two.train(held.range(100))
        with Cluster.start(held, count, workers=1, slots="shared", on_log=None) as three:
            eventually("its task has ended", lambda: running_tasks(held) == 2, 30)
            three.stop()
        held.conf.set(f"{IDLE}.idleTimeoutSeconds", "1")
        held.conf.set(f"{IDLE}.killOnIdleTimeout", "true")
        with pytest.raises(BackendError, match=r"udf\.killOnIdleTimeout = true"):
            Cluster.start(held, count, workers=1, on_log=None)
        held.conf.set(f"{IDLE}.killOnIdleTimeout", "false")
        one.train(held.range(0, 300, 1, 3))
        with pytest.raises(BackendError, match="none is left for the tasks that feed it"):
            Cluster.start(held, count, workers=2, slots="held", on_log=None)
        assert sum(rows for epochs in one.results(60).values() for _, rows, _ in epochs) == 300


@pytest.mark.parametrize("held", [DYNAMIC], indirect=True, ids=["dynamic allocation"])
def test_executors_that_spark_would_take_away_stay_while_a_cluster_holds_them(
    two_cores: Standalone, held: Any
) -> None:
    with pytest.raises(BackendError, match=r"none is left .*maxExecutors = 3"):
        Cluster.start(held, count, workers=3, on_log=None)
    with pytest.raises(BackendError, match=r"spark\.dynamicAllocation\.enabled = true"):
        Cluster.start(held, count, workers=2, slots="shared", on_log=None)
    with Cluster.start(held, count, workers=2, on_log=None) as cluster:
        eventually("idle ones are gone", lambda: len(two_cores.executors()) == 2, 60)
        kept = {each.pid for each in two_cores.executors()}
        cluster.train(held.range(0, ROWS, 1, 4), align="none")
        eventually("the feeder's is gone", lambda: len(two_cores.executors()) == 2, 60)
        assert {each.pid for each in two_cores.executors()} == kept
        values = cluster.results(60)
    assert sum(rows for epochs in values.values() for _, rows, _ in epochs) == ROWS

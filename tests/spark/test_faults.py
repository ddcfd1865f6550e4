"""What goes wrong in programs, plans and tasks, and what is killed, while four ranks are fed on a
Standalone master. Which rows are sent again, and to whom, is shown in tests/spark/feed/simulation."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.client.errors import JobFailed
from howdah.spark import Cluster, FeedError
from howdah.spark.reports import TrainReport
from tests import leaks
from tests.spark import programs
from tests.spark.faulty import (
    Dies,
    FailsOnce,
    Occupies,
    always_fails,
    count,
    double,
    ended,
    eventually,
    raise_after,
    raise_amid,
    raise_at_once,
    slowly_with_notes,
)
from tests.spark.servers import Standalone

RANKS = 4
FOR_EVER = 10**11
"""Rows that nobody could feed before the test times out."""


def start(spark: Any, function: Any, args: Any = None, **options: Any) -> Cluster:
    return Cluster.start(spark, function, args, **{"workers": 2, "on_log": None, **options})


def rows(spark: Any, count: int, partitions: int = 4) -> Any:
    return spark.range(0, count, 1, partitions)


@pytest.mark.both_sparks
def test_each_row_comes_once_though_spark_tries_a_task_again(standalone_spark: Any) -> None:
    """Its program fails, and its Python worker and its executor are killed, amid its rows; and once the
    rows are shuffled before."""
    plain = rows(standalone_spark, 2000)
    flaky = [plain.mapInArrow(FailsOnce(dies), "id long") for dies in Dies]
    flaky.append(plain.repartition(RANKS).mapInArrow(FailsOnce(Dies.PROGRAM), "id long"))
    with start(standalone_spark, count, workers=RANKS) as cluster:
        reports = [cluster.train(frame, align="none") for frame in flaky]
        found = cluster.results(timeout_s=60)
    assert [(each.rows, each.dropped, each.restarts) for each in reports] == [(2000, 0, 0)] * 4
    assert [each.materialised for each in reports] == [False, False, False, True]
    assert len(found) == RANKS
    for run in range(len(flaky)):
        counted = [passes[run] for passes in found.values()]
        assert sum(number for _, number, _ in counted) == 2000
        assert sum(total for _, _, total in counted) == sum(range(2000))


@pytest.mark.both_sparks
def test_each_row_is_answered_once_though_spark_tries_a_task_again(standalone_spark: Any) -> None:
    with start(standalone_spark, double) as cluster:
        for dies in (Dies.PROGRAM, Dies.PYTHON):
            asked = rows(standalone_spark, 2000).mapInArrow(FailsOnce(dies), "id long")
            answers = cluster.inference(asked, schema="twice long").collect()
            assert [(row.id, row.twice) for row in answers] == [(i, 2 * i) for i in range(2000)]


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_an_exception_of_a_function_is_known_in_the_driver_with_its_traceback(
    standalone_spark: Any,
) -> None:
    # Before rows come.
    with pytest.raises((FeedError, JobFailed), match="no model of that name") as raised:
        cluster = start(standalone_spark, raise_at_once, restarts=0)
        cluster.train(rows(standalone_spark, 1000))
    assert "raise_at_once" in str(raised.value)

    # While they come, and long before they have all been fed.
    cluster = start(standalone_spark, raise_amid, restarts=0)
    with pytest.raises(FeedError, match="batch 3 is bad") as raised:
        cluster.train(rows(standalone_spark, FOR_EVER, 8))
    assert "raise_amid" in str(raised.value)
    cluster.stop()
    ended(cluster.job_id)

    # When all have come.
    cluster = start(standalone_spark, raise_after, restarts=0)
    assert cluster.train(rows(standalone_spark, 1000), align="none").rows == 1000
    with pytest.raises(JobFailed, match="cannot save the model"):
        cluster.results(timeout_s=60)
    cluster.stop()

    # The next cluster of the same session does not mind.
    with start(standalone_spark, count) as cluster:
        assert cluster.train(rows(standalone_spark, 1000), align="none").rows == 1000
    ended(cluster.job_id)


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_plans_and_rows_of_all_kinds_leave_the_cluster_to_the_next(standalone_spark: Any) -> None:
    spark = standalone_spark
    with start(spark, count) as cluster:
        with pytest.raises(FeedError, match="row 7 has no label"):
            cluster.train(rows(spark, 2000).mapInArrow(always_fails, "id long"))
        # Six of eight partitions are empty.
        sparse = rows(spark, 800, 8).where("id >= 600")
        assert cluster.train(sparse, align="none").rows == 200
        # One partition has a hundred times what each other has.
        report = cluster.train(rows(spark, 40).unionAll(rows(spark, 1000, 1)), align="drop")
        assert report.rows + report.dropped == 1040
        assert len({rank.batches for rank in report.ranks}) == 1, "ranks end together"
        # No rows at all.
        report = cluster.train(rows(spark, 10).where("id < 0"))
        assert (report.rows, report.batches) == (0, 0)
        other = rows(spark, 500).selectExpr("cast(id as double) as id", "'x' as more")
        with pytest.raises(FeedError, match="from id: int64 to id: double, more: string"):
            cluster.train(other, align="none")
        assert cluster.train(rows(spark, 3000), epochs=3, cache=True, align="none").rows == 9000
        found = cluster.results(timeout_s=60)
    assert {passes[0] for passes in found.values()} == {(-1, 0, 0)}, "the functions were told"
    for epoch in (-3, -2, -1):
        assert sum(passes[epoch][2] for passes in found.values()) == sum(range(3000))


@pytest.mark.nightly
def test_a_cluster_whose_slots_never_become_free_is_given_up_and_says_who_may_have_them(
    standalone_spark: Any, tmp_path: Path
) -> None:
    spark = standalone_spark
    other = rows(spark, RANKS).mapInArrow(Occupies(tmp_path), "id long")
    query = threading.Thread(target=other.collect)
    query.start()
    try:
        eventually("all slots are taken", lambda: len([*tmp_path.glob("*.occupies")]) == RANKS)
        with pytest.raises(
            TimeoutError, match="waiting for containers: worker:0, worker:1"
        ) as told:
            start(spark, count, start_timeout_s=20)
        assert "Spark's slots may be taken by other jobs" in str(told.value)
    finally:
        (tmp_path / "go").touch()
        query.join()
    with start(spark, count) as cluster:
        assert cluster.train(rows(spark, 1000), align="none").rows == 1000


# -- kills ------------------------------------------------------------------------------------------

ROWS = 4000


class Fed:
    """A cluster that is being fed, slowly, until `finish`."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.folder = folder
        self.cluster = start(spark, slowly_with_notes, str(folder), slots="shared")
        self._report: TrainReport | BaseException | None = None
        self._thread = threading.Thread(target=self._feed, args=(spark,), daemon=True)
        self._thread.start()

    def _feed(self, spark: Any) -> None:
        try:
            self._report = self.cluster.train(spark.range(0, ROWS, 1, 4), align="none")
        except BaseException as error:
            self._report = error

    def wait_generation(self, number: int) -> None:
        """Wait until both ranks of it are fed."""

        def there() -> bool:
            if self._report is not None:
                raise AssertionError(f"feeding has ended: {self._report!r}")
            return all((self.folder / f"{rank}.{number}").exists() for rank in (0, 1))

        eventually(f"rows in both ranks of generation {number}", there, 200)

    def trainer(self, rank: int) -> psutil.Process:
        """That rank's training process."""
        return psutil.Process(int((self.folder / f"{rank}.1").read_text()))

    def finish(self) -> tuple[TrainReport, int]:
        """Let it go on at full speed to its end; the report, and the rows its functions counted."""
        (self.folder / "go").touch()
        self._thread.join(120)
        assert isinstance(self._report, TrainReport), repr(self._report)
        return self._report, sum(self.cluster.results(timeout_s=60).values())

    def close(self) -> None:
        (self.folder / "go").touch()
        self.cluster.stop()
        self._thread.join(30)


@contextlib.contextmanager
def fed(spark: Any, folder: Path) -> Iterator[Fed]:
    feeding = Fed(spark, folder)
    try:
        feeding.wait_generation(1)
        yield feeding
    finally:
        feeding.close()
    ended(feeding.cluster.job_id)


@pytest.mark.nightly
@pytest.mark.parametrize("killed", ["the training process", "its agent"])
def test_a_killed_training_process_makes_a_new_gang_that_gets_every_row(
    standalone_spark: Any, tmp_path: Path, killed: str
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        trainer = feeding.trainer(1)
        agent = next(each for each in trainer.parents() if each.name() == "howdah-agent")
        (agent if killed == "its agent" else trainer).kill()
        feeding.wait_generation(2)
        assert not programs.wait_ended([trainer.pid]), "its program ended with it"
        report, counted = feeding.finish()
        assert (report.restarts, report.rows, report.dropped, counted) == (1, ROWS, 0, ROWS)


@pytest.mark.nightly
def test_a_cluster_forms_anew_on_another_worker_when_a_host_is_lost(
    standalone_spark: Any, standalone: Standalone, tmp_path: Path
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        lost = standalone.workers[-1]
        processes = lost.processes()
        for each in processes:
            with contextlib.suppress(psutil.Error):
                each.kill()
        standalone.add_worker()
        feeding.wait_generation(2)
        _, counted = feeding.finish()
        assert counted == ROWS
    # A lost host takes its disk along; here nobody is left who would tidy up.
    pids = {str(each.pid) for each in processes}
    for socket in leaks.sockets(Path(os.environ["HOWDAH_RUNTIME_DIR"])):
        if pids & set(re.findall(r"\d+", socket.name)):
            socket.unlink()
    lost.end()
    standalone.workers.remove(lost)

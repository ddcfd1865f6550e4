"""What goes wrong in programs, plans and data, on a session whose tasks Spark tries three times."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.base import BackendError
from howdah.client.errors import JobFailed
from howdah.spark import Cluster, FeedError
from tests.spark import sessions
from tests.spark.backend_jobs import eventually
from tests.spark.faulty import (
    FailsOnce,
    Occupies,
    always_fails,
    count,
    double,
    ended,
    raise_after,
    raise_amid,
    raise_at_once,
)

pytestmark = pytest.mark.timeout(240)

FOR_EVER = 10**11
"""Rows that nobody could feed before the test times out."""


@pytest.fixture(scope="module")
def spark(spark_folder: Path) -> Iterator[Any]:
    """Two threads, three attempts."""
    conf = {
        "spark.master": "local[2,3]",
    }
    with sessions.session(spark_folder, conf) as made:
        made.range(2).mapInArrow(lambda batches: batches, "id long").collect()
        yield made


def start(spark: Any, function: Any, args: Any = None, **options: Any) -> Cluster:
    return Cluster.start(spark, function, args, **{"workers": 2, "on_log": None, **options})


def rows(spark: Any, count: int, partitions: int = 2) -> Any:
    return spark.range(0, count, 1, partitions)


def totals(values: dict[int, Any]) -> dict[int, tuple[int, int]]:
    """Rows and sum by epoch, of all ranks."""
    found: dict[int, tuple[int, int]] = {}
    for passes in values.values():
        for epoch, number, total in passes:
            before = found.get(epoch, (0, 0))
            found[epoch] = before[0] + number, before[1] + total
    return found


@pytest.mark.both_sparks
def test_an_exception_of_a_function_is_known_in_the_driver_with_its_traceback(spark: Any) -> None:
    # Before rows come.
    with pytest.raises((FeedError, JobFailed), match="no model of that name") as raised:
        cluster = start(spark, raise_at_once, restarts=0)
        cluster.train(rows(spark, 1000))
    assert "raise_at_once" in str(raised.value)

    # While they come, and long before they have all been fed.
    cluster = start(spark, raise_amid, restarts=0)
    with pytest.raises(FeedError, match="batch 3 is bad") as raised:
        cluster.train(rows(spark, FOR_EVER, 8))
    assert "raise_amid" in str(raised.value)
    cluster.stop()
    ended(cluster.job_id)

    # When all have come.
    cluster = start(spark, raise_after, restarts=0)
    assert cluster.train(rows(spark, 1000), align="none").rows == 1000
    with pytest.raises(JobFailed, match="cannot save the model"):
        cluster.results(timeout_s=60)
    cluster.stop()

    # The next cluster of the same session does not mind.
    with start(spark, count) as cluster:
        assert cluster.train(rows(spark, 1000), align="none").rows == 1000
    ended(cluster.job_id)


def test_an_exception_in_the_plan_is_known_in_the_driver_and_the_cluster_lives_on(
    spark: Any,
) -> None:
    with start(spark, count) as cluster:
        broken = rows(spark, 2000).mapInArrow(always_fails, "id long")
        with pytest.raises(FeedError, match="row 7 has no label"):
            cluster.train(broken)
        assert cluster.train(rows(spark, 2000), align="none").rows == 2000
        found = cluster.results(timeout_s=60)
    assert {passes[0] for passes in found.values()} == {(-1, 0, 0)}, "the functions were told"
    assert sum(passes[-1][1] for passes in found.values()) == 2000


@pytest.mark.both_sparks
def test_each_row_comes_once_though_spark_tries_a_task_again(spark: Any) -> None:
    with start(spark, count) as cluster:
        flaky = rows(spark, 2000).mapInArrow(FailsOnce(), "id long")
        assert cluster.train(flaky, align="none").rows == 2000
        killed = rows(spark, 2000).mapInArrow(FailsOnce(kill=True), "id long")
        assert cluster.train(killed, align="none").rows == 2000
        found = cluster.results(timeout_s=60)
    of_both = [passes[run] for passes in found.values() for run in (0, 1)]
    assert sum(number for _, number, _ in of_both) == 4000
    assert sum(total for _, _, total in of_both) == 2 * sum(range(2000))


@pytest.mark.both_sparks
def test_each_row_is_answered_once_though_spark_tries_a_task_again(spark: Any) -> None:
    with start(spark, double) as cluster:
        for flaky in (FailsOnce(), FailsOnce(kill=True)):
            asked = rows(spark, 2000).mapInArrow(flaky, "id long")
            answers = cluster.inference(asked, schema="twice long").collect()
            assert [(row.id, row.twice) for row in answers] == [(i, 2 * i) for i in range(2000)]


def test_a_slow_consumer_gets_all_rows_and_holds_the_feeders_back(spark: Any) -> None:
    with start(spark, count, 0.02) as cluster:
        report = cluster.train(rows(spark, 4000), align="none", timeout_s=60)
        assert report.rows == 4000 and report.dropped == 0


@pytest.mark.both_sparks
def test_empty_uneven_and_missing_rows_end_together(spark: Any) -> None:
    with start(spark, count) as cluster:
        # Six of eight partitions are empty.
        sparse = rows(spark, 800, 8).where("id >= 600")
        assert cluster.train(sparse, align="none").rows == 200
        # One partition has a hundred times what each other has.
        even = rows(spark, 40, 4)
        uneven = even.unionAll(rows(spark, 1000, 1))
        report = cluster.train(uneven, align="none")
        assert report.rows == 1040
        report = cluster.train(uneven, align="drop")
        assert report.rows + report.dropped == 1040
        assert len({rank.batches for rank in report.ranks}) == 1, "ranks end together"
        # No rows at all.
        report = cluster.train(rows(spark, 10).where("id < 0"))
        assert (report.rows, report.batches) == (0, 0)
        # And the cluster still works.
        assert cluster.train(rows(spark, 1000), align="none").rows == 1000


@pytest.mark.both_sparks
def test_epochs_from_a_cache_have_the_same_rows(spark: Any) -> None:
    with start(spark, count) as cluster:
        cluster.train(rows(spark, 3000), epochs=3, cache=True, align="none")
        found = cluster.results(timeout_s=60)
    assert totals(found) == {epoch: (3000, sum(range(3000))) for epoch in range(3)}


def test_other_columns_in_another_run_are_refused_with_both_named(spark: Any) -> None:
    with start(spark, count) as cluster:
        assert cluster.train(rows(spark, 500), align="none").rows == 500
        other = rows(spark, 500).selectExpr("cast(id as double) as id", "'x' as more")
        with pytest.raises(FeedError, match="from id: int64 to id: double, more: string"):
            cluster.train(other, align="none")
        assert cluster.train(rows(spark, 700), align="none").rows == 700


def test_a_cluster_that_can_never_have_its_slots_is_refused_and_says_what_is_there(
    spark: Any,
) -> None:
    with pytest.raises(BackendError, match="3.*2|2.*3"):
        start(spark, count, workers=3)


def test_a_cluster_whose_slots_never_become_free_is_given_up_and_says_who_may_have_them(
    spark: Any, tmp_path: Path
) -> None:
    other = rows(spark, 2).mapInArrow(Occupies(tmp_path), "id long")
    query = threading.Thread(target=other.collect)
    query.start()
    try:
        eventually(lambda: len(list(tmp_path.glob("*.occupies"))) == 2, "both slots are taken")
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


def test_two_clusters_are_fed_at_once(spark: Any) -> None:
    with start(spark, count, workers=1) as one, start(spark, count, workers=1) as two:
        reports: dict[str, int] = {}

        def feed(name: str, cluster: Cluster, number: int) -> None:
            reports[name] = cluster.train(rows(spark, number), align="none").rows

        threads = [
            threading.Thread(target=feed, args=("one", one, 1000)),
            threading.Thread(target=feed, args=("two", two, 2000)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert reports == {"one": 1000, "two": 2000}
        assert totals(one.results(60)) == {0: (1000, sum(range(1000)))}
        assert totals(two.results(60)) == {0: (2000, sum(range(2000)))}
    ended(one.job_id)
    ended(two.job_id)

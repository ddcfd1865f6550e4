"""A cluster in a session with two slots: fed, answered, stopped, and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from howdah.backends.base import BackendError
from howdah.client.errors import BadInput, JobFailed
from howdah.spark import Cluster, FeedError, parallel, run
from howdah.spark.feed.messages import Position
from howdah.spark.rows import FrameSource
from howdah.spark.session import Session
from howdah.spec.model import Network, Role
from howdah.wire.addresses import NoInterface, address_of
from tests.docs.pages import blocks
from tests.spark.versions import Version, running

SOON_S = 90.0
"""What takes a fraction of a second, on a machine that does other things too."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job directories of their own."""
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))


def start(spark: Any, train: Callable[..., Any], args: Any = None, **options: Any) -> Cluster:
    return Cluster.start(spark, train, args, **{"workers": 2, "on_log": None, **options})


def active_jobs(spark: Any) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def collect(args: Any, ctx: Any) -> dict[str, Any]:
    """All ids of each epoch, and how long the batches were."""
    epochs: list[list[int]] = []
    sizes: list[int] = []
    steps = ctx.feed("train").steps(100)
    for epoch in ctx.feed("train"):
        ids: list[int] = []
        for batch in epoch.batches(100):
            ids += batch["id"].tolist()
            sizes.append(len(batch["id"]))
        epochs.append(ids)
    return {"epochs": epochs, "sizes": sizes, "rank": ctx.rank, "role": ctx.role, "steps": steps}


def all_ids(values: dict[int, Any], epoch: int) -> list[int]:
    return sorted(i for value in values.values() for i in value["epochs"][epoch])


def test_every_row_is_handed_out_once_an_epoch_and_ranks_return_values(spark: Any) -> None:
    with start(spark, collect) as cluster:
        report = cluster.train(spark.range(0, 2050, 1, 5), epochs=2, align="none")
        values = cluster.results()
    assert sorted(values) == [0, 1]
    assert [all_ids(values, epoch) for epoch in (0, 1)] == [list(range(2050))] * 2
    assert [value["steps"] for value in values.values()] == [11, 11]
    assert report.rows == 4100 == sum(each.rows for each in report.ranks)
    assert (report.dropped, report.epochs, report.stopped) == (0, 2, False)
    assert report.batches == sum(len(value["sizes"]) for value in values.values())


def test_columns_are_fed_and_answered_whatever_their_names_are(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[Any]:
        found = [
            {name: values.tolist() for name, values in next(ctx.feed(each).batches(10)).items()}
            for each in ("train", "field")
        ]
        feed = ctx.feed("inference")
        for batch in feed.batches(10):
            feed.results({"p.q": batch["s.x"] + 1})
        return found

    struct = "named_struct('x', 7, 'y', 8) as s"
    frame = spark.range(0, 2, 1, 1).selectExpr("id as `s.x`", "-id as `t``k`", struct)
    with start(spark, train, workers=1) as cluster:
        cluster.train(frame, columns=["s.x", "t`k"])
        cluster.train(spark.range(0, 2, 1, 1).selectExpr(struct), feed="field", columns=["s.x"])
        answered = cluster.inference(frame, columns=["s.x"])
        assert answered.columns == ["s.x", "t`k", "s", "p.q"]
        assert [tuple(row) for row in answered.collect()] == [(0, 0, (7, 8), 1), (1, -1, (7, 8), 2)]
        values = cluster.results()
    assert values == {0: [{"s.x": [0, 1], "t`k": [0, -1]}, {"x": [7, 7]}]}


def test_partitions_are_the_same_in_all_queries_of_a_run(spark: Any) -> None:
    """Spark makes as many as it has cores at the time; rows are left out by their places in them."""
    name, parts = "spark.sql.leafNodeDefaultParallelism", []

    class Growing(FrameSource):
        def feed(self, task: Callable[[], bytes]) -> list[tuple[int, int, int]]:
            found = super().feed(task)
            parts.append(len(found))
            spark.conf.set(name, "3")
            return found

    table = spark.sql(
        "select bigint(id) as id from values (0), (1), (2), (3), (4), (5), (6), (7), (8) as t(id)"
    )
    frames = [spark.range(9), table, spark.range(9).join(table.hint("broadcast"), "id")]
    try:
        with start(spark, collect, workers=1) as cluster:
            for frame in frames:
                spark.conf.set(name, "2")
                source = Growing(Session(spark), frame)
                report = cluster.train(source, epochs=2, align="none")
                assert (report.rows, report.ordered) == (18, True)
            values = cluster.results()
    finally:
        spark.conf.unset(name)
    assert parts == [2, 2] * 3
    assert [all_ids(values, epoch) for epoch in range(6)] == [list(range(9))] * 6


@pytest.mark.both_sparks
def test_an_rdd_that_was_shuffled_has_no_order_wherever_it_is_in_a_plan(spark: Any) -> None:
    session, table = Session(spark), spark.range(9).hint("broadcast")
    rows = spark.sparkContext.parallelize([(number,) for number in range(9)], 3)
    for rdd, ordered in ((rows, True), (rows.repartition(2), False)):
        frame = spark.createDataFrame(rdd, "id long")
        joined = frame.join(table, "id")
        assert [session.ordered(each) for each in (frame, joined)] == [ordered] * 2
        cached = joined.cache()
        assert session.ordered(cached) is ordered
        assert session.ordered(cached.join(table, "id")) is ordered
        cached.unpersist()


@pytest.mark.both_sparks
def test_rows_are_known_where_spark_need_not_count_them(spark: Any) -> None:
    session, table = Session(spark), spark.sql("select * from values (1), (2), (3) as t(id)")
    cached = spark.range(7).where("id > 1").cache()
    assert session.known_rows(cached) is None
    assert cached.count() == 5
    frames = [table, spark.range(9).selectExpr("id + 1"), spark.range(9).limit(4), cached]
    counted = 5 if running() is Version.NEWEST else None  # Spark 3 counts some rows twice
    assert [session.known_rows(frame) for frame in frames] == [3, 9, 4, counted]
    unknown = [cached.limit(9), spark.range(9).where("id > 1"), table.join(table, "id")]
    assert [session.known_rows(frame) for frame in unknown] == [None] * 3
    cached.unpersist()


def test_uneven_ranks_end_together_with_exact_counts(spark: Any) -> None:
    # One row in the first partition, 999 in the second, none in the third.
    uneven = spark.range(0, 3000, 1, 3).where("id = 5 or (id >= 1000 and id < 1999)")
    with start(spark, collect) as cluster:
        dropped = cluster.train(uneven, align="drop")
        cluster.results()
    first, second = dropped.ranks
    assert first.batches == second.batches
    assert dropped.rows + dropped.dropped == 1000


def test_cached_epochs_run_spark_once_and_shuffle(spark: Any) -> None:
    counter = spark.sparkContext.accumulator(0)

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    frame = spark.range(0, 1000, 1, 4).mapInArrow(counted, "id long")
    with start(spark, collect) as cluster:
        with pytest.raises(BadInput, match="shuffle=7 reorders cached epochs: add cache=True"):
            cluster.train(frame, epochs=3, align="none", shuffle=7)
        report = cluster.train(frame, epochs=3, align="none", cache=True, shuffle=7)
        values = cluster.results()
    assert counter.value == 1000
    assert report.rows == 3000
    assert [all_ids(values, epoch) for epoch in range(3)] == [list(range(1000))] * 3
    orders = [tuple(values[0]["epochs"][epoch]) for epoch in range(3)]
    assert len(set(orders)) == 3


def test_ranks_exchange_their_rows_between_epochs_when_asked(spark: Any) -> None:
    # As many partitions as ranks: nearness and load alone would give each rank the same ones.
    frame = spark.range(0, 1000, 1, 2)
    with start(spark, collect) as cluster:
        with pytest.raises(BadInput, match=r"exchange=True.*leave cache out; data\.cache\(\)"):
            cluster.train(frame, epochs=3, cache=True, exchange=True)
        report = cluster.train(frame, epochs=3, exchange=True, align="none")
        values = cluster.results()
    assert (report.rows, report.dropped) == (3000, 0)
    assert [all_ids(values, epoch) for epoch in range(3)] == [list(range(1000))] * 3
    # The ends of partitions go to whoever has fewer rows.
    assert [[0 in ids for ids in values[rank]["epochs"]] for rank in (0, 1)] == [
        [True, False, True],
        [False, True, False],
    ]


def test_a_validation_feed_goes_beside_the_training_feed(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[Any]:
        found = []
        validation = iter(ctx.feed("validation"))
        for epoch in ctx.feed("train"):
            rows = sum(len(batch["id"]) for batch in epoch.batches(50))
            seen = sum(int(batch["id"].sum()) for batch in next(validation).batches(50))
            found.append((rows, seen))
        return found

    with start(spark, train) as cluster:
        cluster.train(
            spark.range(0, 1000, 1, 4),
            epochs=2,
            validation=spark.range(0, 100, 1, 2),
            align="none",
        )
        values = cluster.results()
    for epoch in (0, 1):
        assert sum(value[epoch][0] for value in values.values()) == 1000
        assert sum(value[epoch][1] for value in values.values()) == sum(range(100))


def test_the_last_validation_is_whole_though_training_is_over(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[int]:
        validation = iter(ctx.feed("validation"))
        found = []
        for epoch in ctx.feed("train"):
            for _ in epoch.batches(50):
                pass
            seen = 0
            for batch in next(validation).batches(10):
                time.sleep(0.02)  # evaluation takes longer than the end of training
                seen += len(batch["id"])
            found.append(seen)
        return found

    with start(spark, train) as cluster:
        rows, held_out = spark.range(0, 400, 1, 4), spark.range(0, 1000, 1, 2)
        cluster.train(rows, validation=held_out, align="none")
        cluster.train(rows, validation=held_out, align="none")
        values = cluster.results()
    assert [sum(value[epoch] for value in values.values()) for epoch in (0, 1)] == [1000, 1000]


def test_a_validation_feed_that_nobody_reads_holds_nothing_up(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> int:
        return sum(len(batch["id"]) for batch in ctx.feed("train").batches(50))

    with start(spark, train) as cluster:
        cluster.train(spark.range(0, 400, 1, 4), validation=spark.range(100), align="none")
        assert sum(cluster.results().values()) == 400


def test_a_program_that_has_enough_ends_the_spark_job(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> int:
        feed = ctx.feed("train")
        number = 0
        for number, _ in enumerate(feed.batches(100), 1):
            if number == 20:
                feed.stop()
        return number

    with start(spark, train) as cluster:
        report = cluster.train(spark.range(0, 10**10, 1, 8))
        assert report.stopped
        eventually(lambda: active_jobs(spark) == [])
        # Whoever has enough first ends it for all.
        assert max(cluster.results().values()) == 20


def test_an_exception_in_the_function_fails_training_with_its_traceback(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for number, _ in enumerate(ctx.feed("train").batches(100)):
            if number == 5 and ctx.rank == 1:
                raise ValueError("no good batch")

    with pytest.raises(JobFailed, match="no good batch"):
        with start(spark, train) as cluster:
            with pytest.raises(FeedError, match="rank 1.*ValueError: no good batch") as caught:
                cluster.train(spark.range(0, 10**9, 1, 4))
            assert "in train" in str(caught.value)
            cluster.results()
    eventually(lambda: active_jobs(spark) == [])


def test_an_exception_after_the_feed_is_in_the_results(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for _ in ctx.feed("train").batches(100):
            pass
        raise RuntimeError("late")

    with start(spark, train) as cluster:
        cluster.train(spark.range(0, 1000, 1, 2))
        with pytest.raises(JobFailed, match="RuntimeError: late"):
            cluster.results()


def test_an_exception_in_sparks_plan_reaches_the_function(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> str:
        from howdah.spark import FeedError

        try:
            for _ in ctx.feed("train").batches(10):
                pass
        except FeedError as error:
            return str(error)
        return ""

    bad = spark.range(0, 1000, 1, 2).selectExpr("if(id = 700, raise_error('bad row'), id) as id")
    with start(spark, train) as cluster:
        with pytest.raises(FeedError, match="bad row"):
            cluster.train(bad)
        values = cluster.results()
    assert all("bad row" in text for text in values.values())


def answer(args: Any, ctx: Any) -> int:
    feed = ctx.feed("inference")
    rows = 0
    for batch in feed.batches(64):
        rows += len(batch["id"])
        feed.results({"twice": batch["id"] * 2, "text": [f"<{i}>" for i in batch["id"]]})
    return rows


def test_inference_keeps_rows_order_and_columns(spark: Any) -> None:
    frame = spark.range(0, 5000, 1, 7).selectExpr("id", "concat('n', id) as name")
    with start(spark, answer) as cluster:
        told = cluster.inference(frame, columns=["id"], schema="twice long, text string")
        found = cluster.inference(frame, columns=["id"])
        alone = cluster.inference(frame, columns=["id"], keep=False, schema="twice double")
        assert told.columns == found.columns == ["id", "name", "twice", "text"]
        assert dict(found.dtypes)["twice"] == "bigint"
        rows = told.collect()
        assert [row["id"] for row in rows] == list(range(5000))
        assert all(row["twice"] == 2 * row["id"] for row in rows)
        assert all(
            row["name"] == f"n{row['id']}" and row["text"] == f"<{row['id']}>" for row in rows
        )
        assert found.where("twice = 84").count() == 1
        assert alone.columns == ["twice"]
        assert alone.groupBy().sum("twice").collect()[0][0] == float(2 * sum(range(5000)))
        cluster.results()


def test_a_schema_that_spark_cannot_read_is_refused_in_words(spark: Any) -> None:
    with start(spark, answer, workers=1) as cluster:
        for schema in ("twice lnog", "twice", "long", 7):
            with pytest.raises(BadInput, match=f"schema is {schema!r}.*such as") as caught:
                cluster.inference(spark.range(3), schema=schema)
            assert "\n" not in str(caught.value)


def test_answers_of_another_length_are_refused_in_words(spark: Any) -> None:
    def wrong(args: Any, ctx: Any) -> None:
        feed = ctx.feed("inference")
        for batch in feed.batches(64):
            feed.results(batch["id"][:-1])

    with pytest.raises(JobFailed):
        with start(spark, wrong) as cluster:
            with pytest.raises(Exception, match="rows"):
                cluster.inference(spark.range(100), schema="prediction long").collect()
            cluster.results()


def test_a_killed_process_is_started_again_and_goes_on_from_its_checkpoint(
    spark: Any, tmp_path: Path
) -> None:
    """One rank takes batches as it trains them, the other draws two ahead."""

    def train(args: Any, ctx: Any) -> dict[str, Any]:
        import json
        import os
        import signal
        from collections import deque
        from pathlib import Path

        import msgspec

        from howdah.spark.feed.messages import Position

        feed = ctx.feed("train")
        saved = Path(args) / f"{ctx.rank}.json"
        seen: list[int] = []
        if ctx.generation > 1:
            document = json.loads(saved.read_text())
            seen = document["seen"]
            feed.restore(msgspec.convert(document["position"], Position, strict=False))
        before = len(seen)

        def drawn(ahead: int) -> Iterator[Any]:
            queue = deque[Any]()
            for batch in feed.batches(50):
                queue.append(batch)
                if len(queue) > ahead:
                    yield queue.popleft()
            yield from queue

        ahead = 2 * ctx.rank
        for number, batch in enumerate(drawn(ahead), 1):
            seen += batch["id"].tolist()
            if ctx.generation == 1 and number == 8:
                position = json.loads(msgspec.json.encode(feed.position(batches=ahead)))
                saved.write_text(json.dumps({"seen": seen, "position": position}))
            if ctx.generation == 1 and number == 12 and ctx.rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return {"seen": seen, "before": before, "generation": ctx.generation}

    with start(spark, train, str(tmp_path), restarts=1) as cluster:
        cluster.train(spark.range(0, 4000, 1, 4), align="none")
        values = cluster.results()
    assert {value["generation"] for value in values.values()} == {2}
    assert all(value["before"] == 400 for value in values.values())
    assert sorted(i for value in values.values() for i in value["seen"]) == list(range(4000))


def test_a_position_names_the_same_run_whatever_other_feeds_there_were(spark: Any) -> None:
    """As in a fit that goes on from an earlier one's checkpoint: its validation rows may be first."""

    def train(position: Any, ctx: Any) -> list[tuple[int, int]]:
        feed = ctx.feed()
        feed.restore(position)
        for _ in ctx.feed("validation").batches(10):
            pass
        return [(epoch.run, epoch.number) for epoch in feed]

    with start(spark, train, Position(run=1, epoch=1), workers=1) as cluster:
        cluster.train(spark.range(20), feed="validation")
        cluster.end_feed("validation")
        cluster.train(spark.range(20), epochs=2)
        assert cluster.results() == {0: [(1, 1)]}


def test_a_python_worker_that_dies_costs_no_row_where_spark_does_not_try_again(
    spark: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "died"

    def dying(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                if start == 500 and context.partitionId() == 1 and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch.slice(start, 100)

    frame = spark.range(0, 4000, 1, 4).mapInArrow(dying, "id long")
    with start(spark, collect) as cluster:
        report = cluster.train(frame, align="none")
        values = cluster.results()
    assert mark.exists()
    assert all_ids(values, 0) == list(range(4000))
    assert report.rows == 4000


def test_rows_of_an_rdd_are_fed_without_a_dataframe(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[Any]:
        feed = ctx.feed("train")
        return [
            row
            for batch in feed.batches(10)
            for row in zip(batch["_1"].tolist(), batch["_2"].tolist())
        ]

    rdd = spark.sparkContext.parallelize([(i, [float(i), 0.5]) for i in range(300)], 3)
    with start(spark, train) as cluster:
        report = cluster.train(rdd, align="none")
        values = cluster.results()
    assert report.rows == 300
    assert sorted(row[0] for rows in values.values() for row in rows) == list(range(300))
    assert all(row[1] == [row[0], 0.5] for rows in values.values() for row in rows)


def test_a_row_of_an_rdd_that_is_longer_than_the_first_ends_the_feed(spark: Any) -> None:
    rdd = spark.sparkContext.parallelize([(1, 2), (3, 4, 5)], 1)
    error = r"\(3, 4, 5\), a row of the RDD, has the columns _1, _2, _3"
    with (
        pytest.raises(FeedError, match=error),
        start(spark, collect, workers=1) as cluster,
    ):
        cluster.train(rdd)


def test_only_the_columns_that_are_named_are_fed(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[Any]:
        found: list[Any] = []
        validation = iter(ctx.feed("validation"))
        for number, epoch in enumerate(ctx.feed("train"), 1):
            for batch in epoch.batches(100):
                found.append(("train", sorted(batch), sum(batch["id"].tolist())))
            for batch in next(validation).batches(100) if number == 3 else ():
                found.append(("validation", sorted(batch), sum(batch["id"].tolist())))
        return found

    rows = [{"id": 1, "label": 2, "text": "no"}, {"text": "no", "label": 4, "id": 3}]
    rdd = spark.sparkContext.parallelize(rows, 1)
    frame = spark.createDataFrame([(5, 6, "no")], "id long, label long, text string")
    with start(spark, train, workers=1) as cluster:
        with pytest.raises(BadInput, match="no column 'lable'.*did you mean 'label'"):
            cluster.train(rdd, columns=["id", "lable"])
        cluster.train(rdd, columns=["id"])
        cluster.train(frame, columns=["id"])
        cluster.train(rdd, validation=rdd, columns=["id"])
        found = cluster.results()[0]
    assert found == [
        ("train", ["id"], 4),
        ("train", ["id"], 5),
        ("train", ["id"], 4),
        ("validation", ["id"], 4),
    ]


def test_two_clusters_of_one_session_run_side_by_side(spark: Any) -> None:
    with start(spark, collect, workers=1) as first, start(spark, collect, workers=1) as second:
        first.train(spark.range(100))
        second.train(spark.range(1000, 1200))
        assert all_ids(second.results(), 0) == list(range(1000, 1200))
        assert all_ids(first.results(), 0) == list(range(100))


def test_independent_instances_return_their_values(spark: Any) -> None:
    values = parallel(spark, lambda base, ctx: base + ctx.index, 2, [40], on_log=None)
    assert values == [40, 41]


def test_servers_on_the_driver_and_judges_end_with_the_workers(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> int:
        if ctx.role != "worker":
            threading.Event().wait()
        return sum(len(batch["id"]) for batch in ctx.feed("train").batches(10))

    options = {"workers": 1, "ps": 1, "driver_ps": True, "evaluator": True}
    with start(spark, train, **options) as cluster:
        assert [place.role for place in cluster.places] == ["worker"]
        cluster.train(spark.range(100))
        assert cluster.results() == {0: 100}


def test_a_cluster_that_cannot_be_fed_is_refused_before_anything_is_started(
    spark: Any, leaves_nothing: None
) -> None:
    with pytest.raises(BadInput, match="a fixed number of processes"):
        start(spark, collect, roles={"more": Role(instances="1..3")})


def test_logs_status_and_pages_are_at_hand(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def train(args: Any, ctx: Any) -> None:
        print(f"this is {ctx.role} {ctx.index} of {ctx.num_workers}")
        for _ in ctx.feed("train").batches(10):
            pass

    with start(spark, train, chief=1, workers=1, on_log=True) as cluster:
        assert cluster.url is not None
        assert cluster.tensorboard_url is None
        assert {task.task for task in cluster.status().tasks} == {"chief:0", "worker:0"}
        assert {each.role for each in cluster.places} == {"chief", "worker"}
        cluster.train(spark.range(100))
        cluster.results()
        assert any("this is chief 0 of 2" in line.text for line in cluster.logs())
    assert "worker:0 | this is worker 0 of 2" in capfd.readouterr().out


def test_a_feed_that_nobody_asks_for_times_out_in_words(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for _ in ctx.feed("train").batches(10):
            pass

    with start(spark, train) as cluster:
        with pytest.raises(FeedError, match="rank 0 has not asked for rows of 'other'"):
            cluster.train(spark.range(100), feed="other", timeout_s=0.5)
        cluster.train(spark.range(100))


def test_cancelling_the_cell_leaves_nothing_running(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for _ in ctx.feed("train").batches(10):
            pass

    def interrupt() -> None:
        eventually(lambda: active_jobs(spark) != [])
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        with start(spark, train) as cluster:
            threading.Thread(target=interrupt).start()
            cluster.train(spark.range(0, 10**11, 1, 4))
    assert cluster.status().outcome == "stopped"
    eventually(lambda: active_jobs(spark) == [])


def test_cancelling_the_job_group_ends_the_training(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for _ in ctx.feed("train").batches(10):
            pass

    context = spark.sparkContext
    context.setJobGroup("mine", "a cell")

    def of_group() -> set[int]:
        return set(context.statusTracker().getJobIdsForGroup("mine"))

    def cancel(earlier: set[int]) -> None:
        # The job that feeds, not the one by which the cluster was started.
        eventually(lambda: bool((of_group() - earlier) & set(active_jobs(spark))))
        context.cancelJobGroup("mine")

    with pytest.raises(FeedError, match="cancelled"):
        with start(spark, train) as cluster:
            threading.Thread(target=cancel, args=[of_group()]).start()
            cluster.train(spark.range(0, 10**11, 1, 4))
    context.setLocalProperty("spark.jobGroup.id", None)
    eventually(lambda: active_jobs(spark) == [])


def test_one_line_runs_a_torch_program_whose_ranks_find_each_other(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")

    def train(first: int) -> tuple[str, float]:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.tensor([float(first + dist.get_rank())])
        dist.all_reduce(total)
        dist.destroy_process_group()
        return os.environ["RANK"], total.item()

    assert run(train, 10, workers=2) == [("0", 21.0), ("1", 21.0)]
    told = capfd.readouterr().out
    assert 'framework="pytorch" is assumed, as the function uses torch' in told


def test_a_function_that_raises_in_one_line_leaves_no_job_of_sparks(spark: Any) -> None:
    def train() -> None:
        raise ValueError("no such thing")

    with pytest.raises(JobFailed, match="ValueError: no such thing"):
        run(train, workers=2, spark=spark, restarts=0, on_log=None)
    eventually(lambda: not active_jobs(spark))


def test_a_framework_that_is_named_is_not_inferred(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def train() -> str | None:
        if "never" in os.environ:
            import torch  # noqa: F401
        return os.environ.get("RANK")

    assert run(train, workers=1, spark=spark, framework="command") == [None]
    assert "assumed" not in capfd.readouterr().out


def listening() -> set[int]:
    """The TCP ports that this process and those it started listen at, but for Spark's."""
    mine, ports = psutil.Process(), set[int]()
    for each in (mine, *mine.children()):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            found = each.net_connections("tcp") if "java" not in each.name() else []
            ports |= {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}
    return ports


def test_the_driver_and_the_trainers_listen_at_ports_of_the_range(spark: Any) -> None:
    before = listening()
    with start(spark, collect, network=Network(ports="23000-23099")) as cluster:
        ports = listening() - before
        cluster.train(spark.range(0, 100, 1, 2))
        assert len(ports) >= 2  # for executors, and for feeds
        ports |= {place.port for place in cluster.places}
        assert len(ports) >= 4
    assert all(23000 <= port <= 23099 for port in ports), ports


def test_the_interface_of_the_job_is_where_executors_reach_the_driver(spark: Any) -> None:
    name = next(
        (name for _, name in socket.if_nameindex() if name != "lo" and has_address(name)), "lo"
    )
    with start(spark, collect, network=Network(interface=name)) as cluster:
        assert cluster._live.access.host == address_of(name)
        assert {place.address for place in cluster.places} == {address_of(name)}
        cluster.train(spark.range(0, 100, 1, 2))
    with pytest.raises(BackendError, match=r"network\.interface: .* no network interface 'nope0'"):
        start(spark, collect, network=Network(interface="nope0"))


def has_address(name: str) -> bool:
    try:
        return bool(address_of(name))
    except NoInterface:
        return False


def test_a_range_without_a_free_port_is_refused_before_anything_starts(spark: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(
            BackendError, match=rf"No port from {port} to {port} .`.network. ports`"
        ):
            start(spark, collect, network=Network(ports=f"{port}-{port}"))


def shown(page: str, words: str, kind: str = "python") -> str:
    """The program, or other block, with these words that a guide shows."""
    (text,) = [
        block.text for block in blocks(kind) if block.page.name == page and words in block.text
    ]
    return text


@pytest.mark.nightly
def test_the_programs_that_the_guides_show_run(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 600, 1, 4).selectExpr(
        "id as label", "array(float(id), float(7), float(3)) as image"
    )
    frame.write.parquet(f"{tmp_path}/arriving")
    names = {"__name__": "__main__", "spark": spark, "train_df": frame, "test_df": frame}

    exec(shown("spark.md", "rows += len"), names)
    report: Any = names["report"]
    assert (report.rows + report.dropped, sorted(names["values"])) == (1800, [0, 1])

    # Relative paths would be those of Spark's JVM.
    scored = f'"{tmp_path}/scored"'
    exec(with_changes(shown("spark.md", "def classify"), ('"scored"', scored)), names)
    assert spark.read.parquet(f"{tmp_path}/scored").where("prediction = 0").count() == 593

    stream = with_changes(
        shown("spark-streams.md", "train_stream"),
        ('"/', f'"{tmp_path}/'),
        ("    ...", "    eventually(lambda: stream.report.rows > 0)"),
        ("workers=2", "workers=1"),
    )
    exec(stream, {**names, "schema": frame.schema, "eventually": eventually})
    exec(shown("spark.md", "examine(spark)"), names)

    exec(shown("spark-feeds.md", "feed.restore"), names)
    each = {"source": "each"}
    with start(spark, names["train"], workers=1, checkpoint=each) as cluster:
        assert cluster.train(frame).rows == 600

    names["train"] = lambda rate: 2 * rate
    exec(shown("spark.md", "losses = run").replace("workers=4", "workers=2"), names)
    assert names["losses"] == [0.02, 0.02]


def with_changes(text: str, *changes: tuple[str, str]) -> str:
    """A program of a guide at other paths, or smaller."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.nightly
def test_the_programs_of_the_guide_to_pipelines_run(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.ml")
    columns = "id % 7 + 0.5 as age", "id % 3 + 1.5 as height", "id % 5 as label"
    frame = spark.range(0, 60, 1, 2).selectExpr(*columns).cache()
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "df": frame}
    fit = shown("spark-pipelines.md", "DistributedDataParallel")
    here = ("/models/weight.pt", str(tmp_path / "weight.pt"))
    exec(with_changes(fit, ("workers=2", "workers=1"), here), names)
    scored = names["model"].transform(frame)
    assert scored.select("prediction").distinct().count() > 1

    def constant(args: Any, ctx: Any) -> Any:
        for _ in ctx.feed("train").batches(100):
            pass
        return lambda batch: np.full(len(batch["x"]), float(args.hidden))

    # A light one: it is fitted three times.
    names["estimator"] = names["estimator"].copy({names["estimator"].epochs: 1})
    names["estimator"]._train = constant
    search = shown("spark-pipelines.md", "CrossValidator")
    exec(with_changes(search, (', {"hidden": 64}', ""), ("numFolds=3", "numFolds=2")), names)
    assert names["best"].transform(frame).select("prediction").distinct().collect() == [(32.0,)]


@pytest.mark.nightly
def test_the_programs_and_the_command_of_the_guide_to_scoring_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "digits_model.py").write_text(
        "import numpy as np\n\n"
        "def answer(batch):\n"
        "    (images,) = batch.values()\n"
        "    return {'probability': np.asarray(images, 'float32')}\n\n"
        "def make(path):\n"
        "    return answer\n"
    )
    frame = spark.range(0, 8, 1, 2).selectExpr("id", "array(0.0, 0.0, 0.0, id / 8) as pixels")
    frame.write.parquet(f"{tmp_path}/digits.parquet")
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "df": frame}
    exec("from digits_model import answer as model", names)
    at = '"hdfs:///models/digits"'

    exec(with_changes(shown("spark-scoring.md", "import score"), (at, "model")), names)
    assert names["scored"].where("p[3] > 0.5").count() == 3

    udf = shown("spark-scoring.md", "import predict_udf")
    more = ('"array<float>")', '"array<float>", inputs=["pixels"])')
    udf = with_changes(udf, (at, "model"), more, ("df.withColumn", "found = df.withColumn"))
    exec(udf, names)
    assert names["found"].count() == 3
    frame.createOrReplaceTempView("digits")
    assert spark.sql("select probability(pixels)[3] as p from digits where id = 4").first().p == 0.5

    (tmp_path / "export").mkdir()
    command = with_changes(
        shown("spark-scoring.md", "howdah score", kind=""),
        (" digits.parquet", f" {tmp_path}/digits.parquet"),
        (" scored", f" {tmp_path}/scored"),
    )
    words = [*shlex.split(command), "--predict", "digits_model:make"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        exec(shown("spark-scoring.md", "raise SystemExit"), names)
    assert ended.value.code == 0
    assert spark.read.json(f"{tmp_path}/scored").where("p[3] > 0.5").count() == 3


@pytest.mark.nightly
@pytest.mark.timeout(300)  # PyTorch is imported in five processes
def test_the_programs_of_the_guide_from_torchdistributor_and_horovod_run(spark: Any) -> None:
    guide = "from-torchdistributor.md"
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    exec(shown(guide, "def train"), names)
    theirs = with_changes(
        shown(guide, "import TorchDistributor"),
        (
            "TorchDistributor(num_processes=2, local_mode=False",
            "theirs = TorchDistributor(num_processes=1, local_mode=True",
        ),
    )
    exec(theirs, names)
    exec(with_changes(shown(guide, "from howdah.spark import run"), ("rs=2", "rs=1")), names)
    assert names["value"] == names["theirs"] == 0.0

    names["train"] = lambda rate: (rate, os.environ["HOROVOD_RANK"])
    exec(with_changes(shown(guide, "Cluster.start"), ("workers=2", "workers=1")), names)
    assert names["values"] == [(0.01, "0")]

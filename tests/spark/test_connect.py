"""Spark Connect: Spark's driver is another process than the user's program."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.findings import Health
from howdah.backends.spark.doctor import examine
from howdah.client.errors import BadInput, JobFailed
from howdah.spark import Cluster, FeedError
from howdah.spark.pipeline import Model
from howdah.spark.scoring import Make, predict_udf, score
from howdah.spark.session import MOST_BYTES, MOST_RECORDS, Session
from howdah.spark.streaming import start as start_stream
from howdah.spark.tfrecord import read_tfrecords, register, write_tfrecords
from howdah.spec.model import Slots
from tests.spark.adding_model import make, saved
from tests.spark.backend_jobs import Started, pids, wait_for
from tests.spark.faulty import count, eventually

pytestmark = pytest.mark.usefixtures("no_container_left")


def train_and_answer(args: Any, ctx: Any) -> list[int]:
    """The ids it was fed; adds its argument to those it is asked about."""
    ids = [i for batch in ctx.feed("train").batches(10) for i in batch["id"].tolist()]
    scored = ctx.feed("inference")
    for batch in scored.batches(16):
        scored.results({"more": batch["id"] + args})
    return ids


def dies_once(mark: Path) -> Any:
    """``mapInArrow`` function: the first task that has sent rows ends with its Python worker."""

    def dies(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 40)
            with contextlib.suppress(FileExistsError):
                mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(40)

    return dies


def test_a_connect_session_feeds_scores_and_returns_values(
    connect_spark: Any, tmp_path: Path
) -> None:
    spark = connect_spark
    with Cluster.start(spark, train_and_answer, 5, workers=1, on_log=None) as cluster:
        report = cluster.train(spark.range(0, 500, 1, 4), epochs=2, align="none")
        cluster.end_feed("train")
        rows = cluster.inference(spark.range(0, 100, 1, 3)).collect()
        values = cluster.results()
    assert (report.rows, report.ordered) == (1000, True)
    assert sorted(values[0]) == sorted([*range(500)] * 2)
    assert [(row["id"], row["more"]) for row in rows] == [(i, i + 5) for i in range(100)]
    model = Make(saved(tmp_path / "model", 7), make=make)
    assert [row.y for row in score(spark.range(0, 6, 1, 2), model).collect()] == [*range(7, 13)]
    path = str(tmp_path / "out")
    frame = spark.range(0, 100, 1, 2).selectExpr("id", "array(id) a", "concat('s', id) s")
    assert write_tfrecords(frame, path) == 100
    found = read_tfrecords(spark, path, frame.schema).collect()
    assert sorted(found, key=lambda row: row["id"]) == frame.collect()


@pytest.mark.nightly
def test_a_lost_python_worker_costs_no_row(connect_spark: Any, tmp_path: Path) -> None:
    with Cluster.start(connect_spark, train_and_answer, 5, workers=2, on_log=None) as cluster:
        lost = [
            cluster.train(frame.mapInArrow(dies_once(tmp_path / name), "id long"), align="none")
            for name, frame in (
                ("files", connect_spark.range(0, 400, 1, 4)),
                ("shuffled", connect_spark.range(400, 800, 1, 4).repartition(3)),
            )
        ]
        cluster.end_feed("train")
        cluster.end_feed("inference")
        values = cluster.results()
    assert (tmp_path / "files").exists() and (tmp_path / "shuffled").exists()
    assert [(each.rows, each.ordered, each.materialised) for each in lost] == [
        (400, True, False),
        (400, True, True),
    ]
    assert sorted(i for ids in values.values() for i in ids) == [*range(800)]


@pytest.mark.nightly
def test_errors_of_both_sides_are_told_on_connect(connect_spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for number, _ in enumerate(ctx.feed("train").batches(10)):
            if number == args:
                raise ValueError("no good batch")

    with pytest.raises(JobFailed):
        with Cluster.start(connect_spark, train, 3, workers=1, on_log=None) as cluster:
            with pytest.raises(FeedError, match="no good batch"):
                cluster.train(connect_spark.range(0, 10**9, 1, 2))
    bad = connect_spark.range(0, 100, 1, 2).selectExpr("if(id = 70, raise_error('bad row'), id) id")
    with pytest.raises(JobFailed, match="bad row"):
        with Cluster.start(connect_spark, train, -1, workers=1, on_log=None) as cluster:
            with pytest.raises(FeedError, match="bad row"):
                cluster.train(bad)
            cluster.results()


@pytest.mark.nightly
def test_clusters_are_fed_at_the_same_time_and_the_sessions_settings_are_left_alone(
    connect_spark: Any, tmp_path: Path
) -> None:
    def stand_still(args: Any, ctx: Any) -> int:
        feed = ctx.feed()
        rows = next(feed.batches(100))
        (tmp_path / "fed").touch()
        eventually("the other is done", (tmp_path / "go").exists)
        feed.stop()
        return len(rows["id"])

    before = {name: connect_spark.conf.get(name, None) for name in (MOST_RECORDS, MOST_BYTES)}
    with (
        Cluster.start(connect_spark, stand_still, workers=1, on_log=None) as one,
        Cluster.start(connect_spark, count, workers=1, on_log=None) as two,
    ):
        endless = threading.Thread(
            target=lambda: one.train(connect_spark.range(0, 10**9, 1, 1)), daemon=True
        )
        endless.start()
        eventually("one is fed", (tmp_path / "fed").exists)
        assert {name: connect_spark.conf.get(name, None) for name in before} == before
        wide = connect_spark.range(0, 300, 1, 1).selectExpr("id", "repeat('x', 50000) as wide")
        report = two.train(wide, validation=connect_spark.range(10), epochs=2)
        (tmp_path / "go").touch()
        endless.join(60)
        assert report.rows == 600
        assert one.results(60) == {0: 100}


@pytest.mark.nightly
def test_interrupting_the_sessions_operations_ends_a_foreground_job(
    connect_spark: Any, tmp_path: Path
) -> None:
    job = Started(connect_spark, wait_for, (str(tmp_path / "go"),), slots=Slots.HELD)
    eventually("both run", lambda: len(pids(tmp_path)) == 2)
    connect_spark.interruptAll()
    view = job.ended()
    assert view.outcome == "stopped", view.reason


@pytest.mark.nightly
def test_what_connect_cannot_do_or_tell_is_said(
    connect_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = connect_spark.readStream.format("rate").load()
    with pytest.raises(BadInput, match="in Spark Connect micro-batches are handled in the server"):
        start_stream(None, None, stream)  # type: ignore[arg-type]
    found = {each.what: each for each in examine(connect_spark)}
    assert found["Spark"].text.endswith("at a Connect server")
    assert "cannot be counted here" in found["slots"].text
    assert {each.what for each in found.values() if each.health is not Health.FINE} == {"slots"}
    # The server tells no default file system: it is this program's.
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert Session(connect_spark).default_fs() == ""
    site = "<property><name>fs.defaultFS</name><value>hdfs://far:9000/</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{site}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert Session(connect_spark).default_fs() == "hdfs://far:9000"


@pytest.mark.nightly
def test_columns_stages_and_formats_work_on_connect(connect_spark: Any, tmp_path: Path) -> None:
    rows = connect_spark.range(0, 6, 1, 2)
    dotted = rows.selectExpr("id as `s.x`", "struct(id as x) s")
    half = score(dotted, lambda batch: {"z.z": batch["s.x"] * 0.5}, inputs={"s.x": "s.x"})
    assert [tuple(row) for row in half.collect()] == [(i, (i,), i * 0.5) for i in range(6)]
    model = Make(saved(tmp_path / "model", 7), make=make)
    of_columns = predict_udf(connect_spark, model, "y long, place string", inputs=["id"])
    answers = rows.select(of_columns("id").y.alias("y")).collect()
    assert [row.y for row in answers] == [*range(7, 13)]
    Model(model, output_mapping={"y": "sum"}).save(str(tmp_path / "saved"))
    loaded = Model.load(str(tmp_path / "saved"))
    found = loaded.transform(connect_spark.range(3)).collect()
    assert [(row.id, row["sum"]) for row in found] == [(0, 7), (1, 8), (2, 9)]
    register(connect_spark)
    path = str(tmp_path / "out")
    rows.write.format("tfrecord").mode("append").save(path)
    assert connect_spark.read.format("tfrecord").load(path).count() == 6

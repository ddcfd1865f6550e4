"""A cluster from a Connect session: Spark's driver is another process."""

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
from howdah.client.errors import JobFailed
from howdah.spark import Cluster, FeedError
from howdah.spark.session import MOST_BYTES, MOST_RECORDS, Session
from tests.spark.faulty import count, eventually


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job directories of their own."""
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))


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
    def train(args: Any, ctx: Any) -> list[int]:
        ids = [i for batch in ctx.feed("train").batches(10) for i in batch["id"].tolist()]
        scored = ctx.feed("inference")
        for batch in scored.batches(16):
            scored.results({"more": batch["id"] + args})
        return ids

    with Cluster.start(connect_spark, train, 5, workers=2, on_log=None) as cluster:
        report = cluster.train(connect_spark.range(0, 500, 1, 4), epochs=2, align="none")
        shuffled = connect_spark.range(500, 560, 1, 4).repartition(3)
        again = cluster.train(shuffled, align="none")
        lost = [
            cluster.train(frame.mapInArrow(dies_once(tmp_path / name), "id long"), align="none")
            for name, frame in (
                ("files", connect_spark.range(1000, 1400, 1, 4)),
                ("shuffled", connect_spark.range(1400, 1800, 1, 4).repartition(3)),
            )
        ]
        cluster.end_feed("train")
        rows = cluster.inference(connect_spark.range(0, 100, 1, 3)).collect()
        values = cluster.results()
    assert (report.rows, report.ordered) == (1000, True)
    assert (again.rows, again.ordered, again.materialised) == (60, True, True)
    assert (tmp_path / "files").exists() and (tmp_path / "shuffled").exists()
    assert [(each.rows, each.ordered, each.materialised) for each in lost] == [
        (400, True, False),
        (400, True, True),
    ]
    fed = [*range(500), *range(560), *range(1000, 1800)]
    assert sorted(i for ids in values.values() for i in ids) == sorted(fed)
    assert [(row["id"], row["more"]) for row in rows] == [(i, i + 5) for i in range(100)]


def test_the_default_file_system_is_this_programs_where_the_server_tells_none(
    connect_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert Session(connect_spark).default_fs() == ""
    site = "<property><name>fs.defaultFS</name><value>hdfs://far:9000/</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{site}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert Session(connect_spark).default_fs() == "hdfs://far:9000"


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


def test_the_doctor_says_what_cannot_be_told_on_connect(connect_spark: Any) -> None:
    found = {each.what: each for each in examine(connect_spark)}
    assert found["Spark"].text.endswith("at a Connect server")
    assert "cannot be counted here" in found["slots"].text
    assert {each.what for each in found.values() if each.health is not Health.FINE} == {"slots"}

"""Streams into a live cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from howdah.client.errors import BadInput
from howdah.spark import Cluster, FeedError
from howdah.spark.streaming import Stream, feed_dstream


def gather(args: Any, ctx: Any) -> Any:
    """The values seen, by micro-batch; raises at 666, has enough at 777."""
    seen = []
    for epoch in ctx.feed():
        values: list[int] = []
        for batch in epoch.batches(10):
            values += batch["value"].tolist()
            if 666 in values:
                raise ArithmeticError("the number of the beast")
            if 777 in values:
                ctx.feed().stop()
        seen.append(values)
    return seen


class Source:
    """A folder of JSON files: each is one micro-batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        folder.mkdir()
        self._spark = spark
        self._folder = folder
        self._files = 0

    def add(self, *values: int) -> None:
        self._files += 1
        text = "".join(f'{{"value": {value}}}\n' for value in values)
        temporary = self._folder / f".{self._files}.json"
        temporary.write_text(text)
        # Spark takes them by age, in seconds.
        os.utime(temporary, (1_700_000_000 + self._files,) * 2)
        temporary.rename(self._folder / f"{self._files:03}.json")

    def stream(self) -> Any:
        reader = self._spark.readStream.schema("value long").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))


def cluster_of(spark: Any, train: Any, args: Any = None) -> Cluster:
    return Cluster.start(spark, train, args, workers=1, restarts=0, on_log=None)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 150
    gate = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        gate.wait(0.05)


@pytest.mark.both_sparks
def test_a_stream_feeds_micro_batches_until_it_is_stopped_and_goes_on_later(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add(1, 2)
    source.add(3)
    location = str(tmp_path / "checkpoint")
    with cluster_of(spark, gather) as cluster:
        stream = cluster.train_stream(source.stream(), checkpoint_location=location)
        wait_for(lambda: stream.report.micro_batches == 2)
        source.add(4, 5, 6)
        wait_for(lambda: stream.report.micro_batches == 3)
        assert stream.active
        report = stream.stop(150)
        assert not stream.active and not stream.query.isActive
        assert (report.micro_batches, report.rows, report.dropped) == (3, 6, 0)
        # What comes later is for the next stream, from where this one was.
        source.add(7)
        again = cluster.train_stream(
            source.stream(), checkpoint_location=location, trigger={"availableNow": True}
        )
        assert again.wait(150).rows == 1
        assert cluster.results()[0] == [[1, 2], [3], [4, 5, 6], [7]]


@pytest.mark.nightly
def test_a_micro_batch_that_begins_while_the_stream_is_ended_does_not_keep_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add(1)
    begun = threading.Event()
    feed, await_commit = Stream.feed, Stream._await_commit

    def begin(stream: Stream, rows: Any, number: int) -> None:
        if number == 1:
            begun.set()
        feed(stream, rows, number)

    def let_one_begin(stream: Stream) -> None:
        await_commit(stream)
        source.add(2)
        assert begun.wait(150)

    monkeypatch.setattr(Stream, "feed", begin)
    monkeypatch.setattr(Stream, "_await_commit", let_one_begin)
    with cluster_of(spark, gather) as cluster:
        stream = cluster.train_stream(source.stream())
        wait_for(lambda: stream.report.micro_batches == 1)
        assert stream.stop(120).rows == 1
        assert cluster.results() == {0: [[1]]}


def gather_then_wait(folder: str, ctx: Any) -> Any:
    """Takes one micro-batch; has enough once a file ``go`` is there."""
    seen: list[int] = []
    for batch in ctx.feed().batches(10):
        seen += batch["value"].tolist()
        while not (Path(folder) / "go").exists():
            time.sleep(0.02)
        ctx.feed().stop()
    return seen


@pytest.mark.nightly
def test_a_program_that_has_enough_between_two_micro_batches_ends_the_stream(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add(1)
    with cluster_of(spark, gather_then_wait, str(tmp_path)) as cluster:
        stream = cluster.train_stream(source.stream())
        wait_for(lambda: stream.report.micro_batches == 1)
        (tmp_path / "go").touch()
        assert stream.wait(120).rows == 1
        assert stream.stopped
        assert cluster.results() == {0: [1]}


@pytest.mark.nightly
def test_an_error_of_the_program_ends_the_stream_with_its_traceback(
    spark: Any, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path / "in")
    source.add(1)
    source.add(666)
    cluster = cluster_of(spark, gather)
    try:
        stream = cluster.train_stream(source.stream())
        with pytest.raises(FeedError, match="ArithmeticError: the number of the beast"):
            stream.wait(120)
        assert not stream.query.isActive
    finally:
        cluster.stop()


@pytest.mark.nightly
@pytest.mark.parametrize("saves", [False, True])
def test_a_restart_after_a_micro_batch_goes_on_from_what_was_saved_or_ends_the_stream(
    spark: Any, tmp_path: Path, saves: bool
) -> None:
    def train(args: Any, ctx: Any) -> int:
        feed, saved, rows = ctx.feed(), Path(args) / "saved", 0
        if saved.exists():
            feed.restore(saved.read_bytes())
        for epoch in feed:
            rows += sum(len(batch["value"]) for batch in epoch.batches(10))
            if saves:
                saved.write_bytes(feed.position_bytes())
            (Path(args) / f"{ctx.generation}.tmp").write_text(str(os.getpid()))
            (Path(args) / f"{ctx.generation}.tmp").rename(Path(args) / f"{ctx.generation}")
        return rows

    source = Source(spark, tmp_path / "in")
    source.add(1, 2)
    cluster = Cluster.start(spark, train, str(tmp_path), workers=1, restarts=1, on_log=None)
    try:
        stream = cluster.train_stream(source.stream())
        wait_for(lambda: stream.report.micro_batches == 1 and (tmp_path / "1").exists())
        os.kill(int((tmp_path / "1").read_text()), signal.SIGKILL)
        if not saves:
            with pytest.raises(FeedError, match="learned in run 1 of the feed 'train' is lost"):
                stream.wait(120)
            return
        wait_for(lambda: [each.generation for each in cluster.places] == [2])
        source.add(3, 4, 5)
        wait_for(lambda: stream.report.micro_batches == 2)
        report = stream.stop(150)
        assert (report.rows, report.repeated, report.forgotten) == (5, 0, 0)
        assert cluster.status().restarts == 1
        assert cluster.results() == {0: 3}
    finally:
        cluster.stop()


@pytest.mark.nightly
def test_an_error_of_the_stream_is_told(spark: Any, tmp_path: Path) -> None:
    source = Source(spark, tmp_path / "in")
    source.add(1)
    cluster = cluster_of(spark, gather)
    try:
        with pytest.raises(BadInput, match="is no stream: feed it with cluster.train"):
            cluster.train_stream(spark.range(3))
        stream = cluster.train_stream(source.stream().selectExpr("raise_error('bad row') value"))
        with pytest.raises(FeedError, match="bad row"):
            stream.wait(120)
    finally:
        cluster.stop()


@pytest.mark.nightly
@pytest.mark.both_sparks
def test_a_dstream_feeds_each_of_its_rdds(spark: Any) -> None:
    from pyspark.streaming import StreamingContext

    context = StreamingContext(spark.sparkContext, 1)
    rdds = [spark.sparkContext.parallelize([{"value": n} for n in some]) for some in ([1, 2], [3])]
    ended: list[BaseException | None] = []
    over = threading.Event()

    def on_end(error: BaseException | None) -> None:
        ended.append(error)
        over.set()

    rdds.append(spark.sparkContext.parallelize([{"value": 777}]))
    with cluster_of(spark, gather) as cluster:
        feed_dstream(cluster, context.queueStream(rdds), on_end=on_end)
        context.start()
        try:
            assert over.wait(240)
        finally:
            context.stop(stopSparkContext=False, stopGraceFully=False)
        assert ended == [None]
        found = cluster.results()[0]
        assert [sorted(values) for values in found[:2]] == [[1, 2], [3]]

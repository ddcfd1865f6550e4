"""Streams of rows into a live cluster: Structured Streaming (`Cluster.train_stream`), and DStreams.

Every micro-batch is one `Cluster.train` of the same feed: for the programs one more epoch, in the
same iteration. A micro-batch counts for Spark once the programs have used it, so a stream that
starts again from its checkpoint location brings the one it was in anew: each row at least once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from howdah.client.errors import BadInput
from howdah.spark.errors import FeedError
from howdah.spark.feed.messages import Align
from howdah.spark.live import Live
from howdah.spark.reports import TrainReport

LOOK_S = 0.5
"""Between two looks at whether the programs are well while no rows come."""
COMMIT_S = 10.0
"""Spark notes a finished micro-batch within that time."""


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a stream's rows so far."""

    micro_batches: int = 0
    rows: int = 0
    """Handed to programs, all ranks."""
    batches: int = 0
    dropped: int = 0
    restarts: int = 0
    """So often the processes formed anew in a micro-batch."""
    repeated: int = 0
    """Rows handed out again after one: see `TrainReport`."""
    forgotten: int = 0
    """Rows whose training was lost with one: see `TrainReport`."""

    def plus(self, report: TrainReport) -> StreamReport:
        """With one more micro-batch."""
        names = ("rows", "batches", "dropped", "restarts", "repeated", "forgotten")
        sums = {name: getattr(self, name) + getattr(report, name) for name in names}
        return StreamReport(micro_batches=self.micro_batches + 1, **sums)


class _Ending(Exception):
    """Ends a micro-batch that must not be taken for a finished one."""


class Stream:
    """A stream that feeds a cluster. Made by `start`; its methods are for any thread."""

    def __init__(
        self, train: Callable[..., TrainReport], live: Live, options: Mapping[str, Any]
    ) -> None:
        """``train`` is `Cluster.train`; ``live`` its running cluster."""
        self._train = train
        self._live = live
        self._options = dict(options)
        self._feeding = threading.Lock()
        """Held while a micro-batch is fed."""
        self._ending = threading.Event()
        self._over = threading.Event()
        self._last = -1
        """Number of the last micro-batch that was used."""
        self.query: Any = None
        """Spark's StreamingQuery."""
        self.error: BaseException | None = None
        """What has ended it, if it was an error; see `wait`."""
        self.report: StreamReport = StreamReport()
        """Grows with every micro-batch."""
        self.stopped: bool = False
        """The programs have said that they want no more rows (``feed.stop()``)."""

    @property
    def active(self) -> bool:
        """Whether more rows may come."""
        return not self._over.is_set()

    def stop(self, timeout_s: float | None = None) -> StreamReport:
        """End it gracefully: the micro-batch at hand is finished first. The cluster goes on.

        Raises:
            FeedError: an error has ended it.
            TimeoutError: the micro-batch at hand takes longer; it goes on, and the stream ends
                after it.
        """
        self._ending.set()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> StreamReport:
        """Wait for its end: by `stop`, by the programs (``feed.stop()``), by a source that has no
        more (``trigger={"availableNow": True}``), or by an error.

        Raises:
            FeedError: a program raised, with its traceback, or Spark's query failed.
            TimeoutError: it has not ended in time; it goes on.
        """
        if not self._over.wait(timeout_s):
            raise TimeoutError(f"the stream has not ended within {timeout_s:g} s; it goes on")
        if self.error is not None:
            raise self.error
        return self.report

    def start(self, query: Any) -> None:
        """Watch over the query that calls `feed`."""
        self.query = query
        watcher = threading.Thread(target=self._watch, name="howdah-stream", daemon=True)
        watcher.start()

    def feed(self, rows: Any, number: int) -> None:
        """Called by Spark with each micro-batch."""
        with self._feeding:
            if self._ending.is_set():
                raise _Ending("the stream is being stopped")
            try:
                report = self._train(rows, **self._options)
            except BaseException as error:
                self.error = self.error or error
                self._ending.set()
                raise
            if report.rows or report.dropped or not report.stopped:
                # A program that stopped with its last rows is heard after their micro-batch: of
                # the next one it took nothing.
                self.report = self.report.plus(report)
            if report.stopped:
                # What was left of it is nobody's: the micro-batch is done.
                self.stopped = True
                self._ending.set()
            self._last = number

    def _watch(self) -> None:
        try:
            while self.query.isActive and not self._ending.is_set():
                self._check()
                self._ending.wait(LOOK_S)
            if self.query.isActive:
                with self._feeding:
                    pass  # the micro-batch at hand is finished, and none is begun from now on
                # Not with the lock: Spark waits for a micro-batch that has just come to `feed`.
                self._await_commit()
                self.query.stop()
            failure = self.query.exception()
            if failure is not None and not self._ending.is_set():
                raise FeedError(f"Spark's stream failed: {failure}") from failure
        except BaseException as error:
            self.error = self.error or error
            with contextlib.suppress(Exception):
                self.query.stop()
        finally:
            self._over.set()

    def _check(self) -> None:
        """While no rows come nobody else looks at the programs.

        Raises:
            FeedError: one has raised, or the cluster has ended.
        """
        if not self._feeding.acquire(blocking=False):
            return  # who feeds looks too, and knows a program that has had enough
        try:
            live = self._live
            with live.controller.changed:
                if self._ending.is_set():
                    return
                # What a program says after its last rows comes too late for their micro-batch.
                enough = live.enough(self._options["feed"], Align(self._options["align"]))
                live.check(enough=enough)
                if enough:
                    self.stopped = True
                    self._ending.set()
        finally:
            self._feeding.release()

    def _await_commit(self) -> None:
        """Spark writes down that a micro-batch is done after `feed` has returned."""
        deadline = time.monotonic() + COMMIT_S
        while self._last >= 0 and self.query.isActive and time.monotonic() < deadline:
            progress = self.query.lastProgress
            if progress is not None and progress["batchId"] >= self._last:
                return
            self._over.wait(0.02)


def start(
    train: Callable[..., TrainReport],
    live: Live,
    data: Any,
    *,
    feed: str = "train",
    trigger: Mapping[str, Any] | str | None = None,
    checkpoint_location: str | None = None,
    name: str | None = None,
    align: str = "drop",
    columns: list[str] | None = None,
    spill: int | str | None = None,
    materialise: bool = True,
    timeout_s: float | None = 600.0,
) -> Stream:
    """Feed a streaming DataFrame to a cluster, micro-batch by micro-batch; returns at once.

    Args:
        train: `Cluster.train`, with ``mode="feed"``. Nothing else may train on this feed meanwhile.
        live: the running cluster.
        data: the stream.
        feed: name of the feed.
        trigger: as `DataStreamWriter.trigger` takes it, ``{"availableNow": True}`` or
            ``{"processingTime": "5 seconds"}``; a string is a processing time.
        checkpoint_location: where Spark keeps how far the stream is, to go on from there in
            another program.
        name: of Spark's query.
        align: for each micro-batch: ``drop`` leaves out what ranks have more than the poorest,
            ``none`` lets ranks differ.
        columns: only these.
        spill: what a rank's files may take on its disk: as in `Cluster.train`.
        materialise: as in `Cluster.train`, of a micro-batch whose rows come in no promised order.
        timeout_s: without progress in a micro-batch for so long it fails; between them nobody
            waits.

    Raises:
        BadInput: it is no stream, or the session is one of Spark Connect.
    """
    if not getattr(data, "isStreaming", False):
        raise BadInput("this DataFrame is no stream: feed it with cluster.train(frame)")
    if type(data).__module__.startswith("pyspark.sql.connect"):
        raise BadInput(
            "in Spark Connect micro-batches are handled in the server, which does not reach the "
            "cluster of this program: use a classic session, or write the stream to a table and "
            "feed that with cluster.train(table)"
        )
    options = {
        "feed": feed,
        "align": align,
        "columns": columns,
        "spill": spill,
        "materialise": materialise,
        "timeout_s": timeout_s,
    }
    stream = Stream(train, live, options)
    writer = data.writeStream.foreachBatch(stream.feed)
    if name is not None:
        writer = writer.queryName(name)
    if checkpoint_location is not None:
        writer = writer.option("checkpointLocation", checkpoint_location)
    if isinstance(trigger, str):
        trigger = {"processingTime": trigger}
    if trigger:
        writer = writer.trigger(**trigger)
    stream.start(writer.start())
    return stream


def feed_dstream(
    cluster: Any,
    stream: Any,
    *,
    feed: str = "train",
    epochs: int = 1,
    on_end: Callable[[BaseException | None], Any] | None = None,
    **options: Any,
) -> None:
    """Feed each RDD of a DStream to a cluster, once the StreamingContext is started. Empty ones
    are left out. For classic Spark.

    After an error, or when the programs want no more rows (``feed.stop()``), nothing more is fed
    and ``on_end`` is called, from Spark's thread: the context must be stopped from another one.

    Args:
        cluster: a `howdah.spark.Cluster` with ``mode="feed"``.
        stream: a `pyspark.streaming.DStream`.
        feed: name of the feed.
        epochs: how often each RDD is handed out.
        on_end: called once, with the error or None.
        options: further ones of `Cluster.train`.
    """
    ended = threading.Event()

    align = options.get("align", "drop")

    def train(rdd: Any) -> None:
        if ended.is_set():
            return
        error: BaseException | None = None
        try:
            stopped = (
                not rdd.isEmpty()
                and cluster.train(rdd, feed=feed, epochs=epochs, **options).stopped
            )
            # What a program says after its last rows comes too late for their RDD.
            if not stopped and not cluster.stopped(feed, align):
                return
        except BaseException as raised:
            error = raised
        ended.set()
        if on_end is not None:
            on_end(error)
        if error is not None:
            raise error

    stream.foreachRDD(train)

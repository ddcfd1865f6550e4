"""Streams of rows into a live cluster: what `Cluster.train_stream` gives, and DStreams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from howdah.spark.cluster import Cluster
from howdah.spark.microbatches import Stream, StreamReport

__all__ = ["Stream", "StreamReport", "feed_dstream"]


def feed_dstream(
    cluster: Cluster,
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
        cluster: with ``mode="feed"``.
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

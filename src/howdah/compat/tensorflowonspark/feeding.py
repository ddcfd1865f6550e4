"""RDDs, DataFrames and DStreams as what `howdah.spark.Cluster` feeds, and answers as an RDD."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from howdah.spark.cluster import Cluster
from howdah.spark.reports import TrainReport
from howdah.spark.rows import RddSource, rdd_feeder


class PickledRows(RddSource):
    """An RDD of any Python objects: they arrive as they are."""

    def feed(self, task: Callable[[], bytes]) -> list[tuple[int, int, int]]:
        from howdah.compat.tensorflowonspark.rows import to_arrow

        return self._rdd.mapPartitions(rdd_feeder(task(), to_arrow)).collect()


def is_stream(data: Any) -> bool:
    """Whether it is a DStream."""
    module = sys.modules.get("pyspark.streaming")  # nobody has one who has not imported it
    return module is not None and isinstance(data, module.DStream)


def is_frame(data: Any) -> bool:
    """Whether it is a DataFrame, classic or Connect, and no RDD."""
    return hasattr(data, "mapInArrow")


def train(cluster: Cluster, data: Any, epochs: int, timeout_s: float, feed: str) -> TrainReport:
    """Feed rows as they are, each rank for itself: that is what TensorFlowOnSpark does."""
    source = data if is_frame(data) else PickledRows(data)
    return cluster.train(source, feed=feed, epochs=epochs, align="none", timeout_s=timeout_s)


def inference(cluster: Cluster, data: Any, feed: str) -> Any:
    """An RDD of answers to the rows of an RDD (or of a DataFrame, as `Row` objects)."""
    rdd = data.rdd if is_frame(data) else data
    return rdd.mapPartitions(_answers(cluster.scorer(feed)), True)


def _answers(
    score: Callable[[Iterator[Any]], Iterator[Any]],
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def answers(rows: Iterator[Any]) -> Iterator[Any]:
        from howdah.compat.tensorflowonspark.rows import from_arrow, to_arrow

        return from_arrow(score(to_arrow(rows)))

    return answers

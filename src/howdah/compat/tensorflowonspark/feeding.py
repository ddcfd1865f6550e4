"""RDDs, DataFrames and DStreams as what `howdah.spark.Cluster` feeds, and answers as an RDD."""

from __future__ import annotations

import sys
from typing import Any

from howdah.spark.cluster import Cluster
from howdah.spark.reports import TrainReport


def is_stream(data: Any) -> bool:
    """Whether it is a DStream."""
    module = sys.modules.get("pyspark.streaming")  # nobody has one who has not imported it
    return module is not None and isinstance(data, module.DStream)


def is_frame(data: Any) -> bool:
    """Whether it is a DataFrame, classic or Connect, and no RDD."""
    return hasattr(data, "schema") and hasattr(data, "mapInArrow")


def train(cluster: Cluster, data: Any, epochs: int, timeout_s: float, feed: str) -> TrainReport:
    """Feed rows as they are, each rank for itself: that is what TensorFlowOnSpark does."""
    from howdah.compat.tensorflowonspark import rows

    source = data if is_frame(data) else data.mapPartitions(rows.to_arrow, True)
    return cluster.train(source, feed=feed, epochs=epochs, align="none", timeout_s=timeout_s)


def inference(cluster: Cluster, data: Any, feed: str) -> Any:
    """An RDD of answers to the rows of an RDD (or of a DataFrame, which answers its `Row` objects)."""
    from howdah.compat.tensorflowonspark import rows

    source = data.rdd if is_frame(data) else data
    answers = cluster.inference(source.mapPartitions(rows.to_arrow, True), feed=feed, keep=False)
    return answers.mapPartitions(rows.from_arrow, True)

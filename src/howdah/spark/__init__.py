"""Training inside Spark: clusters in executors, fed with DataFrames.

    from howdah.spark import Cluster

    with Cluster.start(spark, train, args, workers=4) as cluster:
        cluster.train(train_df, epochs=3)
        scored = cluster.inference(test_df)
        values = cluster.results()

Names are loaded when they are first used: importing this imports neither Spark nor Arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.spark.cluster import Cluster as Cluster
    from howdah.spark.errors import FeedError as FeedError
    from howdah.spark.foreground import parallel as parallel
    from howdah.spark.foreground import run as run
    from howdah.spark.parquet import ParquetFeed as ParquetFeed
    from howdah.spark.reports import TrainReport as TrainReport
    from howdah.spark.scoring.frames import score as score
    from howdah.spark.scoring.udf import predict_udf as predict_udf

_HOMES = {
    "Cluster": "howdah.spark.cluster",
    "FeedError": "howdah.spark.errors",
    "ParquetFeed": "howdah.spark.parquet",
    "TrainReport": "howdah.spark.reports",
    "parallel": "howdah.spark.foreground",
    "predict_udf": "howdah.spark.scoring.udf",
    "run": "howdah.spark.foreground",
    "score": "howdah.spark.scoring.frames",
}
"""Public names, and the modules that have them."""

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

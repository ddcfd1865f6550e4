"""The session of a driver that a benchmark has started."""

from __future__ import annotations

import json
import os
from typing import Any


def session() -> Any:
    """One with the settings in the variable SPARK_SETTINGS (JSON); it logs errors only."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark

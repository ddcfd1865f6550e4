"""The Spark application of a command line: the present one under ``spark-submit``, else a new one.

A new one's master and settings are those of ``spark-defaults.conf`` and of the environment
(``SPARK_CONF_DIR``, ``PYSPARK_SUBMIT_ARGS``, ``SPARK_REMOTE``), as with every pyspark program.
"""

from __future__ import annotations

from typing import Any

from howdah.backends.base import BackendError


def session() -> Any:
    """A session.

    Raises:
        BackendError: there is no pyspark, or no application can be started.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BackendError(
            f"The spark backend needs pyspark, which cannot be imported: {error}. Install it "
            "(pip install 'howdah[spark]'), or run this command by spark-submit"
        ) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    try:
        return SparkSession.builder.appName("howdah").getOrCreate()
    except Exception as error:  # py4j's, or Java's own way to say that there is none
        raise BackendError(
            f"No Spark application could be started: {str(error).strip() or type(error).__name__}. "
            "Its master is that of spark-defaults.conf (SPARK_CONF_DIR), of PYSPARK_SUBMIT_ARGS or "
            "of spark-submit --master"
        ) from error

"""The Spark application of a job that was not given a session.

A new application's master and settings are those of ``spark-defaults.conf`` and of the environment
(``SPARK_CONF_DIR``, ``PYSPARK_SUBMIT_ARGS``, ``SPARK_REMOTE``), as with every pyspark program.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from howdah.backends.base import BackendError
from howdah.backends.spark.sessions import is_connect
from howdah.backends.spark.submission import SparkSubmission


def active() -> Any:
    """The program's session; None if it has none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    return SparkSession.getActiveSession()


def session(
    master: str = "", settings: Mapping[str, str] | None = None, name: str = "howdah"
) -> Any:
    """This program's session, or a new one with that master and those settings.

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
    found = active()
    if found is not None:
        return found
    try:
        builder = SparkSession.builder.appName(name)
        # Its bars would be drawn between the lines of a log.
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        if master:
            builder = builder.master(master)
        for key, value in (settings or {}).items():
            builder = builder.config(key, value)
        return with_this_python(builder.getOrCreate())
    except Exception as error:  # py4j's, or Java's own way to say that there is none
        where = f" on {master}" if master else ""
        problem = str(error).strip() or type(error).__name__
        text = f"No Spark application could be started{where}: {problem}"
        if not master:
            text += (
                ". Its master is that of spark-defaults.conf (SPARK_CONF_DIR), of "
                "PYSPARK_SUBMIT_ARGS or of spark-submit --master"
            )
        raise BackendError(text) from error


def with_this_python(spark: Any) -> Any:
    """A session just made: with master ``local`` its executors are this program, so their Python is
    this one too, unless PYSPARK_PYTHON names another. Spark's own choice is ``python3`` of the PATH.
    """
    context = None if is_connect(spark) else getattr(spark, "sparkContext", None)
    if context is not None and context.master.startswith("local"):
        if not os.environ.get("PYSPARK_PYTHON"):
            context.pythonExec = sys.executable
    return spark


@contextlib.contextmanager
def lent(
    master: str = "", settings: Mapping[str, str] | None = None, name: str = "howdah"
) -> Iterator[Any]:
    """A session. One that was there before stays, with its own master and settings; another is stopped.

    Raises:
        BackendError: no application can be started.
    """
    found = active()
    if found is not None:
        yield found
        return
    spark = session(master, settings, name)
    try:
        yield spark
    finally:
        spark.stop()


class OwnApplication(SparkSubmission):
    """A submission with a session of its own: both end together."""

    def close(self) -> None:
        """Wait for the job's end, if it was begun, and end the application."""
        if self.begun:
            self.closed.wait()
        super().close()
        self.spark.stop()


def in_this_program() -> SparkSubmission:
    """The submission of a job to this program's application.

    Raises:
        BackendError: none can be started.
    """
    found = active()
    if found is not None:
        return SparkSubmission(found)
    return OwnApplication(session())

"""The first moment of a submission from a command line: a session of its own is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.spark.submission import SparkSubmission


def begin() -> SparkSubmission:
    """The submission of one job to the Spark application of this process, or to a new one.

    Raises:
        BackendError: there is no pyspark, or no application can be started.
    """
    from howdah.backends.spark.application import session
    from howdah.backends.spark.modes import Mode
    from howdah.backends.spark.submission import SparkSubmission

    return SparkSubmission(session(), mode=Mode.FOREGROUND)

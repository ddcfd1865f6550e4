"""Containers granted by Spark: a job's agents run in the slots of a Spark application.

A program that has a Spark session starts a job in it so::

    submission = SparkSubmission(spark, feeds=True, on_driver=frozenset({"ps"}))
    directory = howdah.client.submission.submit.submit(
        loaded, backend="spark", populate=function_job.populate, submission=submission
    )
    ...
    submission.closed.wait()    # the coordinator has ended, nothing of the job is left

- `submission`: the client's side: looks at the session, refuses what cannot work, starts the driver
- `driver`: a thread of the program: keeps a coordinator process alive, runs Spark jobs for it
- `backend`: the coordinator's side: requests slots from the driver, matches them with containers
- `registry`: the coordinator's connections to the container processes in the slots
- `slot_task`: the Spark task in each slot, which starts a container process
- `container`: the executor-side container, the process that runs agents where the Spark task ran
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.spark.submission import SparkSubmission

__all__ = ["SparkSubmission"]


def __getattr__(name: str) -> object:
    """Loaded when asked for: executors import this package, too."""
    if name == "SparkSubmission":
        from howdah.backends.spark.submission import SparkSubmission

        return SparkSubmission
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

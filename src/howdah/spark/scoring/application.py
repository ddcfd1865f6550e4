"""The Spark application of a command: the one it runs in, else one of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from howdah.backends.base import BackendError
from howdah.backends.spark import application as applications


@contextlib.contextmanager
def application(master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session. One that was there before stays, with its own master and settings.

    Raises:
        BackendError: no application can be started.
    """
    found = applications.active()
    if found is not None:
        yield found
        return
    if master or settings:
        spark = _made(master, settings)
    else:
        spark = applications.session()
    try:
        yield spark
    finally:
        spark.stop()


def _made(master: str, settings: Mapping[str, str]) -> Any:
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("howdah score")
        if master:
            builder = builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return applications.with_this_python(builder.getOrCreate())
    except Exception as error:  # no pyspark, no Java, a master that does not answer
        raise BackendError(
            f"No Spark application could be started{f' on {master}' if master else ''}: "
            f"{str(error).strip() or type(error).__name__}"
        ) from error

"""The Spark application of a command: the one it runs in, else one of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

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
    spark = applications.session(master, settings, "howdah score")
    try:
        yield spark
    finally:
        spark.stop()

"""Rows for validation, fed while others are trained on and after."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from howdah.spark.errors import FeedError

if TYPE_CHECKING:
    from howdah.spark.cluster import Cluster


class ValidationFeed:
    """The feed ``validation`` of a fit, one epoch for each of training, from a thread of its own.

    Programs read it after each epoch, once at the end, in part or not at all: so it ends when they
    have used all of it, or have returned.
    """

    def __init__(self, cluster: Cluster, rows: Any, feeding: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._rows = rows
        self._feeding = feeding
        self._thread = cluster._live.session.thread(self._run)
        self._thread.start()

    def finish(self) -> None:
        """After training: wait until the programs are done with it."""
        self._cluster.end_feed("train")  # those that validate once come to it now
        self._thread.join()

    def _run(self) -> None:
        # What matters of an error the programs get too, and `Cluster.results` tells; the rest is
        # that they returned without reading everything.
        with contextlib.suppress(FeedError):
            self._cluster.train(self._rows, feed="validation", **self._feeding)

"""What a call of `howdah.spark.cluster.Cluster.train` has done, in exact numbers."""

from __future__ import annotations

import msgspec


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a `TrainReport`, all epochs together."""

    rank: int
    rows: int
    """Handed to the program; with ``align="pad"`` some of them more than once."""
    batches: int
    dropped: int = 0
    """Sent to it and not handed out: left over by ``align="drop"``, after ``feed.stop()``, or when the
    program left an epoch early or returned."""


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of one `Cluster.train` call."""

    feed: str
    rows: int
    """Handed to programs, all ranks and epochs; one that restarted counts from its checkpoint on."""
    batches: int
    dropped: int
    ranks: tuple[RankReport, ...]
    epochs: int
    """Epochs that were used to their end."""
    stopped: bool = False
    """The program had enough (``feed.stop()``, or it returned) before all rows were fed."""
    seconds: float = 0.0

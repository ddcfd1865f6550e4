"""What a call of `howdah.spark.cluster.Cluster.train` has done, in exact numbers."""

from __future__ import annotations

import msgspec


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a `TrainReport`, all epochs together."""

    rank: int
    rows: int
    """Handed to the program."""
    batches: int
    dropped: int = 0
    """Sent to it and not handed out: left over by ``align="drop"``, after ``feed.stop()``, or when the
    program left an epoch early or returned."""


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of one `Cluster.train` call."""

    feed: str
    rows: int
    """Handed to programs, all ranks and epochs; after a restart those of the epoch that it went on in
    count from there, and what a killed rank had not told yet of epochs before is missing."""
    batches: int
    dropped: int
    ranks: tuple[RankReport, ...]
    epochs: int
    """Epochs that were used to their end."""
    stopped: bool = False
    """The program had enough (``feed.stop()``, or it returned) before all rows were fed."""
    seconds: float = 0.0
    restarts: int = 0
    """So often the processes formed anew meanwhile."""
    repeated: int = 0
    """Rows that programs were handed before a restart and, as no position said so, once more. Ranks
    tell four times a second: of one that was killed its last rows are not known."""
    forgotten: int = 0
    """Rows that programs were handed before a restart, of this run or earlier ones, and that are in
    none of the positions they went on from, nor handed out again. Where programs restore a checkpoint
    without a position nobody knows."""
    ordered: bool = True
    """Spark gives the rows in the same order again, so a task that failed went on behind the last row
    that arrived. Where it does not, a task that fails amid its rows ends the run with the reason: counts
    are exact in both cases."""
    materialised: bool = False
    """The plan promises no order, such as after a shuffle: its rows were computed first and kept by
    Spark's executors, and so they stayed in order."""

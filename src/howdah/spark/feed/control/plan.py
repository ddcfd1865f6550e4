"""Decisions of a feed's controller, without any I/O: who takes a partition, who may hand out how much,
what is left out after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from howdah.spark.feed.intervals import merged
from howdah.spark.feed.messages import Align, Available, Endpoint, Intervals, Position


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How many batches of an epoch every rank may hand out."""

    batches: int = 0
    final: bool = False
    """The epoch ends after them."""


def enough(align: Align, stopped: Set[int], ranks: Set[int]) -> bool:
    """Whether a feed is over because of the ranks whose programs have stopped it.

    Args:
        ranks: those whose functions have not returned.
    """
    # Where ranks are held together the others wait for one that has stopped: none can go on.
    return bool(stopped) and (align is not Align.NONE or stopped >= ranks)


def allowance(ranks: Sequence[int], available: Mapping[int, Available]) -> Allowance:
    """What the ranks may hand out, from what each has said it holds of the epoch.

    A batch may be handed out when every rank can have one of that number. It never shrinks as more
    is available.
    """
    known = [available[rank] for rank in ranks if rank in available]
    if not ranks or len(known) < len(ranks):
        return Allowance()
    poorest = min(each.batches for each in known)
    # A rank that knows its end is the limit, whatever the others may still get.
    ended = [each.batches for each in known if each.final]
    return Allowance(batches=poorest, final=bool(ended) and min(ended) <= poorest)


# -- positions ------------------------------------------------------------------------------------


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run goes on."""

    epoch: int = 0
    skip: dict[int, Intervals] = {}
    """Rows of that epoch that programs had before the checkpoint they go on from."""


def resumption(run: int, align: Align, positions: Iterable[Position]) -> Resumption:
    """Where a run goes on after a restart, from what the ranks' checkpoints had seen.

    Ranks that wait for each other are in the same epoch, but for those at its very end: the latest
    counts. Ranks that do not wait go on with the earliest, so no row is lost, and the faster ones
    see rows of it again.
    """
    seen = [position for position in positions if position.run == run]
    if not seen:
        return Resumption()
    pick = min if align is Align.NONE else max
    epoch = pick(position.epoch for position in seen)
    parts: dict[int, list[tuple[int, int]]] = {}
    for position in seen:
        if position.epoch == epoch:
            for partition, ranges in position.rows.items():
                parts.setdefault(partition, []).extend((start, stop) for start, stop in ranges)
    return Resumption(epoch=epoch, skip={p: merged(ranges) for p, ranges in sorted(parts.items())})


def moved(feed: str, partition: int) -> str:
    """The error text where partitions are others than before."""
    return (
        f"partition {partition} of the rows of {feed!r} is another one than in an earlier query of this "
        "run, so the rows that programs have had cannot be left out: they are known by their places in "
        "partitions. Spark divides local tables, spark.range and small files by "
        "spark.sql.leafNodeDefaultParallelism, by default the number of cores that it has just then: set "
        "it for the session. Or some values are new in every query (random, time): write the rows first, "
        "df.write.parquet(path) and spark.read.parquet(path)"
    )


# -- who takes what --------------------------------------------------------------------------------


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank has of an epoch."""

    endpoint: Endpoint
    rows: int = 0
    """Sent to it."""
    coming: float = 0.0
    """About to be sent, by tasks that are at work, as far as can be told."""


SLACK = 32
"""A trainer nearby may have this part of a rank's share more than the poorest."""


def preference(
    loads: Sequence[Load],
    *,
    host: str,
    folder: str,
    rest: float,
    avoid: Iterable[int] = (),
    current: int = -1,
    turn: int | None = None,
) -> list[int]:
    """Ranks in the order in which a feeder of that host should try them.

    All get about the same number of rows, for ranks that end together lose what others have more.
    Within a slack of it nearby ones come first: the rows go through memory there.

    Args:
        rest: rows the feeder's partition still has, as far as can be told.
        current: who took the last segment; it goes on unless others are behind.
        avoid: they come last.
        turn: ranks have their turn instead, wherever they are: this one, in a circle, comes first.
    """
    if not loads:
        return []
    ranks = sorted(each.endpoint.rank for each in loads)
    avoided = set(avoid)
    expected = {each.endpoint.rank: each.rows + each.coming for each in loads}
    poorest = min(expected.values())
    slack = sum(expected.values()) / len(expected) / SLACK
    # A trainer that is connected is left only when it is ahead by half of what still comes.
    patience = max(slack, rest / 2)

    def key(each: Load) -> tuple[bool, bool, int, float, int]:
        rank = each.endpoint.rank
        room = patience if rank == current else slack
        distance = 0 if each.endpoint.folder == folder and each.endpoint.host == host else 1
        distance = 2 if each.endpoint.host != host else distance
        if turn is not None:
            distance = (ranks.index(rank) - turn) % len(ranks)
        behind = expected[rank] - poorest > room
        return rank in avoided, behind, -1 if rank == current else distance, expected[rank], rank

    return [each.endpoint.rank for each in sorted(loads, key=key)]


def steps(rows: int, ranks: int, size: int, *, drop_last: bool) -> int:
    """About how many batches each rank has of an epoch: the shares of ranks differ a little."""
    share = rows // ranks
    return share // size if drop_last else -(-share // size)


# -- sizes ----------------------------------------------------------------------------------------

BATCH_BYTES = 2 << 20
"""Of a record batch on its way: large enough that Python's part is small, small enough for caches."""
MOST_ROWS = 65536
FEWEST_ROWS = 16


def batch_rows(row_bytes: float) -> int:
    """Rows a record batch should have, for rows of that width."""
    rows = int(BATCH_BYTES / max(row_bytes, 1.0))
    rounded = 1 << max(0, int(math.log2(rows))) if rows else 1
    return max(FEWEST_ROWS, min(MOST_ROWS, rounded))

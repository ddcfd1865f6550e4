"""What a trainer has of a feed: runs, their epochs, the record batches that wait, and what was handed out.

No locks and no threads: `howdah.spark.feed.state` has those.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from howdah.spark.feed.cache import EpochCache, SpillFile, SpillSpace
from howdah.spark.feed.control.plan import steps
from howdah.spark.feed.intervals import first, joined, merged, without
from howdah.spark.feed.messages import Align, Available, Intervals, Open, Options, Position, Purpose


class Chunk(msgspec.Struct, eq=False):
    """A record batch that waits, in memory or in a cache."""

    load: Callable[[], pa.RecordBatch]
    rows: int
    partition: int
    offsets: Intervals
    counted: int = 0
    """Bytes of `Options.buffer` it takes while it waits."""
    order: Any = None
    """A permutation of its rows; None: as they came."""

    def handed(self, rows: int) -> Intervals:
        """Offsets of its first ``rows`` rows in the order they are handed out."""
        return _offsets(self.offsets, self.order, rows)


def _offsets(offsets: Intervals, order: Any, rows: int) -> Intervals:
    """Of the first ``rows`` rows in that order."""
    if order is None or rows >= len(order):
        return first(offsets, rows)
    each = [offset for start, stop in offsets for offset in range(start, stop)]
    return merged((each[index], each[index] + 1) for index in order[:rows].tolist())


class Extent(NamedTuple):
    """Rows ``start`` to ``stop`` of a chunk that were handed out; holds none of its memory."""

    partition: int
    offsets: Intervals
    order: Any
    start: int
    stop: int

    @classmethod
    def of(cls, chunk: Chunk, start: int, stop: int) -> Extent:
        return cls(chunk.partition, chunk.offsets, chunk.order, start, stop)

    def ranges(self) -> Intervals:
        """Their offsets."""
        before = _offsets(self.offsets, self.order, self.start)
        return without(_offsets(self.offsets, self.order, self.stop), before)


class Handed(NamedTuple):
    """One batch to train with that was handed out."""

    epoch: TrainerEpoch
    extents: list[Extent]


class ChunkSource(msgspec.Struct, eq=False):
    """A chunk that is being handed out."""

    chunk: Chunk
    batch: pa.RecordBatch | None = None
    at: int = 0
    """Rows handed out."""
    views: dict[Any, Any] = {}
    """What `howdah.spark.feed.feed` has made of it."""
    answered: list[pa.RecordBatch] = []

    @property
    def left(self) -> int:
        return self.chunk.rows - self.at


class ChunkQueue:
    """Chunks that wait for their turn, and the one that is being handed out."""

    def __init__(self) -> None:
        self.waiting: deque[Chunk] = deque()
        self.waiting_rows: int = 0
        self.source: ChunkSource | None = None

    @property
    def available(self) -> int:
        """Rows that can be handed out now."""
        return self.waiting_rows + (self.source.left if self.source else 0)

    def head(self) -> Chunk | None:
        """What is handed out next, left where it is."""
        if self.source is not None:
            return self.source.chunk
        return self.waiting[0] if self.waiting else None

    def push(self, chunk: Chunk) -> None:
        """Let a chunk wait for its turn."""
        self.waiting.append(chunk)
        self.waiting_rows += chunk.rows

    def begin_next(self) -> Chunk:
        """Make the next waiting chunk the source; the one before is done with."""
        chunk = self.waiting.popleft()
        self.waiting_rows -= chunk.rows
        self.source = ChunkSource(chunk)
        return chunk

    def clear(self) -> int:
        """Forget all that can be handed out; bytes of the buffer it took."""
        freed = sum(chunk.counted for chunk in self.waiting)
        self.waiting.clear()
        self.waiting_rows = 0
        self.source = None
        return freed


class TrainerEpoch(ChunkQueue):
    """One epoch at one trainer."""

    def __init__(
        self,
        run: int,
        number: int,
        options: Options,
        *,
        scoring: bool = False,
        materialised: int = 0,
    ) -> None:
        super().__init__()
        self.run = run
        self._materialised = materialised
        self.number = number
        self.align: Align = Align.NONE if scoring else options.align
        self.scoring = scoring
        self.received: int = 0
        self.fed = False
        """All its rows are at the trainers."""
        self.last = False
        """The run ends with it."""
        self.limit: float = math.inf if self.align is Align.NONE else 0
        """Batches that may be handed out."""
        self.final: bool = self.align is Align.NONE
        """The limit will not grow."""
        self.batches = 0
        self.handed_before: int = 0
        """Rows of chunks handed out whole."""
        self.handed_offsets: dict[int, Intervals] = {}
        """Offsets of chunks handed out whole, by partition."""
        self._spill = options.spill
        self.spill_file: SpillFile | None = None
        """Where rows go that do not fit into memory."""
        self.done = False
        self.dropped: int = 0
        self.told: tuple[int, int, bool] = (-1, -1, False)
        """What `Available` said last."""
        self.reported: tuple[int, int, bool, int] = (0, 0, False, 0)
        """What `HandedOut` said last."""

    def file(self, space: SpillSpace) -> SpillFile:
        """Its spill file, made if need be."""
        if self.spill_file is None:
            self.spill_file = SpillFile(space, self._spill)
        return self.spill_file

    # -- figures ---------------------------------------------------------------------------------

    @property
    def handed(self) -> int:
        """Rows."""
        return self.handed_before + (self.source.at if self.source else 0)

    @property
    def left(self) -> int:
        """Own rows that were not handed out yet."""
        return self.received - self.handed

    def whole_batches(self, size: int, drop_last: bool) -> int:
        """Whole batches, handed out or not; with a last short one once all rows are there."""
        batches = self.batches + self.left // size
        if self.fed and self.left % size and not drop_last:
            batches += 1
        return batches

    def available_delta(self, feed: str, size: int, drop_last: bool) -> Available | None:
        """What the controller does not know yet."""
        if self.told[2]:
            return None
        now = (self.whole_batches(size, drop_last), self.received if self.fed else 0, self.fed)
        if now == self.told:
            return None
        self.told = now
        return Available(
            feed=feed,
            run=self.run,
            epoch=self.number,
            batches=now[0],
            rows=self.received,
            final=self.fed,
        )

    def over(self, size: int, drop_last: bool) -> bool:
        """Whether there is nothing more to hand out, for ever."""
        if self.align is Align.NONE:
            return self.fed and (not self.left or (drop_last and self.left < size))
        return self.final and self.batches >= self.limit

    # -- handing out -----------------------------------------------------------------------------

    def begin_next(self) -> Chunk:
        self.commit()
        return super().begin_next()

    def commit(self) -> None:
        """Count a source that was handed out whole, and let it go."""
        source = self.source
        if source is None or source.left:
            return
        self._enter(source.chunk)
        self.source: ChunkSource | None = None

    def _enter(self, chunk: Chunk) -> None:
        self.handed_before += chunk.rows
        known = self.handed_offsets.get(chunk.partition, [])
        self.handed_offsets[chunk.partition] = joined(known, chunk.offsets)

    def position(self) -> Position:
        """What was handed out of it."""
        rows = {partition: list(ranges) for partition, ranges in self.handed_offsets.items()}
        source = self.source
        if source is not None and source.at:
            chunk = source.chunk
            known = rows.get(chunk.partition, [])
            rows[chunk.partition] = merged([*known, *chunk.handed(source.at)])
        return Position(
            run=self.run,
            epoch=self.number,
            rows=rows,
            batches=self.batches,
            materialised=self._materialised,
        )

    def drop(self) -> int:
        """Forget what was not handed out; bytes of the buffer it took."""
        self.dropped += max(self.left, 0)
        if self.source is not None:
            # What of the source was handed out stays counted.
            self.handed_offsets = self.position().rows
            self.handed_before += self.source.at
        self.received = self.handed_before
        return self.clear()


class TrainerRun:
    """One call of `Cluster.train`, or one inference."""

    def __init__(self, opening: Open) -> None:
        self.number: int = opening.run
        self.purpose: Purpose = opening.purpose
        self.options: Options = opening.options
        self.readers: int = opening.readers
        self._materialised: int = opening.materialised
        self.first_epoch: int = opening.first_epoch
        self.current: int = opening.first_epoch
        """The epoch being handed out."""
        cached = opening.first_epoch if opening.cached_epoch is None else opening.cached_epoch
        self.cached_epoch: int | None = cached if opening.options.cache else None
        self.epochs: dict[int, TrainerEpoch] = {}
        self.cache: EpochCache | None = None
        """Of the cached epoch."""
        self.over = False
        self.lengths: dict[tuple[int, bool], int | None] = {}
        """Batches of an epoch, as last asked for, by rows a batch and whether a short one is dropped."""

    @property
    def scoring(self) -> bool:
        return self.purpose is Purpose.SCORE

    def steps(self, size: int, drop_last: bool) -> int | None:
        """Batches of an epoch, as the driver program or Spark has it: about, where there are several
        ranks."""
        said = self.options.steps
        return self.counted_steps(size, drop_last) if said is None else said

    def counted_steps(self, size: int, drop_last: bool) -> int | None:
        """As Spark has it: the driver program's own number is a hint, for any size."""
        options = self.options
        if options.rows is None or not self.readers:
            return None
        return steps(options.rows, self.readers, size, drop_last=drop_last)

    def epoch(self, number: int) -> TrainerEpoch:
        """The state of that epoch, begun if need be."""
        epoch = self.epochs.get(number)
        if epoch is None:
            epoch = TrainerEpoch(
                self.number,
                number,
                self.options,
                scoring=self.scoring,
                materialised=self._materialised,
            )
            epoch.last = not self.scoring and number + 1 >= self.options.epochs
            self.epochs[number] = epoch
        return epoch

    def streamed(self, number: int) -> bool:
        """Whether Spark feeds that epoch."""
        return self.cached_epoch is None or number <= self.cached_epoch

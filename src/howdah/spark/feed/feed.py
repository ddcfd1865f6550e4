"""What a training function iterates over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.adapters.batching import Batch, Batching, BatchSource
from howdah.spark.feed.adapters.loaders import Loaders
from howdah.spark.feed.arrow.answers import record_batch, stream
from howdah.spark.feed.arrow.columns import Converter, Shapes, concatenated, length, ordered, rows
from howdah.spark.feed.batch_dispenser import BatchDispenser, Key, Pieces, Run
from howdah.spark.feed.epochs import ChunkSource
from howdah.spark.feed.intervals import merged, without
from howdah.spark.feed.messages import Position
from howdah.spark.feed.state import FeedState


class Epoch(BatchSource):
    """One pass over a run's rows."""

    def __init__(self, feed: Feed, key: Key) -> None:
        self._feed = feed
        self._key = key

    @property
    def run(self) -> int:
        """Number of the `Cluster.train` call, of those that fed this feed; from 1."""
        return self._key[0]

    @property
    def number(self) -> int:
        """From 0, of its run."""
        return self._key[1]

    @property
    def name(self) -> str:
        return self._feed.name

    def iterate(self, asked: Batching) -> Iterator[Batch]:
        return self._feed.iterate(asked, self._key)


class Feed(Loaders):
    """Rows of one named feed, for one rank: ``ctx.feed(name)``. For one thread at a time.

        for epoch in feed:
            for batch in epoch.batches(256): ...

    Arrays are views of received memory, not to be written to: copy what is to be changed.
    `howdah.spark.feed.arrow.columns` says which array a column becomes.
    """

    def __init__(self, state: FeedState) -> None:
        self._state = state
        self._dispenser = BatchDispenser(state)
        self._passing: Key | None = None
        """The epoch that a loader gives, or has given to its end."""

    @property
    def name(self) -> str:
        return self._state.name

    # -- rows ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Epoch]:
        """The epochs of all runs until the feed is ended; what is left of one is dropped when the
        next is asked for. Ranks that leave an epoch early must all do so."""
        key = self._dispenser.next_epoch(None)
        while key is not None:
            yield Epoch(self, key)
            key = self._dispenser.next_epoch(key)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Row by row, of all epochs, as dicts of plain values: slow, for programs that want no batches."""
        for batch in self.batches(1024):
            names = list(batch)
            for index in range(length(batch)):
                yield {name: _item(batch[name], index) for name in names}

    def stop(self) -> None:
        """No more rows are wanted, by any rank: ends the Spark job, and every iteration."""
        self._state.stop()

    def iterate(self, asked: Batching, only: Key | None = None) -> Iterator[Batch]:
        """Batches, of the epoch ``only`` if it is given."""
        state, dispenser, size = self._state, self._dispenser, asked.size
        convert = _Views(asked.convert)
        while (found := dispenser.next(size, asked.drop_last, only)) is not None:
            if isinstance(found, Pieces):
                yield concatenated([rows(convert(source), *at) for source, *at in found.pieces])
                continue
            epoch, source, count = found
            arrays = convert(source)
            if any(isinstance(values, dict) for values in arrays.values()):
                yield from _slices(found, arrays, size, state)
                continue
            items = list(arrays.items())
            at = source.at
            while count and not state.urgent:
                stop = at + size
                batch = {name: values[at:stop] for name, values in items}
                state.hand_out(epoch, source, size)
                at = stop
                count -= 1
                yield batch
            del arrays, items

    # -- answers ---------------------------------------------------------------------------------

    @property
    def scoring(self) -> bool:
        """Whether the batch given last wants `results`."""
        return self._dispenser.unanswered is not None

    def results(self, values: Any) -> None:
        """The answer to the batch given last (a feed that is scored): as many rows as it had.

        An array or list (column ``prediction``), a dict of them, a pyarrow array, record batch or
        table.

        Raises:
            FeedError: the batch wants no answer, or it has not as many rows.
        """
        batch = self._dispenser.unanswered
        if batch is None or batch.stream is None:
            raise FeedError(
                f"The feed {self.name!r} waits for no results: they are given once for each batch "
                "of Cluster.inference, and for none of Cluster.train"
            )
        answer = record_batch(values, batch.rows, self.name)
        self._dispenser.unanswered = None
        at = 0
        for source, start, stop in batch.pieces:
            source.answered.append(answer.slice(at, stop - start))
            at += stop - start
            if stop == source.chunk.rows:
                batch.stream.answer(stream(source.answered, self.name))
                source.answered = []

    # -- where it is -----------------------------------------------------------------------------

    def position(self, batches: int = 0) -> Position:
        """The rows trained: handed out up to the last batch given, which counts as trained.

        To be saved beside a checkpoint; `position_bytes` gives the same for a file. Any thread may
        ask.

        Args:
            batches: so many of those given last are not trained yet, for something between the feed
                and the loop holds them: a prefetch of two makes it 2. With more than there are rows
                come twice after a restart, with less they are lost.

        Raises:
            FeedError: it is not known any more which rows those batches had.
        """
        state = self._state
        if batches < 0:
            raise ValueError(f"batches is {batches}: how many were given and are not trained yet?")
        with state.changed:
            if not batches or not state.batches:
                return self._now()
            if batches > len(state.batches) == state.batches.maxlen:
                raise FeedError(
                    f"batches is {batches}: the feed {self.name!r} remembers the rows of the last "
                    f"{state.batches.maxlen} batches"
                )
            undone = list(state.batches)[-batches:]
            epoch = undone[0].epoch
            now = epoch.position()
            of_book = [each for each in undone if each.epoch is epoch]
            for extent in (extent for each in of_book for extent in each.extents):
                left = without(now.rows.get(extent.partition, []), extent.ranges())
                now.rows[extent.partition] = left
            rows = {partition: ranges for partition, ranges in now.rows.items() if ranges}
            count = now.batches - len(of_book)
            now = msgspec.structs.replace(now, rows=rows, batches=count)
            return _continued(now, state.restored)

    def position_bytes(self, batches: int = 0) -> bytes:
        """`position`, as `restore` takes it."""
        return msgspec.msgpack.encode(self.position(batches))

    def _now(self) -> Position:
        """Up to the last batch given."""
        state = self._state
        for run in state.runs.values():
            if run.over or run.scoring:
                continue
            epoch = run.epoch(run.current)
            size = state.size or 1
            if epoch.over(size, state.drop_last) and not epoch.last:
                return Position(run=run.number, epoch=epoch.number + 1)
            return _continued(epoch.position(), state.restored)
        if state.last is not None:
            return Position(run=state.last[0], epoch=state.last[1] + 1)
        return state.restored or Position(epoch=0)

    def restore(self, position: Position | bytes) -> None:
        """Go on from there: before the first batch is asked for, in every rank.

        Exact where Spark gives the same rows in the same order again (deterministic or cached
        plans).

        Raises:
            FeedError: batches were asked for before, or these are no bytes of `position_bytes`.
        """
        state = self._state
        if not isinstance(position, Position):
            try:
                position = msgspec.msgpack.decode(position, type=Position)
            except msgspec.DecodeError as error:
                raise FeedError(f"This is no position of a feed: {error}") from error
        with state.changed:
            if state.asks:
                raise FeedError(
                    f"The feed {self.name!r} has begun: restore its position before the first batch"
                )
            state.restored = position
            state.shared.greet()

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types; waits for the first partition to begin."""
        return self._dispenser.wait_schema()

    def steps(self, size: int, drop_last: bool = False) -> int | None:
        """How many batches of that size this rank has of an epoch of the present run, for schedules and
        progress bars; waits until the run begins. What ``steps`` of `Cluster.train` says; or else about
        the equal share of the rows, where Spark knows their number without counting: local tables,
        `spark.range`, a limit of these, and, from Spark 4 on, a cached one that is computed. None otherwise,
        and once the feed has ended. Restore a position before.

        Raises:
            FeedError: Spark's query failed, or the driver is gone.
        """
        if size < 1:
            raise ValueError(f"A batch has at least one row, not {size}")
        run = self._dispenser.wait_run()
        return None if run is None else run.steps(size, drop_last)

    def sample(self, columns: Sequence[str] | None = None, shapes: Shapes | None = None) -> Batch:
        """Some rows that will come, still to be handed out; waits. Empty if none will come."""
        source = self._dispenser.peek()
        return {} if source is None else _Views(Converter(self.name, columns, shapes))(source)

    # -- frameworks ------------------------------------------------------------------------------

    def passes(self, asked: Batching, per_epoch: bool) -> Iterator[Batch]:
        if not per_epoch:
            yield from self.iterate(asked)
            return
        key = self._dispenser.next_epoch(None)
        while key is not None:
            done = not self._dispenser.begun(key)
            self._passing = key
            try:
                for batch in self.iterate(asked, key):
                    done = True
                    yield batch
            except GeneratorExit:
                if self._passing == key:  # it may be closed only after the next has begun
                    self._passing = None
                raise
            if done:
                return
            # A program that knows the length has taken all batches and not looked for an end.
            key = self._dispenser.next_epoch(key)

    def length(self, size: int, drop_last: bool) -> int | None:
        """See `Loaders.length`. A rank that alone reads the feed knows it where Spark knows the rows, others
        in the later epochs of a cache. Waits until the first run begins. Once a run is over it
        is that of its last epoch for who went through that to its end, or when no run follows."""
        return self._dispenser.length(size, drop_last, self._passing)


def _continued(now: Position, before: Position | None) -> Position:
    """A position within the epoch that another had begun."""
    if before is None or (before.run, before.epoch) != (now.run, now.epoch):
        return now
    rows = {
        partition: merged([*now.rows.get(partition, ()), *before.rows.get(partition, ())])
        for partition in {**before.rows, **now.rows}
    }
    return msgspec.structs.replace(now, rows=rows, batches=now.batches + before.batches)


class _Views:
    """Converts a record batch once for all batches cut from it."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def __call__(self, source: ChunkSource) -> Batch:
        found = source.views.get(self)
        if found is None:
            if source.batch is None:
                source.batch = source.chunk.load()
            found = self._converter.convert(source.batch)
            order = source.chunk.order
            if order is not None:
                found = ordered(found, order)
            source.views[self] = found
        return found


def _slices(found: Run, arrays: Batch, size: int, state: FeedState) -> Iterator[Batch]:
    epoch, source, count = found
    while count and not state.urgent:
        at = source.at
        batch = rows(arrays, at, at + size)
        state.hand_out(epoch, source, size)
        count -= 1
        yield batch


def _item(values: Any, index: int) -> Any:
    if isinstance(values, dict):
        return {key: _item(value, index) for key, value in values.items()}
    value = values[index]
    if value is np.ma.masked:
        return None
    return value.item() if isinstance(value, np.generic) else value


__all__ = ["Batch", "Epoch", "Feed", "Shapes"]

"""What a feed hands out next: decided here, under the feed's lock; converted elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.epochs import (
    ChunkQueue,
    ChunkSource,
    Extent,
    Handed,
    TrainerEpoch,
    TrainerRun,
)
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.messages import Align
from howdah.spark.feed.state import FeedState, Key

T = TypeVar("T")

LINGER_S = 0.005
"""A partition that is scored gives a short batch if its next rows are not there by then."""
LOOK_S = 1.0
"""A waiting program looks again after so long, whatever happens."""


class Piece(NamedTuple):
    """Rows ``start`` to ``stop`` of a record batch."""

    source: ChunkSource
    start: int
    stop: int


class Run(NamedTuple):
    """So many whole batches of one record batch, which the program may take without asking."""

    epoch: TrainerEpoch
    source: ChunkSource
    count: int


class Pieces(NamedTuple):
    """One batch, of pieces that follow each other."""

    epoch: TrainerEpoch
    pieces: list[Piece]
    rows: int
    stream: IngestStream | None = None
    """Whose rows they are, if they are to be answered."""


class Wait(NamedTuple):
    """There is nothing yet: look again after so long at the latest."""

    seconds: float


class BatchDispenser:
    """The program's side of a `FeedState`."""

    def __init__(self, state: FeedState) -> None:
        self.state = state
        self.unanswered: Pieces | None = None

    def next(self, size: int, drop_last: bool, only: Key | None = None) -> Run | Pieces | None:
        """The next batch or batches; waits. None: the feed has ended, or the epoch ``only``.

        Raises:
            FeedError: the run has failed, the controller is gone, or a batch was not answered.
        """
        state = self.state
        with state.shared.asked():
            if self.unanswered is not None and not state.ended:
                raise FeedError(
                    f"The batch given last by the feed {state.name!r} has not been answered: call "
                    "feed.results(values) with one value for each of its rows before the next batch"
                )
            self._demand(size, drop_last)
            while True:
                state.urgent = False
                self._raise()
                if state.ended:
                    return None
                found = self._find(only)
                if not isinstance(found, Wait):
                    return found
                state.wait(found.seconds)

    def next_epoch(self, after: Key | None) -> Key | None:
        """The epoch to be handed out, once there is one other than ``after``, which is left if it
        is not over. None: the feed has ended."""
        state = self.state
        with state.shared.asked():
            self._ask()
            if after is not None:
                run = state.runs.get(after[0])
                if run is not None and not run.over and run.current == after[1]:
                    state.finish(run, run.epoch(after[1]))

            def found() -> Key | None:
                keys = ((run.number, run.current) for run in state.runs.values() if not run.over)
                return next((key for key in keys if key != after), None)

            return self._await(found, state.wait)

    def wait_run(self) -> TrainerRun | None:
        """The run of rows to train with that is handed out, once there is one. None: the feed has
        ended."""
        state = self.state
        with state.shared.asked():
            return self._await(self._training, state.wait)

    def begun(self, key: Key) -> bool:
        """Whether batches of that epoch were handed out."""
        with self.state.changed:
            run = self.state.runs.get(key[0])
            epoch = None if run is None else run.epochs.get(key[1])
            return epoch is not None and epoch.batches > 0

    def length(self, size: int, drop_last: bool, given: Key | None = None) -> int | None:
        """Batches of the whole epoch that is handed out, or, once the feed has ended, of those of the last
        run; None where that is not certain. Waits until the first run begins.

        Args:
            given: an epoch in which the program may still be, or whose end it has seen: it means that one.
        """
        state = self.state
        with state.shared.asked():
            run = self._training()
            if run is None and (last := state.last_run) is not None:
                # The next run may have other rows.
                mine = given is not None and given[0] == last.number
                run = last if state.ended or mine else None
            elif run is None:
                run = self.wait_run()
            if run is None:
                return None
            found = self._length(run, size, drop_last)
            if found is not None or not run.over:
                run.lengths[size, drop_last] = found
            return run.lengths.get((size, drop_last))

    def peek(self) -> ChunkSource | None:
        """The first record batch that waits, left where it is; waits. None: none will come."""
        state = self.state

        def found() -> ChunkSource | None:
            runs = state.runs.values()
            epochs = [run.epochs[run.current] for run in runs if run.current in run.epochs]
            heads = (queue.head() for queue in (*epochs, *state.streams))
            return next((ChunkSource(chunk) for chunk in heads if chunk is not None), None)

        with state.shared.asked():
            return self._await(found, state.shared.wait)

    def wait_schema(self) -> pa.Schema:
        """The columns, once they are known.

        Raises:
            FeedError: the feed ended before.
        """
        state = self.state
        with state.shared.asked():
            self._ask()
            if (
                state.schema is None
                and self._await(lambda: state.schema, state.shared.wait) is None
            ):
                raise FeedError(f"The feed {state.name!r} ended without any partition")
            return state.schema

    def _await(self, look: Callable[[], T | None], wait: Callable[[float], None]) -> T | None:
        """What ``look`` finds, once it does. None: the feed has ended."""
        self._ask()
        while True:
            self._raise()
            if self.state.ended:
                return None
            if (found := look()) is not None:
                return found
            wait(LOOK_S)

    def _training(self) -> TrainerRun | None:
        """The run of rows to train with that is handed out, if there is one."""
        going = (run for run in self.state.runs.values() if not run.over and not run.scoring)
        return next(going, None)

    def _length(self, run: TrainerRun, size: int, drop_last: bool) -> int | None:
        state = self.state
        before = state.restored
        if (
            before is not None
            and before.rows
            and (before.run, before.epoch) == (run.number, run.current)
        ):
            return None
        if run.readers == 1 and (found := run.counted_steps(size, drop_last)) is not None:
            return found
        epoch = run.epochs.get(run.current)
        later = run.cached_epoch is not None and run.current > run.cached_epoch
        # What ranks may hand out goes by the size of their batches.
        if not later or epoch is None or (size, drop_last) != (state.size, state.drop_last):
            return None
        if epoch.align is Align.NONE:
            return epoch.whole_batches(size, drop_last)
        while not epoch.final and not run.over and not state.ended:
            self._raise()
            state.wait(LOOK_S)
        return int(epoch.limit) if epoch.final else None

    def _ask(self) -> None:
        state = self.state
        if not state.asks:
            state.asks = True
            state.shared.greet()

    def _demand(self, size: int, drop_last: bool) -> None:
        state = self.state
        self._ask()
        if (size, drop_last) != (state.size, state.drop_last):
            state.size, state.drop_last = size, drop_last
            for run in state.runs.values():
                for epoch in run.epochs.values():
                    state.report_available(epoch)

    def _raise(self) -> None:
        state = self.state
        if state.shared.lost and not state.ended:
            raise FeedError(state.shared.lost)
        if state.failure is not None:
            failure, state.failure = state.failure, None
            raise FeedError(failure)

    def _find(self, only: Key | None) -> Run | Pieces | Wait | None:
        """What comes next; None: ``only`` is over."""
        state = self.state
        seconds = LOOK_S
        training = False
        seen = False
        for run in list(state.runs.values()):
            if run.over:
                continue
            if only is not None and run.number != only[0]:
                continue
            seen = True
            if run.scoring:
                found = self._score(run)
                if not isinstance(found, Wait):
                    return found
                seconds = min(seconds, found.seconds)
            elif not training:
                training = True  # runs of rows to train with come one after another
                found = self._train(run, only)
                if not isinstance(found, Wait):
                    return found
        return None if only is not None and not seen else Wait(seconds)

    def _train(self, run: TrainerRun, only: Key | None) -> Run | Pieces | Wait | None:
        state = self.state
        while not run.over:
            if only is not None and run.current != only[1]:
                return None
            epoch = run.epoch(run.current)
            epoch.commit()
            if epoch.over(state.size, state.drop_last) or self._short_of_credit(epoch):
                state.finish(run, epoch)
                continue
            return self._batch(epoch)
        # The epoch was the run's last: another run may be there.
        return None if only is not None else self._find(None)

    def _short_of_credit(self, epoch: TrainerEpoch) -> bool:
        """More batches are allowed than there are: the batch size has grown meanwhile."""
        rest = epoch.available
        over = not rest or (self.state.drop_last and rest < self.state.size)
        return epoch.fed and epoch.final and epoch.align is Align.DROP and over

    def _batch(self, epoch: TrainerEpoch) -> Run | Pieces | Wait:
        size = self.state.size
        if epoch.batches >= epoch.limit:
            return Wait(LOOK_S)
        source = epoch.source
        if source is not None and source.left >= size:
            self.state.last = (epoch.run, epoch.number)
            return Run(epoch, source, int(min(source.left // size, epoch.limit - epoch.batches)))
        rows = min(epoch.available, size)
        if rows < size:
            if not epoch.fed:
                return Wait(LOOK_S)
            if not rows or self.state.drop_last:
                return Wait(LOOK_S)
        pieces = self._cut(epoch, rows)
        epoch.batches += 1
        self.state.last = (epoch.run, epoch.number)
        extents = [Extent.of(piece.source.chunk, piece.start, piece.stop) for piece in pieces]
        self.state.batches.append(Handed(epoch, extents))
        return Pieces(epoch, pieces, rows)

    def _score(self, run: TrainerRun) -> Pieces | Wait:
        size = self.state.size
        now = time.monotonic()
        streams = [
            stream
            for stream in self.state.streams
            if stream.begin.run == run.number and stream.available
        ]
        for stream in streams:
            if stream.ended or stream.available >= size:
                return self._scored(run, stream)
        for stream in streams:
            if now - stream.came >= LINGER_S:
                return self._scored(run, stream)
        return Wait(LINGER_S if streams else LOOK_S)

    def _scored(self, run: TrainerRun, stream: IngestStream) -> Pieces:
        epoch = run.epoch(run.current)
        rows = min(stream.available, self.state.size)
        pieces = self._cut(stream, rows)
        epoch.batches += 1
        epoch.handed_before += rows
        self.unanswered = Pieces(epoch, pieces, rows, stream)
        return self.unanswered

    def _cut(self, queue: ChunkQueue, rows: int) -> list[Piece]:
        """The next rows, of which there are so many."""
        pieces: list[Piece] = []
        while rows:
            if queue.source is None or not queue.source.left:
                self._freed(queue.begin_next().counted)
            source = queue.source
            assert source is not None
            taken = min(source.left, rows)
            pieces.append(Piece(source, source.at, source.at + taken))
            source.at += taken
            rows -= taken
        return pieces

    def _freed(self, size: int) -> None:
        if size:
            self.state.buffered -= size
            self.state.changed.notify_all()

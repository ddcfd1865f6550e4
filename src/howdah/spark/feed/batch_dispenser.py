"""What a feed hands out next: decided here, under the feed's lock; converted elsewhere."""

from __future__ import annotations

import time
from typing import NamedTuple

from howdah.spark.errors import FeedError
from howdah.spark.feed.epochs import Extent, Handed, Line, Source, TrainerEpoch, TrainerRun
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.messages import Align
from howdah.spark.feed.state import FeedState, Key

LINGER_S = 0.005
"""A partition that is scored gives a short batch if its next rows are not there by then."""
LOOK_S = 1.0
"""A waiting program looks again after so long, whatever happens."""


class Piece(NamedTuple):
    """Rows ``start`` to ``stop`` of a record batch."""

    source: Source
    start: int
    stop: int


class Run(NamedTuple):
    """So many whole batches of one record batch, which the program may take without asking."""

    book: TrainerEpoch
    source: Source
    count: int


class Pieces(NamedTuple):
    """One batch, of pieces that follow each other."""

    book: TrainerEpoch
    pieces: list[Piece]
    rows: int
    taking: IngestStream | None = None
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
            FeedError: the run has failed, the master is gone, or a batch was not answered.
        """
        state = self.state
        board = state.board
        with state.changed:
            if self.unanswered is not None and not state.ended:
                raise FeedError(
                    f"The batch given last by the feed {state.name!r} has not been answered: call "
                    "feed.results(values) with one value for each of its rows before the next batch"
                )
            self._demand(size, drop_last)
            try:
                while True:
                    state.urgent = False
                    self._raise()
                    if state.ended:
                        return None
                    found = self._find(only)
                    if not isinstance(found, Wait):
                        return found
                    if board.waits_since is None:
                        board.waits_since = time.monotonic()
                        state.changed.notify_all()
                    state.wait(found.seconds)
            finally:
                board.waits_since = None

    def next_epoch(self, after: Key | None) -> Key | None:
        """The epoch to be handed out, once there is one other than ``after``, which is left if it
        is not over. None: the feed has ended."""
        state = self.state
        with state.changed:
            self._ask()
            if after is not None:
                run = state.runs.get(after[0])
                if run is not None and not run.over and run.current == after[1]:
                    state.finish(run, run.epoch(after[1]))
            while True:
                self._raise()
                if state.ended:
                    return None
                for run in state.runs.values():
                    if not run.over and (run.number, run.current) != after:
                        return (run.number, run.current)
                state.wait(LOOK_S)

    def wait_run(self) -> TrainerRun | None:
        """The run of rows to train with that is handed out, once there is one. None: the feed has
        ended."""
        state = self.state
        with state.changed:
            self._ask()
            while True:
                self._raise()
                if state.ended:
                    return None
                for run in state.runs.values():
                    if not run.over and not run.scoring:
                        return run
                state.wait(LOOK_S)

    def peek(self) -> Source | None:
        """The first record batch that waits, left where it is; waits. None: none will come."""
        state = self.state
        with state.changed:
            self._ask()
            while True:
                self._raise()
                if state.ended:
                    return None
                runs = state.runs.values()
                books = [run.epochs[run.current] for run in runs if run.current in run.epochs]
                for line in (*books, *state.takings):
                    if (chunk := line.head()) is not None:
                        return Source(chunk)
                state.changed.wait(LOOK_S)

    def wait_schema(self) -> None:
        """Until the columns are known.

        Raises:
            FeedError: the feed ended before.
        """
        state = self.state
        with state.changed:
            self._ask()
            while state.schema is None:
                self._raise()
                if state.ended:
                    raise FeedError(f"The feed {state.name!r} ended without any partition")
                state.changed.wait(LOOK_S)

    # -- inside ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        state = self.state
        if not state.asks:
            state.asks = True
            state.board.greet()

    def _demand(self, size: int, drop_last: bool) -> None:
        state = self.state
        self._ask()
        if (size, drop_last) != (state.size, state.drop_last):
            state.size, state.drop_last = size, drop_last
            for run in state.runs.values():
                for book in run.epochs.values():
                    state.news(book)

    def _raise(self) -> None:
        state = self.state
        if state.board.lost and not state.ended:
            raise FeedError(state.board.lost)
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
            book = run.epoch(run.current)
            book.settle()
            if book.over(state.size, state.drop_last) or self._short_of_permits(book):
                state.finish(run, book)
                continue
            return self._batch(book)
        # The epoch was the run's last: another run may be there.
        return None if only is not None else self._find(None)

    def _short_of_permits(self, book: TrainerEpoch) -> bool:
        """More batches are allowed than there are: the batch size has grown meanwhile."""
        rest = book.available
        over = not rest or (self.state.drop_last and rest < self.state.size)
        return book.fed and book.final and book.align is Align.DROP and over

    def _batch(self, book: TrainerEpoch) -> Run | Pieces | Wait:
        size = self.state.size
        if book.batches >= book.limit:
            return Wait(LOOK_S)
        source = book.source
        if source is not None and source.left >= size:
            self.state.last = (book.run, book.number)
            return Run(book, source, int(min(source.left // size, book.limit - book.batches)))
        rows = min(book.available, size)
        if rows < size:
            if not book.fed:
                return Wait(LOOK_S)
            if book.align is Align.PAD:
                if not book.repeat():
                    raise FeedError(
                        f"Rank {self.state.board.rank} has got no rows of epoch {book.number} of "
                        f'the feed {self.state.name!r}, so it can\'t be padded: use align="drop", or '
                        "give the rows at least as many partitions as there are ranks (write them "
                        "so: df.repartition(n).write.parquet(path))"
                    )
                return self._batch(book)
            if not rows or self.state.drop_last:
                return Wait(LOOK_S)
        pieces = self._cut(book, rows)
        book.batches += 1
        self.state.last = (book.run, book.number)
        extents = [Extent.of(piece.source.chunk, piece.start, piece.stop) for piece in pieces]
        self.state.batches.append(Handed(book, extents))
        return Pieces(book, pieces, rows)

    def _score(self, run: TrainerRun) -> Pieces | Wait:
        size = self.state.size
        now = time.monotonic()
        takings = [
            taking
            for taking in self.state.takings
            if taking.begin.run == run.number and taking.available
        ]
        for taking in takings:
            if taking.ended or taking.available >= size:
                return self._scored(run, taking)
        for taking in takings:
            if now - taking.came >= LINGER_S:
                return self._scored(run, taking)
        return Wait(LINGER_S if takings else LOOK_S)

    def _scored(self, run: TrainerRun, taking: IngestStream) -> Pieces:
        book = run.epoch(run.current)
        rows = min(taking.available, self.state.size)
        pieces = self._cut(taking, rows)
        book.batches += 1
        book.handed_before += rows
        self.unanswered = Pieces(book, pieces, rows, taking)
        return self.unanswered

    def _cut(self, line: Line, rows: int) -> list[Piece]:
        """The next rows, of which there are so many."""
        pieces: list[Piece] = []
        while rows:
            if line.source is None or not line.source.left:
                self._freed(line.begin_next().counted)
            source = line.source
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

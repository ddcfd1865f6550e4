"""One feed of a trainer, shared by three sides: data connections, the master, the program.

One lock guards it, held for bookkeeping alone: never while something is read, written or converted.
All feeds of a trainer share the lock, for what one program waits for decides what may go to disk.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pyarrow as pa

from howdah.spark.feed.cache import shuffled
from howdah.spark.feed.epochs import Chunk, Extent, Handed, Source, TrainerEpoch, TrainerRun
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.messages import (
    Abort,
    Align,
    Close,
    Counted,
    Enough,
    EpochFed,
    HandedOut,
    Intervals,
    Kept,
    Open,
    Part,
    Permit,
    Position,
    Waits,
)
from howdah.spark.feed.shared_state import SharedState

Key = tuple[int, int]
"""Run and epoch."""
IN_FLIGHT = 256
"""So many batches may be handed out and not trained when a position is asked for."""
REMEMBERED = 64
"""Ends of epochs that are told again to a master that has come back."""


class FeedState:
    """See the module. `howdah.spark.feed.batch_dispenser` has what the program does with it."""

    def __init__(self, name: str, board: SharedState) -> None:
        self.name = name
        self.board = board
        self.changed: threading.Condition = board.changed
        self.runs: dict[int, TrainerRun] = {}
        """That go on."""
        self.over: set[int] = set()
        """Runs that are over."""
        self.takings: set[IngestStream] = set()
        self.taken: dict[Key, dict[int, Intervals]] = {}
        """Offsets received, by partition, of epochs that are being fed: also once they are left."""
        self.attempts: dict[Key, dict[Part, int]] = {}
        """The latest that came for a partition of these."""
        self.schema: pa.Schema | None = None
        self.buffered: int = 0
        """Bytes received and not handed out."""
        self.size = 0
        """Rows a batch, as the program asked last; 0 before."""
        self.drop_last = False
        self.asks = False
        self.readers: list[int] = []
        """The only ranks that read it, if the program has said so."""
        self.newest: int = -1
        """Number of the last run there was."""
        self.waits: bool = False
        """The program waits, and no run goes on."""
        self.ended: bool = False
        self.stopped: bool = False
        """By the program."""
        self.urgent: bool = False
        """Something has ended: look again before the next batch."""
        self.failure: str | None = None
        self.restored: Position | None = None
        self.last: tuple[int, int] | None = None
        """Run and epoch a batch to train with was last given of."""
        self.batches: deque[Handed] = deque(maxlen=IN_FLIGHT)
        """To train with, handed out last."""
        self.rows: int = 0
        """Handed out, of epochs that are over."""
        self._ends: deque[HandedOut | Counted] = deque(maxlen=REMEMBERED)

    # -- the master ------------------------------------------------------------------------------

    def open(self, message: Open) -> None:
        with self.changed:
            if message.run in self.runs or message.run in self.over:
                return  # said again after a lost connection
            self.runs[message.run] = TrainerRun(message)
            self.newest = max(self.newest, message.run)
            self.changed.notify_all()

    def epoch_fed(self, message: EpochFed) -> None:
        with self.changed:
            self.taken.pop((message.run, message.epoch), None)  # its tasks do not run again
            self.attempts.pop((message.run, message.epoch), None)
            run = self.runs.get(message.run)
            if run is None or message.epoch < run.current:
                return
            book = run.epoch(message.epoch)
            book.fed = True
            self._turn_away(run, message.epoch)
            self.news(book)
            if not run.streamed(message.epoch + 1):
                self.prepare(run, message.epoch + 1)
            self.changed.notify_all()

    def permit(self, message: Permit) -> None:
        with self.changed:
            run = self.runs.get(message.run)
            if run is None or message.epoch < run.current:
                return
            book = run.epoch(message.epoch)
            if book.align is not Align.NONE:
                book.limit = message.batches
                book.final = message.final
                self._report(run, book)
            self.changed.notify_all()

    def close(self, message: Close) -> None:
        with self.changed:
            for run in list(self.runs.values()):
                if message.run is None or run.number == message.run:
                    self.finish_run(run)
            if message.run is not None:
                self._close(message.run)
            if message.end:
                self.ended = True
            self._interrupt()

    def abort(self, message: Abort) -> None:
        with self.changed:
            if message.run not in self.over:
                self.failure = message.error
            if (run := self.runs.get(message.run)) is not None:
                self.finish_run(run)
            self._close(message.run)
            self._interrupt()

    def fail(self, error: str) -> None:
        """Raise it in the program."""
        with self.changed:
            self.failure = self.failure or error
            self._interrupt()

    def hand_out(self, book: TrainerEpoch, source: Source, rows: int) -> None:
        """The program is given the next rows of the source as a batch."""
        with self.changed:
            start, source.at = source.at, source.at + rows
            book.batches += 1
            self.batches.append(Handed(book, [Extent.of(source.chunk, start, source.at)]))

    def progress(self) -> None:
        """Tell the master how far the program is, if it has moved."""
        with self.changed:
            for run in self.runs.values():
                for book in run.epochs.values():
                    self._report(run, book)

    def told_anew(self) -> None:
        """The master has changed or come back: say again what it may have missed."""
        with self.changed:
            for end in self._ends:
                self.board.tell(end)
            if self.stopped:
                self.board.tell(Enough(feed=self.name))
            if self.waits:
                self.board.tell(Waits(feed=self.name, run=self.newest))
            for run in self.runs.values():
                for book in run.epochs.values():
                    book.told = (-1, -1, False)
                    book.reported = (0, 0, False, 0)
                    self.news(book)

    def kept(self) -> list[Kept]:
        """How far the partitions came, of epochs that are being fed."""
        with self.changed:
            return [
                Kept(feed=self.name, run=run, epoch=epoch, partition=part, upto=ranges[-1][1])
                for (run, epoch), parts in self.taken.items()
                for part, ranges in parts.items()
                if ranges
            ]

    def wait(self, seconds: float) -> None:
        """Wait, in the program's thread, with the lock, until something has changed."""
        if not self.runs and not self.waits:
            self.waits = True
            self.board.tell(Waits(feed=self.name, run=self.newest))
        self.changed.wait(seconds)
        if self.runs:
            self.waits = False

    # -- inside ----------------------------------------------------------------------------------

    def news(self, book: TrainerEpoch) -> None:
        """Tell the master for how many batches there are rows, if that is new."""
        if book.scoring or not self.size or book.done:
            return
        message = book.news(self.name, self.size, self.drop_last)
        if message is not None:
            self.board.tell(message)

    def prepare(self, run: TrainerRun, number: int) -> None:
        """Lay out an epoch that comes from the cache, once all that it is made of is there."""
        cached = run.cached_epoch
        if run.over or cached is None or not cached < number < run.options.epochs:
            return
        if run.current > cached or (cached in run.epochs and run.epochs[cached].fed):
            self._lay_out(run, number)

    def _lay_out(self, run: TrainerRun, number: int) -> None:
        if number in run.epochs:
            return
        book = run.epoch(number)
        book.shelf = run.shelf
        kept = run.shelf.entries if run.shelf is not None else []  # it may have got no rows
        entries: list[tuple[Any, Any]] = [(entry, None) for entry in kept]
        if run.options.shuffle is not None:
            entries = shuffled(kept, run.options.shuffle, number, self.board.rank)
        for entry, order in entries:
            book.push(Chunk(entry.load, entry.rows, entry.partition, entry.offsets, order=order))
        book.received = book.waiting_rows
        book.fed = True
        self.news(book)

    def finish(self, run: TrainerRun, book: TrainerEpoch) -> None:
        """The epoch is over for the program."""
        self._end(run, book, left=True)
        run.epochs.pop(book.number, None)
        run.current = book.number + 1
        self._turn_away(run, book.number)
        if book.last:
            self._forget(run)
        else:
            self.prepare(run, run.current)
            self.prepare(run, run.current + 1)
        self.changed.notify_all()

    def finish_run(self, run: TrainerRun) -> None:
        """The run is over, whatever was handed out."""
        if run.over:
            return
        self._forget(run)
        for book in run.epochs.values():
            self._end(run, book)
        run.epochs.clear()
        for taking in self.takings:
            # One that is answered waits for its answers.
            if taking.begin.run == run.number and (run.scoring or not taking.ended):
                taking.stop()

    def leave(self, *, whole: bool) -> None:
        """The function has ended; threads of the program's may still wait for rows. With the lock.

        Args:
            whole: it has returned: the others go on, and what it was given counts.
        """
        self.ended = self.urgent = True
        for run in list(self.runs.values()):
            if whole and not run.scoring:
                self._leave_run(run)

    def _leave_run(self, run: TrainerRun) -> None:
        """It is over here, and goes on elsewhere: without the rows that only this rank has kept."""
        if run.cached_epoch is not None:
            for number in range(run.cached_epoch + 1, run.options.epochs):
                if number >= run.current:
                    self._lay_out(run, number)
        self.finish_run(run)

    def stop(self) -> None:
        """The program wants no more."""
        with self.changed:
            if self.ended:
                return
            self.ended = True
            for run in list(self.runs.values()):
                if run.options.align is Align.NONE and not run.scoring:
                    self._leave_run(run)
                else:
                    self.finish_run(run)
            self.stopped = True
            self.board.tell(Enough(feed=self.name))
            self._interrupt()

    def _turn_away(self, run: TrainerRun, epoch: int) -> None:
        """No more rows of that epoch are taken."""
        for taking in self.takings:
            begin = taking.begin
            if begin.run == run.number and begin.epoch <= epoch and not taking.ended:
                taking.stop()

    def _end(self, run: TrainerRun, book: TrainerEpoch, *, left: bool = False) -> None:
        """Nothing more of the epoch is handed out. ``left``: for the program has left it."""
        over = left or self._over(run, book)
        self.buffered -= book.drop()
        book.done = True
        book.spool = book.shelf = None  # who asks for a position still looks at the book
        self.rows += book.handed
        self._report(run, book, over=over)

    def _over(self, run: TrainerRun, book: TrainerEpoch) -> bool:
        # One that has no rows is not over before the program is there: it may be far behind.
        there = not book.scoring and book.number == run.current
        return there and book.over(self.size or 1, self.drop_last)

    def _report(self, run: TrainerRun, book: TrainerEpoch, *, over: bool | None = None) -> None:
        """Tell how much of the epoch was handed out, if that is new."""
        done = self._over(run, book) if over is None else over
        dropped = book.dropped if book.done else book.left if done else 0
        now = (book.handed, book.batches, done, dropped)
        if now == book.reported:
            return
        book.reported = now
        message = HandedOut(
            feed=self.name,
            run=book.run,
            epoch=book.number,
            rows=book.handed,
            batches=book.batches,
            done=done,
            dropped=dropped,
        )
        if done or book.done:
            self._ends.append(message)
        self.board.tell(message)

    def _forget(self, run: TrainerRun) -> None:
        run.over = True
        run.shelf = None
        self.runs.pop(run.number, None)
        self.over.add(run.number)

    def _close(self, run: int) -> None:
        """The master has said that the run is over, for all."""
        self.over.add(run)
        for known in (self.taken, self.attempts):
            for key in [key for key in known if key[0] == run]:
                del known[key]
        counted = Counted(feed=self.name, run=run)
        self._ends.append(counted)
        self.board.tell(counted)

    def _interrupt(self) -> None:
        self.urgent = True
        self.changed.notify_all()

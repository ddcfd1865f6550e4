"""One feed of a trainer, shared by three sides: data connections, the master, the program.

One lock guards it, held for bookkeeping alone: never while something is read, written or converted.
All feeds of a trainer share the lock, for what one program waits for decides what may go to disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from howdah.spark.feed.cache import Shelf, Spool, shuffled, spooled
from howdah.spark.feed.epochs import Chunk, EpochBook, RunBook
from howdah.spark.feed.intervals import cut, merged, without
from howdah.spark.feed.messages import (
    Abort,
    Align,
    Close,
    Enough,
    EpochFed,
    HandedOut,
    HowFar,
    Kept,
    Open,
    Permit,
    Position,
    Purpose,
    Refused,
)

if TYPE_CHECKING:
    from howdah.spark.feed.taking import Taking

OPEN_S = 10.0
"""Rows may come before the master has said that their run begins."""
GONE_S = 5.0
"""A superseded connection's thread is waited for so long."""
STARVED_S = 0.2
"""The program waits for so long before a full buffer goes on in a file."""


class Board:
    """What all feeds of a trainer share."""

    def __init__(self, tell: Callable[[msgspec.Struct], None], rank: int, folder: Path | None):
        self.tell = tell
        """Sends a message to the master; never waits."""
        self.greet: Callable[[], None] = lambda: None
        """Says `Hello` again."""
        self.rank = rank
        self.spool = Spool(folder)
        self.changed = threading.Condition(threading.RLock())
        self.waits_since: float | None = None
        """`time.monotonic` of when the program began to wait for a batch, of any feed."""
        self.gone: Refused | None = None
        """No rows are taken any more; with ``reason`` empty the program has simply ended."""
        self.lost: str = ""
        """Why the master is given up."""

    def starved(self) -> bool:
        """Whether the program waits, and not just for a moment."""
        since = self.waits_since
        return since is not None and time.monotonic() - since >= STARVED_S


class FeedState:
    """See the module. `howdah.spark.feed.handing` has what the program does with it."""

    def __init__(self, name: str, board: Board) -> None:
        self.name = name
        self.board = board
        self.changed = board.changed
        self.runs: dict[int, RunBook] = {}
        self.takings: set[Taking] = set()
        self.schema: pa.Schema | None = None
        self.buffered = 0
        """Bytes received and not handed out."""
        self.size = 0
        """Rows a batch, as the program asked last; 0 before."""
        self.drop_last = False
        self.asks = False
        self.ended = False
        self.urgent = False
        """Something has ended: look again before the next batch."""
        self.failure: str | None = None
        self.restored: Position | None = None
        self.last: EpochBook | None = None
        """The epoch a batch was last given of."""
        self.rows = 0
        """Handed out, of epochs that are over."""

    # -- the master ------------------------------------------------------------------------------

    def open(self, message: Open) -> None:
        with self.changed:
            if message.run in self.runs:
                return  # said again after a lost connection
            self.runs[message.run] = RunBook(message)
            self.changed.notify_all()

    def epoch_fed(self, message: EpochFed) -> None:
        with self.changed:
            run = self.runs.get(message.run)
            if run is None or run.over or message.epoch < run.current:
                return
            book = run.epoch(message.epoch)
            book.fed = True
            book.last = book.last or (message.last and run.cached_epoch is None)
            self.news(book)
            if not run.streamed(message.epoch + 1):
                self.prepare(run, message.epoch + 1)
            self.changed.notify_all()

    def permit(self, message: Permit) -> None:
        with self.changed:
            run = self.runs.get(message.run)
            if run is None or run.over or message.epoch < run.current:
                return
            book = run.epoch(message.epoch)
            if book.align is not Align.NONE:
                book.limit = message.batches
                book.final = message.final
                self._report(book)
            self.changed.notify_all()

    def how_far(self, message: HowFar) -> Kept:
        """Ends the partition's connection. May wait for its thread: not for the event loop."""
        self._supersede(self._same(message.run, message.epoch, message.partition))
        with self.changed:
            run = self.runs.get(message.run)
            book = run.epochs.get(message.epoch) if run else None
            ranges = book.taken.get(message.partition) if book else None
            upto = ranges[-1][1] if ranges else -1
        return Kept(
            feed=self.name,
            run=message.run,
            epoch=message.epoch,
            partition=message.partition,
            upto=upto,
        )

    def close(self, message: Close) -> None:
        with self.changed:
            for run in self.runs.values():
                if message.run is None or run.number == message.run:
                    self.finish_run(run)
            if message.end:
                self.ended = True
            self._interrupt()

    def abort(self, message: Abort) -> None:
        with self.changed:
            run = self.runs.get(message.run)
            if run is None or not run.over:
                self.failure = message.error
            if run is not None:
                self.finish_run(run)
            self._interrupt()

    def fail(self, error: str) -> None:
        """Raise it in the program."""
        with self.changed:
            self.failure = self.failure or error
            self._interrupt()

    def progress(self) -> None:
        """Tell the master how far the program is, if it has moved."""
        with self.changed:
            for run in self.runs.values():
                for book in run.epochs.values():
                    self._report(book)

    def told_anew(self) -> None:
        """The master has changed or come back: say again what it may have missed."""
        with self.changed:
            for run in self.runs.values():
                for book in run.epochs.values():
                    book.told = (-1, -1, False)
                    book.reported = (0, 0, False)
                    self.news(book)

    # -- data connections ------------------------------------------------------------------------

    def begin(self, taking: Taking) -> Refused | None:
        """Whether these rows are taken; None: yes (also when they are just thrown away)."""
        begin = taking.begin
        others = self._same(begin.run, begin.epoch, begin.partition)
        if any(other.begin.attempt > begin.attempt for other in others):
            return Refused(reason="A later attempt of the same task feeds this partition")
        self._supersede(others)
        deadline = time.monotonic() + OPEN_S
        with self.changed:
            while True:
                if self.board.gone is not None and self.board.gone.reason:
                    return self.board.gone
                if self.ended or self.board.gone is not None:
                    taking.stop()
                    break
                run = self.runs.get(begin.run)
                if run is not None:
                    if run.over:
                        reason = f"Run {begin.run} of the feed {self.name!r} is over"
                        return Refused(reason=reason)
                    if not run.scoring and begin.epoch < run.current:
                        taking.stop()  # the program has left that epoch
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    reason = f"The master has not announced run {begin.run} of {self.name!r}"
                    return Refused(reason=reason, again=True)
                self.changed.wait(left)
            self.takings.add(taking)
        return None

    def check(self, schema: pa.Schema) -> str:
        """Why these columns do not fit those that came before; empty if they do."""
        with self.changed:
            known = self.schema
            if known is None:
                self.schema = schema
                self.changed.notify_all()
                return ""
        if known.names == schema.names and known.types == schema.types:
            return ""
        return (
            f"The columns of the feed {self.name!r} have changed, from {columns(known)} to "
            f"{columns(schema)}. Select and cast the same columns for every run, or use another "
            "feed name"
        )

    def room(self, taking: Taking, size: int) -> bool:
        """Wait until so many bytes may be received; True: they must go to a file."""
        with self.changed:
            while not taking.discard:
                if not self.buffered or self.buffered + size <= self._limit(taking):
                    return False
                if self.board.starved():
                    return True
                self.changed.wait(STARVED_S if self.board.waits_since is not None else None)
        return False

    def add(
        self, taking: Taking, message: pa.Buffer, batch: pa.RecordBatch, *, spill: bool
    ) -> None:
        """Rows have come.

        Raises:
            FeedError: they could not be kept in a file.
        """
        begin = taking.begin
        if not batch.num_rows:
            return
        with self.changed:
            run = self.runs.get(begin.run)
            if run is None or run.over:
                return
            book = run.epoch(begin.epoch)
            offsets = taking.offsets.take(batch.num_rows)
            shelf = None if run.scoring else self._shelf(run, book)
            known = book.taken.get(begin.partition, [])
        taking.rows += batch.num_rows
        fresh = offsets if run.scoring else without(offsets, known)
        if fresh != offsets:
            batch = _chosen(batch, offsets, fresh)
            message = batch.serialize()
        if not batch.num_rows:
            return

        def load() -> pa.RecordBatch:
            return batch

        chunk = Chunk(load, batch.num_rows, begin.partition, fresh, counted=message.size)
        if spill:
            chunk.load, chunk.counted = spooled(self.board.spool, message, batch.schema), 0
        if shelf is not None:
            shelf.add(message, batch, begin.partition, fresh)
        with self.changed:
            if taking.discard or run.over or book.done:
                return
            self.buffered += chunk.counted
            if run.scoring:
                taking.waiting.append(chunk)
                taking.waiting_rows += chunk.rows
                taking.came = time.monotonic()
            else:
                self._note(book, begin.partition, fresh)
                book.received += chunk.rows
                book.push(chunk)
                self.news(book)
            self.changed.notify_all()

    def arrived(self, taking: Taking) -> None:
        """Its last row is here."""
        with self.changed:
            self.changed.notify_all()

    def end(self, taking: Taking) -> None:
        """Its connection has ended."""
        with self.changed:
            self.takings.discard(taking)
            if taking.begin.purpose is Purpose.SCORE:
                self.buffered -= sum(chunk.counted for chunk in taking.waiting)
                taking.waiting.clear()
                taking.waiting_rows = 0
                taking.source = None
            self.changed.notify_all()

    # -- inside ----------------------------------------------------------------------------------

    def news(self, book: EpochBook) -> None:
        """Tell the master for how many batches there are rows, if that is new."""
        if book.scoring or not self.size or book.done:
            return
        message = book.news(self.name, self.size, self.drop_last)
        if message is not None:
            self.board.tell(message)

    def prepare(self, run: RunBook, number: int) -> None:
        """Lay out an epoch that comes from the cache."""
        if run.shelf is None or run.streamed(number) or number >= run.options.epochs:
            return
        if number in run.epochs:
            return
        book = run.epoch(number)
        book.shelf = run.shelf
        entries: list[tuple[Any, Any]] = [(entry, None) for entry in run.shelf.entries]
        if run.options.shuffle is not None:
            entries = shuffled(run.shelf.entries, run.options.shuffle, number, self.board.rank)
        for entry, order in entries:
            book.push(Chunk(entry.load, entry.rows, entry.partition, entry.offsets, order=order))
        book.received = book.waiting_rows
        book.fed = True
        self.news(book)

    def finish(self, run: RunBook, book: EpochBook) -> None:
        """The epoch is over for the program."""
        self.buffered -= book.drop()
        book.done = True
        self._report(book)
        self.rows += book.handed
        run.epochs.pop(book.number, None)
        run.current = book.number + 1
        for taking in self.takings:
            begin = taking.begin
            if begin.run == run.number and begin.epoch <= book.number and not taking.ended:
                taking.stop()
        if book.last:
            run.over = True
            run.shelf = None
        else:
            self.prepare(run, run.current)
            self.prepare(run, run.current + 1)
        self.changed.notify_all()

    def finish_run(self, run: RunBook) -> None:
        """The run is over, whatever was handed out."""
        if run.over:
            return
        run.over = True
        run.shelf = None
        for book in run.epochs.values():
            self._report(book)
            self.buffered -= book.drop()
            self.rows += book.handed
            book.done = True
        run.epochs.clear()
        for taking in self.takings:
            # One that is answered waits for its answers.
            if taking.begin.run == run.number and (run.scoring or not taking.ended):
                taking.stop()

    def stop(self) -> None:
        """The program wants no more."""
        with self.changed:
            if self.ended:
                return
            self.ended = True
            for run in self.runs.values():
                self.finish_run(run)
            self.board.tell(Enough(feed=self.name))
            self._interrupt()

    def _report(self, book: EpochBook) -> None:
        """Tell how much of the epoch was handed out, if that is new."""
        size = self.size or 1
        done = book.done or (not book.scoring and book.over(size, self.drop_last))
        now = (book.handed, book.batches, done)
        if now == book.reported:
            return
        book.reported = now
        self.board.tell(
            HandedOut(
                feed=self.name,
                run=book.run,
                epoch=book.number,
                rows=book.handed,
                batches=book.batches,
                done=done,
                dropped=book.dropped + (0 if book.done else book.left if done else 0),
            )
        )

    def _interrupt(self) -> None:
        self.urgent = True
        self.changed.notify_all()

    def _limit(self, taking: Taking) -> int:
        run = self.runs.get(taking.begin.run)
        return run.options.buffer if run is not None else 0

    def _shelf(self, run: RunBook, book: EpochBook) -> Shelf | None:
        """Where the epoch's rows are kept, if they are needed again."""
        cached = run.cached_epoch == book.number and run.options.epochs > book.number + 1
        if book.shelf is None and (cached or book.align is Align.PAD):
            book.shelf = Shelf(run.options.cache_memory, self.board.spool)
            if cached:
                run.shelf = book.shelf
        return book.shelf

    def _note(self, book: EpochBook, partition: int, fresh: list[tuple[int, int]]) -> None:
        known = book.taken.setdefault(partition, [])
        if known and len(fresh) == 1 and known[-1][1] == fresh[0][0]:
            known[-1] = (known[-1][0], fresh[0][1])
        else:
            book.taken[partition] = merged([*known, *fresh])

    def _same(self, run: int, epoch: int, partition: int) -> list[Taking]:
        with self.changed:
            return [
                taking
                for taking in self.takings
                if (taking.begin.run, taking.begin.epoch, taking.begin.partition)
                == (run, epoch, partition)
            ]

    def _supersede(self, takings: list[Taking]) -> None:
        for taking in takings:
            taking.connection.end()
        for taking in takings:
            taking.gone.wait(GONE_S)


def columns(schema: pa.Schema) -> str:
    """The columns in words."""
    text = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return text if len(text) < 500 else f"{text[:500]}… ({len(schema)} columns)"


def _chosen(
    batch: pa.RecordBatch, offsets: list[tuple[int, int]], fresh: list[tuple[int, int]]
) -> pa.RecordBatch:
    """The rows of ``fresh``, of a batch that has ``offsets``."""
    pieces: list[pa.RecordBatch] = []
    base = 0
    for start, stop in offsets:
        pieces += [batch.slice(base + a, b - a) for a, b in cut(start, stop, fresh)]
        base += stop - start
    if not pieces:
        return batch.slice(0, 0)
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]

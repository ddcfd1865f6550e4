"""One feed of a trainer, shared by three sides: data connections, the controller, the program.

One lock guards it, held for bookkeeping alone: never while something is read, written or converted.
All feeds of a trainer share the lock, for what one program waits for decides what may go to disk.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from howdah.spark.feed.cache import SpillSpace, shuffled
from howdah.spark.feed.epochs import Chunk, ChunkSource, Extent, Handed, TrainerEpoch, TrainerRun
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.messages import (
    Abort,
    Align,
    AwaitingRows,
    Close,
    Counted,
    Credit,
    Enough,
    EpochFed,
    FeedRefused,
    HandedOut,
    Intervals,
    OffsetReply,
    Open,
    Part,
    Position,
)

STARVED_S = 0.2
"""The program waits for so long before a full buffer goes on in a file."""


class SharedState:
    """One lock for all feeds, and what concerns them all."""

    def __init__(self, tell: Callable[[msgspec.Struct], None], rank: int, folder: Path | None):
        self.tell = tell
        """Sends a message to the controller; never waits."""
        self.greet: Callable[[], None] = lambda: None
        """Says `Hello` again."""
        self.rank = rank
        self.space: SpillSpace = SpillSpace(folder)
        """For rows that do not fit into memory."""
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self.waiting_since: float | None = None
        """`time.monotonic` of when the program began to wait, for any feed."""
        self.gone: FeedRefused | None = None
        """No rows are taken any more; with ``reason`` empty the program has simply ended."""
        self.lost: str = ""
        """Why the controller is given up."""

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """Hold the lock while the program asks for something; all its `wait`s meanwhile are one."""
        with self.changed:
            try:
                yield
            finally:
                self.waiting_since = None

    def wait(self, seconds: float) -> None:
        """Wait, in the program's thread, with the lock, until something has changed."""
        if self.waiting_since is None:
            self.waiting_since = time.monotonic()
            self.changed.notify_all()
        self.changed.wait(seconds)

    def starved(self) -> bool:
        """Whether the program waits, and not just for a moment."""
        since = self.waiting_since
        return since is not None and time.monotonic() - since >= STARVED_S


Key = tuple[int, int]
"""Run and epoch."""
IN_FLIGHT = 256
"""So many batches may be handed out and not trained when a position is asked for."""
REMEMBERED = 64
"""Ends of epochs that are told again to a controller that has come back."""


class FeedState:
    """See the module. `howdah.spark.feed.batch_dispenser` has what the program does with it."""

    def __init__(self, name: str, shared: SharedState) -> None:
        self.name = name
        self.shared = shared
        self.changed: threading.Condition = shared.changed
        self.runs: dict[int, TrainerRun] = {}
        """That go on."""
        self.over: set[int] = set()
        """Runs that are over."""
        self.last_run: TrainerRun | None = None
        """Of rows to train with, that is over."""
        self.streams: set[IngestStream] = set()
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
        self._ends: deque[HandedOut | Counted] = deque(maxlen=REMEMBERED)

    # -- the controller ------------------------------------------------------------------------------

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
            epoch = run.epoch(message.epoch)
            epoch.fed = True
            self._turn_away(run, message.epoch)
            self.report_available(epoch)
            if not run.streamed(message.epoch + 1):
                self.prepare(run, message.epoch + 1)
            self.changed.notify_all()

    def apply_credit(self, message: Credit) -> None:
        with self.changed:
            run = self.runs.get(message.run)
            if run is None or message.epoch < run.current:
                return
            epoch = run.epoch(message.epoch)
            if epoch.align is not Align.NONE:
                epoch.limit = message.batches
                epoch.final = message.final
                self._report(run, epoch)
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

    def hand_out(self, epoch: TrainerEpoch, source: ChunkSource, rows: int) -> None:
        """The program is given the next rows of the source as a batch."""
        with self.changed:
            start, source.at = source.at, source.at + rows
            epoch.batches += 1
            self.batches.append(Handed(epoch, [Extent.of(source.chunk, start, source.at)]))

    def progress(self) -> None:
        """Tell the controller how far the program is, if it has moved."""
        with self.changed:
            for run in self.runs.values():
                for epoch in run.epochs.values():
                    self._report(run, epoch)

    def told_anew(self) -> None:
        """The controller has changed or come back: say again what it may have missed."""
        with self.changed:
            for end in self._ends:
                self.shared.tell(end)
            if self.stopped:
                self.shared.tell(Enough(feed=self.name))
            if self.waits:
                self.shared.tell(AwaitingRows(feed=self.name, run=self.newest))
            for run in self.runs.values():
                for epoch in run.epochs.values():
                    epoch.told = (-1, -1, False)
                    epoch.reported = (0, 0, False, 0)
                    self.report_available(epoch)

    def offsets(self) -> list[OffsetReply]:
        """How far the partitions came, of epochs that are being fed."""
        with self.changed:
            return [
                OffsetReply(
                    feed=self.name, run=run, epoch=epoch, partition=part, upto=ranges[-1][1]
                )
                for (run, epoch), parts in self.taken.items()
                for part, ranges in parts.items()
                if ranges
            ]

    def wait(self, seconds: float) -> None:
        """`SharedState.wait`, which the controller hears of where no run goes on."""
        if not self.runs and not self.waits:
            self.waits = True
            self.shared.tell(AwaitingRows(feed=self.name, run=self.newest))
        self.shared.wait(seconds)
        if self.runs:
            self.waits = False

    def report_available(self, epoch: TrainerEpoch) -> None:
        """Tell the controller for how many batches there are rows, if that is new."""
        if epoch.scoring or not self.size or epoch.done:
            return
        message = epoch.available_delta(self.name, self.size, self.drop_last)
        if message is not None:
            self.shared.tell(message)

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
        epoch = run.epoch(number)
        kept = run.cache.entries if run.cache is not None else []  # it may have got no rows
        entries: list[tuple[Any, Any]] = [(entry, None) for entry in kept]
        if run.options.shuffle is not None:
            entries = shuffled(kept, run.options.shuffle, number, self.shared.rank)
        for entry, order in entries:
            epoch.push(Chunk(*entry, order=order))
        epoch.received = epoch.waiting_rows
        epoch.fed = True
        self.report_available(epoch)

    def finish(self, run: TrainerRun, epoch: TrainerEpoch) -> None:
        """The epoch is over for the program."""
        self._end(run, epoch, left=True)
        run.epochs.pop(epoch.number, None)
        run.current = epoch.number + 1
        self._turn_away(run, epoch.number)
        if epoch.last:
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
        for epoch in run.epochs.values():
            self._end(run, epoch)
        run.epochs.clear()
        for stream in self.streams:
            # One that is answered waits for its answers.
            if stream.begin.run == run.number and (run.scoring or not stream.ended):
                stream.stop()

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
        kept = sum(entry.rows for entry in run.cache.entries) if run.cache is not None else 0
        begun = set(run.epochs)
        self.finish_run(run)
        if run.cached_epoch is None:
            return
        for number in range(max(run.cached_epoch + 1, run.current), run.options.epochs):
            if number not in begun:
                # Only counted: laid out together they would be as many permutations of all rows.
                epoch = run.epoch(number)
                epoch.received = kept
                epoch.fed = True
                self.report_available(epoch)
                self._end(run, epoch)
                del run.epochs[number]

    def stop(self) -> None:
        """The program wants no more."""
        with self.changed:
            if self.ended:
                return
            self.ended = True
            for run in list(self.runs.values()):
                # With "drop" too the others may be through all epochs before they hear of it.
                if run.scoring:
                    self.finish_run(run)
                else:
                    self._leave_run(run)
            self.stopped = True
            self.shared.tell(Enough(feed=self.name))
            self._interrupt()

    def _turn_away(self, run: TrainerRun, epoch: int) -> None:
        """No more rows of that epoch are taken."""
        for stream in self.streams:
            begin = stream.begin
            if begin.run == run.number and begin.epoch <= epoch and not stream.ended:
                stream.stop()

    def _end(self, run: TrainerRun, epoch: TrainerEpoch, *, left: bool = False) -> None:
        """Nothing more of the epoch is handed out. ``left``: for the program has left it."""
        over = left or self._over(run, epoch)
        self.buffered -= epoch.drop()
        epoch.done = True
        epoch.spill_file = None  # its position may still be asked for
        self._report(run, epoch, over=over)

    def _over(self, run: TrainerRun, epoch: TrainerEpoch) -> bool:
        # One that has no rows is not over before the program is there: it may be far behind.
        there = not epoch.scoring and epoch.number == run.current
        return there and epoch.over(self.size or 1, self.drop_last)

    def _report(self, run: TrainerRun, epoch: TrainerEpoch, *, over: bool | None = None) -> None:
        """Tell how much of the epoch was handed out, if that is new."""
        done = self._over(run, epoch) if over is None else over
        dropped = epoch.dropped if epoch.done else epoch.left if done else 0
        now = (epoch.handed, epoch.batches, done, dropped)
        if now == epoch.reported:
            return
        epoch.reported = now
        message = HandedOut(
            feed=self.name,
            run=epoch.run,
            epoch=epoch.number,
            rows=epoch.handed,
            batches=epoch.batches,
            done=done,
            dropped=dropped,
        )
        if done or epoch.done:
            self._ends.append(message)
        self.shared.tell(message)

    def _forget(self, run: TrainerRun) -> None:
        run.over = True
        run.cache = None
        if not run.scoring:
            self.last_run = run
        self.runs.pop(run.number, None)
        self.over.add(run.number)

    def _close(self, run: int) -> None:
        """The controller has said that the run is over, for all."""
        self.over.add(run)
        for known in (self.taken, self.attempts):
            for key in [key for key in known if key[0] == run]:
                del known[key]
        counted = Counted(feed=self.name, run=run)
        self._ends.append(counted)
        self.shared.tell(counted)

    def _interrupt(self) -> None:
        self.urgent = True
        self.changed.notify_all()

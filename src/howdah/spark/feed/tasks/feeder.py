"""What runs in a Spark task of a feed: a partition's record batches, to a trainer.

The Arrow IPC stream goes to the trainer's socket as pyarrow writes it: no row is looked at. After
some megabytes the controller is asked whether another trainer has fewer rows; a partition goes over in
segments then, each taken completely before the next begins, so that "offset after the last row
taken" says everything about a partition when Spark runs its task again, or the connection to a
trainer breaks: then the rows behind that offset are sent once more, by the same task.
"""

from __future__ import annotations

import hashlib
import itertools
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.control.plan import moved
from howdah.spark.feed.intervals import count, first, merged, without
from howdah.spark.feed.messages import AssignmentResponse, Fed, Purpose
from howdah.spark.feed.tasks.feeder_client import EnoughRows, NotTaken, TrainerConnection
from howdah.spark.feed.tasks.feeding import MOST_LOST, Connecting, FeedTask, Me, NobodyLeft

FIRST_SEGMENT_BYTES = 4 << 10
LONGEST_SEGMENT_BYTES = 128 << 20
"""Between two questions to the controller."""
KEPT_BYTES = 16 << 20
"""Of the rows sent last, which are kept for the case that the connection breaks. The buffers of both
systems hold less; the record batch that a trainer is reading comes on top of it."""
Batches = list[tuple[int, pa.RecordBatch]]
"""Each with the offset of its first row."""
RESULT = "partition int, rows long, bytes long"
"""Schema of a feeding task's one row: Spark's partition, rows and bytes sent by this attempt."""


def feed_partition(
    sent: bytes, batches: Iterator[pa.RecordBatch], *, checked: bool = False
) -> Iterator[pa.RecordBatch]:
    """For `DataFrame.mapInArrow`; ``sent`` is an encoded `Task`.

    Args:
        checked: the partitions of each query may be others: the controller is told what tells them apart.
    """
    from pyspark import TaskContext

    task = msgspec.msgpack.decode(sent, type=FeedTask)
    context = TaskContext.get()
    assert context is not None
    me = Me(
        context.partitionId(),
        context.taskAttemptId(),
        socket.gethostname(),
        str(Path.cwd()),
        context.stageId(),
    )
    if task.purpose is Purpose.SCORE:
        from howdah.spark.feed.tasks.scorer import Scoring

        yield from Scoring(task, me).run(batches)
    else:
        yield _Feeding(task, me, checked=checked).run(batches)


def first_row(batch: pa.RecordBatch | None) -> int:
    """A hash of a partition's first row; 0 if it has none."""
    if batch is None or not batch.num_rows:
        return 0
    # Not of the buffers: what lies around a row in them is no part of it.
    text = repr([column[0].as_py() for column in batch.columns])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7)
    return int.from_bytes(digest.digest()) or 1


def _behind(offset: int, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Batches:
    """What of them begins at that offset or after it."""
    return [
        (max(offset, start), batch.slice(max(offset - start, 0)))
        for start, batch in batches
        if start + batch.num_rows > offset
    ]


class _Feeding(Connecting):
    """One partition on its way to train with."""

    def __init__(self, task: FeedTask, me: Me, *, checked: bool = False) -> None:
        super().__init__(task, me)
        self._checked = checked
        self._skip = task.skip.get(me.partition, [])
        self._trainer: TrainerConnection | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._go = AssignmentResponse(start=0)
        self._offset = 0  # of the next row
        self._unsaid = 0  # rows since the controller was asked
        self._segment_bytes = 0  # bytes since then
        self._limit = FIRST_SEGMENT_BYTES
        self._rows = 0
        self._bytes = 0
        self._segment_rows = 0  # rows
        self._began = 0  # offset of its first row
        self._rank = -1  # who has it
        self._kept: deque[tuple[int, pa.RecordBatch]] = deque()  # its last rows
        self._kept_bytes = 0
        self._lost = 0  # connections

    def run(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """Feed it; what has been done."""
        try:
            self._feed(batches)
        except NobodyLeft:
            pass
        except NotTaken as error:
            raise FeedError(str(error)) from error
        finally:
            if self._trainer is not None:
                self._trainer.close()
        return pa.record_batch(
            {
                "partition": pa.array([self.me.partition], pa.int32()),
                "rows": pa.array([self._rows], pa.int64()),
                "bytes": pa.array([self._bytes], pa.int64()),
            }
        )

    def _feed(self, batches: Iterator[pa.RecordBatch]) -> None:
        leaves_out = self._skip[-1][1] if self._skip else 0
        row: int | None = None
        if self._checked:
            head = next(batches, None)
            row = first_row(head)
            batches = iter(()) if head is None else itertools.chain([head], batches)
        self._go = self.ask(first=row, leaves_out=leaves_out)
        if self._go.whole:
            return
        length = self._go.length
        if self._go.start:
            self._skip = merged([(0, self._go.start), *self._skip])
        early = self._go.trainers > 1
        for batch in batches:
            if self.task.columns is not None:
                batch = batch.select(self.task.columns)
            base = self._offset
            for start, stop in without([(base, base + batch.num_rows)], self._skip):
                piece = batch.slice(start - base, stop - start)
                if early and piece.num_rows > 1:
                    # There may be no other partition: the controller hears of this one early.
                    half = -(-piece.num_rows // self._go.trainers)
                    self._send(piece.slice(0, half), start)
                    self._check()
                    start, piece = start + half, piece.slice(half)
                early = False
                self._send(piece, start)
            self._offset = base + batch.num_rows
            if self._segment_bytes >= self._limit:
                self._limit = min(2 * self._limit, LONGEST_SEGMENT_BYTES)
                self._check()
        self._finish()
        if self._offset < leaves_out or length not in (-1, self._offset):
            raise FeedError(moved(self.task.feed, self.me.partition))
        self.controller.tell(
            Fed(
                **self.named(),
                query=self.task.query,
                rank=self._rank,
                rows=self._unsaid,
                length=self._offset if self._checked else -1,
            )
        )

    def _send(self, batch: pa.RecordBatch, start: int) -> None:
        if not batch.num_rows:
            return
        left = [(start, batch)]
        while left:
            try:
                self._write(*left[0])
            except EnoughRows as enough:
                # This batch has not been taken: a trainer that wants no more stops before one.
                self._go_on_without(enough.rows)
            except ConnectionError as error:
                left = self._go_on_after(error, left)
            else:
                self._count(*left.pop(0))

    def _count(self, start: int, batch: pa.RecordBatch) -> None:
        size = batch.nbytes
        self._offset = start + batch.num_rows
        self._unsaid += batch.num_rows
        self._segment_rows += batch.num_rows
        self._segment_bytes += size
        self._rows += batch.num_rows
        self._bytes += size
        self._kept.append((start, batch))
        self._kept_bytes += size
        while self._kept_bytes - self._kept[0][1].nbytes >= KEPT_BYTES:
            self._kept_bytes -= self._kept.popleft()[1].nbytes

    def _write(self, start: int, batch: pa.RecordBatch) -> None:
        if self._trainer is None:
            ahead = [(max(a, start), b) for a, b in self._skip if b > start]
            self._trainer = self.open(self._go, start, ahead)
            self._rank = self._trainer.rank
            self._segment_rows, self._began = 0, start
            self._kept.clear()
            self._kept_bytes = 0
            self._writer = self._trainer.stream(batch.schema)
        assert self._writer is not None
        self._trainer.look()
        self._writer.write_batch(batch)

    def _go_on_without(self, rows: int) -> None:
        """The trainer takes no more of the epoch, and has so many rows of this segment: what follows
        goes to another one. What is on its way to it cannot be had back; the report says so.

        Raises:
            NobodyLeft: no trainer takes more of it.
        """
        trainer, self._trainer, self._writer = self._trainer, None, None
        assert trainer is not None
        trainer.close()
        self.enough.add(trainer.rank)
        sent = without([(self._began, self._offset)], self._skip)
        dropped = without(sent, first(sent, rows))
        taken = self._unsaid - count(dropped)
        self._go = self.ask(rank=trainer.rank, rows=taken, dropped=dropped, offset=self._offset)
        self._unsaid = self._segment_bytes = 0
        if self._go.whole:
            raise NobodyLeft

    def _go_on_after(self, error: ConnectionError, left: Batches) -> Batches:
        """The connection broke: what is to be sent again, and then what was left to send, to whom the
        controller has named now.

        Raises:
            ConnectionError: that was once too often, or the rows are no longer here. Spark runs the
                task again.
            NobodyLeft: no trainer takes more of the epoch.
        """
        trainer, self._trainer, self._writer = self._trainer, None, None
        assert trainer is not None
        trainer.close()
        self._lost += 1
        if self._lost > MOST_LOST:
            raise error
        answer = self.ask(lost=True, offset=self._began)
        if answer.whole:
            raise NobodyLeft
        # What came before this segment is the trainers', or has been told as dropped.
        at = max(answer.start, self._began)
        oldest = self._kept[0][0] if self._kept else at
        if not answer.asked or without([(at, oldest)], self._skip):
            raise error
        again = _behind(at, self._kept)
        rows = sum(batch.num_rows for _, batch in again)
        self._rows -= rows
        self._bytes -= sum(batch.nbytes for _, batch in again)
        self._offset = at
        self._go = self.ask(rank=trainer.rank, rows=self._unsaid - rows, offset=at)
        self._unsaid = self._segment_bytes = 0
        if self._go.whole:
            raise NobodyLeft
        return [*again, *_behind(at, left)]

    def _check(self) -> None:
        """Hear from the controller whether another trainer should have what follows."""
        if self._trainer is None:
            return
        self._go = self.ask(rank=self._trainer.rank, rows=self._unsaid)
        self._unsaid = self._segment_bytes = 0
        if self._go.whole:
            raise NobodyLeft
        if self._go.endpoints and self._go.endpoints[0].rank != self._trainer.rank:
            self._finish()

    def _finish(self) -> None:
        """End the segment: all its rows are the trainer's when this returns."""
        trainer, writer = self._trainer, self._writer
        if trainer is None or writer is None:
            return
        try:
            writer.close()
            while trainer.taken is None:
                trainer.wait()
        except EnoughRows as enough:
            self._go_on_without(enough.rows)
            return
        except ConnectionError as error:
            offset = self._offset  # rows that are left out may lie before it
            for start, batch in self._go_on_after(error, []):
                self._send(batch, start)
            self._finish()
            self._offset = offset
            return
        if trainer.taken != self._segment_rows:
            raise FeedError(
                f"rank {trainer.rank} has taken {trainer.taken} rows of {self._segment_rows} that it"
                f" was sent (partition {self.me.partition})"
            )
        trainer.close()
        self._trainer = self._writer = None

"""What runs in a Spark task of a feed: a partition's record batches, to a trainer.

The Arrow IPC stream goes to the trainer's socket as pyarrow writes it: no row is looked at. After
some megabytes the master is asked whether another trainer has fewer rows; a partition goes over in
stretches then, each taken completely before the next begins, so that "offset after the last row
taken" says everything about a partition when Spark runs its task again.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.lines import Access, Enough, Master, NotTaken, Trainer, first_word
from howdah.spark.feed.messages import Again, Begin, Fed, GoOn, Intervals, Purpose
from howdah.spark.feed.plan import merged, wanted

FIRST_STRETCH_BYTES = 4 << 10
LONGEST_STRETCH_BYTES = 128 << 20
"""Between two questions to the master."""
OUTSTANDING_BYTES = 64 << 20
"""Rows on their way to be scored, whose answers have not come."""
MOST_LOST = 5
"""Connections one task may lose while it scores a partition."""

RESULT = "partition int, rows long, bytes long, ranks array<int>"
"""Schema of a feeding task's one row: Spark's partition, rows and bytes sent by this attempt."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of one Spark job are told."""

    access: Access
    feed: str
    run: int
    epoch: int = 0
    purpose: Purpose = Purpose.TRAIN
    skip: dict[int, Intervals] = {}
    """By partition: rows programs have had."""
    columns: list[str] | None = None
    """Only these are sent; None for all."""
    keep: bool = True
    """Scoring: the columns that came go before the answers."""
    answer: bytes = b""
    """Scoring: the schema of the answers, as Arrow serialises it; empty: answer with theirs."""


class _Me(msgspec.Struct, frozen=True):
    partition: int
    attempt: int
    host: str
    folder: str


def feed_partition(sent: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `DataFrame.mapInArrow`; ``sent`` is an encoded `Task`."""
    from pyspark import TaskContext

    task = msgspec.msgpack.decode(sent, type=Task)
    context = TaskContext.get()
    assert context is not None
    me = _Me(context.partitionId(), context.taskAttemptId(), socket.gethostname(), str(Path.cwd()))
    if task.purpose is Purpose.SCORE:
        yield from _Scoring(task, me).run(batches)
    else:
        yield _Feeding(task, me).run(batches)


class _Connecting:
    """What feeding and scoring have in common: to find a trainer that takes it."""

    def __init__(self, task: Task, me: _Me) -> None:
        self._task = task
        self._me = me
        self._master = Master.of(task.access)

    def _ask(
        self, *, unreachable: list[int] | None = None, rank: int = -1, rows: int = 0, upto: int = 0
    ) -> GoOn:
        while True:
            try:
                answer = self._master.ask(
                    Again(
                        **self._named(),
                        host=self._me.host,
                        folder=self._me.folder,
                        unreachable=unreachable or [],
                        rank=rank,
                        rows=rows,
                        upto=upto,
                    )
                )
            except OSError as error:
                access = self._task.access
                raise FeedError(
                    f"the driver program at {access.host}:{access.port} does not answer: {error}. "
                    "The feed's tasks must reach it: set spark.driver.host to an address that "
                    "executors can connect to"
                ) from error
            if answer.problem:
                raise FeedError(answer.problem)
            if not answer.wait_s:
                return answer
            rows = 0
            time.sleep(answer.wait_s)

    def _named(self) -> dict[str, Any]:
        task, me = self._task, self._me
        return {
            "feed": task.feed,
            "run": task.run,
            "epoch": task.epoch,
            "partition": me.partition,
            "attempt": me.attempt,
        }

    def _open(self, answer: GoOn, begin: int, skip: Intervals) -> Trainer:
        """A connection on which the partition has begun."""
        tried: list[int] = []
        problems: list[str] = []
        while True:
            for place in answer.places:
                rank = place.rank
                if rank in tried:
                    continue
                trainer = None
                try:
                    trainer = Trainer(place, self._task.access, self._me.host)
                    first_word(trainer)
                    trainer.send(
                        Begin(**self._named(), purpose=self._task.purpose, start=begin, skip=skip)
                    )
                    return trainer
                except (OSError, NotTaken) as error:
                    if trainer is not None:
                        trainer.close()
                    if isinstance(error, NotTaken) and not error.again:
                        raise FeedError(str(error)) from error
                    tried.append(rank)
                    problems.append(f"rank {rank}: {error}")
            answer = self._ask(unreachable=tried)
            if answer.whole:
                raise Enough
            if all(place.rank in tried for place in answer.places):
                raise FeedError("no trainer takes rows of this task: " + "; ".join(problems))


class _Feeding(_Connecting):
    """One partition on its way to train with."""

    def __init__(self, task: Task, me: _Me) -> None:
        super().__init__(task, me)
        self._skip = task.skip.get(me.partition, [])
        self._trainer: Trainer | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._go = GoOn(start=0)
        self._offset = 0  # of the next row
        self._unsaid = 0  # rows since the master was asked
        self._stretch = 0  # bytes since then
        self._limit = FIRST_STRETCH_BYTES
        self._rows = 0
        self._bytes = 0
        self._in_stretch = 0  # rows
        self._ranks: list[int] = []

    def run(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        """Feed it; what has been done."""
        try:
            self._feed(batches)
        except Enough:
            pass
        except NotTaken as error:
            raise FeedError(str(error)) from error
        finally:
            if self._trainer is not None:
                self._trainer.close()
        return pa.record_batch(
            {
                "partition": pa.array([self._me.partition], pa.int32()),
                "rows": pa.array([self._rows], pa.int64()),
                "bytes": pa.array([self._bytes], pa.int64()),
                "ranks": pa.array([self._ranks], pa.list_(pa.int32())),
            }
        )

    def _feed(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._go = self._ask()
        if self._go.whole:
            return
        if self._go.start:
            self._skip = merged([(0, self._go.start), *self._skip])
        first = True
        for batch in batches:
            if self._task.columns is not None:
                batch = batch.select(self._task.columns)
            base = self._offset
            for start, stop in wanted(base, batch.num_rows, self._skip):
                piece = batch.slice(start - base, stop - start)
                if first and piece.num_rows > 1 and self._go.trainers > 1:
                    # There may be no other partition: the master hears of this one early.
                    half = -(-piece.num_rows // self._go.trainers)
                    self._send(piece.slice(0, half), start)
                    self._check(self._offset)
                    start, piece = start + half, piece.slice(half)
                first = False
                self._send(piece, start)
            self._offset = base + batch.num_rows
            if self._stretch >= self._limit:
                self._limit = min(2 * self._limit, LONGEST_STRETCH_BYTES)
                self._check(self._offset)
        rank = self._trainer.rank if self._trainer is not None else -1
        self._finish()
        self._master.tell(Fed(**self._named(), rank=rank, rows=self._unsaid))

    def _send(self, batch: pa.RecordBatch, start: int) -> None:
        if not batch.num_rows:
            return
        if self._trainer is None:
            ahead = [(max(a, start), b) for a, b in self._skip if b > start]
            self._trainer = self._open(self._go, start, ahead)
            self._ranks.append(self._trainer.rank)
            self._in_stretch = 0
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._trainer, "w"), batch.schema)
        assert self._writer is not None
        self._trainer.look()
        self._writer.write_batch(batch)
        size = batch.nbytes
        self._offset = start + batch.num_rows
        self._unsaid += batch.num_rows
        self._in_stretch += batch.num_rows
        self._stretch += size
        self._rows += batch.num_rows
        self._bytes += size

    def _check(self, upto: int) -> None:
        """Hear from the master whether another trainer should have what follows."""
        if self._trainer is None:
            return
        self._go = self._ask(rank=self._trainer.rank, rows=self._unsaid, upto=upto)
        self._unsaid = self._stretch = 0
        if self._go.whole:
            raise Enough
        if self._go.places and self._go.places[0].rank != self._trainer.rank:
            self._finish()

    def _finish(self) -> None:
        """End the stretch: all its rows are the trainer's when this returns."""
        trainer, writer = self._trainer, self._writer
        if trainer is None or writer is None:
            return
        writer.close()
        while trainer.taken is None:
            trainer.wait()
        if trainer.taken != self._in_stretch:
            raise FeedError(
                f"rank {trainer.rank} has taken {trainer.taken} rows of {self._in_stretch} that it"
                f" was sent (partition {self._me.partition})"
            )
        trainer.close()
        self._trainer = self._writer = None


class _Scoring(_Connecting):
    """One partition on its way to be answered row by row."""

    def __init__(self, task: Task, me: _Me) -> None:
        super().__init__(task, me)
        self._trainer: Trainer | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._waiting: deque[pa.RecordBatch] = deque()
        """As they came; their answers have not."""
        self._outstanding = 0  # bytes of those
        self._ready: deque[tuple[pa.RecordBatch, bytes]] = deque()
        self._lost = 0  # connections
        self._closing = False

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers, in order, as many rows a batch as came."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._waiting.append(batch)
                    self._outstanding += batch.nbytes
                    self._send(batch)
                    yield from self._answers(OUTSTANDING_BYTES)
            self._close_stream()
            yield from self._answers(0)
            if self._trainer is not None:
                self._master.tell(Fed(**self._named(), rank=self._trainer.rank))
        except Enough as end:
            raise FeedError(
                "the program takes no more rows to score: it has stopped the feed or returned"
            ) from end
        except NotTaken as error:
            raise FeedError(str(error)) from error
        finally:
            if self._trainer is not None:
                self._trainer.close()

    def _send(self, batch: pa.RecordBatch) -> None:
        try:
            if self._trainer is None:
                self._begin()
            else:
                self._write(batch)
            assert self._trainer is not None
            self._trainer.look()
        except ConnectionError as error:
            self._recover(error)

    def _begin(self) -> None:
        """Find a trainer and send it all that waits."""
        self._trainer = self._open(self._ask(), 0, [])
        self._writer = None
        for batch in self._waiting:
            self._write(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        rows = batch if self._task.columns is None else batch.select(self._task.columns)
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._trainer, "w"), rows.schema)
        self._writer.write_batch(rows)

    def _close_stream(self) -> None:
        self._closing = True
        try:
            if self._writer is not None:
                self._writer.close()
        except ConnectionError as error:
            self._recover(error)

    def _answers(self, outstanding: int) -> Iterator[pa.RecordBatch]:
        """What has been answered; waits until no more than so many bytes are not."""
        while True:
            self._collect()
            while self._ready:
                yield self._joined(*self._ready.popleft())
            if self._trainer is None or self._outstanding <= outstanding:
                return
            try:
                self._trainer.wait()
            except ConnectionError as error:
                self._recover(error)

    def _collect(self) -> None:
        """Lay answers that came beside their rows: whole batches, in order."""
        while self._trainer is not None and self._trainer.answers:
            batch = self._waiting.popleft()
            self._outstanding -= batch.nbytes
            self._ready.append((batch, self._trainer.answers.popleft()))

    def _recover(self, error: ConnectionError) -> None:
        """The trainer is gone: another one, or the next of its rank, answers what waits."""
        while True:
            self._collect()
            if self._trainer is not None:
                self._trainer.close()
            self._lost += 1
            if self._lost > MOST_LOST:
                raise FeedError(f"the programs that score the rows go away: {error}") from error
            try:
                self._begin()
                if self._closing and self._writer is not None:
                    self._writer.close()
                return
            except ConnectionError as next_error:
                error = next_error

    def _joined(self, batch: pa.RecordBatch, answer: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(answer) as reader:
            table = reader.read_all()
        if table.num_rows != batch.num_rows:
            raise FeedError(
                f"{batch.num_rows} rows were sent to be scored and {table.num_rows} answers came; "
                "each row must be answered by one"
            )
        if self._task.answer:
            table = _fitted(table, pa.ipc.read_schema(pa.py_buffer(self._task.answer)))
        table = table.combine_chunks()
        columns = [
            column.chunk(0) if column.num_chunks else pa.array([], column.type)
            for column in table.columns
        ]
        names = list(table.column_names)
        if self._task.keep:
            columns = [*batch.columns, *columns]
            names = [*batch.schema.names, *names]
        return pa.RecordBatch.from_arrays(columns, names=names)


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The answers in the order and of the types that were promised."""
    missing = [name for name in schema.names if name not in table.column_names]
    if missing and len(schema.names) == len(table.column_names) == 1:
        table = table.rename_columns(schema.names)
    elif missing:
        raise FeedError(
            f"the answers have the columns {', '.join(table.column_names)}; promised were "
            f"{', '.join(schema.names)}"
        )
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FeedError(f"the answers are not what was promised ({schema}): {error}") from error

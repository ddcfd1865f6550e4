"""What runs in a Spark task whose rows are answered: a partition's record batches to a trainer, and
the answers beside them.

A batch is kept until its answer is here. When the trainer is lost another one gets what waits: rows
are answered once, in their order, whatever Spark or we have to try again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.messages import Fed
from howdah.spark.feed.tasks.feeder_client import EnoughRows, NotTaken, TrainerConnection
from howdah.spark.feed.tasks.feeding import MOST_LOST, Connecting, FeedTask, Me

OUTSTANDING_BYTES = 64 << 20
"""Rows on their way to be scored, whose answers have not come."""
AGAIN_S = 0.5
"""A trainer that ends is asked again after so long: the controller hears of its end meanwhile."""
LOST = (ConnectionError, NotTaken)


class Scoring(Connecting):
    """One partition on its way to be answered row by row."""

    def __init__(self, task: FeedTask, me: Me) -> None:
        super().__init__(task, me)
        self._trainer: TrainerConnection | None = None
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
                self.controller.tell(Fed(**self.named(), rank=self._trainer.rank))
        except EnoughRows as end:
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
        except LOST as error:
            self._recover(error)

    def _begin(self) -> None:
        """Find a trainer and send it all that waits."""
        self._trainer = self.open(self.ask(), 0, [])
        self._writer = None
        for batch in self._waiting:
            self._write(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        rows = batch if self.task.columns is None else batch.select(self.task.columns)
        if self._writer is None:
            assert self._trainer is not None
            self._writer = self._trainer.stream(rows.schema)
        self._writer.write_batch(rows)

    def _close_stream(self) -> None:
        self._closing = True
        try:
            if self._writer is not None:
                self._writer.close()
        except LOST as error:
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
            except LOST as error:
                self._recover(error)

    def _collect(self) -> None:
        """Lay answers that came beside their rows: whole batches, in order."""
        while self._trainer is not None and self._trainer.answers:
            batch = self._waiting.popleft()
            self._outstanding -= batch.nbytes
            self._ready.append((batch, self._trainer.answers.popleft()))

    def _recover(self, error: Exception) -> None:
        """The trainer is gone: another one, or the next of its rank, answers what waits."""
        while True:
            if isinstance(error, NotTaken):
                if not error.again:
                    raise error
                time.sleep(AGAIN_S)
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
            except LOST as next_error:
                error = next_error

    def _joined(self, batch: pa.RecordBatch, answer: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(answer) as reader:
            table = reader.read_all()
        if table.num_rows != batch.num_rows:
            raise FeedError(
                f"{batch.num_rows} rows were sent to be scored and {table.num_rows} answers came; "
                "each row must be answered by one"
            )
        if self.task.answer:
            table = _fitted(table, pa.ipc.read_schema(pa.py_buffer(self.task.answer)))
        table = table.combine_chunks()
        columns = [
            column.chunk(0) if column.num_chunks else pa.array([], column.type)
            for column in table.columns
        ]
        names = list(table.column_names)
        if self.task.keep:
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

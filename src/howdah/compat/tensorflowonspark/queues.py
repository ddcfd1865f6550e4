"""The queues a `TFNode.DataFeed` reads and writes: Howdah's feed seen as a queue of rows.

``get`` gives rows one by one, `marker.EndPartition` after the rows of a partition that is scored,
and None for ever once the feed has ended. Rows are taken from the feed in blocks: a row costs a list
access here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty
from typing import Any, Protocol

from howdah.compat.tensorflowonspark import marker


class AnyQueue(Protocol):
    """What programs and `TFNode.DataFeed` call."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...
    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None: ...
    def task_done(self) -> None: ...
    def empty(self) -> bool: ...


class Block:
    """Rows that came together; ``answer`` is set where they are to be answered, one by one."""

    def __init__(
        self, rows: Sequence[Any], answer: Callable[[list[Any]], None] | None = None
    ) -> None:
        self.rows = rows
        self.answer = answer


class FeedQueue:
    """An input queue over blocks of rows."""

    def __init__(self, blocks: Iterator[Block], stop: Callable[[], None]) -> None:
        """``blocks`` ends with the feed; ``stop`` tells the feed that no more is wanted."""
        self._blocks = blocks
        self._stop = stop
        self._rows: Sequence[Any] = ()
        self._next = 0
        self.ended: bool = False
        """The feed has: a None that comes before is a row."""
        self._partition_open = False
        self.waiting: list[Block] = []
        """Blocks whose answers are due, oldest first."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next row, an `marker.EndPartition`, or None at the end of the feed."""
        if self._next < len(self._rows):
            row = self._rows[self._next]
            self._next += 1
            return row
        if self._partition_open:
            self._partition_open = False
            return marker.EndPartition()
        return self.get() if self._fill() else None

    def take(self, count: int) -> Sequence[Any]:
        """Up to ``count`` rows that are here already; none when the next thing is no row."""
        rows = self._rows[self._next : self._next + count]
        self._next += len(rows)
        return rows

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Refuse: rows come from Spark."""
        raise TypeError("rows come into an input queue from Spark: feed by TFCluster.train")

    def task_done(self) -> None:
        """Nothing: what was handed out is known."""

    def empty(self) -> bool:
        """Whether nothing is here now (more may be on its way)."""
        return self._next >= len(self._rows) and not self._partition_open

    def drop(self) -> None:
        """No more rows are wanted."""
        self._rows, self._next = (), 0
        self._partition_open = False
        if not self.ended:
            self._stop()

    def _fill(self) -> bool:
        if self.ended:
            return False
        if self.waiting:
            raise RuntimeError(
                f"{len(self.waiting[0].rows)} rows of an inference have no results yet: call "
                "batch_results for each batch before the next next_batch"
            )
        found = next(self._blocks, None)
        if found is None:
            self.ended = True
            return False
        self._rows, self._next = found.rows, 0
        if found.answer is not None:
            self.waiting.append(found)
            self._partition_open = True
        return True


class AnswerQueue:
    """An output queue: answers go back block by block, each when it is whole."""

    def __init__(self, source: FeedQueue) -> None:
        self._source = source
        self._answers: list[Any] = []

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """The answer to the oldest row that has none.

        Raises:
            RuntimeError: every row has its answer already.
        """
        waiting = self._source.waiting
        if not waiting:
            raise RuntimeError(
                "there are more results than rows: batch_results must be given as many as "
                "next_batch has returned, and only rows of TFCluster.inference are answered"
            )
        self._answers.append(item)
        if len(self._answers) == len(waiting[0].rows):
            first, answers = waiting.pop(0), self._answers
            self._answers = []
            assert first.answer is not None
            first.answer(answers)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Nothing: answers go to Spark."""
        raise Empty

    def task_done(self) -> None:
        """Nothing."""

    def empty(self) -> bool:
        """Whether no block is half answered."""
        return not self._answers

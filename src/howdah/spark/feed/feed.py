"""What a training function iterates over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from howdah.spark.feed.messages import Position

if TYPE_CHECKING:
    import pyarrow as pa

Batch = dict[str, Any]
"""Column name -> numpy array (a dict of them for a struct); the first dimension is rows."""
Shapes = Mapping[str, Sequence[int] | None]
"""Shape of one row of a column; None: its rows differ, give an object array."""


class Epoch:
    """One pass over a run's rows."""

    number: int
    """From 0, of its run."""
    run: int

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
    ) -> Iterator[Batch]:
        """What is left of the epoch."""
        raise NotImplementedError


class Feed:
    """Rows of one named feed, for one rank. Used by one thread at a time."""

    name: str

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
    ) -> Iterator[Batch]:
        """Batches of all runs and epochs until the feed is ended; none crosses an epoch's end."""
        raise NotImplementedError

    def epochs(self) -> Iterator[Epoch]:
        """The epochs of all runs until the feed is ended."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Row by row (slow: for programs that want no batches)."""
        raise NotImplementedError

    def stop(self) -> None:
        """No more rows are wanted, by any rank: ends the Spark job, and every iteration."""
        raise NotImplementedError

    def position(self) -> Position:
        """The rows handed out up to the last batch given: to be saved beside a checkpoint."""
        raise NotImplementedError

    def restore(self, position: Position | bytes) -> None:
        """Go on from there: before the first batch is asked for, in every rank."""
        raise NotImplementedError

    def results(self, values: Any) -> None:
        """The answer to the batch given last (a feed that is scored): as many rows as it had.

        An array or list (column ``prediction``), a dict of them, a pyarrow array, record batch or
        table.
        """
        raise NotImplementedError

    @property
    def scoring(self) -> bool:
        """Whether the batch given last wants `results`."""
        raise NotImplementedError

    @property
    def schema(self) -> pa.Schema:
        """Columns and Arrow types; waits for the first partition to begin."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Handed out so far, of all epochs."""
        raise NotImplementedError

    def tf_dataset(
        self,
        size: int,
        columns: Sequence[str] | str | None = None,
        label: str | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
        per_epoch: bool = True,
    ) -> Any:
        """A `tf.data.Dataset`. With ``per_epoch`` each pass over it is one epoch (Keras's ``fit``),
        else one pass is everything. ``columns`` as a string: that tensor alone, else a dict;
        with ``label`` pairs of (features, label)."""
        raise NotImplementedError

    def torch_loader(
        self,
        size: int,
        columns: Sequence[str] | str | None = None,
        label: str | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
        per_epoch: bool = True,
    ) -> Any:
        """A `torch.utils.data.DataLoader`; arguments as those of `tf_dataset`."""
        raise NotImplementedError


__all__ = ["Batch", "Epoch", "Feed", "Shapes", "np"]

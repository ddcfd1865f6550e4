"""Batches between a feed and a framework: what a feed gives, their rows in another order, and drawn ahead."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from howdah.spark.feed.arrow.columns import (
    Converter,
    Shapes,
    concatenated,
    length,
    ordered,
    tensors,
)

T = TypeVar("T")
Batch = dict[str, Any]
"""Column name -> numpy array (a dict of them for a struct); the first dimension is rows."""


class Batching(NamedTuple):
    """Which batches are asked for."""

    size: int
    convert: Converter
    drop_last: bool


class BatchSource:
    """Rows of a feed, which are given in batches."""

    @property
    def name(self) -> str:
        """What errors call the feed."""
        raise NotImplementedError

    def iterate(self, asked: Batching) -> Iterator[Batch]:
        """All of them; see `batches`."""
        raise NotImplementedError

    def asked(
        self, size: int, columns: Sequence[str] | None, shapes: Shapes | None, drop_last: bool
    ) -> Batching:
        """The arguments of `batches`.

        Raises:
            ValueError: a batch has no rows.
        """
        if size < 1:
            raise ValueError(f"A batch has at least one row, not {size}")
        return Batching(size, Converter(self.name, columns, shapes), drop_last)

    def batches(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
    ) -> Iterator[Batch]:
        """Batches of what is left of an epoch, or, of a feed, of all epochs until it is ended; none
        crosses an epoch's end. Leaving it and beginning anew goes on with the next row.

        Args:
            size: rows of a batch. An epoch's last may have fewer (with ``drop_last`` those are
                dropped); while rows are scored, also a partition's last.
            columns: only these.
            shapes: of one row: ``{"image": (28, 28)}``; None: rows differ.

        Raises:
            FeedError: Spark's query failed, the driver is gone, or columns do not fit.
        """
        return self.iterate(self.asked(size, columns, shapes, drop_last))


class PassSource(BatchSource):
    """A feed, whose rows are given in passes: an epoch each, or everything at once."""

    def sample(self, columns: Sequence[str] | None = None, shapes: Shapes | None = None) -> Batch:
        """Some rows that will come, whose types are those of all; empty if there are none."""
        raise NotImplementedError

    def passes(self, asked: Batching, per_epoch: bool) -> Iterator[Batch]:
        """One pass: the next epoch, or everything."""
        raise NotImplementedError

    def length(self, size: int, drop_last: bool) -> int | None:
        """Batches of a pass that is one epoch; None where that is not certain."""
        raise NotImplementedError


class Batches:
    """Batches as a framework takes them; each iteration is one pass of a feed, in an order of its own.

    The arguments are those of `howdah.spark.feed.adapters.loaders.Loaders.torch_loader`.

    Raises:
        ValueError: a number is below 0.
    """

    def __init__(
        self,
        feed: PassSource,
        size: int,
        columns: Sequence[str] | str | None,
        label: str | None,
        shapes: Shapes | None,
        drop_last: bool,
        per_epoch: bool,
        *,
        shuffle_buffer: int = 0,
        seed: int = 0,
        prefetch: int = 0,
    ) -> None:
        for name, value in (("shuffle_buffer", shuffle_buffer), ("prefetch", prefetch)):
            if value < 0:
                raise ValueError(f"{name} is {value}; give 0 for none, or more")
        asked = feed.asked(size, chosen(columns, label), shapes, drop_last)
        self._pass = lambda: feed.passes(asked, per_epoch)
        self._length = lambda: feed.length(size, drop_last) if per_epoch else None
        self._size = size
        self._columns = columns
        self._label = label
        self._shuffle_buffer = shuffle_buffer
        self._seed = seed
        self._prefetch = prefetch
        self._begun = 0

    def __iter__(self) -> Iterator[Any]:
        batches = self._pass()
        random = np.random.default_rng((self._seed, self._begun))
        self._begun += 1
        if self._shuffle_buffer:
            batches = shuffled(batches, self._size, self._shuffle_buffer, random)
        return ahead(map(self.ready, batches), self._prefetch)

    def __len__(self) -> int:
        """Batches of a pass.

        Raises:
            TypeError: that is not certain.
        """
        if (found := self._length()) is None:
            raise TypeError(
                "It is not certain how many batches a pass has: ranks' shares of an epoch differ a "
                "little, and Spark does not know the number of all rows without counting them. "
                "feed.steps(n) says about how many, if that is known"
            )
        return found

    def ready(self, batch: dict[str, Any]) -> Any:
        """A batch as the program gets it."""
        arrays = {name: tensors(values, name, self.array) for name, values in batch.items()}
        return given(arrays, self._columns, self._label)

    def array(self, values: np.ndarray, name: str) -> Any:
        """A column as the framework's own array."""
        raise NotImplementedError


def shuffled(
    batches: Iterable[dict[str, Any]], size: int, buffer: int, random: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Rows mixed among as many batches of that size as it takes for so many rows, and then among the
    next. There are as many batches as before, each as long: ranks stay even."""
    window = -(-buffer // size)
    rest = iter(batches)
    while taken := list(itertools.islice(rest, window)):
        sizes = [length(batch) for batch in taken]
        whole = concatenated(taken)
        del taken
        order = random.permutation(sum(sizes))
        for rows in np.split(order, np.cumsum(sizes)[:-1]):
            yield ordered(whole, rows)


def ahead(ready: Iterable[T], count: int) -> Iterator[T]:
    """The same, so many of them drawn before they are asked for."""
    waiting: deque[T] = deque()
    for each in ready:
        waiting.append(each)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def chosen(columns: Sequence[str] | str | None, label: str | None) -> list[str] | None:
    """Columns to take; None: all."""
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) else list(columns)
    return names if label is None or label in names else [*names, label]


def given(values: Mapping[str, Any], columns: Sequence[str] | str | None, label: str | None) -> Any:
    """What the program gets of a batch: one array if ``columns`` is a string, else a dict; with a
    label a pair."""
    if isinstance(columns, str):
        features: Any = values[columns]
    else:
        features = {
            name: value
            for name, value in values.items()
            if name != label or (columns is not None and name in columns)
        }
    return features if label is None else (features, values[label])

"""Batches between a feed and a framework: their rows in another order, and drawn ahead. Pure."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from howdah.spark.feed.arrow.columns import Shapes, concatenated, length, ordered, tensors

T = TypeVar("T")


class Batches:
    """Batches as a framework takes them; each iteration is one pass of a feed, in an order of its own.

    The arguments are those of `howdah.spark.feed.adapters.loaders.Loaders.torch_loader`.

    Raises:
        ValueError: a number is below 0.
    """

    def __init__(
        self,
        passes: Callable[..., Iterator[Any]],
        size: int,
        columns: Sequence[str] | str | None,
        label: str | None,
        shapes: Shapes | None,
        drop_last: bool,
        per_epoch: bool,
        *,
        length: Callable[[int, bool], int | None] = lambda size, drop_last: None,
        shuffle_buffer: int = 0,
        seed: int = 0,
        prefetch: int = 0,
    ) -> None:
        for name, value in (("shuffle_buffer", shuffle_buffer), ("prefetch", prefetch)):
            if value < 0:
                raise ValueError(f"{name} is {value}; give 0 for none, or more")
        self._pass = lambda: passes(size, chosen(columns, label), shapes, drop_last, per_epoch)
        self._length = lambda: length(size, drop_last) if per_epoch else None
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

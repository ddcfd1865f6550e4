"""Batches between a feed and a framework: their rows in another order, and drawn ahead. Pure."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from howdah.spark.feed.columns import concatenated, length, ordered

T = TypeVar("T")


def check(shuffle_buffer: int, prefetch: int) -> None:
    """Whether these arguments can be.

    Raises:
        ValueError: one is below 0.
    """
    for name, value in (("shuffle_buffer", shuffle_buffer), ("prefetch", prefetch)):
        if value < 0:
            raise ValueError(f"{name} is {value}; give 0 for none, or more")


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

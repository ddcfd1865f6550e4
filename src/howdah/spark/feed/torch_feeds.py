"""Feeds as PyTorch takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from howdah.spark.feed.columns import Shapes, tensors
from howdah.spark.feed.selection import chosen, given


class FeedDataset(IterableDataset[Any]):
    """Ready batches of tensors: for a loader without batch size and workers."""

    def __init__(
        self,
        passes: Callable[..., Iterator[Any]],
        size: int,
        columns: Sequence[str] | str | None,
        label: str | None,
        shapes: Shapes | None,
        drop_last: bool,
        per_epoch: bool,
    ) -> None:
        self._passes = passes
        self._arguments = (size, chosen(columns, label), shapes, drop_last, per_epoch)
        self._columns = columns
        self._label = label

    def __iter__(self) -> Iterator[Any]:
        for batch in self._passes(*self._arguments):
            tensors = {name: tensor(values, name) for name, values in batch.items()}
            yield given(tensors, self._columns, self._label)


def loader(passes: Callable[..., Iterator[Any]], *arguments: Any) -> DataLoader[Any]:
    """See `howdah.spark.feed.loaders.Loaders.torch_loader`."""
    # Rows come over a connection of this process: workers would share it.
    return DataLoader(FeedDataset(passes, *arguments), batch_size=None, num_workers=0)


def tensor(values: Any, name: str) -> Any:
    """The array as a tensor; strings and other objects stay as they are.

    Raises:
        FeedError: it has nulls that no tensor can hold.
    """
    return tensors(values, name, _tensor)


def _tensor(values: np.ndarray, name: str) -> Any:
    if values.dtype.kind not in "biuf":
        return values
    # A copy: PyTorch writes where it likes, the received memory may be handed out again.
    return torch.from_numpy(np.array(values, order="C"))

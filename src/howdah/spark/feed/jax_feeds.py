"""Feeds as JAX takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from howdah.spark.errors import FeedError
from howdah.spark.feed.batching import ahead, check, shuffled
from howdah.spark.feed.columns import Shapes, tensors
from howdah.spark.feed.selection import chosen, given


class JaxBatches:
    """Batches of JAX arrays; each pass over it is one of the feed."""

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
        sharding: Any,
        shuffle_buffer: int,
        seed: int,
        prefetch: int,
    ) -> None:
        check(shuffle_buffer, prefetch)
        self._passes = passes
        self._arguments = (size, chosen(columns, label), shapes, drop_last, per_epoch)
        self._columns = columns
        self._label = label
        self._sharding = sharding
        self._shuffle = shuffle_buffer, seed
        self._prefetch = prefetch
        self._begun = 0

    def __iter__(self) -> Iterator[Any]:
        batches = self._passes(*self._arguments)
        buffer, seed = self._shuffle
        random = np.random.default_rng((seed, self._begun))
        self._begun += 1
        if buffer:
            batches = shuffled(batches, self._arguments[0], buffer, random)
        return ahead(map(self._ready, batches), self._prefetch)

    def _ready(self, batch: dict[str, Any]) -> Any:
        arrays = {name: tensors(values, name, self._array) for name, values in batch.items()}
        return given(arrays, self._columns, self._label)

    def _array(self, values: np.ndarray, name: str) -> Any:
        if values.dtype.kind not in "biuf":
            return values
        _check_width(values, name)
        # A copy: JAX may use the memory as it is, and received memory may be handed out again.
        own = np.array(values, order="C")
        if self._sharding is None:
            return jax.device_put(own)
        try:
            return jax.make_array_from_process_local_data(self._sharding, own)
        except ValueError as error:
            raise FeedError(
                f"{len(own)} rows of the column {name!r} cannot be laid out by {self._sharding}: "
                f"{error}. Where that is an epoch's last batch, give drop_last=True"
            ) from error


def _check_width(values: np.ndarray, name: str) -> None:
    """JAX makes 64 bits 32, and says nothing of numbers that do not fit."""
    made = jax.dtypes.canonicalize_dtype(values.dtype)
    if values.dtype.kind not in "iu" or made == values.dtype or not values.size:
        return
    narrow = np.iinfo(made)
    if values.min() < narrow.min or values.max() > narrow.max:
        raise FeedError(
            f"The column {name!r} has numbers beyond 32 bits, which JAX cuts off: set "
            'jax.config.update("jax_enable_x64", True) first, or cast the column in Spark'
        )

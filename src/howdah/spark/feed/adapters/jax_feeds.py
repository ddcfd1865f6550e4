"""Feeds as JAX takes them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from howdah.spark.errors import FeedError
from howdah.spark.feed.adapters.batching import Batches


class JaxBatches(Batches):
    """Batches of JAX arrays."""

    def __init__(self, *arguments: Any, sharding: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._sharding = sharding

    def array(self, values: np.ndarray, name: str) -> Any:
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

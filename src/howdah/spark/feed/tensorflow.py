"""Feeds as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from howdah.spark.errors import FeedError
from howdah.spark.feed.columns import Shapes
from howdah.spark.feed.selection import chosen, given

if TYPE_CHECKING:
    from howdah.spark.feed.feed import Feed

PREFETCH = 2
"""Batches made ready while the program works on another."""


def dataset(
    feed: Feed,
    size: int,
    columns: Sequence[str] | str | None,
    label: str | None,
    shapes: Shapes | None,
    drop_last: bool,
    per_epoch: bool,
) -> Any:
    """See `howdah.spark.feed.feed.Feed.tf_dataset`. Waits for the first rows, whose shapes it needs.

    Raises:
        FeedError: the feed ended without any rows.
    """
    names = chosen(columns, label)
    sample = feed.sample(names, shapes)
    if not sample:
        raise FeedError(
            f"The feed {feed.name!r} ended without any rows: a dataset needs some to know its types"
        )
    rows = size if drop_last else None
    signature = given(
        {name: _spec(values, rows, name) for name, values in sample.items()}, columns, label
    )

    def batches() -> Iterator[Any]:
        for batch in feed.passes(size, names, shapes, drop_last, per_epoch):
            values = {name: _plain(value, name) for name, value in batch.items()}
            yield given(values, columns, label)

    made = tf.data.Dataset.from_generator(batches, output_signature=signature)
    options = tf.data.Options()
    # Each rank has its own rows already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return made.with_options(options).prefetch(PREFETCH)


def _spec(values: Any, rows: int | None, name: str) -> Any:
    if isinstance(values, dict):
        return {key: _spec(value, rows, f"{name}.{key}") for key, value in values.items()}
    values = _plain(values, name)
    if values.dtype == object:
        if len(values) and isinstance(values[0], np.ndarray):
            inner = values[0]
            shape = [rows, *[None] * inner.ndim]
            return tf.RaggedTensorSpec(shape, tf.as_dtype(inner.dtype), inner.ndim)
        return tf.TensorSpec([rows], tf.string)
    return tf.TensorSpec([rows, *values.shape[1:]], tf.as_dtype(values.dtype))


def _plain(values: Any, name: str) -> Any:
    """The array as TensorFlow can take it."""
    if isinstance(values, dict):
        return {key: _plain(value, f"{name}.{key}") for key, value in values.items()}
    if isinstance(values, np.ma.MaskedArray):
        raise FeedError(
            f"The column {name!r} has nulls, which tensors of {values.dtype} cannot hold: fill "
            "them (df.fillna), drop them (df.dropna), or cast the column to double (NaN)"
        )
    if values.dtype.kind in "mM":
        return values.astype(np.int64)
    if values.dtype == object and len(values) and isinstance(values[0], np.ndarray):
        return tf.ragged.constant([row.tolist() for row in values], dtype=values[0].dtype)
    if values.dtype == object and any(value is None for value in values):
        raise FeedError(
            f"The column {name!r} has nulls, which tensors of strings cannot hold: fill or drop "
            "them (df.fillna, df.dropna)"
        )
    return values

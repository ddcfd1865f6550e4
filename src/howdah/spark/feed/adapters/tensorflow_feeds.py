"""Feeds as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from howdah.spark.errors import FeedError
from howdah.spark.feed.adapters.batching import PassSource, chosen, given
from howdah.spark.feed.arrow.columns import Shapes, tensors
from howdah.spark.feed.arrow.ipc import ALIGNMENT

_WORTH_IT = 64 * 1024
"""Bytes; TensorFlow copies less in no time."""


def dataset(
    feed: PassSource,
    size: int,
    columns: Sequence[str] | str | None,
    label: str | None,
    shapes: Shapes | None,
    drop_last: bool,
    per_epoch: bool,
) -> Any:
    """See `howdah.spark.feed.adapters.loaders.Loaders.tf_dataset`. Waits for the first rows, whose shapes it needs.

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
    # Rows that differ in the sample are taken to differ always: the types of a dataset are fixed.
    ragged = {name for name, values in sample.items() if _is_ragged(values)}
    shapes = {**(shapes or {}), **dict.fromkeys(ragged)}
    signature = {
        name: _ragged_spec(values) if name in ragged else _spec(values, rows, name)
        for name, values in sample.items()
    }

    asked = feed.asked(size, names, shapes, drop_last)
    from_lengths: Any = getattr(tf.RaggedTensor, "from_row_lengths")  # noqa: B009 - no type stub

    def ready(values: np.ndarray, name: str) -> np.ndarray:
        return _aligned(_whole(values, name))

    def batches() -> Iterator[Any]:
        for batch in feed.passes(asked, per_epoch):
            values = {
                name: _parts(values, name) if name in ragged else tensors(values, name, ready)
                for name, values in batch.items()
            }
            yield values if ragged else given(values, columns, label)

    # Not to be translated into a graph: there is no branch in it on a tensor.
    @tf.autograph.experimental.do_not_convert
    def assembled(batch: Any) -> Any:
        values = {
            name: from_lengths(*value) if name in ragged else value for name, value in batch.items()
        }
        return given(values, columns, label)

    # Only what the generator cannot give costs a step of its own for each batch.
    structure = signature if ragged else given(signature, columns, label)
    made = tf.data.Dataset.from_generator(batches, output_signature=structure)
    if ragged:
        made = made.map(assembled)
    options = tf.data.Options()
    # Each rank has its own rows already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # No prefetching, which tf.data adds by itself: a position would count what it holds as trained,
    # rows wait in this process anyway, and an iterator that is left while its own thread waits for
    # a batch waits with it.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    made = made.with_options(options)

    def cardinality() -> Any:
        found = feed.length(size, drop_last) if per_epoch else None
        return tf.constant(tf.data.UNKNOWN_CARDINALITY if found is None else found, tf.int64)

    # Keras asks once for each fit. tf.data's own assert_cardinality is said once, and makes an error
    # of a pass that ends early: after stop(), or when it goes on with what another loop has left.
    made.cardinality = cardinality
    return made


def _is_ragged(values: Any) -> bool:
    return (
        not isinstance(values, dict)
        and values.dtype == object
        and any(isinstance(row, np.ndarray) for row in values)
    )


def _ragged_spec(values: Any) -> Any:
    first = next(row for row in values if row is not None)
    if first.ndim != 1 or first.dtype == object:
        raise FeedError(
            "Rows of several dimensions that differ in shape make no tensor: pad them in Spark, or "
            "take feed.batches(), which gives arrays of arrays"
        )
    return (tf.TensorSpec([None], tf.as_dtype(first.dtype)), tf.TensorSpec([None], tf.int64))


def _parts(rows: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values and row lengths."""
    if any(row is None or np.ma.is_masked(row) for row in rows):
        raise FeedError(
            f"The column {name!r} has nulls, or lists with nulls, which ragged tensors cannot hold: fill "
            "or drop them (df.fillna, df.dropna)"
        )
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.concatenate(rows), lengths


def _spec(values: Any, rows: int | None, name: str) -> Any:
    if isinstance(values, dict):
        return {key: _spec(value, rows, f"{name}.{key}") for key, value in values.items()}
    values = tensors(values, name, _whole)
    if values.dtype == object:
        return tf.TensorSpec([rows], tf.string)
    return tf.TensorSpec([rows, *values.shape[1:]], tf.as_dtype(values.dtype))


def _whole(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype == object and any(value is None for value in values):
        raise FeedError(
            f"The column {name!r} has nulls, which tensors of strings cannot hold: fill or drop "
            "them (df.fillna, df.dropna)"
        )
    return values


def _aligned(values: np.ndarray) -> np.ndarray:
    """The same, where TensorFlow takes it as it lies. What begins elsewhere it copies, into memory that
    is new each time, while Arrow uses its own again: the page faults cost more than the copy."""
    if values.dtype == object or values.nbytes < _WORTH_IT:
        return values
    if values.ctypes.data % ALIGNMENT == 0 and values.flags.c_contiguous:
        return values
    memory = np.frombuffer(pa.allocate_buffer(values.nbytes), values.dtype)
    memory.reshape(values.shape)[...] = values
    return memory.reshape(values.shape)

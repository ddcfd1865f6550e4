"""What models take and answer, as they declare it."""

from __future__ import annotations

from typing import Any

import msgspec

Batch = dict[str, Any]
"""Tensors by name: arrays whose first dimension is rows, as `howdah.spark.feed.arrow.columns` makes them
(integers with nulls are masked arrays; rows that differ in length, object arrays)."""


class Tensor(msgspec.Struct, frozen=True):
    """An input or output as the model declares it."""

    name: str
    dtype: str = ""
    """numpy's name of it; empty: any."""
    shape: tuple[int | None, ...] | None = None
    """Of one row; None where the model does not say."""

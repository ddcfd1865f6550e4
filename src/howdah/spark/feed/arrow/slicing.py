"""Record batches: their columns in words, and some of their rows. Pure."""

from __future__ import annotations

import pyarrow as pa

from howdah.spark.feed.intervals import cut
from howdah.spark.feed.messages import Intervals


def columns(schema: pa.Schema) -> str:
    """The columns in words."""
    text = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return text if len(text) < 500 else f"{text[:500]}… ({len(schema)} columns)"


def chosen(batch: pa.RecordBatch, offsets: Intervals, fresh: Intervals) -> pa.RecordBatch:
    """The rows of ``fresh``, of a batch that has ``offsets``."""
    pieces: list[pa.RecordBatch] = []
    base = 0
    for start, stop in offsets:
        pieces += [batch.slice(base + a, b - a) for a, b in cut(start, stop, fresh)]
        base += stop - start
    if not pieces:
        return batch.slice(0, 0)
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]

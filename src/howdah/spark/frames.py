"""Columns of DataFrames by their names, whatever is in these.

Spark reads ``a.b`` as the field ``b`` of a struct ``a``, and pyspark's own `DataFrame.mapInArrow` does so
with the names of the frame's columns, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Work = Callable[[Iterator[Any]], Iterator[Any]]
"""Record batches to record batches, as `DataFrame.mapInArrow` takes it."""


def quoted(name: str) -> str:
    """How Spark is told that this is a column's whole name."""
    return "`" + name.replace("`", "``") + "`"


def select(frame: Any, columns: Sequence[str]) -> Any:
    """Those columns, by their very names; other names are Spark's to resolve: ``s.x`` may be a struct's
    field."""
    names = set(frame.columns)
    return frame.select(*(quoted(name) if name in names else name for name in columns))


def map_in_arrow(frame: Any, work: Work, schema: Any) -> Any:
    """`DataFrame.mapInArrow` of a frame whose columns may have any names."""
    names: list[str] = frame.columns
    if not any(map(_special, names)):
        return frame.mapInArrow(work, schema)
    # A name that is there twice stays so, for Spark to refuse it.
    plain = [
        f"column {names.index(name)}: {name.translate(_PLAIN)}" if _special(name) else name
        for name in names
    ]
    return frame.toDF(*plain).mapInArrow(functools.partial(_renamed, work, names), schema)


_PLAIN = str.maketrans(".`", "__")


def _special(name: str) -> bool:
    return "." in name or "`" in name


def _renamed(work: Work, names: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    return work(_named(batch, names) for batch in batches)


def _named(batch: Any, names: list[str]) -> Any:
    import pyarrow as pa

    fields = [field.with_name(name) for field, name in zip(batch.schema, names)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))

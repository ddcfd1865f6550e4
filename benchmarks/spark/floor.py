"""The floor: the least any consumer of Spark's rows can cost. Python workers sum up what they get."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.spark.shapes import MASK, arrow_words


def run(frame: Any) -> tuple[float, int]:
    """Seconds, and the checksum."""
    begin = time.perf_counter()
    sums = frame.mapInArrow(_count, "words string, rows bigint").collect()
    return time.perf_counter() - begin, sum(int(each.words) for each in sums) & MASK


def _count(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    total = rows = 0
    for batch in batches:
        total += arrow_words(batch)
        rows += batch.num_rows
    yield pa.RecordBatch.from_pydict({"words": [str(total)], "rows": [rows]})

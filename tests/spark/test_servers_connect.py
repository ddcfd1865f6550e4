"""The Connect server and the YARN session of the fixtures."""

from __future__ import annotations

from typing import Any


def test_a_connect_session_runs_arrow_functions(connect_spark: Any) -> None:
    import pyarrow as pa

    def count(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})

    rows = connect_spark.range(0, 100, 1, 2).mapInArrow(count, "n long").collect()
    assert sum(row.n for row in rows) == 100

"""Spark on YARN: the executors are containers of a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)


def test_a_session_on_yarn_runs_arrow_functions_in_two_executors(yarn_spark: Any) -> None:
    import pyarrow as pa

    def where(batches):  # type: ignore[no-untyped-def]
        import os

        for batch in batches:
            yield pa.RecordBatch.from_pydict(
                {"n": [batch.num_rows], "at": [os.environ["CONTAINER_ID"]]}
            )

    frame = yarn_spark.range(0, 100, 1, 2).mapInArrow(where, "n long, at string", barrier=True)
    rows = frame.collect()
    assert sum(row.n for row in rows) == 100
    assert len({row["at"] for row in rows}) == 2

"""The fixtures themselves: real Spark, of both versions, that leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import RunProgram
from tests.spark.servers import Standalone
from tests.spark.versions import Version, running

_PROGRAM = """
import pyspark
import pyarrow

def count(batches):
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"n": [batch.num_rows]})

rows = spark.range(0, 1000, 1, 4).mapInArrow(count, "n long").collect()
print(f"rows={sum(row.n for row in rows)}")
print(f"version={pyspark.__version__}")
print(f"cores={spark.sparkContext.defaultParallelism}")
"""


@pytest.mark.parametrize("version", Version, ids=lambda version: version.value)
def test_a_standalone_cluster_of_either_version_runs_arrow_functions(
    version: Version, tmp_path: Path, run_program: RunProgram, leaves_nothing: None
) -> None:
    with Standalone(tmp_path / "standalone", version) as cluster:
        done = run_program(_PROGRAM, spark=cluster, version=version, timeout_s=120)
        assert done.code == 0, done.out
        assert done.told("rows") == "1000"
        assert done.told("version").startswith(version.value)
        assert done.told("cores") == "2"


@pytest.mark.both_sparks
def test_a_session_of_this_process_has_two_threads(spark: Any) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    assert spark.range(10).count() == 10
    assert spark.version.startswith(running().value)


def test_a_program_that_takes_too_long_is_killed_with_its_jvm(
    run_program: RunProgram, leaves_nothing: None
) -> None:
    with pytest.raises(AssertionError, match="not done after 8"):
        run_program("import time\nprint('here', flush=True)\ntime.sleep(600)", timeout_s=8)

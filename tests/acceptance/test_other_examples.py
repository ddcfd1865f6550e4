"""Examples that train nothing, or with frameworks that are tested elsewhere: exit 0, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.jobs import Example

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(320)
@pytest.mark.parametrize("name", ["command", "horovod", "mpi", "mxnet", "ray"])
def test_the_other_examples_end_well(name: str, tmp_path: Path) -> None:
    job = Example(name, tmp_path).run().end(within_s=300)
    assert not job.marked()

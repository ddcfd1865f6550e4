"""80,000 more random schedules of test_simulation.py, in parts: what time does not allow is left out."""

from __future__ import annotations

import msgspec
import pytest

from tests.spark.feed.simulation.hunt import hunt
from tests.spark.feed.test_simulation import SCHEDULES

PARTS = 8
IN_PART = 10_000

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_row_is_given_once_an_epoch_or_reported_in_many_more_schedules(
    seed: int, part: int
) -> None:
    report = hunt(seed + SCHEDULES + part * IN_PART, IN_PART)
    print(msgspec.json.encode(report).decode())
    assert not report.defect, (
        f"{report.defect}: python -m tests.spark.feed.simulation {report.seed} 1 shows it again"
    )
    assert {"whole", "early", "stopped", "restarted"} <= set(report.outcomes)

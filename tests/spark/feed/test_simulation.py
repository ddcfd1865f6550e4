"""The feed under random schedules: every row once an epoch, or the report says so."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.spark.feed.simulation.hunt import hunt
from tests.spark.feed.simulation.mutants import MUTANTS
from tests.spark.feed.simulation.schedule import (
    Schedule,
    left_early,
    left_early_and_cut,
)

SCHEDULES = 1000
PARTS, IN_PART = 10, 10_000
"""Of the nightly tier: 100,000 more."""
FIRST_SEEDS = {
    "connections of a process are not told apart": 1_050_000,
    "an epoch without rows is over before it begins": 18_110,
    "what a broken connection lost is not sent again": 460,
    "what a broken connection lost is not told again": 690,
}
"""Where the hunt for bugs that few schedules show begins."""


@pytest.mark.parametrize(
    "seed",
    [
        204_559_438,  # One rank's last count came after the first of the next epoch.
        256_782_044,  # Rows were thrown away; the attempt that was to send them again never did.
        20_264_977,  # A task that sent thrown-away rows again told its end after the next epoch's query began.
        20_287_425,  # A rank stopped, the others were through: rows of its later epochs were not counted.
        1_050_277,  # Of two connections of a process that was cut off twice, the former's hello came last.
        256_782_261,  # A process dialled again while an old document said that the gang waits.
    ],
)
def test_schedules_that_showed_defects_show_none(seed: int) -> None:
    assert not hunt(seed, 1).defect


def test_every_row_is_given_once_an_epoch_or_reported_whatever_goes_wrong(seed: int) -> None:
    report = hunt(seed, SCHEDULES)
    print(msgspec.json.encode(report).decode())
    assert not report.defect, (
        f"{report.defect}: python -m tests.spark.feed.simulation {report.seed} 1 shows it again"
    )
    assert {"whole", "early", "stopped", "restarted"} <= set(report.outcomes)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_row_is_given_once_an_epoch_in_many_more_schedules(seed: int, part: int) -> None:
    report = hunt(seed + SCHEDULES + part * IN_PART, IN_PART)
    print(msgspec.json.encode(report).decode())
    assert not report.defect, (
        f"{report.defect}: python -m tests.spark.feed.simulation {report.seed} 1 shows it again"
    )


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("first", "make"), [(1400, left_early), (900, left_early_and_cut)])
def test_dropped_rows_are_counted_exactly_where_tasks_send_them_again(
    first: int, make: Callable[[int], Schedule | None]
) -> None:
    report = hunt(first, 400, make)
    assert not report.defect, f"{report.defect}: seed {report.seed}"
    assert report.schedules > 30


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_bug_that_is_put_back_is_found(mutant: str) -> None:
    with MUTANTS[mutant]():
        assert hunt(FIRST_SEEDS.get(mutant, 1), 3000).defect

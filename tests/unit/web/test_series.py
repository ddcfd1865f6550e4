"""Samples on a grid."""

from __future__ import annotations

import math

from howdah.coordinator.web import documents as series
from howdah.wire.messages import Sample


def test_a_grid_begins_at_a_multiple_of_its_step_and_covers_the_stretch() -> None:
    assert series.grid(1003.0, 1021.0, 5.0) == (1000.0, 5)


def test_a_grid_that_would_be_too_long_keeps_its_newest_part() -> None:
    start, count = series.grid(0.0, 1_000_000.0, 1.0)
    assert count == series.COUNT_MAX
    assert start + (count - 1) == 1_000_000.0


def test_a_grid_of_nothing_is_empty() -> None:
    assert series.grid(10.0, 5.0, 1.0)[1] == 0


def test_samples_become_means_and_gaps_stay_gaps() -> None:
    samples = {
        "worker:0": [
            Sample(time=100.1, cpu=1.0, values={"loss": 2.0}, step=4),
            Sample(time=100.9, cpu=2.0, step=5),
            Sample(time=103.0, cpu=4.0, values={"loss": 1.0, "bad": math.nan}),
            Sample(time=99.0, cpu=100.0),
            Sample(time=200.0, cpu=100.0),
        ]
    }
    page = series.on_grid(samples, 100.0, 1.0, 4)
    assert {(each.task, each.name): each.points for each in page.series} == {
        ("worker:0", "cpu"): [1.5, None, None, 4.0],
        ("worker:0", "value:loss"): [2.0, None, None, 1.0],
        ("worker:0", "step"): [4.5, None, None, None],
    }


def test_a_program_that_reports_endless_names_is_bounded() -> None:
    sample = Sample(time=0.5, values={f"name{i}": 1.0 for i in range(1000)})
    page = series.on_grid({"worker:0": [sample]}, 0.0, 1.0, 1)
    assert len(page.series) == series.VALUES_MAX

"""Samples laid on a grid of times, so that a page can plot many tasks and hours of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from howdah.coordinator.web.documents import Series, SeriesPage
from howdah.wire.messages import Sample

MEASUREMENTS = ("cpu", "rss_mb", "gpu", "gpu_memory_mb")
VALUE = "value:"
"""Goes before the name of a value the program reported."""

COUNT_MAX = 2000
"""Points of a series in one answer."""
VALUES_MAX = 64
"""Names of reported values that are told of one task."""


def grid(since: float, now: float, step_s: float) -> tuple[float, int]:
    """Start and number of steps that cover ``since`` to ``now``, the newest ones if too many.

    Starts are multiples of the step, so that answers to later questions fit earlier ones.
    """
    first = math.floor(since / step_s)
    last = math.floor(now / step_s)
    first = max(first, last - COUNT_MAX + 1)
    return first * step_s, max(0, last - first + 1)


def on_grid(
    samples: Mapping[str, Iterable[Sample]], start: float, step_s: float, count: int
) -> SeriesPage:
    """Means of each measurement over each step; None where nothing was measured."""
    found: list[Series] = []
    for task, own in samples.items():
        sums: dict[str, list[float]] = {}
        numbers: dict[str, list[int]] = {}
        for sample in own:
            place = int((sample.time - start) // step_s)
            if not 0 <= place < count:
                continue
            for name, value in _measured(sample):
                if name not in sums:
                    if len(sums) >= VALUES_MAX:
                        continue
                    sums[name] = [0.0] * count
                    numbers[name] = [0] * count
                sums[name][place] += value
                numbers[name][place] += 1
        for name, totals in sums.items():
            points = [
                _short(total / number) if number else None
                for total, number in zip(totals, numbers[name], strict=True)
            ]
            found.append(Series(task=task, name=name, points=points))
    return SeriesPage(start=start, step_s=step_s, count=count, series=found)


def _measured(sample: Sample) -> Iterable[tuple[str, float]]:
    for name in MEASUREMENTS:
        value = getattr(sample, name)
        if value is not None:
            yield name, value
    for name, value in sample.values.items():
        if math.isfinite(value):
            yield VALUE + name, value


def _short(value: float) -> float:
    """Six significant digits: what a plot can show."""
    return float(f"{value:.6g}")

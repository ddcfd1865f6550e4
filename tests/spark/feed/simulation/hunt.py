"""Run random schedules until one shows a defect or enough have been run."""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from tests.spark.feed.simulation.oracle import check
from tests.spark.feed.simulation.schedule import Schedule, schedule
from tests.spark.feed.simulation.world import World, virtual

COLLECT_EVERY = 5
"""Schedules: each leaves cycles, and to look for them among all that is imported takes a quarter of the
time where Python does so by itself. Cycles of many schedules would no longer be in the processor's cache."""


class Report(msgspec.Struct, kw_only=True):
    """What a hunt has seen."""

    first_seed: int
    schedules: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Of the processor."""
    outcomes: dict[str, int] = {}
    seed: int | None = None
    """Of the schedule with the defect."""
    defect: str = ""


def hunt(first_seed: int, count: int, make: Callable[[int], Schedule | None] = schedule) -> Report:
    """Schedules from that seed on; seeds of which ``make`` makes none count too."""
    report = Report(first_seed=first_seed)
    outcomes: Counter[str] = Counter()
    began = time.process_time()
    with virtual(), warnings.catch_warnings(), _rare_collections() as collect:
        warnings.simplefilter("ignore")
        for seed in range(first_seed, first_seed + count):
            made = make(seed)
            if made is None:
                continue
            world = World(made)
            try:
                world.run()
                outcomes[check(world)] += 1
            except Exception as error:  # whatever it is, it is a defect
                report.seed = seed
                report.defect = f"{type(error).__name__}: {error}"
                traceback.print_exception(error)
                break
            report.schedules += 1
            if report.schedules % COLLECT_EVERY == 0:
                collect()
            report.steps += world.actors.steps
    report.outcomes = dict(outcomes)
    report.seconds = round(time.process_time() - began, 1)
    return report


@contextlib.contextmanager
def _rare_collections() -> Iterator[Callable[[], object]]:
    """Garbage is collected when what is given is called, and what was there before is left out."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
        gc.unfreeze()


def main(first_seed: int, count: int) -> int:
    report = hunt(first_seed, count)
    if report.seed is not None:
        print(msgspec.json.encode(schedule(report.seed)).decode())
    print(msgspec.json.encode(report).decode())
    return 1 if report.defect else 0

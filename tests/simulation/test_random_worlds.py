"""The machine under random troubles: at least 100,000 steps, each held against the invariants."""

from __future__ import annotations

import random

import pytest

from tests.simulation.hunt import hunt
from tests.simulation.scenarios import gang
from tests.simulation.world import Faults, World

STEPS = 120_000


@pytest.mark.timeout(300)
def test_no_defect_in_random_worlds_and_every_row_of_the_table_is_used(seed: int) -> None:
    report = hunt(seed, STEPS)
    print(f"first seed {seed}: {report.worlds} worlds, {report.steps} steps, {report.outcomes}")
    for (before, after), times in sorted(report.moves.items()):
        print(f"  {before} -> {after}: {times}")
    assert not report.defect, f"{report.defect} (first seed {seed})"
    assert not report.unseen, f"moves never made: {report.unseen} (first seed {seed})"
    assert {"succeeded", "failed", "stopped", "timed-out"} <= set(report.outcomes)


@pytest.mark.timeout(400)
def test_ten_thousand_tasks_start_survive_losses_and_succeed() -> None:
    plan = gang(random.Random(4), 10_000)
    faults = Faults(node=0.2, coordinator=0.01, delay_s=0.05, until_s=20.0)
    world = World(plan, 7, faults, nodes=500, check_every=20_000)
    machine = world.run()
    assert machine.state.outcome is not None
    assert machine.state.outcome.value == "succeeded"
    assert machine.state.generation > 1

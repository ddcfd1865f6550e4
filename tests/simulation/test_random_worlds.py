"""The machine under random troubles, each step held against what must hold."""

from __future__ import annotations

import msgspec
import pytest

from howdah.core.messages import Exit
from howdah.core.state import Outcome
from tests.simulation.cluster import Habits, Node
from tests.simulation.hunt import hunt
from tests.simulation.plans import plan, role, server, sidecar
from tests.simulation.world import World


@pytest.mark.timeout(300)
def test_no_defect_in_random_worlds(seed: int) -> None:
    report = hunt(seed, 20_000)
    print(msgspec.json.encode(report).decode())
    assert not report.defect, f"seed {report.seed}: {report.defect}"
    assert {"succeeded", "failed", "stopped"} <= set(report.outcomes)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_no_defect_in_random_worlds_and_every_row_of_the_table_is_used(seed: int) -> None:
    report = hunt(seed, 100_000)
    assert not report.defect, f"seed {report.seed}: {report.defect}"
    assert not report.unseen, f"moves never made: {report.unseen} (first seed {seed})"
    assert {"succeeded", "failed", "stopped", "timed-out"} <= set(report.outcomes)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_ten_thousand_tasks_of_a_gang_start_survive_losses_and_succeed() -> None:
    job = plan(server(tasks=2), role("worker", 10_000, after=("ps",)), sidecar(), hold_s=60.0)

    def work(task: str, attempt: int) -> tuple[float, Exit] | None:
        return (20.0, Exit(code=0)) if task.startswith("worker") else None

    habits = Habits(delay_s=0.05, work=work)
    world = World(job, 7, habits, nodes=500, check_every=20_000)
    for second in (2, 8):
        world.clock.later(second, lambda: world.cluster.lose_node(_some_node(world)))
    world.clock.later(9.0, world.kill_coordinator)
    state = world.run()
    assert state.outcome is Outcome.SUCCEEDED
    assert state.generation > 1
    print(f"a gang of 10,000: {world.handle_s:.1f}s in the machine, {world.steps} steps")


def _some_node(world: World) -> Node:
    return world.random.choice(list(world.cluster.nodes.values()))

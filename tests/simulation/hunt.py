"""Run random worlds until one shows a defect or the step budget is spent.

``python -m tests.simulation.hunt FIRST_SEED STEPS`` prints the seed and the defect and exits with 1,
or prints what was covered and exits with 0.
"""

from __future__ import annotations

import sys
from collections import Counter

import msgspec

from howdah.core.invariants import InvariantBroken
from howdah.core.state import TASK_MOVES, ImpossibleMove
from tests.simulation.scenarios import world
from tests.simulation.world import Truth

DEFECTS = (Truth, InvariantBroken, ImpossibleMove, AssertionError, KeyError, AttributeError)


class Report(msgspec.Struct, kw_only=True):
    """What a hunt has seen."""

    steps: int = 0
    worlds: int = 0
    outcomes: Counter[str] = Counter()
    moves: Counter[tuple[str, str]] = Counter()
    defect: str = ""

    @property
    def unseen(self) -> list[str]:
        """Rows of the task table that no world made use of."""
        return [
            f"{before.value} -> {after.value}"
            for before, after in TASK_MOVES
            if not self.moves[before.value, after.value]
        ]


def hunt(first_seed: int, steps: int) -> Report:
    report = Report(outcomes=Counter(), moves=Counter())
    seed = first_seed
    while report.steps < steps:
        one = world(seed)
        try:
            machine = one.run(5000.0)
        except DEFECTS as error:
            report.defect = f"seed {seed}: {type(error).__name__}: {error}"
            return report
        report.steps += one.steps
        report.worlds += 1
        report.moves += one.moves
        assert machine.state.outcome is not None
        report.outcomes[machine.state.outcome.value] += 1
        seed += 1
    return report


if __name__ == "__main__":
    found = hunt(int(sys.argv[1]), int(sys.argv[2]))
    print(found.defect or f"{found.steps} steps, {found.worlds} worlds, {dict(found.outcomes)}")
    sys.exit(1 if found.defect else 0)

"""Run random worlds until one shows a defect or the step budget is spent.

``python -m tests.simulation.hunt FIRST_SEED STEPS`` prints what was covered as JSON, and exits with
1 if it found a defect: its world is made again by its seed alone.
"""

from __future__ import annotations

import sys
from collections import Counter

import msgspec

from howdah.core.state import TASK_MOVES
from tests.simulation.faults import world


class Report(msgspec.Struct, kw_only=True):
    """What a hunt has seen."""

    first_seed: int
    steps: int = 0
    worlds: int = 0
    virtual_s: float = 0.0
    handle_s: float = 0.0
    """Seconds of the real clock inside the machine."""
    outcomes: dict[str, int] = {}
    unseen: list[str] = []
    """Rows of the task table that no world made use of."""
    seed: int | None = None
    """Of the world with the defect."""
    defect: str = ""


def hunt(first_seed: int, steps: int) -> Report:
    report = Report(first_seed=first_seed)
    outcomes: Counter[str] = Counter()
    moves: Counter[tuple[str, str]] = Counter()
    seed = first_seed
    while report.steps < steps:
        one = world(seed)
        began = one.now
        try:
            state = one.run(5000.0)
        except Exception as error:  # whatever it is, it is a defect
            report.seed = seed
            notes = "; ".join(getattr(error, "__notes__", ()))
            report.defect = f"{type(error).__name__}: {error} ({notes})"
            break
        report.steps += one.steps
        report.worlds += 1
        report.virtual_s += one.now - began
        report.handle_s += one.handle_s
        moves += one.moves
        assert state.outcome is not None
        outcomes[state.outcome.value] += 1
        seed += 1
    report.outcomes = dict(outcomes)
    report.unseen = [
        f"{before.value} -> {after.value}"
        for before, after in TASK_MOVES
        if not moves[before.value, after.value]
    ]
    return report


if __name__ == "__main__":
    found = hunt(int(sys.argv[1]), int(sys.argv[2]))
    print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    sys.exit(1 if found.defect else 0)

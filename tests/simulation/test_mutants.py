"""Seeded bugs of the kinds others really had: random worlds must find each of them.

A mutant is a copy of the pure rooms with one piece of text replaced; the hunt runs over it in a
process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import howdah

SOURCE = Path(howdah.__file__).parent
ROOT = Path(__file__).parents[2]
STEPS = 100_000


class Mutant(msgspec.Struct, frozen=True):
    bug: str
    file: str
    before: str
    after: str


MUTANTS = [
    Mutant(
        "a return where a continue was meant drops the rest of a batch of containers",
        "containers.py",
        "wanted.append(ContainerRequest(request_id=data.request_id, role=role.name))",
        "wanted.append(ContainerRequest(request_id=data.request_id, role=role.name)); break",
    ),
    Mutant(
        "surplus containers leak",
        "gang.py",
        "turn.emit(ReleaseContainer(container_id=event.container_id))",
        "pass",
    ),
    Mutant(
        "a flag is not reset on retry",
        "gang.py",
        "data.pids, data.joined, data.exit, data.restored = (), False, None, None",
        "data.pids, data.exit, data.restored = (), None, None; turn.state.missing -= data.joined",
    ),
    Mutant(
        "an agent outlives its lost node",
        "failure.py",
        "    turn.emit(ReleaseContainer(container_id=container.container_id))\n    if task",
        "    if task",
    ),
    Mutant(
        "missed beats are never acted upon",
        "failure.py",
        "if container is not None and not container.connected:\n        give_up",
        "if False:\n        give_up",
    ),
    Mutant(
        "an oversized request waits for ever",
        "gang.py",
        'turn.set_timer("allocation", turn.plan.allocation_s)\n    if',
        "if",
    ),
    Mutant(
        "two jobs each keep a half of the machines",
        "gang.py",
        'turn.set_timer("hold", turn.plan.hold_s * 2 ** min(turn.state.allocations, 5))',
        "pass",
    ),
    Mutant(
        "a retried registration counts twice",
        "takeover.py",
        "if data.state is S.LAUNCHING:",
        "if data.state in (S.LAUNCHING, S.PREPARING):",
    ),
    Mutant(
        "a stale message of an old attempt is believed",
        "turn.py",
        "if data is None or data.attempt != attempt or data.state not in LIVE:",
        "if data is None or data.state not in LIVE:",
    ),
    Mutant(
        "a tracked failure ends as success",
        "completion.py",
        "succeeded = turn.count(role, (S.SUCCEEDED,))",
        "succeeded = turn.count(role, (S.SUCCEEDED, S.ENDED))",
    ),
    Mutant(
        "a failing sidecar decides the job",
        "settling.py",
        "sidecar = role.tracking is Tracking.SIDECAR",
        "sidecar = False",
    ),
    Mutant(
        "a new coordinator forgets what was still to be asked for",
        "takeover.py",
        "        containers.request_missing(turn)",
        "        pass",
    ),
    Mutant(
        "a container granted to a dead coordinator is kept by nobody",
        "takeover.py",
        "for container_id in sorted(alive - set(state.containers)):",
        "for container_id in ():",
    ),
    Mutant(
        "the next generation starts while the last still runs",
        "settling.py",
        "            if data.state in LIVE and data.state is not S.STOPPING:",
        "            if data.state is S.RUNNING and data.task.index == 0:",
    ),
    Mutant(
        "a lone restart keeps the old topology",
        "gang.py",
        "turn.state.rewired |= returns",
        "pass",
    ),
    Mutant(
        "chance is drawn from outside the journal",
        "turn.py",
        'random.Random(f"{self.state.seed}/{self.state.draws}").random()',
        "random.random()",
    ),
    Mutant(
        "who was killed before we stopped it counts as stopped by us",
        "failure.py",
        "done.stopped is False and judged",
        "False",
    ),
    Mutant(
        "a program whose container is taken back counts as having succeeded",
        "failure.py",
        "if done.stopped and before is not S.STOPPING",
        "if False",
    ),
    Mutant(
        "the restart budget is never spent",
        "settling.py",
        "state.gang_charged += 1",
        "pass",
    ),
    Mutant(
        "a preparation lost with the connection is not told again",
        "takeover.py",
        "        case S.PREPARING if held is None:\n            gang.send_prepare(turn, data)\n",
        "        case S.PREPARING if held is None:\n            pass\n",
    ),
    Mutant(
        "the running count of tasks is not kept",
        "turn.py",
        "counts[before.value] -= 1",
        "counts[before.value] -= before is not to and self.state.generation < 2",
    ),
]


def test_there_are_enough_mutants() -> None:
    assert len({mutant.bug for mutant in MUTANTS}) >= 15


@pytest.mark.timeout(200)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_a_seeded_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    overlay = tmp_path / "howdah"
    for room in ("core", "spec"):
        shutil.copytree(SOURCE / room, overlay / room)
    shutil.copy(SOURCE / "__init__.py", overlay)
    target = overlay / "core" / mutant.file
    text = target.read_text()
    assert text.count(mutant.before) >= 1, f"{mutant.file} no longer has {mutant.before!r}"
    target.write_text(text.replace(mutant.before, mutant.after))
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.hunt", "0", str(STEPS)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, f"not found in {STEPS} steps: {done.stdout}{done.stderr}"
    assert "seed" in done.stdout, done.stderr

"""Advice on real runs, each wasteful in one way: the right rule fires.

Runs go on until what the rule needs was measured, however long that takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from howdah.storage import metrics
from howdah.storage.jobdir import JobDirectory
from howdah.wire.messages import Sample
from tests.cli.howdah import ended_at_last, job_file, newest, start, until
from tests.cli.inside import howdah

REPORTS = """
import os, time
from howdah.task import report
def enough():
    time.sleep(0.05)
    return os.path.exists(os.environ["ENOUGH"])
def work(seconds, steps=10, begin=0):
    for step in range(begin, begin + steps):
        report(step=step + 1, loss=0.5)
        end = time.monotonic() + seconds / steps
        while time.monotonic() < end:
            time.sleep(0.005)
"""


def samples(directory: JobDirectory) -> list[Sample]:
    return [each.sample for each in metrics.read(directory.path)]


ENOUGH: dict[str, Callable[[JobDirectory], bool]] = {
    "memory-over-asked": lambda d: any(each.rss_mb for each in samples(d)),
    "memory-under-asked": lambda d: any((each.rss_mb or 0) > 94 for each in samples(d)),
    "cores-idle": lambda d: sum(each.cpu is not None for each in samples(d)) >= 3,
    "checkpoint-too-costly": lambda d: (d.path / "checkpoints" / "000005").exists(),
}
"""Whether a run may end: what its rule needs was measured."""


CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "memory-over-asked": (
        "while not enough(): pass",
        {"roles": {"worker": {"memory": "4g"}}},
        0,
        'roles.worker.memory = "64m"',
    ),
    "memory-under-asked": (
        "held = b'x' * (86 << 20)\nwhile not enough(): pass",
        {"roles": {"worker": {"memory": "104m"}}},
        0,
        "roles.worker.memory = ",
    ),
    "cores-idle": (
        "while not enough(): pass",
        {"roles": {"worker": {"cores": 4}}},
        0,
        "roles.worker.cores = 1",
    ),
    "straggler": (
        "work(1, steps=2 if os.environ['HOWDAH_INDEX'] == '2' else 20)",
        {"roles": {"worker": {"instances": 3}}},
        0,
        "howdah logs worker:2",
    ),
    "slow-start": (
        "end = time.monotonic() + 10\nwhile time.monotonic() < end:\n    time.sleep(0.01)\nwork(1)",
        {},
        0,
        "the programs took that long to import and load",
    ),
    "checkpoint-too-rare": (
        "again = os.environ['HOWDAH_ATTEMPT'] != '1'\n"
        "took = time.time() - float(os.environ['BEGAN'])\n"
        "work(0.5 if again else max(5.5, took + 3))\n"
        "raise SystemExit(0 if again else 3)",
        {"attempts": 2},
        0,
        '[checkpoint] with folder = "checkpoints", and save to it',
    ),
    "checkpoint-too-costly": (
        "import itertools, pathlib\n"
        "for number in itertools.count():\n"
        "    saved = pathlib.Path('saved') / f'step-{number}'\n"
        "    saved.write_bytes(bytes(3_000_000))\n"
        "    work(0.9, steps=2, begin=2 * number)\n"
        "    if enough(): break",
        {"checkpoint": {"folder": "saved"}},
        0,
        "save less often than every 10 s",
    ),
    "repeated-restarts": ("raise SystemExit(3)", {"attempts": 4}, 1, "howdah logs worker:0"),
}


DEFAULT = "repeated-restarts"
"""Needs nothing to be measured, which takes its time."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "waste",
    [each if each == DEFAULT else pytest.param(each, marks=pytest.mark.nightly) for each in CASES],
)
def test_the_rule_of_what_was_wasted_fires(waste: str, tmp_path: Path) -> None:
    script, fields, code, change = CASES[waste]
    goal = tmp_path / "enough"
    env = {"ENOUGH": str(goal), "BEGAN": str(time.time())}
    file = job_file(tmp_path, REPORTS + script, name="wasteful", env=env, **fields)
    with ended_at_last():
        run = start("run", str(file))
        if waste in ENOUGH:
            run.until_line("page http")
            directory = newest()
            until(lambda: ENOUGH[waste](directory), "enough was measured", within_s=300)
        goal.touch()
        assert run.end() == code, run.told
    found = {each["rule"]: each for each in howdah("advice", "--json").documents()[0]}
    assert all(each["figures"] and 1 <= each["severity"] <= 4 for each in found.values())
    told = howdah("advice", "wasteful").text
    assert all(each["text"] in told for each in found.values())
    assert waste in found, found  # others too, where the machine has other things to do
    assert change in found[waste]["change"]

"""Advice on real runs, each wasteful in one way: exactly the right rule fires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.howdah import howdah, job_file

REPORTS = """
import os, time
from howdah.task import report
def work(seconds, steps=10, begin=0):
    for step in range(begin, begin + steps):
        report(step=step + 1, loss=0.5)
        end = time.monotonic() + seconds / steps
        while time.monotonic() < end:
            time.sleep(0.005)
"""

FINE: dict[str, Any] = {"roles": {"worker": {"memory": "1g", "cores": 1}}}

CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "nothing": ("work(1)", FINE, 0, ""),
    "memory-over-asked": (
        "work(1)",
        {"roles": {"worker": {"memory": "4g"}}},
        0,
        'roles.worker.memory = "64m"',
    ),
    "memory-under-asked": (
        "held = b'x' * (86 << 20); work(1)",
        {"roles": {"worker": {"memory": "104m"}}},
        0,
        "roles.worker.memory = ",
    ),
    "cores-idle": ("work(4.5)", {"roles": {"worker": {"cores": 4}}}, 0, "roles.worker.cores = 1"),
    "straggler": (
        "work(3 if os.environ['HOWDAH_INDEX'] == '2' else 1)",
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
        "again = os.environ['HOWDAH_ATTEMPT'] != '1'\nwork(0.5 if again else 5.5)\nraise SystemExit(0 if again else 3)",
        {"attempts": 2},
        0,
        '[checkpoint] with folder = "checkpoints", and save to it',
    ),
    "checkpoint-too-costly": (
        "import pathlib\n"
        "for number in range(6):\n"
        "    saved = pathlib.Path('saved') / f'step-{number}'\n"
        "    saved.write_text('weights')\n"
        "    work(0.9, steps=2, begin=2 * number)",
        {"checkpoint": {"folder": "saved"}},
        0,
        "save less often than every 10 s",
    ),
    "repeated-restarts": ("raise SystemExit(3)", {"attempts": 4}, 1, "howdah logs worker:0"),
}


@pytest.mark.parametrize("waste", CASES)
def test_exactly_the_rule_of_what_was_wasted_fires(waste: str, tmp_path: Path) -> None:
    script, fields, code, change = CASES[waste]
    file = job_file(tmp_path, REPORTS + script, name="wasteful", **fields)
    howdah("run", str(file), code=code)
    found = howdah("advice", "--json").documents()[0]
    assert [each["rule"] for each in found] == ([] if waste == "nothing" else [waste]), found
    assert all(change in each["change"] for each in found)
    assert all(each["figures"] and 1 <= each["severity"] <= 4 for each in found)
    told = howdah("advice", "wasteful").text
    assert found[0]["text"] in told if found else "asks for a change" in told

"""Which tests a run has, in which order, and which of its processes runs them.

A run has either the default tier (``-m "not nightly"``, which ``make test`` asks for) or everything, of which
``--part 2/4`` takes a quarter. Nothing depends on the clock: the same arguments are the same tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("spark", "standalone")
"""Groups (``@pytest.mark.xdist_group``) that begin first, as they take the longest."""
LAST = ("tests/unit", "tests/property", "tests/docs")
"""Rooms of short tests: they fill the time in which the last long ones end."""


class GroupOrFile(LoadGroupScheduling):
    """Tests of a group, and else those of a file, run in one process: what they share is started once."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupOrFile | None:
    return GroupOrFile(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="only this of N parts of all tests: 2/4")


def group(item: pytest.Item) -> str:
    """Tests of the same one run in the same process, one after the other."""
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else item.path.relative_to(ROOT).as_posix()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort what is to run, and keep the part that was asked for."""
    items.sort(key=lambda item: _rank(group(item)))
    if wanted := config.getoption("--part"):
        part, parts = _part(wanted)
        chosen = {*[*dict.fromkeys(map(group, items))][part - 1 :: parts]}
        config.hook.pytest_deselected(items=[i for i in items if group(i) not in chosen])
        items[:] = [item for item in items if group(item) in chosen]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say what this run has not run."""
    if wanted := config.getoption("--part"):
        part, parts = _part(wanted)
        others = ", ".join(f"{k}/{parts}" for k in range(1, parts + 1) if k != part)
        terminalreporter.write_line(f"This was part {part} of {parts}. The others: PART={others}")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and terminalreporter.stats.get(
        "deselected"
    ):
        terminalreporter.write_line("All of these are nightly tests: make test-all TESTS=...")


def _rank(group: str) -> tuple[int, str]:
    if group in FIRST:
        return FIRST.index(group), ""
    if group.startswith(LAST):
        return len(FIRST) + 1, group
    return len(FIRST), group


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise pytest.UsageError(f"--part {text}: give which of how many, such as 2/4")
    return int(match[1]), int(match[2])

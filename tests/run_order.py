"""The order of a whole run's tests, and which of them a slow machine leaves out.

``.ci/run`` sets ``HOWDAH_TESTS_UNTIL`` and ``HOWDAH_TESTS_END``; without them all tests run.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

OUT_OF_TIME = "the run is out of time"
_UNTIL = float(os.environ.get("HOWDAH_TESTS_UNTIL", "inf"))
"""When no further thorough test begins, in seconds since the epoch."""
_END = float(os.environ.get("HOWDAH_TESTS_END", "inf"))
"""When no further test of any kind begins."""
_SHARED = ("hadoop_kerberos", "hadoop")


def left_out(report: pytest.TestReport) -> bool:
    """Whether that test was skipped for want of time."""
    return report.skipped and OUT_OF_TIME in str(report.longrepr)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files for several workers, each of which takes the next file.

    First those without time limits of their own, which are many and short; then the others, the longest
    before the shorter ones, and one after the other those that share a cluster of Hadoop, since it ends
    with the last file that uses it. Thorough ones come last, in another order each run, so that it is not
    always the same that time leaves out.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    seconds: Counter[Path] = Counter()
    users: dict[str, set[Path]] = {fixture: set() for fixture in _SHARED}
    thorough: set[Path] = set()
    for item in items:
        if limit := item.get_closest_marker("timeout"):
            seconds[item.path] += limit.args[0]
        if item.get_closest_marker("thorough"):
            thorough.add(item.path)
        for fixture in users.keys() & set(getattr(item, "fixturenames", ())):
            users[fixture].add(item.path)

    def rank(item: pytest.Item) -> tuple[bool, bool, int, float]:
        file = item.path
        cluster = next((i for i, name in enumerate(_SHARED) if file in users[name]), len(_SHARED))
        within = random.Random(f"{_UNTIL} {file}").random() if file in thorough else -seconds[file]
        return file in thorough, seconds[file] > 0, cluster, within

    items.sort(key=rank)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """On a slow machine leave some out rather than never get to the end."""
    now = time.time()
    if now > _END or (now > _UNTIL and item.get_closest_marker("thorough")):
        pytest.skip(OUT_OF_TIME)

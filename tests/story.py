"""What a failed test's report says besides: the seed, its jobs' last events, its cluster's last lines.

At most a screen; the rest is in the files that it names, which pytest keeps of what failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import Cluster
from tests.seed import SEED

JOBS = 2
"""Of several jobs the last ones are told of."""
EVENTS = 8
_LIMIT_S = 30
_BEGAN = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGAN] = time.time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.when != "teardown":
        lines = [f"seed: HOWDAH_SEED={SEED}"]
        fixtures: dict[str, Any] = getattr(item, "funcargs", {})
        for part in (_jobs(item.stash[_BEGAN], fixtures), _clusters(fixtures)):
            # The test has failed already; a story that cannot be told is no second failure.
            try:
                lines += part
            except Exception as error:
                lines.append(repr(error))
        report.sections.append(("story", "\n".join(lines)))
    return report


def _jobs(began: float, fixtures: dict[str, Any]) -> Iterator[str]:
    """The last events of the jobs that were made or changed since the test began."""
    places = [Path(os.environ["HOWDAH_HOME"])]
    if "tmp_path" in fixtures:
        places.append(fixtures["tmp_path"])
    jobs = {file.parent for place in places for file in place.glob("**/jobs/*/*/job.json")}
    changed = {job: max(file.stat().st_mtime for file in job.iterdir()) for job in jobs}
    recent = sorted((job for job in jobs if changed[job] >= began), key=changed.__getitem__)
    for job in recent[-JOBS:]:
        # Below the folder of their user.
        store = str(job.parents[1])
        command = [sys.executable, "-m", "howdah", "events", job.name, "--store", store]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S
        )
        yield f"job {job}:"
        yield from (f"  {line[:160]}" for line in done.stdout.splitlines()[-EVENTS:])


def _clusters(fixtures: dict[str, Any]) -> Iterator[str]:
    clusters = {str(each.folder): each for each in fixtures.values() if isinstance(each, Cluster)}
    for cluster in clusters.values():
        yield from cluster.story().splitlines()

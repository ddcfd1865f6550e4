"""The backends that must pass the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.harness import Harness
from tests.conformance.local import LocalHarness


def _local(request: pytest.FixtureRequest, folder: Path) -> Callable[[], Harness]:
    return lambda: LocalHarness(folder)


def _yarn(request: pytest.FixtureRequest, folder: Path) -> Callable[[], Harness]:
    from tests.conformance.yarn import YarnHarness

    cluster = request.getfixturevalue("hadoop")
    return lambda: YarnHarness(folder, cluster)


def _spark(request: pytest.FixtureRequest, folder: Path) -> Callable[[], Harness]:
    from tests.conformance.spark import SparkHarness

    return lambda: SparkHarness(folder)


HARNESSES = {"local": _local, "yarn": _yarn, "spark": _spark}


@pytest.fixture(
    params=["local", "spark", pytest.param("yarn", marks=pytest.mark.timeout(300))],
    ids=lambda name: name,
)
def make_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Harness]:
    """Makes a job on the backend under test. To be called on the test's event loop."""
    return HARNESSES[request.param](request, tmp_path)

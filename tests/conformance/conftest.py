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


DEFAULT = {
    "test_a_killed_agent_leaves_nothing_when_its_end_is_told": "children",
    "test_release_ends_every_process_before_it_says_so": "stubborn",
    "test_a_new_coordinator_finds_the_containers_of_a_dead_one": None,
    "test_a_launch_that_fails_is_reported": None,
    "test_each_request_is_granted_once_even_when_asked_for_again": None,
}
"""What every run asks of all backends, and of the words of a test which; the whole suite is the local
backend's there, and everybody's nightly."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or "make_harness" not in item.fixturenames:
            continue
        given = item.callspec.params
        name = item.originalname
        if given["make_harness"] == "local":
            continue
        if name not in DEFAULT or given.get("word") != DEFAULT[name]:
            item.add_marker(pytest.mark.nightly)


HARNESSES = {"local": _local, "yarn": _yarn, "spark": _spark}


@pytest.fixture(
    params=["local", "spark", pytest.param("yarn", marks=pytest.mark.timeout(300))],
    ids=lambda name: name,
)
def make_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Harness]:
    """Makes a job on the backend under test. To be called on the test's event loop."""
    return HARNESSES[request.param](request, tmp_path)

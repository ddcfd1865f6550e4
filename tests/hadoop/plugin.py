"""Fixtures: `hadoop`, the cluster of the whole run, and clusters of a module's or test's own.

The process that needs it first starts the run's cluster, and it ends with the run. Tests that break
daemons or need other options make their own, and are nightly.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError
from tests.hadoop.options import Options
from tests.hadoop.shared import end_all, folder_of, join, started

MakeCluster = Callable[..., Cluster]
"""``make(**options)`` with the fields of `Options`: a running cluster of the caller's own."""

_FIXTURES = {"hadoop", "hadoop_kerberos", "hadoop_cluster", "hadoop_module_cluster"}
_RUN = "HOWDAH_TEST_HADOOP"
"""Environment variable with the name of this run's clusters, which all its processes know."""
_TIMEOUT_S = 300
"""For tests with a cluster: the first of them waits for its start, and once for the download."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[_RUN] = f"{os.getpid()}-{secrets.token_hex(4)}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run's clusters, once none of its processes uses them any more."""
    if not hasattr(config, "workerinput"):
        end_all(os.environ[_RUN])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that use a cluster the time to start it."""
    for item in items:
        uses = _FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if uses and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture(scope="session")
def hadoop() -> Cluster:
    """The cluster that all tests of this run share: leave it as you found it."""
    with _in_words():
        return join(folder_of(os.environ[_RUN], "shared"), Options())


@pytest.fixture(scope="module")
def hadoop_kerberos() -> Iterator[Cluster]:
    """A cluster with a realm of its own: all daemons demand Kerberos or tokens."""
    with _own_clusters() as make:
        yield make(kerberos=True, node_managers=1)


@pytest.fixture
def hadoop_cluster() -> Iterator[MakeCluster]:
    """Make clusters for one test, with options: ``hadoop_cluster(resource_managers=2)``."""
    with _own_clusters() as make:
        yield make


@pytest.fixture(scope="module")
def hadoop_module_cluster() -> Iterator[MakeCluster]:
    """Make clusters for the tests of one module."""
    with _own_clusters() as make:
        yield make


@contextlib.contextmanager
def _own_clusters() -> Iterator[MakeCluster]:
    with contextlib.ExitStack() as clusters:

        def make(**options: Any) -> Cluster:
            folder = folder_of(os.environ[_RUN], secrets.token_hex(4))
            with _in_words():
                return clusters.enter_context(started(folder, Options(**options)))

        yield make


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)

"""Fixtures: `hadoop`, the cluster of the whole run, `hadoop_kerberos`, the one with Kerberos, and
`hadoop_cluster`, for one's own.

All processes of a run (pytest-xdist) share one cluster. Tests that break daemons, or need a cluster
with other options, make their own: a cluster takes some 6 s (three times that on a busy machine) and
1.1 GB, so a module's tests had better use one together.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError
from tests.hadoop.locks import Lock
from tests.hadoop.options import Gpus, Options
from tests.hadoop.shared import Use, mend

MakeCluster = Callable[..., Cluster]
"""``make(**options)`` with the fields of `Options`: a running cluster of the caller's own."""

_FIXTURES = {"hadoop", "hadoop_kerberos", "hadoop_cluster", "hadoop_module_cluster"}
SECURE = Options(kerberos=True, kms=1, node_managers=1, labels=False, gpus=Gpus.NONE)
_TIMEOUT_S = 300
"""For tests with a cluster: the first of them waits for its start, and once for the download."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that use a cluster the time to start it."""
    for item in items:
        uses = _FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if uses and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # a test's time begins when it is its turn
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let tests that take most of the shared cluster have it for themselves.

    Together they, or they and others, would wait for each other's memory for longer than any of them does.
    """
    if "hadoop" not in getattr(item, "fixturenames", ()):
        return (yield)
    with _turn(alone=item.get_closest_marker("most_of_the_cluster") is not None):
        return (yield)


@contextlib.contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    folder = _folder(f"turns-{os.getuid()}")
    jobs, door = Lock(folder / "jobs"), Lock(folder / "door")
    try:
        # Who waits to be alone holds the door: else others would come for ever.
        door.take()
        if alone:
            jobs.take()
        else:
            jobs.share()
        door.release()
        yield
    finally:
        jobs.close()
        door.close()


@pytest.fixture(scope="module")
def hadoop() -> Iterator[Cluster]:
    """The cluster that all tests of this run share: leave it as you found it.

    It ends with the last module that uses it at the time: idle, it takes a tenth of a core.
    """
    use = _use(_folder(_run()), Options())
    mend(use.cluster)
    yield use.cluster
    use.end()


@pytest.fixture(scope="module")
def hadoop_kerberos() -> Iterator[Cluster]:
    """A cluster with a realm of its own, which the run's tests of Kerberos share."""
    use = _use(_folder(f"krb-{_run()}"), SECURE)
    yield use.cluster
    use.end()


@pytest.fixture
def hadoop_cluster() -> Iterator[MakeCluster]:
    """Make clusters for one test, with options: ``hadoop_cluster(resource_managers=2)``."""
    yield from _own_clusters()


@pytest.fixture(scope="module")
def hadoop_module_cluster() -> Iterator[MakeCluster]:
    """Make clusters for the tests of one module."""
    yield from _own_clusters()


def _run() -> str:
    """One for all processes of a run."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"


def _own_clusters() -> Iterator[MakeCluster]:
    uses: list[Use] = []

    def make(**options: Any) -> Cluster:
        uses.append(_use(_folder(f"own-{secrets.token_hex(6)}"), Options(**options)))
        return uses[-1].cluster

    yield make
    for use in uses:
        use.end()


def _use(folder: Path, options: Options) -> Use:
    try:
        return Use(folder, options)
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)


def _folder(name: str) -> Path:
    # Containers' paths are long as it is: not below pytest's own folder.
    return Path(tempfile.gettempdir()) / f"hwt-hadoop-{name}"

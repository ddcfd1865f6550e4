"""Spark for tests: sessions, servers, and programs of their own.

`spark` has two threads in one JVM, `standalone_spark` a master and two workers of two cores. There is one
of each in a run: all tests that use it run in one process, one after the other (`GROUPS`). Settings of
their own have only nightly tests, with sessions of `tests.spark.sessions` or programs; `connect_spark`
and `yarn_spark` (two executors on the test YARN) are each made once for a file. Tests marked
``both_sparks`` run on Spark 3.5 too: see test_older.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import Cluster
from tests.spark import programs, servers, sessions, versions
from tests.spark.backend_jobs import container_folders, eventually
from tests.spark.programs import Done
from tests.spark.servers import Standalone

RunProgram = Callable[..., Done]
"""`tests.spark.programs.run_program` without its folder."""

GROUPS = {"spark": "spark", "standalone": "standalone", "standalone_spark": "standalone"}
"""Group by fixture: a process has only one SparkContext at a time."""
_STARTS_JOBS = {*GROUPS, "connect_spark", "yarn_spark"}
_TIMEOUT_S = 400
"""The first test of a session waits for its servers too, on a machine that does other things as well."""
_shared = sessions.Shared()


def _group(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("xdist_group")
    return mark.args[0] if mark else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests by the session they use, and give them the time to start it."""
    for item in items:
        found = {GROUPS[name] for name in getattr(item, "fixturenames", ()) if name in GROUPS}
        assert len(found) < 2, f"{item.nodeid} uses two kinds of session"
        for name in found:
            item.add_marker(pytest.mark.xdist_group(name))
        uses = _STARTS_JOBS.intersection(getattr(item, "fixturenames", ()))
        if uses and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a session with the last test of its group: it takes memory, and sets variables."""
    if nextitem is None or _group(item) != _group(nextitem):
        _shared.end()


def pytest_sessionfinish() -> None:
    """Also after Ctrl-C."""
    _shared.end()


@pytest.fixture(autouse=True)
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that starts jobs on a session has their directories to itself."""
    if _STARTS_JOBS.intersection(request.fixturenames):
        monkeypatch.setenv("HOWDAH_HOME", str(request.getfixturevalue("tmp_path") / "home"))


@pytest.fixture
def no_container_left() -> Iterator[None]:
    """The test ends with no container process and no folder of one, but for what one before it has left."""
    before = {*container_folders()}
    yield
    eventually(
        lambda: {*container_folders()} <= before,
        f"container processes are gone: {container_folders()}",
    )


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session of this process with two threads."""
    conf = {"spark.master": "local[2]"}
    return _shared.get("spark", lambda: sessions.session(tmp_path_factory.mktemp("spark"), conf))


@contextlib.contextmanager
def _standalone(folder: Path) -> Iterator[tuple[Standalone, Any]]:
    with Standalone(folder, cores=2) as cluster:
        with sessions.session(folder, cluster.settings()) as session:
            yield cluster, session


@pytest.fixture(scope="module")
def _servers_and_session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Standalone, Any]:
    return _shared.get("standalone", lambda: _standalone(tmp_path_factory.mktemp("standalone")))


@pytest.fixture(scope="module")
def standalone(_servers_and_session: tuple[Standalone, Any]) -> Standalone:
    """The servers of `standalone_spark`, which takes all of their cores; leave them as you found them."""
    return _servers_and_session[0]


@pytest.fixture(scope="module")
def standalone_spark(_servers_and_session: tuple[Standalone, Any]) -> Any:
    """A session of this process on a master with two workers of two cores: four slots."""
    return _servers_and_session[1]


@pytest.fixture(scope="module")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a file's own servers and sessions write."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def yarn_spark(hadoop: Cluster, spark_folder: Path) -> Iterator[Any]:
    """A session of this process with two executors of one core on the run's YARN."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in hadoop.env().items():
            patch.setenv(name, value)
        conf = {
            "spark.master": "yarn",
            "spark.executor.instances": "2",
            "spark.executor.memoryOverhead": "384m",
            "spark.yarn.am.memory": "256m",
            # They are on every node already: nothing is uploaded.
            "spark.yarn.jars": f"local:{versions.running().home}/jars/*",
            "spark.hadoop.fs.defaultFS": hadoop.default_fs,
        }
        with sessions.session(spark_folder, conf) as made:
            yield made


@pytest.fixture(scope="module")
def connect_spark(spark_folder: Path) -> Iterator[Any]:
    """A session of this process on a Connect server with two threads."""
    with servers.connect(spark_folder / "connect") as address:
        with sessions.remote(address) as made:
            yield made


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """Run a program in a process of its own: ``run_program(text, spark=…, version=…) -> Done``."""
    return lambda text, **options: programs.run_program(text, tmp_path, **options)

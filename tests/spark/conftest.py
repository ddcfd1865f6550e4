"""Spark for tests: sessions, servers, and programs of their own.

A file has one kind of session: `spark` (two threads in one JVM), `standalone_spark` (a master and
two workers of one core), `yarn_spark` (two executors on the test YARN), `connect_spark`, each made
once for the file. Tests marked ``both_sparks``
run on Spark 3.5 too: see test_older.py.
"""

from __future__ import annotations

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

_HEAVY = {
    "spark",
    "standalone",
    "standalone_spark",
    "yarn_spark",
    "connect",
    "connect_spark",
    "run_program",
}
_TIMEOUT_S = 180
"""The first test of a file waits for its servers, on a machine that does other things too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests on Spark the time to start it."""
    for item in items:
        uses = _HEAVY.intersection(getattr(item, "fixturenames", ()))
        if uses and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture
def no_container_left() -> Iterator[None]:
    """The test ends with no container process and no folder of one, but for what one before it has left."""
    before = {*container_folders()}
    yield
    eventually(
        lambda: {*container_folders()} <= before,
        f"container processes are gone: {container_folders()}",
        30,
    )


@pytest.fixture(scope="module")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the file's servers and sessions write."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def spark(spark_folder: Path) -> Iterator[Any]:
    """A session of this process with two threads."""
    with sessions.session(spark_folder, {"spark.master": "local[2]"}) as made:
        yield made


@pytest.fixture(scope="module")
def standalone(spark_folder: Path) -> Iterator[Standalone]:
    """A master and two workers of one core; leave them as you found them."""
    with Standalone(spark_folder / "standalone") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def standalone_spark(standalone: Standalone) -> Iterator[Any]:
    """A session of this process on `standalone`."""
    with sessions.session(standalone.folder, standalone.settings()) as made:
        yield made


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
def connect(spark_folder: Path) -> Iterator[str]:
    """Address of a Connect server with two threads."""
    with servers.connect(spark_folder / "connect") as address:
        yield address


@pytest.fixture(scope="module")
def connect_spark(connect: str) -> Iterator[Any]:
    """A Connect session of this process."""
    with sessions.remote(connect) as made:
        yield made


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """Run a program in a process of its own: ``run_program(text, spark=…, version=…) -> Done``."""
    return lambda text, **options: programs.run_program(text, tmp_path, **options)

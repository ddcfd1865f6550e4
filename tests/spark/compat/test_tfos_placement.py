"""On which executors TFCluster's nodes are, on a Standalone master whose workers come one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.spark import facts
from howdah.compat.tensorflowonspark import TFCluster
from howdah.compat.tensorflowonspark.TFCluster import InputMode
from howdah.spark import Cluster
from tests.spark import sessions
from tests.spark.servers import Standalone

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

CORES = 3


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standalone]:
    """A master with one worker yet, that has room for all nodes."""
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    # The second worker may take its time on a machine that does other things too.
    monkeypatch.setattr(facts, "SETTLED_S", 200.0)
    monkeypatch.setitem(Cluster.start.__func__.__kwdefaults__, "slots_timeout_s", 200.0)
    with Standalone(tmp_path / "standalone", workers=1, cores=CORES) as cluster:
        yield cluster


def settings(cluster: Standalone, executors: int) -> dict[str, str]:
    cores = {"spark.executor.cores": str(CORES), "spark.cores.max": str(CORES * executors)}
    return {**cluster.settings(), **cores}


def _executor(args: Any, ctx: Any) -> None:
    """Note whose child this process is."""
    import psutil

    parents = psutil.Process().parents()
    [executor] = [
        each.pid
        for each in parents
        if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline())
    ]
    Path(args["folder"], str(ctx.executor_id)).write_text(str(executor))
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(10)


def test_each_node_has_an_executor_of_its_own_once_they_are_there(
    growing: Standalone, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "executors"
    folder.mkdir()
    with sessions.session(tmp_path, settings(growing, 2)) as spark:
        growing.wait_for_executors(1)
        late = threading.Thread(target=growing.add_worker)
        late.start()
        cluster = TFCluster.run(
            spark.sparkContext, _executor, {"folder": str(folder)}, 2, 0, False, InputMode.SPARK
        )
        late.join()
        cluster.train(spark.sparkContext.parallelize(range(100), 4), 1)
        cluster.shutdown()
        assert len({file.read_text() for file in folder.iterdir()}) == 2
    assert "share" not in capfd.readouterr().out


def test_nodes_that_share_an_executor_are_said_to(
    growing: Standalone, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "executors"
    folder.mkdir()
    with sessions.session(tmp_path, settings(growing, 1)) as spark:
        cluster = TFCluster.run(
            spark.sparkContext, _executor, {"folder": str(folder)}, 2, 0, False, InputMode.SPARK
        )
        cluster.shutdown()
    files = list(folder.iterdir())
    assert len(files) == 2 and len({file.read_text() for file in files}) == 1
    said = [line for line in capfd.readouterr().out.splitlines() if "share" in line]
    assert len(said) == 1 and "the cluster's 2 processes share 1 executor(s)" in said[0]

"""HDFS's daemons die, restart, refuse: what was promised stays, what was not waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from howdah.core.messages import StopRequested
from howdah.storage import journal
from howdah.storage.copies.replica import HdfsJournal
from howdah.storage.hdfs import calls as hdfs_calls
from howdah.storage.hdfs.errors import HdfsQuotaExceeded, HdfsSafeMode, NoNameNode
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.journal import Journal
from tests.conformance.harness import eventually
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hdfs.conftest import folder_on
from tests.hdfs.test_replica import brought, write
from tests.yarn.runner import make_whole

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.fixture(scope="module")
def cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(node_managers=1)


@pytest.fixture
def own_url(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_dir))
    for place in folder_on(cluster):
        yield place
        # A test that failed half-way is not to fail those that come after it.
        make_whole(cluster)
        cluster.set_read_only(False)


@pytest.mark.parametrize(
    ("harm", "repair", "words"),
    [
        pytest.param(
            lambda cluster: cluster.kill("namenode"),
            lambda cluster: cluster.start("namenode"),
            "no active NameNode",
            id="a NameNode that restarts",
        ),
        pytest.param(
            lambda cluster: cluster.kill("datanode"),
            lambda cluster: cluster.start("datanode"),
            "",
            id="a DataNode that restarts",
        ),
        pytest.param(
            lambda cluster: cluster.set_read_only(True),
            lambda cluster: cluster.set_read_only(False),
            "safe mode",
            id="a NameNode that takes no changes",
        ),
    ],
)
def test_the_journal_waits_and_loses_nothing(
    own_url: str,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Cluster], None],
    repair: Callable[[Cluster], None],
    words: str,
) -> None:
    # `hdfs_native` may not notice that the DataNode is gone: then only our own limit ends the call.
    monkeypatch.setattr(hdfs_calls, "ANSWER_S", 20.0)
    copy = HdfsJournal(own_url)
    local = tmp_path / "master"
    local.mkdir()

    async def run() -> None:
        writer = Journal.open(local, replica=copy)
        try:
            await write(writer, 5)
            await asyncio.to_thread(harm, cluster)
            writer.append_event(1.0, StopRequested(by="in the storm"))
            commit = asyncio.create_task(writer.commit())
            await eventually(lambda: bool(copy.trouble), "it waits", 2 * hdfs_calls.ANSWER_S)
            assert words in copy.trouble
            assert not commit.done()
            await asyncio.to_thread(repair, cluster)
            async with asyncio.timeout(90):
                await commit
            assert copy.trouble == ""
            await write(writer, 5)
        finally:
            await writer.close()

    asyncio.run(run())
    entries = brought(own_url, tmp_path / "reader", nobody_writes=True)
    assert entries == list(journal.read(local))
    assert [entry.seq for entry in entries] == list(range(1, 12))


def test_the_journal_waits_for_room(own_url: str, cluster: Cluster, tmp_path: Path) -> None:
    """A quota that is less than a block: the next segment gets no room."""
    path = Hdfs(own_url).path(own_url)
    copy = HdfsJournal(own_url, segment_bytes=200)
    local = tmp_path / "master"
    local.mkdir()

    async def run() -> None:
        writer = Journal.open(local, replica=copy)
        await write(writer, 3)
        cluster.set_quota(path, 4096)
        writer.append_event(1.0, StopRequested(by="no room " * 20))
        commit = asyncio.create_task(writer.commit())
        deadline = time.monotonic() + 30
        while "quota" not in copy.trouble:
            assert not commit.done() and time.monotonic() < deadline, copy.trouble
            await asyncio.sleep(0.02)
        cluster.set_quota(path, None)
        async with asyncio.timeout(60):
            await commit
        await writer.close()

    asyncio.run(run())
    entries = brought(own_url, tmp_path / "reader", nobody_writes=True)
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]


def test_a_new_master_takes_over_after_namenode_and_master_died_together(
    own_url: str, cluster: Cluster, tmp_path: Path
) -> None:
    async def run() -> None:
        old = Journal.open(_made(tmp_path / "old"), replica=HdfsJournal(own_url))
        await write(old, 4)
        cluster.kill("namenode")
        opening = asyncio.create_task(
            asyncio.to_thread(Journal.open, _made(tmp_path / "new"), replica=HdfsJournal(own_url))
        )
        cluster.start("namenode")
        new = await opening
        assert new.next_seq == 5
        await write(new, 2)
        await new.close()
        await old.close()

    asyncio.run(run())
    assert len(brought(own_url, tmp_path / "reader")) == 6


def test_calls_wait_for_a_namenode_as_long_as_they_are_told(own_url: str, cluster: Cluster) -> None:
    hdfs = Hdfs(own_url)
    hdfs.write(f"{own_url}/file", b"before")
    cluster.kill("namenode")
    began = time.monotonic()
    with pytest.raises(NoNameNode, match="no active NameNode of hdfs://.* answers"):
        hdfs.read(f"{own_url}/file")
    assert time.monotonic() - began < 60
    cluster.start("namenode")
    assert hdfs.patient(200).read(f"{own_url}/file") == b"before"
    hdfs.patient(200).write(f"{own_url}/file", b"after")
    assert hdfs.read(f"{own_url}/file") == b"after"


def test_a_namenode_that_does_not_answer_is_given_up(
    own_url: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdfs = Hdfs(own_url)
    hdfs.exists(own_url)
    cluster.pause("namenode")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(hdfs_calls, "ANSWER_S", 1.0)
            with pytest.raises(NoNameNode, match="has not answered within 1 s"):
                hdfs.exists(own_url)
    finally:
        cluster.resume("namenode")
    assert hdfs.patient(200).exists(own_url)


def test_a_file_that_was_given_up_keeps_nobody_waiting_for_a_namenode(
    own_url: str, cluster: Cluster
) -> None:
    """Whichever thread happens to collect it: a coordinator's loop, for example."""
    given_up = [Hdfs(own_url).create(f"{own_url}/file")]
    given_up[0].write(b"x")
    cluster.pause("namenode")
    try:
        collecting = threading.Thread(target=given_up.clear, daemon=True)
        collecting.start()
        collecting.join(10)
        assert not collecting.is_alive()
    finally:
        cluster.resume("namenode")


def test_a_full_and_a_read_only_hdfs_are_told_apart(own_url: str, cluster: Cluster) -> None:
    hdfs = Hdfs(own_url)
    cluster.set_quota(hdfs.path(own_url), 1024)
    with pytest.raises(HdfsQuotaExceeded, match="the quota is used up.*Remove what is not needed"):
        hdfs.write(f"{own_url}/file", b"x")
    assert hdfs.list(own_url) == []
    cluster.set_quota(hdfs.path(own_url), None)
    cluster.set_read_only(True)
    try:
        with pytest.raises(HdfsSafeMode, match="HDFS is read-only, its NameNode is in safe mode"):
            hdfs.write(f"{own_url}/file", b"x")
    finally:
        cluster.set_read_only(False)
    hdfs.write(f"{own_url}/file", b"x")


def _made(path: Path) -> Path:
    path.mkdir()
    return path

"""Checkpoints and outputs on HDFS: what only HDFS can get wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from howdah.agent.launch import HERE
from howdah.spark import ParquetFeed
from howdah.storage import outputs
from howdah.storage.checkpoints.restoring import restore
from howdah.storage.checkpoints.upload import adopt, publish
from howdah.storage.checkpoints.versions import CheckpointSpec
from howdah.storage.errors import Outdated
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.outputs import Copied, OutputSpec, copy
from howdah.storage.stores.checkpoint_stores import HdfsStore, open_store
from howdah.storage.stores.destinations import open_destination
from howdah.storage.stores.write_probe import try_to_write
from howdah.wire.messages import Mirror, Shutdown
from tests.agent.rig import Rig, python, until
from tests.unit.storage.saving import content, fill, saved


def test_an_hdfs_url_is_a_store_of_its_own(place: str) -> None:
    assert isinstance(open_store(place), HdfsStore)


def test_a_version_is_there_whole_or_not_at_all(
    spec: CheckpointSpec, folder: Path, hdfs: Hdfs, place: str
) -> None:
    fill(folder, one="1", two="2")
    draft = open_store(place).draft()
    draft.add(folder / "one", "one")
    assert open_store(place).versions() == []
    draft.discard()
    assert hdfs.list(place) == []
    version = saved(publish(spec)).version
    assert {stat.name for stat in hdfs.list(f"{place}/{version}")} == {
        "manifest.json",
        "one",
        "two",
    }


def test_versions_are_the_owners_alone(
    spec: CheckpointSpec, folder: Path, hdfs: Hdfs, place: str
) -> None:
    fill(folder, **{"deep/er/file": "x"})
    publish(spec)
    for stat in hdfs.list(place, recursive=True):
        assert stat.permission == (0o700 if stat.is_dir else 0o600), stat


def test_a_checkpoint_of_many_blocks_comes_back(
    spec: CheckpointSpec, folder: Path, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 4096 * 40  # 40 MiB: three blocks of the test cluster
    (folder / "big").write_bytes(data)
    publish(spec)
    (folder / "big").unlink()
    restore(spec)
    assert (folder / "big").read_bytes() == data


def test_outputs_go_to_hdfs_and_later_ones_replace_them(
    url: str, hdfs: Hdfs, tmp_path: Path
) -> None:
    base = tmp_path / "task"
    fill(base, **{"results/a.csv": "1", "results/deep/b.csv": "2"})
    spec = OutputSpec(base=str(base), folders=("results",), store=f"{url}/out/worker-0")
    assert copy(spec) == Copied(files=2, kept=0, bytes=2)
    fill(base, **{"results/a.csv": "new"})
    copy(spec)
    assert hdfs.read(f"{url}/out/worker-0/results/a.csv") == b"new"
    names = {stat.name for stat in hdfs.list(f"{url}/out", recursive=True)}
    assert names == {"worker-0", "results", "a.csv", "deep", "b.csv"}


def test_an_older_attempt_never_replaces_a_newer_one_s_outputs(url: str, tmp_path: Path) -> None:
    store = f"{url}/out/worker-0"
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        fill(folder, **{"results/a.csv": folder.name})
    frozen = open_destination(store, attempt=1)
    frozen.put(old / "results/a.csv", "results/a.csv")
    newer = OutputSpec(base=str(new), folders=("results",), store=store, attempt=2)
    assert copy(newer).files == 1
    with pytest.raises(Outdated):
        frozen.put(old / "results/a.csv", "results/a.csv")
    with pytest.raises(Outdated):
        copy(OutputSpec(base=str(old), folders=("results",), store=store, attempt=1))
    assert open_destination(store).read("results/a.csv", 0, 10) == b"new"


def test_outputs_of_a_job_are_seen_all_at_once(url: str, hdfs: Hdfs, tmp_path: Path) -> None:
    store = f"{url}/models"
    assert not outputs.publish(store, "job-1")
    for task in ("worker-0", "worker-1"):
        base = tmp_path / task
        fill(base, model=task)
        place = f"{outputs.job_place(store, 'job-1')}/{task}"
        copy(OutputSpec(base=str(base), folders=("model",), store=place))
    assert [stat.name for stat in hdfs.list(store)] == [".job-1.incomplete"]
    assert outputs.publish(store, "job-1")
    assert [stat.name for stat in hdfs.list(store)] == ["job-1"]
    assert hdfs.read(f"{store}/job-1/worker-1/model") == b"worker-1"
    assert outputs.publish(store, "job-1")  # by the coordinator after one that died


def test_checkpoints_go_from_a_folder_to_hdfs(
    spec: CheckpointSpec, folder: Path, tmp_path: Path, place: str
) -> None:
    """A run on the cluster may resume one that ran on this machine."""
    fill(folder, weights="w")
    publish(CheckpointSpec(folder=str(folder), store=str(tmp_path / "local")))
    assert adopt(str(tmp_path / "local"), place, "digits-1") == "000001 of digits-1"
    fill(folder, weights="other")
    restore(spec)
    assert content(folder) == {"weights": "w"}


WRITES = """
import os, pathlib, time
def write(text):
    for name in ("results/a", "checkpoints/1", os.environ["EVENTS"] + "/events.1"):
        path = pathlib.Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
write("one")
print("begun", flush=True)
while not os.path.exists("go"): time.sleep(0.02)
write("more")
"""


def test_copies_make_no_removed_job_directory_again(url: str, hdfs: Hdfs, tmp_path: Path) -> None:
    job = f"{url}/job"
    hdfs.mkdirs(job)

    async def run() -> None:
        async with Rig(tmp_path) as rig:
            (tmp_path / "spool").mkdir()
            agent = await rig.agent(
                log_dir=str(tmp_path / "spool"), log_names="flat", log_store=job
            )
            await rig.prepare(
                checkpoint={
                    "folder": "checkpoints",
                    "store": f"{job}/checkpoints",
                    "settle_s": 0.2,
                },
                outputs={"folders": ["results"], "store": f"{job}/outputs/worker-0", "keep": []},
                save_s=10.0,
            )
            place = f"{job}/tensorboard/worker-0"
            await rig.start(
                python(WRITES, HOWDAH_IS_CHIEF="true", EVENTS=f"{HERE}/tensorboard"),
                mirror=Mirror(way="push", folder=f"{HERE}/tensorboard", place=place),
            )
            await until(lambda: hdfs.exists(f"{place}/events.1"))
            await until(lambda: hdfs.exists(f"{job}/checkpoints/000001"))
            hdfs.remove(job, recursive=True)
            (tmp_path / "containers/c1/task/go").touch()
            await rig.exit()
            rig.tell(Shutdown())
            assert await agent.code(60.0) == 0

    asyncio.run(run())
    assert not hdfs.exists(job)


def test_a_store_is_tried_and_left_as_it_was(hdfs: Hdfs, place: str) -> None:
    try_to_write(f"{place}/not/yet")
    assert not hdfs.exists(place)
    hdfs.mkdirs(place)
    try_to_write(place)
    assert hdfs.list(place) == []


def test_a_file_is_no_store(hdfs: Hdfs, place: str) -> None:
    hdfs.write_new(place, b"mine")
    with pytest.raises(NotADirectoryError):
        try_to_write(place)
    with pytest.raises(NotADirectoryError):
        try_to_write(f"{place}/below")
    assert hdfs.read(place) == b"mine"


def test_parquet_files_are_read_without_a_jvm(hdfs: Hdfs, url: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "rows.parquet", row_group_size=7)
    for name in ("a", "b"):
        hdfs.put(tmp_path / "rows.parquet", f"{url}/day={name}/rows.parquet")
    # With the default file system's name left out, too.
    for source in (url, "hdfs:///" + url.partition("://")[2].partition("/")[2]):
        feed = ParquetFeed(source, rank=1, world_size=2)
        [batch] = feed.batches(1000)
        assert list(batch["id"]) == list(range(100))
        assert set(batch["day"]) == {"b"}

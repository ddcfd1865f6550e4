from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoints.restoring import restore
from howdah.storage.checkpoints.upload import CheckpointUploader, publish
from howdah.storage.checkpoints.versions import CheckpointSpec, Restored, latest_complete
from howdah.storage.folders import FolderChanged, scan
from howdah.storage.stores.checkpoint_stores import open_store
from tests.unit.storage.saving import change, content, fill, saved

# -- round trips ---------------------------------------------------------------------------------


def test_a_folder_comes_back_as_it_was_saved(spec: CheckpointSpec, folder: Path) -> None:
    fill(folder, **{"model.pt": "weights", "a/b/c": "deep", "empty": "", "manifest.json": "mine"})
    fill(folder, **{"manifest.json~": "mine too"})
    (folder / "last").symlink_to("model.pt")
    os.utime(folder / "model.pt", ns=(5, 123_456_789))
    before = content(folder)
    result = saved(publish(spec))
    assert (result.files, result.bytes) == (6, len("weightsdeepminemine too"))

    shutil.rmtree(folder)
    fill(folder, junk="left by a dead program")
    restored = restore(spec)
    assert restored == Restored(
        version=result.version, files=6, bytes=result.bytes, checksum=result.checksum
    )
    assert content(folder) == before
    assert (folder / "last").readlink() == Path("model.pt")
    assert (folder / "model.pt").stat().st_mtime_ns == 123_456_789


def test_files_can_be_written_without_harm_to_the_version(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, model="weights")
    publish(spec)
    for _ in ("as they were saved", "as they were restored"):
        with (folder / "model").open("r+") as file:
            file.write("SPOILED")
        assert restore(spec).skipped == ()
        assert content(folder) == {"model": "weights"}


def test_without_a_version_the_folder_is_empty_afterwards(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, junk="half a checkpoint")
    assert restore(spec) == Restored(version=None)
    shutil.rmtree(folder.parent)
    assert restore(spec).version is None
    assert folder.is_dir()
    assert content(folder) == {}


def test_versions_count_up_and_old_ones_go(spec: CheckpointSpec, folder: Path) -> None:
    spec = change(spec, keep=2)
    publisher = CheckpointUploader(spec)
    for number in range(5):
        fill(folder, model=f"weights {number}")
        assert saved(publisher.publish()).version.startswith(f"00000{number + 1}")
    versions = open_store(spec.place).versions()
    assert [version[:6] for version in versions] == ["000004", "000005"]
    assert latest_complete(spec.place) is not None


def test_an_empty_or_unchanged_or_only_touched_folder_makes_no_version(
    spec: CheckpointSpec, folder: Path
) -> None:
    assert publish(spec) is None
    fill(folder, model="weights")
    publisher = CheckpointUploader(spec)
    assert publisher.publish() is not None
    assert publisher.publish() is None
    os.utime(folder / "model")
    assert publisher.publish() is None
    assert publish(spec) is None  # by another process, too
    assert len(open_store(spec.place).versions()) == 1


def test_a_file_that_is_removed_or_added_makes_a_version(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, one="1", two="2")
    publisher = CheckpointUploader(spec)
    publisher.publish()
    (folder / "one").unlink()
    assert saved(publisher.publish()).files == 1
    fill(folder, three="3")
    assert saved(publisher.publish()).files == 2


def test_a_change_in_the_same_tick_of_the_clock_is_not_missed(
    spec: CheckpointSpec, folder: Path
) -> None:
    publisher = CheckpointUploader(spec)
    for number in range(20):
        fill(folder, model=f"{number:03}")
        os.utime(folder / "model", ns=(0, 0))
        publisher.publish()
        restore(change(spec, folder=str(folder.with_name("other"))))
        assert content(folder.with_name("other")) == {"model": f"{number:03}"}


def test_each_task_can_have_checkpoints_of_its_own(spec: CheckpointSpec, folder: Path) -> None:
    one = change(spec, source="each", task=Task("worker", 1))
    ten = change(spec, source="each", task=Task("worker", 10))
    fill(folder, model="one")
    publish(one)
    fill(folder, model="ten")
    publish(ten)
    restore(one)
    assert content(folder) == {"model": "one"}
    assert one.place == f"{spec.store}/worker-1"


def test_the_manifest_tells_where_a_version_comes_from(spec: CheckpointSpec, folder: Path) -> None:
    fill(folder, model="weights")
    began = time.time()
    publish(change(spec, generation=3, attempt=4))
    found = latest_complete(spec.place)
    assert found is not None
    manifest = found[1]
    assert (manifest.task, manifest.generation, manifest.attempt) == (Task("worker", 0), 3, 4)
    assert began - 1 < manifest.created <= time.time()
    assert manifest.size == 7


# -- never half-written --------------------------------------------------------------------------


def test_a_folder_that_changes_while_it_is_copied_is_not_saved(
    spec: CheckpointSpec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, a="1", b="2")
    publisher = CheckpointUploader(spec)
    save = CheckpointUploader._save

    def save_and_write(self: CheckpointUploader, *arguments: Any) -> Any:
        file = save(self, *arguments)
        fill(folder, a="changed after it was copied")
        return file

    monkeypatch.setattr(CheckpointUploader, "_save", save_and_write)
    with pytest.raises(FolderChanged):
        publisher.publish()
    assert open_store(spec.place).versions() == []
    monkeypatch.undo()
    assert publisher.publish() is not None


def test_a_file_that_vanished_since_the_look_is_not_saved(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, a="1", b="2")
    tree = scan(folder)
    (folder / "b").unlink()
    with pytest.raises(FolderChanged):
        CheckpointUploader(spec).publish(tree)
    assert open_store(spec.place).versions() == []


def test_a_version_being_written_is_not_seen(spec: CheckpointSpec, folder: Path) -> None:
    fill(folder, model="weights")
    first = saved(publish(spec))
    store = open_store(spec.place)
    draft = store.draft()
    draft.add(folder / "model", "model")
    assert store.versions() == [first.version]
    assert restore(spec).version == first.version
    # Its writer has died.
    store.clean()
    fill(folder, model="more")
    assert saved(publish(spec)).version.startswith("000002")


def test_several_publishers_at_once_make_whole_versions(
    spec: CheckpointSpec, tmp_path: Path
) -> None:
    def run(number: int) -> None:
        folder = tmp_path / f"work-{number}"
        folder.mkdir()
        mine = change(spec, folder=str(folder), keep=100)
        for step in range(5):
            fill(folder, model=f"{number} {step}", more="x")
            publish(mine)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = open_store(spec.place).versions()
    assert len(versions) >= 5
    for version in versions:
        target = tmp_path / "out"
        assert restore(change(spec, folder=str(target), version=version)).version == version
        assert len(content(target)) == 2


def test_a_local_version_shares_unchanged_files_with_the_one_before(
    local: CheckpointSpec, folder: Path
) -> None:
    fill(folder, large="L" * 1000, model="1")
    publisher = CheckpointUploader(local)
    publisher.publish()
    while scan(folder)["large"].ctime_ns > time.time_ns() - 150_000_000:
        time.sleep(0.01)  # until its time stamp is old enough to trust
    fill(folder, model="2")
    publisher.publish()
    fill(folder, model="3")
    publisher.publish()
    store = Path(local.store)
    inodes = {(store / f"00000{n}" / "large").stat().st_ino for n in (2, 3)}
    assert len(inodes) == 1
    assert (store / "000003" / "large").stat().st_ino != (folder / "large").stat().st_ino


def test_everything_in_the_store_is_the_owners_alone(local: CheckpointSpec, folder: Path) -> None:
    fill(folder, **{"a/b": "1"})
    before = os.umask(0)
    try:
        publish(local)
    finally:
        os.umask(before)
    for path in [Path(local.store), *Path(local.store).rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path

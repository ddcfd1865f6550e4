from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest

from howdah.core.events import Task
from howdah.storage.checkpoints import (
    CheckpointSpec,
    Outdated,
    Publisher,
    Restored,
    Saved,
    adopt,
    latest_complete,
    publish,
    restore,
)
from howdah.storage.folders import FolderChanged, scan
from howdah.storage.restoring import candidates
from howdah.storage.stores import LocalStore, open_store

MakeSpec = Callable[..., CheckpointSpec]


@pytest.fixture(params=["path", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store for checkpoints of each kind."""
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return f"memory://{tmp_path.name}/checkpoints"
    return {"path": "", "file": "file://"}[request.param] + str(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "checkpoints"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def spec(folder: Path, place: str) -> CheckpointSpec:
    return CheckpointSpec(folder=str(folder), store=place, task=Task("worker", 0))


@pytest.fixture
def local(folder: Path, tmp_path: Path) -> CheckpointSpec:
    return CheckpointSpec(folder=str(folder), store=str(tmp_path / "store"))


def fill(folder: Path, **files: str) -> None:
    """Write files, old enough to be surely finished."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def saved(result: Saved | None) -> Saved:
    assert result is not None
    return result


def content(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in scan(folder)}


def change(spec: CheckpointSpec, **fields: Any) -> CheckpointSpec:
    return msgspec.structs.replace(spec, **fields)


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


def test_restored_files_can_be_written_without_harm_to_the_version(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, model="weights")
    publish(spec)
    restore(spec)
    with (folder / "model").open("r+") as file:
        file.write("SPOILED")
    assert restore(spec).skipped == ()
    assert content(folder) == {"model": "weights"}


def test_files_saved_can_be_written_without_harm_to_the_version(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, model="weights")
    publish(spec)
    with (folder / "model").open("r+") as file:
        file.write("SPOILED")
    restore(spec)
    assert content(folder) == {"model": "weights"}


def test_without_a_version_the_folder_is_empty_afterwards(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, junk="half a checkpoint")
    assert restore(spec) == Restored(version=None)
    assert folder.is_dir()
    assert content(folder) == {}


def test_a_folder_that_is_not_there_yet_is_made(spec: CheckpointSpec, folder: Path) -> None:
    shutil.rmtree(folder.parent)
    assert restore(spec).version is None
    assert folder.is_dir()


def test_versions_count_up_and_old_ones_go(spec: CheckpointSpec, folder: Path) -> None:
    spec = change(spec, keep=2)
    publisher = Publisher(spec)
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
    publisher = Publisher(spec)
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
    publisher = Publisher(spec)
    publisher.publish()
    (folder / "one").unlink()
    assert saved(publisher.publish()).files == 1
    fill(folder, three="3")
    assert saved(publisher.publish()).files == 2


def test_a_change_in_the_same_tick_of_the_clock_is_not_missed(
    spec: CheckpointSpec, folder: Path
) -> None:
    publisher = Publisher(spec)
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
    publisher = Publisher(spec)
    save = Publisher._save

    def save_and_write(self: Publisher, *arguments: Any) -> Any:
        file = save(self, *arguments)
        fill(folder, a="changed after it was copied")
        return file

    monkeypatch.setattr(Publisher, "_save", save_and_write)
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
        Publisher(spec).publish(tree)
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


def test_cleaning_leaves_what_is_published(spec: CheckpointSpec, folder: Path) -> None:
    fill(folder, model="weights")
    publish(spec)
    open_store(spec.place).clean()
    assert restore(spec).files == 1


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
    publisher = Publisher(local)
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


# -- damage --------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit_manifest(file: Path, /, **fields: Any) -> None:
    document = json.loads(file.read_text())
    document["files"][0].update(fields)
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda v: flip(v / "model"), "model does not fit its checksum"),
        (lambda v: (v / "model").write_text("x"), "model does not fit its checksum"),
        (lambda v: (v / "model").unlink(), "model is missing"),
        (lambda v: (v / "manifest.json").write_text("{"), r"manifest\.json can't be read"),
        (lambda v: (v / "manifest.json").write_text("{}"), r"manifest\.json can't be read"),
        (lambda v: edit_manifest(v / "manifest.json", size=1), "does not fit the list of files"),
        (lambda v: edit_manifest(v / "manifest.json", path="../x"), "names a file outside"),
        (lambda v: edit_manifest(v / "manifest.json", stored="/etc/passwd"), "a file outside"),
        (lambda v: edit_manifest(v / "manifest.json", link="../../x"), "a link to outside"),
    ],
)
def test_a_damaged_version_is_skipped_and_named(
    local: CheckpointSpec, folder: Path, damage: Callable[[Path], None], reason: str
) -> None:
    fill(folder, model="good weights")
    good = saved(publish(local))
    fill(folder, model="newer weights")
    publish(local)
    damage(Path(local.store) / "000002")
    restored = restore(local)
    assert restored.version == good.version
    assert content(folder) == {"model": "good weights"}
    (skipped,) = restored.skipped
    assert skipped.version == "000002"
    assert skipped.reason
    import re

    assert re.search(reason, skipped.reason)


def test_when_all_are_damaged_all_are_named_and_the_folder_is_empty(
    local: CheckpointSpec, folder: Path
) -> None:
    for number in range(2):
        fill(folder, model=f"weights {number}")
        saved(publish(local))
        flip(Path(local.store) / f"00000{number + 1}" / "model")
    restored = restore(local)
    assert restored.version is None
    assert [skipped.version for skipped in restored.skipped] == ["000002", "000001"]
    assert content(folder) == {}


def test_a_store_that_fails_is_not_taken_for_a_damaged_version(
    local: CheckpointSpec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, model="weights")
    publish(local)

    def unreachable(*arguments: Any) -> None:
        raise TimeoutError("the store does not answer")

    monkeypatch.setattr(LocalStore, "fetch", unreachable)
    with pytest.raises(TimeoutError):
        restore(local)
    assert content(folder) == {"model": "weights"}
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoints"]


def test_a_damaged_newest_version_is_not_what_changes_are_judged_by(
    local: CheckpointSpec, folder: Path
) -> None:
    fill(folder, model="1")
    publish(local)
    fill(folder, model="2")
    publish(local)
    (Path(local.store) / "000002" / "manifest.json").write_text("")
    assert saved(publish(local)).version == "000003"


# -- which version -------------------------------------------------------------------------------


def test_the_wanted_version_is_tried_first_then_older_ones_then_newer() -> None:
    versions = ["000001", "000002-ab", "000003", "000004"]
    assert candidates(versions, None) == versions[::-1]
    assert candidates(versions, "000003") == ["000003", "000002-ab", "000001", "000004"]
    assert candidates(versions, "000002-ab") == ["000002-ab", "000001", "000004", "000003"]
    assert candidates(["000008", "000009"], "000004") == ["000009", "000008"]


def test_all_members_of_a_gang_can_be_told_one_version(spec: CheckpointSpec, folder: Path) -> None:
    names = []
    for number in range(3):
        fill(folder, model=f"weights {number}")
        names.append(saved(publish(spec)).version)
    assert restore(change(spec, version=names[1])).version == names[1]
    assert content(folder) == {"model": "weights 1"}


def test_a_task_the_job_has_gone_on_without_saves_nothing_more(
    spec: CheckpointSpec, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    fill(folder, model="old gang")
    old = Publisher(change(spec, generation=1))
    assert old.publish() is not None
    fill(other, model="new gang")
    publish(change(spec, generation=2, folder=str(other)))
    fill(folder, model="old gang, still alive behind a partition")
    with pytest.raises(Outdated, match="generation 2"):
        old.publish()
    restore(spec)
    assert content(folder) == {"model": "new gang"}


# -- another job's -------------------------------------------------------------------------------


def test_a_new_job_can_begin_with_the_newest_checkpoint_of_another(
    spec: CheckpointSpec, folder: Path, tmp_path: Path
) -> None:
    assert adopt(spec.place, str(tmp_path / "new")) is None
    fill(folder, **{"model": "1", ".hidden": "not saved"})
    publish(spec)
    fill(folder, model="2")
    result = saved(publish(spec))
    assert adopt(spec.place, str(tmp_path / "new")) == "000001"
    there = restore(change(spec, store=str(tmp_path / "new")))
    assert there.checksum == result.checksum
    assert content(folder) == {"model": "2"}
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["000001"]


def test_fsspec_is_not_imported_for_a_local_folder(local: CheckpointSpec) -> None:
    import subprocess
    import sys

    script = (
        "import sys; from howdah.storage.checkpoints import *; import howdah.storage.watching\n"
        "restore(CheckpointSpec(folder=sys.argv[1], store=sys.argv[2]))\n"
        "assert 'fsspec' not in sys.modules, 'fsspec'\n"
        "assert 'cryptography' not in sys.modules, 'cryptography'"
    )
    command = [sys.executable, "-c", script, local.folder, local.store]
    subprocess.run(command, check=True)

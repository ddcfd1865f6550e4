from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoints.restoring import NoVersion, candidates, restore
from howdah.storage.checkpoints.upload import CheckpointUploader, adopt, publish
from howdah.storage.checkpoints.versions import CheckpointSpec
from howdah.storage.errors import Outdated, is_transient
from howdah.storage.stores.checkpoint_stores import LocalStore, open_store
from tests.unit.storage.saving import change, content, fill, saved

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
    assert candidates(["000008", "000009"], "best") == ["000009", "000008"]


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
    spec = change(spec, job_id="digits-1")
    old = CheckpointUploader(change(spec, generation=1))
    assert old.publish() is not None
    fill(other, model="new gang")
    publish(change(spec, generation=2, folder=str(other)))
    fill(folder, model="old gang, still alive behind a partition")
    with pytest.raises(Outdated, match="generation 2"):
        old.publish()
    restore(spec)
    assert content(folder) == {"model": "new gang"}


def lives(
    spec: CheckpointSpec, tmp_path: Path, count: int = 2, **fields: Any
) -> list[CheckpointSpec]:
    """Attempts 1, 2, … of one task in one generation, each in a folder of its own."""
    found = []
    for attempt in range(1, count + 1):
        folder = tmp_path / f"attempt-{attempt}"
        folder.mkdir()
        own = {"folder": str(folder), "attempt": attempt, "generation": 1, "job_id": "digits-1"}
        found.append(change(spec, **own | fields))
    return found


@pytest.mark.parametrize("source", ["chief", "each"])
def test_an_attempt_saves_nothing_more_once_its_successor_has(
    spec: CheckpointSpec, tmp_path: Path, source: str
) -> None:
    first, second, third = lives(spec, tmp_path, 3, source=source)
    cut_off = CheckpointUploader(first)
    fill(Path(first.folder), model="step 100")
    assert cut_off.publish() is not None
    restore(second)
    fill(Path(second.folder), model="step 200")
    newest = saved(publish(second))
    fill(Path(first.folder), model="step 101, cut off")
    with pytest.raises(Outdated, match="attempt 2 in generation 1"):
        cut_off.publish()
    with pytest.raises(Outdated):
        CheckpointUploader(first).begin()
    assert restore(third).version == newest.version
    assert content(Path(third.folder)) == {"model": "step 200"}


def test_an_attempt_frozen_just_before_its_version_appears_does_not_win(
    spec: CheckpointSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = lives(spec, tmp_path, 3, keep=1)
    fill(Path(first.folder), model="step 100")
    publish(first)
    restore(second)
    fill(Path(second.folder), model="step 200")
    fill(Path(first.folder), model="step 101, frozen")
    frozen = CheckpointUploader(first)
    check, checks = CheckpointUploader._check, []

    def check_and_freeze(self: CheckpointUploader) -> None:
        check(self)
        if self is frozen:
            checks.append(self)
            if len(checks) == 2:  # the last one before the version gets its name
                publish(second)

    monkeypatch.setattr(CheckpointUploader, "_check", check_and_freeze)
    try:
        frozen.publish()
    except Outdated:
        pass
    assert len(checks) >= 2
    restore(third)
    assert content(Path(third.folder)) == {"model": "step 200"}
    fill(Path(third.folder), model="step 300")
    publish(third)
    assert len(open_store(spec.place).versions()) == 1


def test_attempts_of_different_tasks_are_not_compared(spec: CheckpointSpec, tmp_path: Path) -> None:
    first, second = lives(spec, tmp_path)
    second = change(second, task=Task("worker", 1))
    fill(Path(second.folder), model="of worker:1, which was restarted once")
    publish(second)
    fill(Path(first.folder), model="of worker:0, which was not")
    assert publish(first) is not None


def test_a_named_checkpoint_of_which_nothing_is_left_is_not_passed_over_in_silence(
    local: CheckpointSpec, folder: Path
) -> None:
    fill(folder, model="trained here")
    with pytest.raises(NoVersion, match="000017.*is not in .*store"):
        restore(change(local, version="000017"))
    assert content(folder) == {"model": "trained here"}
    publish(local)
    flip(Path(local.store) / "000001" / "model")
    with pytest.raises(NoVersion, match="000001: model does not fit its checksum") as caught:
        restore(change(local, version="000001"))
    assert not is_transient(caught.value)


def test_another_job_that_shares_the_store_is_not_a_later_generation(
    spec: CheckpointSpec, folder: Path
) -> None:
    fill(folder, model="first job")
    publish(change(spec, job_id="digits-1", generation=5))
    restore(change(spec, job_id="digits-2", generation=1))
    assert content(folder) == {"model": "first job"}
    fill(folder, model="second job")
    assert publish(change(spec, job_id="digits-2", generation=1)) is not None


# -- another job's -------------------------------------------------------------------------------


def test_a_new_job_can_begin_with_the_newest_checkpoint_of_another(
    spec: CheckpointSpec, folder: Path, tmp_path: Path
) -> None:
    assert adopt(spec.place, str(tmp_path / "new"), "digits-1") is None
    fill(folder, **{"model": "1", ".nfs0001": "not saved"})
    publish(spec)
    fill(folder, model="2")
    result = saved(publish(spec))
    assert adopt(spec.place, str(tmp_path / "new"), "digits-1") == f"{result.version} of digits-1"
    there = restore(change(spec, store=str(tmp_path / "new")))
    assert there.checksum == result.checksum
    assert content(folder) == {"model": "2"}
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["000001"]


def test_a_copied_checkpoint_says_where_it_came_from_until_the_job_saves_its_own(
    spec: CheckpointSpec, folder: Path, tmp_path: Path
) -> None:
    fill(folder, model="1")
    origin = f"{saved(publish(spec)).version} of digits-1"
    first = change(spec, store=str(tmp_path / "first"))
    adopt(spec.place, first.store, "digits-1")
    assert restore(first).origin == origin
    second = change(spec, store=str(tmp_path / "second"))
    assert adopt(first.store, second.store, "digits-2") == origin
    restore(second)
    fill(folder, model="3")
    publish(second)
    assert restore(second).origin == ""


@pytest.mark.nightly
def test_fsspec_is_not_imported_for_a_local_folder(local: CheckpointSpec) -> None:
    script = (
        "import sys; import howdah.storage.helper, howdah.storage.checkpoints.watching\n"
        "from howdah.storage.checkpoints.restoring import restore\n"
        "from howdah.storage.checkpoints.versions import CheckpointSpec\n"
        "restore(CheckpointSpec(folder=sys.argv[1], store=sys.argv[2]))\n"
        "assert 'fsspec' not in sys.modules, 'fsspec'\n"
        "assert 'cryptography' not in sys.modules, 'cryptography'"
    )
    command = [sys.executable, "-c", script, local.folder, local.store]
    subprocess.run(command, check=True)

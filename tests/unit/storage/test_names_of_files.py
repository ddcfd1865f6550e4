"""A file's name stops no checkpoint: bytes that are no text, letters that a store does not take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from howdah.storage import helper
from howdah.storage.checkpoints.restoring import restore
from howdah.storage.checkpoints.upload import publish
from howdah.storage.checkpoints.versions import CheckpointProblem, CheckpointSpec
from howdah.storage.confined_paths import shown, to_name, to_text

NO_TEXT = os.fsdecode(b"caf\xe9.bin")
NAMES = (NO_TEXT, f"deep-{NO_TEXT}/a", "2026-11-28T12:00:00.pt", "a%3Ab", "what?#*[1]\\", ":" * 255)


@pytest.mark.parametrize("store", ["local", "memory"])
def test_a_checkpoint_takes_files_of_any_name(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))
    (folder / "latest").symlink_to(NO_TEXT)
    place = str(tmp_path / "store") if store == "local" else f"memory://{tmp_path}"
    assert publish(CheckpointSpec(folder=str(folder), store=place)) is not None
    assert publish(CheckpointSpec(folder=str(folder), store=place)) is None
    again = tmp_path / "again"
    assert restore(CheckpointSpec(folder=str(again), store=place)).files == len(NAMES) + 1
    for name in NAMES:
        assert (again / name).read_bytes() == os.fsencode(name)
    assert str((again / "latest").readlink()) == NO_TEXT


def test_names_go_into_documents_and_come_back(tmp_path: Path) -> None:
    for name in (*NAMES, "plain", "ä"):
        assert to_name(msgspec.json.decode(msgspec.json.encode(to_text(name)))) == name
    assert shown(NO_TEXT) == "caf\N{REPLACEMENT CHARACTER}.bin"


def test_what_a_helper_says_of_such_a_file_can_be_read(capfdbinary: Any) -> None:
    helper._report(CheckpointProblem(problem=f"{NO_TEXT} is open"))
    said = msgspec.json.decode(capfdbinary.readouterr().out, type=CheckpointProblem)
    assert said.problem == f"{shown(NO_TEXT)} is open"


def test_modes_and_empty_folders_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    (folder / "empty/deep").mkdir(parents=True)
    (folder / "half.tmp/empty").mkdir(parents=True)
    for name, mode in (("run.sh", 0o755), ("secret", 0o600), ("read-only", 0o444)):
        (folder / name).write_text("")
        (folder / name).chmod(mode)
    place = str(tmp_path / "store")
    assert publish(CheckpointSpec(folder=str(folder), store=place, ignore=("*.tmp",))) is not None
    again = tmp_path / "again"
    restore(CheckpointSpec(folder=str(again), store=place))
    assert sorted(path.relative_to(again).as_posix() for path in again.rglob("*")) == [
        "empty", "empty/deep", "read-only", "run.sh", "secret",
    ]  # fmt: skip
    modes = {path.name: path.stat().st_mode & 0o777 for path in again.iterdir() if path.is_file()}
    assert modes == {"run.sh": 0o755, "secret": 0o600, "read-only": 0o444}


@pytest.mark.parametrize("name", ["../out", "/out", "a", "a/b"])
def test_an_empty_folder_of_a_manifest_stays_inside(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "a").write_text("")
    place = tmp_path / "store"
    assert publish(CheckpointSpec(folder=str(folder), store=str(place))) is not None
    (manifest,) = place.glob("*/manifest.json")
    document = msgspec.json.decode(manifest.read_bytes()) | {"folders": [name]}
    manifest.write_bytes(msgspec.json.encode(document))
    restored = restore(CheckpointSpec(folder=str(tmp_path / "again"), store=str(place)))
    assert restored.version is None and len(restored.skipped) == 1

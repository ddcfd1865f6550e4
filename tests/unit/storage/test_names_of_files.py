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

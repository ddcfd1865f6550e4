"""Folders that grow, kept alike here and elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from howdah.storage.errors import Outdated
from howdah.storage.folder_sync import Puller, Pusher
from howdah.storage.stores.destinations import open_destination
from tests.unit.storage.helper_process import DEADLINE_S


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / "here"
    path.mkdir()
    return path


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def test_files_grow_there_as_they_grow_here(here: Path, there: Path) -> None:
    pusher = Pusher(here, open_destination(str(there)))
    (here / "run").mkdir()
    (here / "run" / "events.1").write_text("one")
    assert pusher.push() == 3
    assert pusher.push() == 0
    with (here / "run" / "events.1").open("a") as file:
        file.write(" two")
    pusher.push()
    assert (there / "run" / "events.1").read_text() == "one two"


def test_a_second_pusher_goes_on_where_the_first_ended(here: Path, there: Path) -> None:
    (here / "a").write_text("abc")
    Pusher(here, open_destination(str(there))).push()
    (here / "a").write_text("abcdef")
    assert Pusher(here, open_destination(str(there))).push() == 3
    assert (there / "a").read_text() == "abcdef"


def test_an_older_attempt_never_replaces_what_a_newer_one_has_pushed(
    tmp_path: Path, place: str
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "events.1").write_text(folder.name)
    first = Pusher(old, open_destination(place, attempt=1))
    first.push()
    Pusher(new, open_destination(place, attempt=2)).push()
    (old / "events.1").write_text("old, cut off and come back")
    with pytest.raises(Outdated):
        first.push()
    assert open_destination(place).read("events.1", 0, 100) == b"new"
    back = tmp_path / "back"
    Puller(open_destination(place), back).pull()
    assert [path.name for path in back.iterdir()] == ["events.1"]


def test_a_push_ends_once_a_later_attempt_writes_there(
    here: Path, there: Path, tmp_path: Path
) -> None:
    open_destination(str(there), attempt=2)
    (here / "events.1").write_text("one")
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"folder": str(here), "place": str(there), "attempt": 1}))
    argv = [sys.executable, "-m", "howdah.storage.helper", "push", str(spec)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"a later attempt" in process.stdout.readline()
        assert process.wait(DEADLINE_S) == 0
    assert not (there / "events.1").exists()


def test_another_file_of_the_same_name_replaces_the_first(here: Path, there: Path) -> None:
    pusher = Pusher(here, open_destination(str(there)))
    (here / "a").write_text("first")
    pusher.push()
    (here / "a").unlink()
    (here / "a").write_text("second, longer")
    pusher.push()
    assert (there / "a").read_text() == "second, longer"
    (here / "a").write_text("x")
    pusher.push()
    assert (there / "a").read_text() == "x"


def test_a_file_that_was_another_one_before_us_is_replaced(here: Path, there: Path) -> None:
    there.mkdir()
    (there / "a").write_text("zzz")
    (here / "a").write_text("abcdef")
    Pusher(here, open_destination(str(there))).push()
    assert (there / "a").read_text() == "abcdef"


def test_unfinished_and_hidden_files_stay(here: Path, there: Path) -> None:
    for name in (".hidden", "a.tmp"):
        (here / name).write_text("x")
    (here / ".folder").mkdir()
    (here / ".folder" / "b").write_text("x")
    (here / "c").write_text("x")
    Pusher(here, open_destination(str(there))).push()
    assert [path.name for path in there.iterdir()] == ["c"]


def test_a_folder_that_is_removed_meanwhile_keeps_nothing_else_from_being_pushed(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "passing", "z"):
        (here / name).mkdir()
        (here / name / "events").write_text("x")
    scandir = os.scandir

    def listed(folder: Any) -> Any:
        if str(folder) == str(here / "passing"):
            shutil.rmtree(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", listed)
    assert Pusher(here, open_destination(str(there))).push() == 2
    assert not (here / "passing").exists()
    assert sorted(path.name for path in there.iterdir()) == ["a", "z"]


def test_only_what_is_asked_for_is_pushed(here: Path, there: Path) -> None:
    for name in ("metrics-0001.jsonl", "job.json"):
        (here / name).write_text("x")
    Pusher(here, open_destination(str(there)), patterns=("metrics-*",)).push()
    assert [path.name for path in there.iterdir()] == ["metrics-0001.jsonl"]


def test_what_comes_there_is_brought(here: Path, there: Path) -> None:
    puller = Puller(open_destination(str(there)), here)
    assert puller.pull() == 0  # there is nothing yet
    there.mkdir()
    (there / "w").mkdir()
    (there / "w" / "a").write_text("one")
    (there / "empty").write_text("")
    puller.pull()
    (there / "w" / "a").write_text("one two")
    assert puller.pull() == 4
    assert (here / "w" / "a").read_text() == "one two"
    (there / "w" / "a").write_text("new")
    puller.pull()
    assert (here / "w" / "a").read_text() == "new"
    assert (here / "empty").exists()


def test_the_process_does_it_once_more_at_the_end(here: Path, there: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"folder": str(here), "place": str(there), "every_s": 60}))
    argv = [sys.executable, "-m", "howdah.storage.helper", "push", str(spec)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        (here / "late").write_text("x")
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert output == b""
    assert (there / "late").read_text() == "x"

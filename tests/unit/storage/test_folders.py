from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from howdah.storage import folders
from howdah.storage.confined_paths import escaping
from howdah.storage.folders import (
    FolderChanged,
    copy_proven,
    last_change,
    scan,
    sha256,
    written_now,
)


def test_a_scan_finds_files_at_any_depth_by_relative_path(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d/e"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    found = scan(tmp_path)
    assert sorted(found) == ["a", "b/c", "b/d/e"]
    assert found["b/c"].size == 3


def test_ignored_names_are_left_out_files_and_folders_alike(tmp_path: Path) -> None:
    for name in ("a", "a.tmp", "x_tmp_1/a", ".hidden/a", "b/.part", "b/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(scan(tmp_path, ("*.tmp", "*tmp_*", ".*"))) == ["a", "b/b"]


def test_a_missing_folder_is_empty(tmp_path: Path) -> None:
    assert scan(tmp_path / "nowhere") == {}
    assert last_change({}) == 0.0


def test_links_inside_are_links_and_links_outside_are_files(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("data")
    folder = tmp_path / "folder"
    (folder / "step-1").mkdir(parents=True)
    (folder / "latest").symlink_to("step-1")
    (folder / "step-1" / "up").symlink_to("../gone")
    (folder / "data").symlink_to(outside / "data")
    (folder / "folder").symlink_to(outside)
    (folder / "escape").symlink_to("../outside/data")
    (folder / "nowhere").symlink_to("../gone")
    left_out: dict[str, str] = {}
    found = scan(folder, left_out=left_out)
    assert left_out == {"folder": str(outside), "nowhere": "../gone"}
    assert {name: signature.link for name, signature in found.items()} == {
        "latest": "step-1",
        "step-1/up": "../gone",
        "data": "",
        "escape": "",
    }
    assert found["data"].size == 4


@pytest.mark.parametrize(
    ("name", "link", "inside"),
    [
        ("a", "b", True),
        ("d/a", "../b", True),
        ("a", "../b", False),
        ("d/a", "../../b", False),
        ("a", "/b", False),
        ("a", "b/../../c", False),
        ("a", "a", True),
        ("a", "..b", True),
        ("a", "..", False),
    ],
)
def test_links_are_judged_by_where_they_lead(name: str, link: str, inside: bool) -> None:
    assert (escaping({name: link}) == set()) is inside


def test_any_change_shows_in_the_signature_even_with_an_old_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    os.utime(path, ns=(1, 1))
    before = scan(tmp_path)
    while True:  # until the file system's clock has ticked
        path.write_text("new")
        os.utime(path, ns=(1, 1))
        if scan(tmp_path) != before:
            break
    assert last_change(scan(tmp_path)) > time.time() - 60


# -- copies --------------------------------------------------------------------------------------


def test_a_copy_is_equal_and_private(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o777)
    digest = copy_proven(source, tmp_path / "b" / "c")
    assert (tmp_path / "b" / "c").read_bytes() == source.read_bytes()
    assert digest == sha256(source)
    assert stat.S_IMODE((tmp_path / "b" / "c").stat().st_mode) == 0o600


def test_file_systems_that_cannot_share_blocks_are_copied_through_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(reader: int, writer: int, count: int) -> int:
        os.write(writer, os.read(reader, 10))
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", half, raising=False)
    source = tmp_path / "a"
    source.write_bytes(os.urandom(100_000))
    copy_proven(source, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == source.read_bytes()


def test_a_file_that_changes_while_it_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"old" * 1000)
    copy = folders._copy

    def copy_then_change(reader: int, writer: int) -> None:
        copy(reader, writer)
        source.write_bytes(b"new" * 1000)

    monkeypatch.setattr(folders, "_copy", copy_then_change)
    with pytest.raises(FolderChanged, match="changed while it was copied"):
        copy_proven(source, tmp_path / "b")


def test_a_file_that_goes_away_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderChanged, match="went away"):
        copy_proven(tmp_path / "a", tmp_path / "b")


# -- who writes ----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(("mode", "found"), [("wb", "a"), ("r+b", "a"), ("ab", "a"), ("rb", None)])
def test_a_file_another_process_has_open_for_writing_is_found(
    tmp_path: Path, mode: str, found: str | None
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    script = f"import sys; f = open(sys.argv[1], {mode!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "a")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert written_now(tmp_path, scan(tmp_path)) == found
        # A file that is not part of the tree does not count.
        assert written_now(tmp_path, {}) is None
        process.communicate()
    assert written_now(tmp_path, scan(tmp_path)) is None

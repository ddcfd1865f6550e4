"""The working folder: the source through links, real folders where programs write."""

from __future__ import annotations

from pathlib import Path

import pytest

from howdah.agent.workfolder import empty, make, place


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "pkg/model.py").write_text("")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/old").write_text("of another run")
    return folder


def test_entries_of_the_source_are_linked(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, [])
    assert (task / "train.py").is_symlink()
    assert (task / "pkg").readlink() == source / "pkg"


def test_what_a_program_writes_stays_out_of_the_source(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, ["checkpoints"])
    (task / "checkpoints").mkdir()
    (task / "new.txt").write_text("x")
    (task / "checkpoints/step-1").write_text("x")
    assert sorted(p.name for p in source.iterdir()) == ["checkpoints", "pkg", "train.py"]
    assert [p.name for p in (task / "checkpoints").iterdir()] == ["step-1"]


def test_a_folder_inside_a_source_folder_leaves_the_rest_of_that_visible(
    tmp_path: Path, source: Path
) -> None:
    task = tmp_path / "task"
    make(task, source, ["pkg/out/checkpoints"])
    assert (task / "pkg/model.py").is_symlink()
    assert not (task / "pkg").is_symlink()
    assert (task / "pkg/out").is_dir()
    assert not (source / "pkg/out").exists()


def test_making_it_again_keeps_what_is_there(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, ["checkpoints"])
    (task / "checkpoints").mkdir()
    (task / "checkpoints/step-1").write_text("x")
    (task / "train.py").unlink()
    (task / "train.py").write_text("changed by the program")
    (source / "late.py").write_text("")
    make(task, source, ["checkpoints"])
    assert (task / "checkpoints/step-1").exists()
    assert not (task / "train.py").is_symlink()
    assert (task / "late.py").is_symlink()


def test_folders_outside_the_working_folder_are_left_alone(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, ["/elsewhere/x", "../up", "."])
    assert not (tmp_path / "up").exists()
    assert place(task, "/elsewhere/x") == Path("/elsewhere/x")
    assert place(task, "a/../b") == task / "b"


def test_without_a_source_there_are_the_folders_only(tmp_path: Path) -> None:
    make(tmp_path / "task", None, ["out/checkpoints"])
    assert [p.name for p in (tmp_path / "task").iterdir()] == ["out"]


def test_emptying_a_folder_follows_no_links(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "file").write_text("")
    (folder / "link").symlink_to(source)
    empty(folder)
    assert folder.is_dir()
    assert not list(folder.iterdir())
    assert (source / "train.py").exists()
    empty(tmp_path / "new")
    assert (tmp_path / "new").is_dir()

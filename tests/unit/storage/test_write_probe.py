"""Whether a store can be written: tried, and left as it was."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from howdah.storage.stores.write_probe import try_to_write


def test_a_folder_that_is_there_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    try_to_write(str(tmp_path))
    try_to_write(f"file://{tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_store_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    try_to_write(str(tmp_path / "not" / "yet" / "there"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below", "loop", "loop/below"])
def test_what_is_no_folder_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="is not a folder"):
        try_to_write(str(tmp_path / place))


def test_where_no_folder_can_be_made_the_reason_names_the_nearest_there_is() -> None:
    with pytest.raises(OSError, match="no folder can be made in /proc: "):
        try_to_write("/proc/nowhere/at/all")


def test_nothing_is_left_in_a_store_behind_a_url() -> None:
    try_to_write("memory://trial/store")
    memory = fsspec.filesystem("memory")
    assert not memory.exists("/trial/store")
    memory.makedirs("/trial/there")
    try_to_write("memory://trial/there")
    assert memory.ls("/trial/there") == []


def test_a_url_that_nothing_here_understands_is_refused() -> None:
    with pytest.raises(ValueError, match="nosuch"):
        try_to_write("nosuch://bucket/run")

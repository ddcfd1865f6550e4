"""The private folder for sockets and locks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from howdah.storage import runtime


def test_it_is_made_private_and_found_again(tmp_path: Path) -> None:
    folder = runtime.private_folder(tmp_path)
    assert folder == tmp_path / f"howdah-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert runtime.private_folder(tmp_path) == folder


def test_one_that_others_may_only_look_into_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / f"howdah-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    assert runtime.private_folder(tmp_path) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("what", ["file", "link", "open", "dangling"])
def test_what_is_not_ours_is_stepped_around_by_all_processes_alike(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    usual = tmp_path / f"howdah-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    if what == "file":
        usual.write_text("")
    elif what == "open":
        usual.mkdir()
        usual.chmod(0o777)
    else:
        usual.symlink_to(tmp_path / ("elsewhere" if what == "link" else "nowhere"))
    folder = runtime.private_folder(tmp_path)
    assert folder.parent == tmp_path and folder not in (usual, tmp_path / "elsewhere")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert runtime.private_folder(tmp_path) == folder
    assert f"{folder} is used instead" in caplog.text and caplog.text.count("instead") == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_place_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        runtime.private_folder(tmp_path / "nowhere")

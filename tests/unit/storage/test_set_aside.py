"""What nothing has saved outlives its container."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from howdah.storage.folders import set_aside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work/deep").mkdir(parents=True)
    (tmp_path / "work/step-1").write_text("1")
    (tmp_path / "work/deep/step-2").write_text("2")
    (tmp_path / "work/latest").symlink_to("deep/step-2")
    return tmp_path / "work"


FILES = {name: name for name in ("step-1", "deep/step-2", "latest")}


def test_it_takes_no_room_and_may_be_done_again(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "job/unsaved"
    for _ in range(2):
        assert set_aside(folder, FILES, target) == target
    assert (target / "step-1").samefile(folder / "step-1")
    assert (target / "latest").readlink() == Path("deep/step-2")


def test_elsewhere_what_fits_is_copied_and_its_name_says_that_it_is_a_part(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Any, target: Any, **_: Any) -> None:
        number = errno.ENOSPC if Path(source).name == "step-1" else errno.EXDEV
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    full = os.sendfile

    def sendfile(out: int, into: int, *rest: Any) -> int:
        if Path(f"/proc/self/fd/{into}").readlink().name == "step-1":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return full(out, into, *rest)

    monkeypatch.setattr(os, "sendfile", sendfile)
    place = set_aside(folder, FILES, tmp_path / "unsaved")
    assert place is not None and place == tmp_path / "unsaved-partly"
    assert (place / "deep/step-2").read_text() == "2"
    assert not (place / "step-1").exists()


def test_nothing_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    assert set_aside(folder, {}, tmp_path / "unsaved") is None
    assert not (tmp_path / "unsaved").exists()

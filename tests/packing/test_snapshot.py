"""The copy of a source folder that programs of this machine run in."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.packing.archives import PackingError
from howdah.packing.snapshot import snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "pkg/deep").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "train.py").chmod(0o755)
    (folder / "pkg/model.py").write_text("")
    (folder / "pkg/deep/data.txt").write_text("deep")
    return folder


def test_a_copy_has_modes_and_times_and_is_no_link(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert snapshot(folder, copy) == ""
    old, new = (folder / "train.py").stat(), (copy / "train.py").stat()
    assert (new.st_mtime_ns, new.st_mode) == (old.st_mtime_ns, old.st_mode)
    (copy / "pkg/deep/data.txt").write_text("changed")
    assert (folder / "pkg/deep/data.txt").read_text() == "deep"


def test_what_goes_away_while_it_is_looked_at_is_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler's temporary file, say, or byte code that another Python writes."""
    scandir = os.scandir

    @contextlib.contextmanager
    def listed(place: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(place) as entries:
            found = list(entries)
        yield found
        if place == folder / "pkg":
            (folder / "pkg/model.py").unlink()
            shutil.rmtree(folder / "pkg/deep")

    monkeypatch.setattr(os, "scandir", listed)
    assert snapshot(folder, tmp_path / "copy") == ""
    assert [path.name for path in (tmp_path / "copy/pkg").iterdir()] == []
    assert (tmp_path / "copy/train.py").exists()


def test_a_source_folder_that_has_gone_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="source"):
        snapshot(tmp_path / "source", tmp_path / "copy")


def test_environments_and_version_control_are_linked_and_stores_left_out(
    folder: Path, tmp_path: Path
) -> None:
    for name in (".git", "node_modules", "env/lib", "conda/conda-meta", "jobs/me"):
        (folder / name).mkdir(parents=True)
    (folder / "env/pyvenv.cfg").write_text("")
    copy = tmp_path / "copy"
    assert snapshot(folder, copy, {folder / "jobs"}) == ""
    linked = {path.name for path in copy.iterdir() if path.is_symlink()}
    assert linked == {".git", "node_modules", "env", "conda"}
    assert (copy / "env").resolve() == folder / "env"
    assert not (copy / "jobs").exists()


def test_links_lead_where_they_led(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("shared")
    (folder / "pkg/out").symlink_to("../../outside")
    (folder / "pkg/in").symlink_to("../train.py")
    copy = tmp_path / "below/copy"
    snapshot(folder, copy)
    assert (copy / "pkg/out").read_text() == "shared"
    assert (copy / "pkg/in").resolve() == copy / "train.py"


def test_what_is_too_much_is_linked_and_named(folder: Path, tmp_path: Path) -> None:
    (folder / "data.bin").write_bytes(b"x" * 5000)
    note = snapshot(folder, tmp_path / "copy", most_bytes=1000)
    assert (tmp_path / "copy/data.bin").samefile(folder / "data.bin")
    assert not (tmp_path / "copy/train.py").samefile(folder / "train.py")
    assert "data.bin (5.0 kB) are not copied" in note
    note = snapshot(folder, tmp_path / "other", most_copies=3)
    assert not (tmp_path / "other/pkg/model.py").samefile(folder / "pkg/model.py")
    assert (tmp_path / "other/pkg/deep/data.txt").samefile(folder / "pkg/deep/data.txt")
    assert "pkg/deep/data.txt (4 bytes) are not copied" in note


def test_the_copy_of_a_large_folder_has_the_same_folders_and_files(
    folder: Path, tmp_path: Path
) -> None:
    """Whatever walks through it finds all: links to folders are passed over by most."""
    for number in range(20):
        (folder / f"data/{number}").mkdir(parents=True)
        (folder / f"data/{number}/row.txt").write_text("")
    snapshot(folder, tmp_path / "copy", most_copies=5, most_bytes=3)
    walked = [
        {Path(p).relative_to(top): (d, f) for p, d, f in os.walk(top)}
        for top in (folder, tmp_path / "copy")
    ]
    assert walked[0].keys() == walked[1].keys()
    assert all(sorted(walked[0][p][1]) == sorted(walked[1][p][1]) for p in walked[0])
    assert not any(path.is_symlink() for path in (tmp_path / "copy").rglob("*"))


def test_too_many_files_are_refused_with_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("howdah.packing.snapshot.MOST_FILES", 2)
    with pytest.raises(PackingError) as refused:
        snapshot(folder, tmp_path / "copy")
    assert all(way in str(refused.value) for way in ("ignore = [", "link = [", "--in-place"))
    snapshot(folder, tmp_path / "ignoring", ignore=["deep/", "*.nothing"])
    assert not (tmp_path / "ignoring/pkg/deep").exists()
    snapshot(folder, tmp_path / "linking", link=["pkg"])
    assert (tmp_path / "linking/pkg").readlink() == folder / "pkg"


def test_what_cannot_be_read_or_is_no_file_is_linked(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    snapshot(folder, tmp_path / "copy")
    assert (tmp_path / "copy/pipe").is_symlink()


def test_what_is_left_out_may_be_named_through_a_link_and_so_may_the_folder(
    folder: Path, tmp_path: Path
) -> None:
    """And jobs are never copied into jobs, whatever is said to be left out."""
    (tmp_path / "logical").symlink_to(folder)
    for name in ("jobs/me/secrets", ".howdah/jobs/me/secrets"):
        (folder / name).mkdir(parents=True)
    names = (folder, tmp_path / "logical")
    for number, (one, other) in enumerate(zip(names, reversed(names))):
        copy = tmp_path / f"copy-{number}"
        snapshot(one, copy, {other / "jobs"})
        assert {path.name for path in copy.iterdir()} == {"pkg", "train.py"}


def in_a_mount(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Files share blocks but for those of these names: they are on another file system."""

    def ioctl(new: int, request: int, old: int) -> int:
        if Path(f"/proc/self/fd/{old}").resolve().name in names:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        os.write(new, os.pread(old, 1 << 24, 0))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)


def test_what_cannot_share_blocks_is_copied_as_far_as_that_is_little(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is on a file system whose files share blocks, and another one is mounted in it."""
    (folder / "weights.bin").write_bytes(b"w" * (4 << 20))
    (folder / "data").mkdir()
    (folder / "data/little").write_bytes(b"a" * 1000)
    (folder / "data/large").write_bytes(b"b" * (2 << 20))
    in_a_mount(monkeypatch, "little", "large")
    copy = tmp_path / "copy"
    note = snapshot(folder, copy, most_bytes=1 << 20)
    for name in ("weights.bin", "data/little", "train.py"):
        assert not (copy / name).is_symlink()
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    assert (copy / "data/large").samefile(folder / "data/large")
    assert "data/large (2.1 MB) are not copied" in note and "weights" not in note

"""Deterministic archives."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from howdah.packing import tarball
from howdah.packing.archives import PackingError
from howdah.packing.tarball import TarEntry


def test_the_same_entries_make_the_same_bytes_whatever_their_order_and_times(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for file in (one, other):
        file.write_text("content")
    os.utime(other, (1, 1))
    first = [TarEntry("a", path=one), TarEntry("b", content=b"x"), TarEntry("c", link="a")]
    second = [TarEntry("c", link="a"), TarEntry("b", content=b"x"), TarEntry("a", path=other)]
    packed = [
        tarball.write(entries, tmp_path / f"{number}.tar.gz")
        for number, entries in enumerate((first, second))
    ]
    assert packed[0] == packed[1]
    assert (tmp_path / "0.tar.gz").read_bytes() == (tmp_path / "1.tar.gz").read_bytes()


def test_what_is_told_of_an_archive_is_true(tmp_path: Path) -> None:
    target = tmp_path / "x.tar.gz"
    packed = tarball.write([TarEntry("a", content=b"12345"), TarEntry("b", link="a")], target)
    data = target.read_bytes()
    assert packed.digest == hashlib.sha256(data).hexdigest() == tarball.sha256(target)
    assert (packed.size, packed.files, packed.unpacked_size) == (len(data), 2, 5)


def test_large_archives_are_one_stream_for_all_who_read_gzip(tmp_path: Path) -> None:
    content = os.urandom(9 << 20)
    target = tmp_path / "x.tar.gz"
    tarball.write([TarEntry("big", content=content)], target)
    assert gzip.decompress(target.read_bytes())[512 : 512 + len(content)] == content
    with tarfile.open(target) as tar:
        extracted = tar.extractfile("big")
        assert extracted is not None and extracted.read() == content


def test_modes_times_and_owners_say_nothing_of_the_machine(tmp_path: Path) -> None:
    target = tmp_path / "x.tar.gz"
    entries = [
        TarEntry("run.sh", content=b"", executable=True),
        TarEntry("data", content=b""),
        TarEntry("empty"),
        TarEntry("köln/" + "x" * 150, content=b"1"),
    ]
    tarball.write(entries, target)
    with tarfile.open(target) as tar:
        members = {member.name: member for member in tar}
    assert members["run.sh"].mode == 0o755 and members["data"].mode == 0o644
    assert members["empty"].isdir()
    assert "köln/" + "x" * 150 in members
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members.values()} == {
        (tarball.TIME, 0, 0, "")
    }


def test_a_file_that_goes_away_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match=r"gone went away while it was packed"):
        tarball.write([TarEntry("a", path=tmp_path / "gone")], tmp_path / "x")


def test_a_file_that_shrinks_before_its_turn_is_packed_as_it_is_then(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * (1 << 20))

    def shrink(what: str, done: int, total: int | None) -> None:
        os.truncate(file, 0)

    entries = [TarEntry("a", content=b""), TarEntry("b", path=file)]
    packed = tarball.write(entries, tmp_path / "x", "packing", shrink)
    assert packed.unpacked_size == 0


def test_progress_ends_with_all_bytes(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    tarball.write(
        [TarEntry("a", content=b"12"), TarEntry("b", content=b"345")],
        tmp_path / "x",
        "packing",
        lambda what, done, total: told.append((done, total)),
    )
    assert told == [(2, 5), (5, 5)]

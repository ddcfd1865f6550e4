"""The cache of archives on HDFS: programs that jobs run come from the user alone."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import pytest

from howdah.packing import tarball
from howdah.packing.archives import Archive, ArchiveKind, PackingError
from howdah.packing.store import FOLDER, ArchiveStore
from howdah.storage.hdfs.errors import NotFound
from howdah.storage.hdfs.files import HdfsStat


class FakeHdfs:
    """What a store on HDFS is asked for."""

    def __init__(self) -> None:
        self.there: dict[str, HdfsStat] = {}
        self.overwritten: list[bool] = []

    def add(self, path: str, *, owner: str = "ann", mode: int = 0o700, size: int = -1) -> None:
        self.there[path] = HdfsStat(
            path=path, size=size, mtime_ms=0, is_dir=size < 0, permission=mode, owner=owner
        )

    def stat(self, path: str) -> HdfsStat:
        if path not in self.there:
            raise NotFound(path)
        return self.there[path]

    def list(self, path: str) -> list[HdfsStat]:
        self.stat(path)
        return [each for name, each in self.there.items() if posixpath.dirname(name) == path]

    def mkdirs(self, path: str) -> None:
        self.add(path)

    def put(self, source: Path, path: str, progress: Any, *, overwrite: bool) -> HdfsStat:
        self.overwritten.append(overwrite)
        self.add(path, size=source.stat().st_size)
        return self.there[path]

    def write(self, path: str, content: bytes) -> None:
        self.add(path, size=len(content))

    def url(self, path: str) -> str:
        return f"hdfs://nn{path}"


@pytest.fixture
def hdfs() -> FakeHdfs:
    return FakeHdfs()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    path = tmp_path / "runtime.tar.gz"
    path.write_bytes(b"runtime")
    return Archive(
        kind=ArchiveKind.RUNTIME,
        digest=tarball.sha256(path),
        path=path,
        size=7,
        files=1,
        unpacked_size=7,
    )


BASE = "/jobs/ann"


def store(hdfs: Any) -> ArchiveStore:
    return ArchiveStore(lambda _url: hdfs, BASE, user="ann")


@pytest.mark.parametrize("where", [f"{BASE}/{FOLDER}", posixpath.dirname(f"{BASE}/{FOLDER}")])
@pytest.mark.parametrize("how", [{"owner": "bob"}, {"mode": 0o777}, {"mode": 0o770}])
def test_a_folder_of_archives_that_others_can_fill_is_refused(
    hdfs: FakeHdfs, archive: Archive, where: str, how: dict[str, Any]
) -> None:
    hdfs.add(posixpath.dirname(f"{BASE}/{FOLDER}"))
    if where.endswith(FOLDER):
        hdfs.add(where)
    hdfs.add(where, **how)
    with pytest.raises(PackingError, match=f"can't be trusted: {where} belongs to"):
        store(hdfs).ensure(archive)
    assert hdfs.overwritten == []


def test_an_archive_that_somebody_else_left_there_is_replaced(
    hdfs: FakeHdfs, archive: Archive
) -> None:
    hdfs.add(f"{BASE}/.howdah")
    hdfs.add(f"{BASE}/{FOLDER}")
    hdfs.add(f"{BASE}/{FOLDER}/{archive.name}", owner="bob", size=archive.size)
    assert store(hdfs).ensure(archive).uploaded_bytes == archive.size
    assert hdfs.overwritten == [True]


def test_the_users_own_is_found_again(hdfs: FakeHdfs, archive: Archive) -> None:
    assert store(hdfs).ensure(archive).uploaded_bytes == archive.size
    hdfs.add(f"{BASE}/.howdah")
    assert store(hdfs).ensure(archive).uploaded_bytes == 0

"""Archives on a real HDFS, brought to containers by a real YARN."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from howdah.packing import tarball
from howdah.packing.archives import Archive, ArchiveKind, PackingError
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.files import elsewhere
from howdah.packing.store import DAY_S, ArchiveStore, Uploaded
from howdah.packing.tarball import TarEntry
from howdah.storage.hdfs.errors import NoNameNode
from howdah.storage.hdfs.files import Hdfs, HdfsStat
from tests.hadoop.cluster import Cluster


class Place:
    """A folder of this test's own on the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.hdfs = Hdfs(cluster.default_fs, conf_dir=str(cluster.conf_dir))
        self.folder = f"/packing-{secrets.token_hex(6)}"
        self.url = f"{cluster.default_fs}{self.folder}"
        self.user = getpass.getuser()

    def store(self) -> ArchiveStore:
        """As a client that has just been started has it."""
        return ArchiveStore(lambda _url: self.hdfs, self.url, user=self.user)

    def names(self) -> set[str]:
        return {status.name for status in self.hdfs.list(f"{self.folder}/.howdah/cache")}


@pytest.fixture
def place(hadoop: Cluster) -> Iterator[Place]:
    made = Place(hadoop)
    yield made
    made.hdfs.remove(made.folder, recursive=True)


def archive(cache: Path, content: bytes = b"x", kind: ArchiveKind = ArchiveKind.SOURCE) -> Archive:
    def make(scratch: Path) -> Archive:
        entries = (TarEntry("file", content=content),)
        return tar_of(kind, Content(entries=entries), scratch, lambda *_: None)

    return Cache(cache).get(kind, content.hex(), make)


def test_an_archive_is_uploaded_once_and_never_touched_again(place: Place, tmp_path: Path) -> None:
    packed = archive(tmp_path, os.urandom(10 << 20))
    told: list[tuple[str, int, int | None]] = []
    first = place.store().ensure(packed, lambda what, done, total: told.append((what, done, total)))
    assert told[0] == ("uploading source, 10.5 MB", 0, packed.size)
    assert told[-1][1:] == (packed.size, packed.size)
    assert len(told) > 2
    assert first.uploaded_bytes == first.size == packed.size
    again = place.store().ensure(packed)
    assert again == Uploaded(
        url=first.url, size=first.size, mtime_ms=first.mtime_ms, uploaded_bytes=0
    )
    assert first.url == f"{place.url}/.howdah/cache/source-{packed.digest[:32]}.tar.gz"
    status = place.hdfs.stat(first.url)
    assert (status.size, status.mtime_ms) == (first.size, first.mtime_ms)
    assert packed.path is not None and place.hdfs.read(first.url) == packed.path.read_bytes()
    assert status.permission == 0o600, "only its owner can look into it"
    for folder in (".howdah/cache", ".howdah"):
        assert place.hdfs.stat(f"{place.folder}/{folder}").permission == 0o700


def test_one_of_another_size_is_replaced(place: Place, tmp_path: Path) -> None:
    packed = archive(tmp_path)
    place.hdfs.write(f"{place.folder}/.howdah/cache/{packed.name}", b"damaged")
    assert place.store().ensure(packed).uploaded_bytes == packed.size


def test_a_half_upload_is_no_archive(place: Place, tmp_path: Path) -> None:
    packed = archive(tmp_path, os.urandom(10 << 20))

    def interrupt(what: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.store().ensure(packed, interrupt)
    assert place.store().find(packed) is None
    assert place.names() == set()


def test_clients_that_upload_the_same_at_once_get_the_same_file(
    place: Place, tmp_path: Path
) -> None:
    packed = archive(tmp_path, os.urandom(10 << 20))
    other = place.store()
    uploaded: list[Uploaded] = []

    def meanwhile(what: str, done: int, total: int | None) -> None:
        if done and not uploaded:
            uploaded.append(other.ensure(packed))

    mine = place.store().ensure(packed, meanwhile)
    (theirs,) = uploaded
    assert theirs.uploaded_bytes == packed.size and mine.uploaded_bytes == 0
    assert (mine.url, mine.mtime_ms) == (theirs.url, theirs.mtime_ms)
    assert place.store().ensure(packed).mtime_ms == theirs.mtime_ms


def test_a_damaged_local_archive_is_not_uploaded_and_made_anew(
    place: Place, tmp_path: Path
) -> None:
    packed = archive(tmp_path)
    assert packed.path is not None
    packed.path.write_bytes(b"damaged")
    with pytest.raises(PackingError, match="is damaged: it is not what was packed"):
        place.store().ensure(packed)
    again = archive(tmp_path)
    assert place.store().ensure(again).uploaded_bytes == again.size


def test_a_file_of_the_user_s_that_changed_is_refused_and_left_alone(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "mine.zip"
    file.write_bytes(b"before")
    packed = Archive(
        kind=ArchiveKind.FILES,
        digest=tarball.sha256(file),
        path=file,
        size=6,
        files=1,
        unpacked_size=6,
    )
    file.write_bytes(b"after!")
    with pytest.raises(PackingError, match="has changed since it was looked at"):
        place.store().ensure(packed)
    assert file.read_bytes() == b"after!"


def test_a_name_node_that_is_down_is_waited_for_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    asked: list[str] = []

    class Counted(Hdfs):
        def list(self, place: str, *, recursive: bool = False) -> list[HdfsStat]:
            asked.append(place)
            return super().list(place, recursive=recursive)

    counted = Counted(f"hdfs://127.0.0.1:{port}")
    store = ArchiveStore(lambda _url: counted, "/user/ann", user="ann")
    with ThreadPoolExecutor(4) as pool:
        packed = [archive(tmp_path, bytes([number])) for number in range(4)]
        uploading = [pool.submit(store.ensure, each) for each in packed]
    assert [type(each.exception()) for each in uploading] == [NoNameNode] * 4
    assert asked == ["/user/ann/.howdah/cache"]


def test_what_lies_on_hdfs_is_used_where_it_is(place: Place, hadoop: Cluster) -> None:
    place.hdfs.write(f"{place.folder}/ready.zip", b"12345")
    url = f"{place.url}/ready.zip"
    uploaded = place.store().ensure(elsewhere(url, ArchiveKind.FILES))
    mtime_ms = place.hdfs.stat(url).mtime_ms
    assert uploaded == Uploaded(url=url, size=5, mtime_ms=mtime_ms, uploaded_bytes=0)
    assert place.hdfs.list(place.folder)[0].name == "ready.zip"
    with pytest.raises(FileNotFoundError):
        place.store().ensure(elsewhere(f"{place.url}/none.zip", ArchiveKind.FILES))
    with pytest.raises(PackingError, match="is a folder"):
        place.store().ensure(elsewhere(place.url, ArchiveKind.FILES))


def test_what_has_not_been_used_for_long_is_cleaned_away(place: Place, tmp_path: Path) -> None:
    old, used, new = (archive(tmp_path, name) for name in (b"old", b"used", b"new"))
    for packed in (old, used, new):
        place.store().ensure(packed)
    folder = f"{place.folder}/.howdah/cache"
    long_ago_ms = int(place.hdfs.stat(f"{folder}/{new.name}").mtime_ms - 100 * DAY_S * 1000)
    client = place.hdfs._client()
    for name in (old.name, f"{old.name}.used", used.name):
        client.set_times(f"{folder}/{name}", long_ago_ms, long_ago_ms)
    client.create(f"{folder}/.left.1234.tmp").close()
    client.set_times(f"{folder}/.left.1234.tmp", long_ago_ms, long_ago_ms)
    gone = place.store().prune()
    assert {status.name for status in gone} == {old.name, ".left.1234.tmp"}
    assert place.names() == {used.name, f"{used.name}.used", new.name, f"{new.name}.used"}

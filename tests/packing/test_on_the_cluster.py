"""Archives on a real HDFS, brought to containers by a real YARN."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from howdah.packing import tarball
from howdah.packing.archives import Archive, ArchiveKind, PackingError
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.files import elsewhere
from howdah.packing.python.runtime import base
from howdah.packing.source import source
from howdah.packing.store import DAY_S, ArchiveStore, Uploaded
from howdah.packing.tarball import TarEntry
from howdah.storage.hdfs.errors import NoNameNode
from howdah.storage.hdfs.files import Hdfs, HdfsStat
from tests.hadoop import applications
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
    packed = archive(tmp_path)
    first = place.store().ensure(packed)
    assert first.uploaded_bytes == first.size == packed.size
    again = place.store().ensure(packed)
    assert again == Uploaded(
        url=first.url, size=first.size, mtime_ms=first.mtime_ms, uploaded_bytes=0
    )
    assert first.url == f"{place.url}/.howdah/cache/source-{packed.digest[:32]}.tar.gz"
    status = place.hdfs.stat(first.url)
    assert (status.size, status.mtime_ms) == (first.size, first.mtime_ms)
    assert packed.path is not None and place.hdfs.read(first.url) == packed.path.read_bytes()


def test_only_its_owner_can_look_into_it(place: Place, tmp_path: Path) -> None:
    uploaded = place.store().ensure(archive(tmp_path))
    assert place.hdfs.stat(uploaded.url).permission == 0o600
    assert place.hdfs.stat(f"{place.folder}/.howdah/cache").permission == 0o700
    assert place.hdfs.stat(f"{place.folder}/.howdah").permission == 0o700


def test_progress_tells_bytes(place: Place, tmp_path: Path) -> None:
    packed = archive(tmp_path, os.urandom(10 << 20))
    told: list[tuple[str, int, int | None]] = []
    place.store().ensure(packed, lambda what, done, total: told.append((what, done, total)))
    assert told[0] == ("uploading source, 10.5 MB", 0, packed.size)
    assert told[-1][1:] == (packed.size, packed.size)
    assert len(told) > 2


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


def test_one_of_another_size_is_replaced(place: Place, tmp_path: Path) -> None:
    packed = archive(tmp_path)
    place.hdfs.write(f"{place.folder}/.howdah/cache/{packed.name}", b"damaged")
    assert place.store().ensure(packed).uploaded_bytes == packed.size


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


PROBE = """
import json, os, sys
import msgspec, hdfs_native, google.protobuf, ssl
here = os.path.dirname(os.path.abspath(__file__))
found = {
    "executable": os.path.realpath(sys.executable),
    "runtime": os.path.realpath("runtime"),
    "executable bit": os.access(os.path.join(here, "run.sh"), os.X_OK),
    "link": os.readlink(os.path.join(here, "link")),
    "read by link": open(os.path.join(here, "link")).read(),
    "names": sorted(os.listdir(here)),
}
with open(sys.argv[1] + ".tmp", "w") as file:
    json.dump(found, file)
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
"""


def submit(cluster: Cluster, command: str, resources: dict[str, Uploaded]) -> str:
    """An application whose only container has these archives, on the one node with GPUs."""
    application = cluster.rm("apps/new-application", "POST", {})["application-id"]
    brought = [
        {
            "key": name,
            "value": {
                "resource": uploaded.url,
                "type": "ARCHIVE",
                "visibility": "PRIVATE",
                "size": uploaded.size,
                "timestamp": uploaded.mtime_ms,
            },
        }
        for name, uploaded in resources.items()
    ]
    document = {
        "application-id": application,
        "application-name": "packing",
        "queue": "gpu",
        "max-app-attempts": 1,
        "am-container-node-label-expression": "gpu",
        "am-container-spec": {
            "local-resources": {"entry": brought},
            "commands": {"command": f"{command} 1>><LOG_DIR>/stdout 2>><LOG_DIR>/stderr"},
        },
        "resource": {"memory": 256, "vCores": 1},
    }
    cluster.rm("apps", "POST", document)
    return application


def results(
    cluster: Cluster, folder: Path, names: Sequence[str], place: Place, tmp: Path
) -> list[dict[str, Any]]:
    """What containers report that were started one after the other, each as a submission of its
    own."""
    found = []
    for name in names:
        store = place.store()
        ensured = {
            "runtime": store.ensure(base(tmp / "cache")),
            "source": store.ensure(source(folder, tmp / "cache")),
        }
        command = f"runtime/bin/python3 -s source/probe.py {tmp / name}"
        application = submit(cluster, command, ensured)
        told = applications.wait_final(cluster, application)
        # It never registers itself, so its end is a failure; what it wrote says how it went.
        assert (tmp / name).exists(), told["diagnostics"]
        uploaded = sum(each.uploaded_bytes for each in ensured.values())
        found.append({**json.loads((tmp / name).read_text()), "uploaded": uploaded})
    return found


def test_nodes_unpack_the_runtime_once_and_run_it(
    hadoop: Cluster, place: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "probe.py").write_text(PROBE)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("größe 数据.txt")
    (folder / "größe 数据.txt").write_text("hello")
    first, second = results(hadoop, folder, ("first", "second"), place, tmp_path)
    assert first["executable"].startswith(first["runtime"])
    assert str(hadoop.folder) in first["runtime"], "below a node's local folders"
    assert first["executable bit"] and first["link"] == "größe 数据.txt"
    assert first["read by link"] == "hello"
    assert set(first["names"]) == {"größe 数据.txt", "link", "probe.py", "run.sh"}
    assert first["uploaded"] > 1e6
    assert second["uploaded"] == 0
    assert second["runtime"] == first["runtime"], "unpacked once on a node"

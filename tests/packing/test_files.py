"""What a job puts beside its source."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from howdah.packing import in_place
from howdah.packing.archives import PackingError
from howdah.packing.cache import Cache
from howdah.packing.files import Extra, FilesLine, files, understand
from howdah.packing.tarball import sha256
from howdah.spec.model import Job
from tests.packing.unpacking import names, unpack
from tests.unit.web import upstream


def pack(folder: Path, *lines: str) -> list[Extra]:
    return files(lines, folder, folder / "cache")


def refused(folder: Path, *lines: str) -> str:
    with pytest.raises(PackingError) as error:
        pack(folder, *lines)
    return str(error.value)


def test_places_may_have_other_names_beside_the_source() -> None:
    assert understand(
        ["data/a.csv", "b.csv -> c.csv", "m.zip -> model/", "s3://b/x.tgz -> x/"]
    ) == [
        FilesLine("data/a.csv", "a.csv", False),
        FilesLine("b.csv", "c.csv", False),
        FilesLine("m.zip", "model", True),
        FilesLine("s3://b/x.tgz", "x", True),
    ]


def test_lines_that_mean_nothing_are_told(tmp_path: Path) -> None:
    for line, problem in (
        ("a ->", "lacks a place or a name"),
        ("-> b", "lacks a place or a name"),
        ("a -> b/c", "'b/c' in 'a -> b/c' is not one name"),
        ("a -> ..", "is not one name"),
        ("s3://b/x.txt -> x/", "cannot be unpacked"),
        ("gone.txt", "there is no file or folder"),
    ):
        assert problem in refused(tmp_path, line)
    assert "a/x and b/x are both to be called 'x'" in refused(tmp_path, "a/x", "b/x")


def test_a_file_is_shipped_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("hello")
    (extra,) = pack(tmp_path, "words.txt -> dictionary")
    assert (extra.name, extra.unpack) == ("dictionary", False)
    assert extra.archive.path == tmp_path / "words.txt"
    assert extra.archive.digest == sha256(tmp_path / "words.txt")
    (tmp_path / "words.txt").write_text("other")
    assert pack(tmp_path, "words.txt")[0].archive.digest != extra.archive.digest


def test_an_archive_is_unpacked_where_its_name_says_so(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar.gz", "w:gz"):
        pass
    as_folder, as_file = pack(tmp_path, "m.tar.gz -> model/", "m.tar.gz")
    assert as_folder.unpack and not as_file.unpack
    assert as_folder.archive.suffix == ".tar.gz"
    (tmp_path / "m.txt").touch()
    assert "it is one of .tar.gz, .tgz, .tar, .zip, .jar that can" in refused(
        tmp_path, "m.txt -> model/"
    )


def test_a_folder_is_shipped_whole_but_for_byte_code(tmp_path: Path) -> None:
    for name in ("data/a", "data/deep/b.log", "data/.gitignore", "data/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("*")
    (extra,) = pack(tmp_path, "data -> set")
    assert (extra.name, extra.unpack) == ("set", True)
    assert names(unpack(extra.archive, tmp_path / "out")) == {"a", "deep/b.log", ".gitignore"}


def test_what_is_on_hdfs_stays_there(tmp_path: Path) -> None:
    (extra,) = pack(tmp_path, "hdfs://nn:8020/data/words.zip -> words/")
    assert extra.archive.url == "hdfs://nn:8020/data/words.zip" and extra.unpack


def test_other_urls_are_fetched_once(tmp_path: Path) -> None:
    """The memory of a process is a store as good as another, for one process."""
    import fsspec

    fsspec.filesystem("memory").pipe_file("/models/m.zip", b"first")
    (first,) = pack(tmp_path, "memory://models/m.zip")
    assert first.archive.path is not None and first.archive.path.read_bytes() == b"first"
    assert first.archive.suffix == ".zip" and first.archive.cached
    assert pack(tmp_path, "memory://models/m.zip") == [first]
    assert "there is nothing at memory://models/none" in refused(tmp_path, "memory://models/none")
    assert "cannot be fetched" in refused(tmp_path, "nonsense://x/y")


def test_what_a_job_of_this_machine_reads_in_the_cache_stays_whatever_else_is_packed(
    tmp_path: Path,
) -> None:
    """Its programs may be started again."""
    import fsspec

    cache = tmp_path / "cache"
    job = Job(files=("memory://data/words.txt", "memory://data/more.zip -> more"))
    for name in ("words.txt", "more.zip"):
        fsspec.filesystem("memory").pipe_file(f"/data/{name}", name.encode())
    placed = in_place.files(job, tmp_path, cache)[""]
    for path in (*cache.glob("archives/*"), *cache.glob("index/*")):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    Cache(cache).sweep(limit=0)
    assert {name: Path(path).read_text() for name, path in placed.items()} == {
        "words.txt": "words.txt",
        "more": "more.zip",
    }


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", None])
def test_what_a_web_server_has_replaced_is_fetched_again(
    header: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("aiohttp")
    there: dict[str, Any] = {"content": b"old words", "version": "1"}
    fetched: list[bytes] = []

    def answer(request: upstream.Program) -> None:
        if request.command == "GET":
            fetched.append(there["content"])
        request.answer(200, there["content"], {header: there["version"]} if header else {})

    def content() -> bytes:
        (extra,) = pack(tmp_path, url)
        assert extra.archive.path is not None
        (path,) = in_place.files(Job(files=(url,)), tmp_path, tmp_path / "cache")[""].values()
        assert Path(path) == extra.archive.path
        return extra.archive.path.read_bytes()

    with upstream.program(**{"words.txt": answer}) as port:
        url = f"http://127.0.0.1:{port}/words.txt"
        assert content() == content() == b"old words"
        if header is not None:
            assert fetched == [b"old words"]
        there.update(content=b"new words", version="2")
        assert content() == b"new words"


def test_why_a_web_server_gives_nothing_is_told(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    answers: dict[str, upstream.Handler] = {
        "words.txt": lambda request: request.answer(403, b""),
        "gone.txt": lambda request: request.answer(404, b""),
    }
    with upstream.program(**answers) as port:
        assert "cannot be fetched: 403" in refused(tmp_path, f"http://127.0.0.1:{port}/words.txt")
        gone = f"http://127.0.0.1:{port}/gone.txt"
        assert f"there is nothing at {gone}" in refused(tmp_path, gone)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/words.txt"
        assert "cannot be fetched: Cannot connect" in refused(tmp_path, url)


def test_fsspec_is_not_imported_for_local_files(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    program = (
        "import sys; from pathlib import Path\n"
        "from howdah.packing.files import files\n"
        f"here = Path({str(tmp_path)!r})\n"
        "files(('a',), here, here / 'cache')\n"
        "assert 'fsspec' not in sys.modules and 'hdfs_native' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

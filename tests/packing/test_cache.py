"""The local cache: what is found again, what is made anew, what goes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from howdah.packing.archives import Archive, ArchiveKind, PackingError, cache_folder
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.tarball import TarEntry, sha256


def get(
    cache: Cache, inputs: object, content: bytes = b"x", made: list[int] | None = None
) -> Archive:
    def make(scratch: Path) -> Archive:
        if made is not None:
            made.append(1)
        entries = (TarEntry("file", content=content),)
        return tar_of(ArchiveKind.SOURCE, Content(entries=entries), scratch, lambda *_: None)

    return cache.get(ArchiveKind.SOURCE, inputs, make)


def aged(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


def test_the_same_inputs_are_made_once(tmp_path: Path) -> None:
    made: list[int] = []
    first = get(Cache(tmp_path), ["a", 1], made=made)
    assert get(Cache(tmp_path), ["a", 1], made=made) == first
    assert len(made) == 1
    assert first.path is not None and sha256(first.path) == first.digest
    assert list((tmp_path / "scratch").iterdir()) == []


def test_what_an_earlier_version_has_put_there_is_found(tmp_path: Path) -> None:
    """Environments take minutes to build. The names are as they were always made."""
    get(Cache(tmp_path), ["a", 1])
    assert [path.name for path in (tmp_path / "index").iterdir()] == [
        "source-463ce96fb2389b1235266423aaa1decd05145622.json"
    ]
    folder = Cache(tmp_path).folder_of(["a", 1], Path.mkdir)
    assert folder.name == "38fb3fe759a09b58c61cf600d09acdb92230f1c0"


def test_threads_may_be_the_first_to_look_at_once(tmp_path: Path) -> None:
    """As a submission's do, for its environment and its source. msgspec ended the process."""
    get(Cache(tmp_path), "inputs")
    program = (
        "import pathlib, sys, threading\n"
        "from howdah.packing.archives import ArchiveKind\n"
        "from howdah.packing.cache import Cache\n"
        "cache, barrier = Cache(pathlib.Path(sys.argv[1])), threading.Barrier(4)\n"
        "def look():\n"
        "    barrier.wait()\n"
        "    assert cache.get(ArchiveKind.SOURCE, 'inputs', exit).cached\n"
        "threads = [threading.Thread(target=look) for _ in range(4)]\n"
        "sys.setswitchinterval(1e-6)\n"
        "[thread.start() for thread in threads], [thread.join() for thread in threads]\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], timeout=50)
    assert done.returncode == 0


def test_what_is_damaged_is_made_anew(tmp_path: Path) -> None:
    first = get(Cache(tmp_path), 1)
    path = first.path
    assert path is not None

    def change() -> None:
        status = path.stat()
        data = bytearray(path.read_bytes())
        data[20] ^= 0xFF
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    for damage in (change, path.unlink, lambda: os.truncate(path, 10)):
        damage()
        assert get(Cache(tmp_path), 1) == first
        assert sha256(path) == first.digest
    (entry,) = (tmp_path / "index").iterdir()
    for text in ("", "{", '{"archive": 1}', '["x"]'):
        entry.write_text(text)
        assert get(Cache(tmp_path), 1) == first


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(scratch: Path) -> Archive:
        (scratch / "half").touch()
        raise PackingError("no")

    with pytest.raises(PackingError):
        Cache(tmp_path).get(ArchiveKind.SOURCE, 1, fail)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert list((tmp_path / "index").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told_with_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PackingError, match="XDG_CACHE_HOME names another place"):
        get(Cache(tmp_path / "file" / "cache"), 1)


def test_what_was_not_used_for_longest_goes_when_there_is_too_much(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    archives = []
    for number in range(4):
        archives.append(get(cache, number, os.urandom(10_000)))
        path = archives[-1].path
        assert path is not None
        aged(path, 4 - number)
        for entry in (tmp_path / "index").iterdir():
            if entry.stat().st_mtime > time.time() - 60:
                aged(entry, 4 - number)
    # Its archive is as old as the first, but it was used a moment ago.
    made: list[int] = []
    record = next(e for e in (tmp_path / "index").iterdir() if archives[0].digest in e.read_text())
    record.touch()
    gone = cache.sweep(limit=25_000)
    assert {path for path, _ in gone} == {archives[1].path, archives[2].path}
    assert archives[0].path and archives[0].path.exists()
    assert archives[3].path and archives[3].path.exists()
    assert made == []


def test_what_dead_processes_left_goes_after_a_day(tmp_path: Path) -> None:
    left, young = tmp_path / "scratch" / "left", tmp_path / "scratch" / "young"
    left.mkdir(parents=True)
    young.mkdir()
    aged(left, 2)
    Cache(tmp_path).sweep()
    assert not left.exists() and young.exists()


def test_files_of_others_are_never_removed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.tar.gz"
    mine.write_bytes(b"x")
    cache = Cache(tmp_path / "cache")

    def make(_scratch: Path) -> Archive:
        return Archive(
            kind=ArchiveKind.FILES, digest=sha256(mine), path=mine, size=1, files=1, unpacked_size=1
        )

    for _ in range(2):
        assert not cache.get(ArchiveKind.FILES, 1, make).cached
    for entry in (tmp_path / "cache" / "index").iterdir():
        aged(entry, 1000)
    cache.sweep(limit=0)
    assert mine.read_bytes() == b"x"


def test_processes_that_pack_the_same_at_once_make_it_once(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from howdah.packing.archives import ArchiveKind
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.tarball import TarEntry
sys.stdin.read(1)
def make(scratch):
    open({str(tmp_path / "made")!r}, "a").write("x")
    entries = (TarEntry("file", content=bytes(5_000_000)),)
    return tar_of(ArchiveKind.SOURCE, Content(entries=entries), scratch, lambda *_: None)
print(Cache(Path({str(tmp_path / "cache")!r})).get(ArchiveKind.SOURCE, 1, make).digest)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    digests = {process.communicate(timeout=50)[0] for process in processes}
    assert len(digests) == 1 and all(process.returncode == 0 for process in processes)
    assert (tmp_path / "made").read_text() == "x"


def test_the_cache_is_where_the_desktop_standard_has_it() -> None:
    assert cache_folder({"HOME": "/home/me"}) == Path("/home/me/.cache/howdah")
    assert cache_folder({"HOME": "/home/me", "XDG_CACHE_HOME": "/big"}) == Path("/big/howdah")
    assert cache_folder({"HOME": "/h", "XDG_CACHE_HOME": "relative"}) == Path("/h/.cache/howdah")


def test_a_folder_that_another_process_removes_meanwhile_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)
    old = cache.folder_of("old", Path.mkdir)
    os.utime(old, (0, 0))
    monkeypatch.setattr(Path, "rglob", lambda folder, pattern: iter([folder / "gone"]))
    new = cache.folder_of("new", Path.mkdir)
    assert (old.exists(), new.exists()) == (False, True)

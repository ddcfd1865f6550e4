"""Interpreters of other makes, where this machine has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from howdah.packing.archives import Archive, ArchiveKind, PackingError
from howdah.packing.cache import Content, tar_of
from howdah.packing.python.interpreter import base_executable, interpreter
from tests.packing.unpacking import run, unpack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="for Linux nodes")

SYSTEM = Path("/usr/bin/python3").resolve()


@pytest.mark.skipif(
    not SYSTEM.exists() or base_executable() == SYSTEM, reason="there is no other Python here"
)
def test_the_system_s_interpreter_runs_where_it_is_unpacked(tmp_path: Path) -> None:
    """Of Debian, for one: it has its libraries linked in, but for OpenSSL and the like, and no run
    path at all."""
    packed = interpreter(SYSTEM, tmp_path / "elf")
    (tmp_path / "scratch").mkdir()
    archive: Archive = tar_of(
        ArchiveKind.RUNTIME, Content(entries=packed.entries), tmp_path / "scratch", lambda *_: None
    )
    place = unpack(archive, tmp_path / "place")
    program = """
import sys, ssl, sqlite3, ctypes, lzma, bz2, zlib, json
print(sys.prefix)
for line in open("/proc/self/maps"):
    path = line.split(None, 5)[5].strip() if len(line.split(None, 5)) == 6 else ""
    if ".so" in path: print(path)
"""
    prefix, *libraries = run(place / packed.python, "-s", "-c", program).splitlines()
    assert Path(prefix) == place
    ours = {Path(path).name for path in libraries if path.startswith(str(place))}
    assert any(name.startswith("libcrypto.so") for name in ours)


def test_what_is_no_python_is_told(tmp_path: Path) -> None:
    false = tmp_path / "python3"
    false.write_text("#!/bin/sh\necho hello\n")
    false.chmod(0o755)
    with pytest.raises(PackingError, match="does not answer as a CPython does"):
        interpreter(false, tmp_path / "elf")


def test_an_interpreter_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match=r"python3 cannot be run: No such file"):
        interpreter(tmp_path / "python3", tmp_path / "elf")


def test_macos_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PackingError, match="an interpreter of darwin does not run on a cluster"):
        interpreter(Path(sys.executable), tmp_path / "elf")

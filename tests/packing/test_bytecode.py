"""Byte code in archives."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from pathlib import Path

import pytest

from howdah.packing.archives import PackingError
from howdah.packing.python.bytecode import with_byte_code
from howdah.packing.tarball import TarEntry

PYTHON = Path(sys.executable)


def compiled(source: Path, scratch: Path, *, reuse: bool = False) -> bytes:
    entries = with_byte_code([TarEntry("a/m.py", path=source)], PYTHON, scratch, reuse=reuse)
    (made,) = (entry for entry in entries if entry.name.endswith(".pyc"))
    assert made.name == f"a/__pycache__/m.{sys.implementation.cache_tag}.pyc"
    assert made.path is not None
    return made.path.read_bytes()


def test_it_does_not_look_at_the_time_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.write_text("x = {'a', 'b', 'c'}\n")
    data = compiled(source, tmp_path / "1")
    assert data[:4] == importlib.util.MAGIC_NUMBER and data[4:8] == b"\x01\0\0\0"
    os.utime(source, (1, 1))
    assert compiled(source, tmp_path / "2") == data


def test_what_is_compiled_already_is_taken_if_it_is_of_that_source(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.write_text("x = 1\n")
    there = Path(py_compile.compile(str(source), doraise=True))
    code = there.read_bytes()[16:]
    assert compiled(source, tmp_path / "1", reuse=True)[16:] == code
    marked = there.read_bytes()[:16] + b"marked"
    there.write_bytes(marked)
    assert compiled(source, tmp_path / "2", reuse=True)[16:] == b"marked"
    assert compiled(source, tmp_path / "3")[16:] != b"marked"
    source.write_text("x = 22\n")
    assert compiled(source, tmp_path / "4", reuse=True)[16:] != b"marked"


def test_what_is_no_python_is_shipped_without(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    for text in (b"{% if template %}", b"\xff\xfe", b"x = '\0'", b"print 'old'"):
        source.write_bytes(text)
        entries = [TarEntry("m.py", path=source)]
        made = with_byte_code(entries, PYTHON, tmp_path / text.hex())
        assert [entry.name for entry in made] == ["m.py"]


def test_an_interpreter_that_does_not_start_is_told(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.touch()
    false = tmp_path / "python"
    false.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    false.chmod(0o755)
    with pytest.raises(PackingError, match="cannot compile what is packed: broken"):
        with_byte_code([TarEntry("m.py", path=source)], false, tmp_path / "scratch")

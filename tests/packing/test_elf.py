"""Run paths and symbols of real programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from howdah.packing.python import elf
from howdah.packing.python.interpreter import base_executable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF is Linux's format")

PROGRAMS = [
    path
    for path in (base_executable(), Path("/usr/bin/python3"), Path("/bin/bash"))
    if path.exists()
]


def starts(data: bytes, folder: Path) -> bool:
    folder.mkdir(exist_ok=True)
    program = folder / "program"
    program.write_bytes(data)
    program.chmod(0o755)
    done = subprocess.run([program, "--version"], env={}, capture_output=True, text=True)
    return done.returncode == 0


def library_folder() -> str:
    return str(base_executable().parent.parent / "lib")


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
@pytest.mark.parametrize("strip", [False, True])
def test_a_run_path_of_any_length_can_be_given_to_a_program(
    program: Path, strip: bool, tmp_path: Path
) -> None:
    data = program.read_bytes()
    if strip:
        data = elf.without_symbols(data)
    wanted = f"$ORIGIN/{'long/' * 60}:{library_folder()}"
    changed = elf.with_run_path(data, wanted)
    assert elf.run_path(changed) == wanted
    assert starts(changed, tmp_path / "bin")


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_run_path_can_be_changed_again(program: Path, tmp_path: Path) -> None:
    wanted = library_folder()
    changed = elf.with_run_path(program.read_bytes(), f"/very/long/{'x' * 100}")
    again = elf.with_run_path(changed, wanted)
    assert elf.run_path(again) == wanted
    assert len(again) == len(changed), "there was room for it"
    assert starts(again, tmp_path / "bin")


def test_what_is_no_program_is_left_alone() -> None:
    assert elf.without_symbols(b"text") == b"text"
    assert elf.run_path(b"text") is None and elf.soname(b"text") is None
    assert elf.glibc(b"text") == 0
    with pytest.raises(elf.NotChangeable):
        elf.with_run_path(b"text", "/lib")


def test_the_newest_glibc_that_is_asked_for_is_found() -> None:
    assert elf.glibc(b"..GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE\0") == 34

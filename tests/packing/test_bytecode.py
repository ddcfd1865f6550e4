"""Byte code in archives."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from howdah.packing.archives import PackingError
from howdah.packing.python.bytecode import with_byte_code
from howdah.packing.tarball import TarEntry

PYTHON = Path(sys.executable)


def compiled(source: Path, scratch: Path) -> bytes:
    entries = with_byte_code([TarEntry("a/m.py", path=source)], PYTHON, scratch)
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


@pytest.mark.parametrize("mode", [each.name for each in py_compile.PycInvalidationMode])
def test_what_is_compiled_already_is_taken_if_it_is_of_that_source(
    tmp_path: Path, mode: str
) -> None:
    source = tmp_path / "m.py"
    source.write_text("x = 1\n")
    there = Path(
        py_compile.compile(
            str(source), doraise=True, invalidation_mode=py_compile.PycInvalidationMode[mode]
        )
    )
    without = compiled(source, tmp_path / "1")
    head = there.read_bytes()[:16]
    there.write_bytes(head + marshal.dumps(compile("marked = 1", "elsewhere.py", "exec")))
    taken = compiled(source, tmp_path / "2")
    assert taken != without
    code = marshal.loads(taken[16:])
    assert code.co_names == ("marked",)
    assert code.co_filename == "a/m.py", "no path of this machine, whoever compiled it"
    for useless in (head + b"cut", head + marshal.dumps(3), head[:10], b""):
        there.write_bytes(useless)
        assert compiled(source, tmp_path / f"3-{len(useless)}") == without
    there.write_bytes(head + marshal.dumps(compile("marked = 1", "elsewhere.py", "exec")))
    source.write_text("x = 22\n")
    assert marshal.loads(compiled(source, tmp_path / "4")[16:]).co_names == ("x",)


def test_it_is_the_same_whether_it_was_there_or_not(tmp_path: Path) -> None:
    """On another machine other files are compiled already, and the archive's name goes by its bytes."""
    # From 3.12 on a constant is written differently where its compiler's process had such a name: argparse has one.
    standard = Path(json.__file__).parent.parent
    copied: list[TarEntry] = []
    for path in sorted([*standard.glob("[b-h]*.py"), *(standard / "json").glob("*.py")]):
        name = str(path.relative_to(standard)).replace("/", "-")
        copied.append(TarEntry(f"lib/{name}", path=Path(shutil.copy2(path, tmp_path / name))))
    count = len(copied)
    assert count > 40

    def made(scratch: str) -> list[bytes]:
        entries = with_byte_code(copied, PYTHON, tmp_path / scratch)[count:]
        return [each.path.read_bytes() for each in entries if each.path is not None]

    none_there = made("1")
    assert len(none_there) > 0.9 * count
    for entry in copied[::2]:
        assert entry.path is not None
        py_compile.compile(str(entry.path), quiet=2)
    assert made("2") == none_there
    subprocess.run([PYTHON, "-m", "compileall", "-q", "-f", str(tmp_path)], capture_output=True)
    assert made("3") == none_there


def test_it_can_take_the_place_of_its_source(tmp_path: Path) -> None:
    good, bad = tmp_path / "m.py", tmp_path / "template.py"
    good.write_text("x = 1\n")
    bad.write_text("{% if %}")
    entries = [TarEntry("a/m.py", path=good), TarEntry("a/template.py", path=bad)]
    kept, made = with_byte_code(entries, PYTHON, tmp_path / "scratch", instead=True)
    assert (kept.name, made.name) == ("a/template.py", "a/m.pyc")
    assert made.path is not None
    (tmp_path / "m.pyc").write_bytes(made.path.read_bytes())
    good.unlink()
    program = "import m; print(m.x, m.__file__.endswith('m.pyc'))"
    line = [PYTHON, "-S", "-c", program]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 True\n"


def test_modules_of_the_folder_it_runs_in_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "m.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    assert compiled(tmp_path / "m.py", tmp_path / "1")


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

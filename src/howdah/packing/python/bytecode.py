"""Byte code of Python sources, the same each time it is made.

Byte code that lies beside its source is taken, and what lacks it is compiled. Both are read and written anew, which
gives the same bytes: what the marshal format says of an object depends on what else refers to it, and on which
strings of one character were interned before, and here both are the same for all. The seed of hashes is fixed.
Byte code is of the kind that does not look at its source again (PEP 552, unchecked): times of change mean nothing
in an archive.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from howdah.packing.archives import PackingError, Progress, quiet
from howdah.packing.tarball import TarEntry

_GROUP = 200

# Runs in the interpreter whose byte code is wanted: Python 3.8 or newer, whatever Howdah runs in.
_COMPILE = """
import _imp, importlib.util, json, marshal, os, sys
for number in range(256):
    sys.intern(chr(number))
magic = importlib.util.MAGIC_NUMBER

def compiled(path, source):
    "Code that is there already and of this very source (PEP 552)."
    try:
        status = os.stat(path)
        with open(importlib.util.cache_from_source(path), "rb") as file:
            data = file.read()
    except (OSError, NotImplementedError):
        return None
    if data[:4] != magic or len(source) != status.st_size:
        return None
    if data[4:8] == bytes(4):
        numbers = [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]
        of_source = b"".join(number.to_bytes(4, "little") for number in numbers)
    else:
        of_source = importlib.util.source_hash(source)
    if data[8:16] != of_source:
        return None
    try:
        code = marshal.loads(data[16:])
    except (EOFError, ValueError, TypeError, MemoryError):
        return None
    return code if isinstance(code, type(compiled.__code__)) else None

done = []
for path, name, target in json.load(sys.stdin):
    with open(path, "rb") as file:
        source = file.read()
    code = compiled(path, source)
    if code is None:
        try:
            made = compile(source, "", "exec", dont_inherit=True, optimize=0)
            code = marshal.loads(marshal.dumps(made))
        except (SyntaxError, ValueError, RecursionError):
            continue  # templates and code of other versions lie about in packages
    _imp._fix_co_filename(code, name)
    with open(target, "wb") as file:
        file.write(magic + (1).to_bytes(4, "little") + importlib.util.source_hash(source))
        marshal.dump(code, file)
    done.append(target)
json.dump([sys.implementation.cache_tag, done], sys.stdout)
"""


def with_byte_code(
    entries: Sequence[TarEntry],
    python: Path,
    scratch: Path,
    progress: Progress = quiet,
    *,
    instead: bool = False,
) -> tuple[TarEntry, ...]:
    """The entries and, for each Python file among them, its byte code in ``__pycache__``; or ``instead`` of
    the file, beside where it would be (``m.pyc``).

    Raises:
        PackingError: the interpreter cannot be run.
    """
    sources = sorted(
        (entry for entry in entries if entry.path is not None and entry.name.endswith(".py")),
        key=lambda entry: entry.name,
    )
    scratch.mkdir(parents=True, exist_ok=True)
    groups = [sources[at : at + _GROUP] for at in range(0, len(sources), _GROUP)]
    found: dict[str, TarEntry] = {}
    sizes = [sum(entry.path.stat().st_size for entry in group if entry.path) for group in groups]
    done = 0
    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
        jobs = [
            pool.submit(_compile, group, python, scratch / str(number), instead)
            for number, group in enumerate(groups)
        ]
        for size, job in zip(sizes, jobs):
            found |= job.result()
            done += size
            progress("compiling", done, sum(sizes))
    kept = [entry for entry in entries if not (instead and entry.name in found)]
    return (*kept, *found.values())


def _compile(
    group: Sequence[TarEntry], python: Path, scratch: Path, instead: bool
) -> dict[str, TarEntry]:
    """Byte code by the name of its source."""
    scratch.mkdir()
    wanted = [
        (str(entry.path.absolute()), entry.name, str(scratch.absolute() / f"{number}.pyc"))
        for number, entry in enumerate(group)
        if entry.path is not None
    ]
    try:
        run = subprocess.run(
            [str(python.absolute()), "-S", "-s", "-c", _COMPILE],
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            check=True,
            cwd=scratch,  # and not the user's folder, which may have modules of the same names
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"},
        )
    except OSError as error:
        raise PackingError(f"{python} cannot be run: {error.strerror or error}") from error
    except subprocess.CalledProcessError as error:
        why = (error.stderr or "").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise PackingError(f"{python} cannot compile what is packed: {why[0]}") from error
    tag, done = json.loads(run.stdout)
    names = {target: name for _, name, target in wanted}
    return {
        names[target]: TarEntry(
            f"{names[target]}c" if instead else _cached(names[target], tag), path=Path(target)
        )
        for target in done
    }


def _cached(name: str, tag: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}{'/' if folder else ''}__pycache__/{file.removesuffix('.py')}.{tag}.pyc"

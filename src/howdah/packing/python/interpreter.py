"""A CPython as entries of an archive that run wherever they are unpacked.

CPython finds its standard library relative to its own executable, so a copy of the same layout
works anywhere. What does not move by itself are shared libraries: libpython of builds that have
one, and what extension modules link (OpenSSL, libffi, SQLite, …), which a node may lack or have in
another version. All of them, without glibc, go into ``lib``, and run paths lead there
(`howdah.packing.python.elf`).

A portable Python, as uv manages them, has all of this already, and was built for nodes as old as
glibc 2.17. Howdah's own processes use one where there is one; a user's environment is shipped with the
interpreter that it was made of.
"""

from __future__ import annotations

import json
import os
import platform
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from howdah.packing.archives import PackingError
from howdah.packing.python import elf
from howdah.packing.tarball import TarEntry

_LEFT_OUT = frozenset(
    "test tests idlelib tkinter turtledemo turtle.py ensurepip lib2to3 pydoc_data config "
    "site-packages dist-packages __pycache__ sitecustomize.py EXTERNALLY-MANAGED __phello__ "
    "LICENSE.txt".split()
)
"""Of the standard library, what no program on a node needs."""
_MODULES_LEFT_OUT = re.compile(
    r"(_test|_xxtest|xxlimited|_ctypes_test|_tkinter|nis|_curses|readline|_gdbm|_dbm|ossaudiodev)"
)
"""Extension modules that are not shipped: tests, and those that bring terminals, X11 or NIS."""
_NODES_OWN = re.compile(
    r"(ld-linux.*|linux-vdso|libc|libm|libmvec|libdl|libpthread|librt|libutil|libresolv|libnsl|"
    r"libanl|libnss_.*|libBrokenLocale|libthread_db|libstdc\+\+|libgcc_s)(\.so.*)?$"
)
"""Must be the node's own, for its kernel and its name services; and the compiler's two, of which a
program needs the newest there is. Packages may count on all of them (PEP 600)."""

_MANAGED = re.compile(r"cpython-(\d+\.\d+)\.(\d+)-linux-\w+-gnu")
"""What uv calls the folder of a Python that it manages: built on an old system, for any."""

# Runs in the interpreter that is to be packed, which may be of another version than ours.
_PROBE = """
import ctypes, json, os, site, sys, sysconfig
stdlib, platstdlib = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
failed = []
for path in json.load(sys.stdin):
    try:
        ctypes.CDLL(path)
    except OSError as error:
        failed.append(str(error))
libraries = set()
with open("/proc/self/maps") as maps:
    for line in maps:
        parts = line.split(None, 5)
        if len(parts) == 6 and ".so" in os.path.basename(parts[5]):
            libraries.add(parts[5].rstrip("\\n"))
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.base_prefix, "executable": os.path.realpath(sys.executable),
    "stdlib": stdlib, "dynload": os.path.join(platstdlib, "lib-dynload"),
    "site": os.path.relpath(site.getsitepackages([sys.base_prefix])[0], sys.base_prefix),
    "libraries": sorted(libraries), "failed": failed,
}))
"""


class Probe(msgspec.Struct, frozen=True):
    """Where the parts of an interpreter are."""

    version: str
    prefix: str
    executable: str
    stdlib: str
    dynload: str
    site: str
    """Folder for packages, relative to the prefix."""
    libraries: tuple[str, ...]
    """Shared libraries it had loaded, with those that were asked for."""
    failed: tuple[str, ...] = ()


class Interpreter(msgspec.Struct, frozen=True):
    """An interpreter's entries, without packages."""

    entries: tuple[TarEntry, ...]
    site: str
    python: str
    """The executable, relative to the archive."""
    executable: Path
    """The one that was packed, on this machine."""
    version: str
    glibc: int
    """Minor version of the glibc that a node needs at least."""


def base_executable() -> Path:
    """The interpreter below the virtual environment this process runs in, if it is in one."""
    return Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()


def portable(env: Mapping[str, str] = os.environ) -> Path | None:
    """The newest Python of our minor version among those that uv manages, if there is one."""
    folder = Path(
        env.get("UV_PYTHON_INSTALL_DIR")
        or Path(env.get("XDG_DATA_HOME") or Path.home() / ".local/share", "uv/python")
    )
    found = [
        (int(match[2]), path / "bin" / f"python{minor()}")
        for path in folder.glob(f"cpython-{minor()}.*-linux-{platform.machine()}-gnu")
        if (match := _MANAGED.fullmatch(path.name))
    ]
    return next((path for _, path in sorted(found, reverse=True) if os.access(path, os.X_OK)), None)


def minor() -> str:
    """``3.11``: what compiled packages and byte code of ours fit."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def probe(python: Path, load: Sequence[str] = ()) -> Probe:
    """Ask an interpreter where its parts are; ``load`` are libraries to load before.

    Raises:
        PackingError: it cannot be run here.
    """
    try:
        run = subprocess.run(
            [str(python), "-I", "-S", "-c", _PROBE],
            input=json.dumps(list(load)),
            capture_output=True,
            text=True,
            check=True,
        )
        return msgspec.json.decode(run.stdout, type=Probe)
    except OSError as error:
        raise PackingError(f"{python} cannot be run: {error.strerror or error}") from error
    except (subprocess.CalledProcessError, msgspec.MsgspecError) as error:
        text = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise PackingError(
            f"{python} cannot be packed: it does not answer as a CPython does "
            f"({text[-1] if text else error}); name another interpreter, or ship an archive"
        ) from error


def interpreter(python: Path, scratch: Path) -> Interpreter:
    """Entries of the interpreter at ``python`` (not one of a virtual environment).

    Changed executables and libraries are written to ``scratch``.

    Raises:
        PackingError: it cannot be run here, or not be made relocatable.
    """
    if not sys.platform.startswith("linux"):
        raise PackingError(
            f"an interpreter of {sys.platform} does not run on a cluster of Linux nodes; name one "
            "that the nodes have, or give an archive made on Linux"
        )
    places = probe(python)
    prefix = Path(places.prefix)
    dynload = Path(places.dynload)
    modules = [
        entry.path
        for entry in sorted(os.scandir(dynload), key=lambda entry: entry.name)
        if ".so" in entry.name and not _MODULES_LEFT_OUT.match(entry.name)
    ]
    places = probe(python, modules)
    stdlib = posixpath.relpath(places.stdlib, prefix)
    folder = Path(places.executable).parent.parent
    made_portable = _MANAGED.fullmatch(folder.name)
    executable = f"bin/{Path(places.executable).name}"
    entries = [
        *_standard_library(Path(places.stdlib), stdlib, dynload),
        TarEntry("bin/python3", link=Path(executable).name),
        TarEntry("bin/python", link=Path(executable).name),
    ]
    entries = [entry for entry in entries if entry.name != executable]
    binaries = {executable: Path(places.executable)}
    for module in modules:
        binaries[posixpath.join(posixpath.relpath(dynload, prefix), Path(module).name)] = Path(
            module
        )
    for library in map(Path, places.libraries):
        if library.parent == dynload or _NODES_OWN.match(library.name):
            continue
        if made_portable and not library.is_relative_to(folder):
            continue  # of this machine, and as new: libcrypt, which only crypt needs
        # Mapped files are known by their versions, and asked for by another name.
        name = elf.soname(library.read_bytes()) or library.name
        binaries.setdefault(f"lib/{name}", library)
    libc = 0
    scratch.mkdir(parents=True, exist_ok=True)
    for number, (name, path) in enumerate(sorted(binaries.items())):
        data = _movable(name, path.read_bytes(), executable)
        libc = max(libc, elf.glibc(data))
        changed = scratch / f"{number}-{path.name}"
        changed.write_bytes(data)
        entries.append(TarEntry(name, path=changed, executable=True))
    return Interpreter(
        entries=tuple(entries),
        site=places.site,
        python=executable if executable == "bin/python3" else "bin/python3",
        executable=Path(places.executable),
        version=places.version,
        glibc=libc,
    )


def _standard_library(folder: Path, name: str, dynload: Path) -> Iterator[TarEntry]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        skip = entry.name in _LEFT_OUT or entry.name.startswith("config-")
        if skip or Path(entry.path) == dynload or entry.name.endswith((".a", ".pyc")):
            continue
        if entry.is_dir():
            yield from _standard_library(Path(entry.path), f"{name}/{entry.name}", dynload)
        elif entry.is_file():
            yield TarEntry(f"{name}/{entry.name}", path=Path(entry.path))


def _movable(name: str, data: bytes, executable: str) -> bytes:
    """The binary without symbols, with a run path to ``lib`` where it needs one."""
    # A library built with debug information has four fifths of it.
    data = elf.without_symbols(data)
    to_lib = posixpath.relpath("lib", posixpath.dirname(name))
    wanted = "$ORIGIN" if to_lib == "." else f"$ORIGIN/{to_lib}"
    # The executable's counts for all that have none of their own.
    if name != executable and elf.run_path(data) is None:
        return data
    try:
        return elf.with_run_path(data, wanted)
    except elf.NotChangeable as error:
        if name == executable and "static" not in str(error):
            raise PackingError(
                f"{name} cannot be made relocatable: {error}; name an interpreter that the nodes "
                "have, or ship an archive"
            ) from error
        return data


def glibc_note(version: int) -> str:
    """What a node must have, in words."""
    return f"needs glibc 2.{version} or newer on the nodes"

"""A virtual environment as an interpreter that runs wherever it is unpacked, with its packages."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec
from pathspec import GitIgnoreSpec

from howdah.packing import ignore_rules
from howdah.packing.archives import PackingError, Progress, SizeRow
from howdah.packing.cache import Content
from howdah.packing.folders import FolderContent
from howdah.packing.folders import look as look_at
from howdah.packing.ignore_rules import Rules
from howdah.packing.python import distributions
from howdah.packing.python.bytecode import with_byte_code
from howdah.packing.python.interpreter import Interpreter, glibc_note, interpreter
from howdah.packing.python.scripts import relative
from howdah.packing.tarball import TarEntry, is_executable

_HOME = re.compile(r"^home\s*=\s*(.*?)\s*$", re.MULTILINE)
_SYSTEM = re.compile(r"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)
_NOT_SHIPPED = re.compile(r"(python|pypy)[0-9.]*|activate.*|deactivate.*|Activate.*|pip[0-9.]*")
_LEFT_OUT = (
    "__pycache__/",
    "*.py[co]",
    "/bin/*",
    "!/bin/*/",
    "/lib/python3*/site-packages/",
    "/pyvenv.cfg",
    "/.lock",
    "/.gitignore",
    "/CACHEDIR.TAG",
)
"""Of the rest of the folder. Commands and packages are looked at apart, the others say what the folder is."""
_SAID = "left out: byte code, caches, pip, activation scripts; of the standard library its tests, IDLE and Tk"
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xcf")


class VenvContents(msgspec.Struct, frozen=True):
    """What was found in a virtual environment."""

    folder: Path
    base: Path
    """The interpreter it was made of."""
    site: Path
    packages: FolderContent
    rest: FolderContent
    """What wheels and others have put beside the packages: libraries, data, settings."""
    commands: tuple[TarEntry, ...]
    editable: tuple[tuple[str, FolderContent], ...]
    """Folders that ``.pth`` files add (development installs): their names in the archive."""
    paths: tuple[tuple[str, tuple[str, ...]], ...]
    """Those ``.pth`` files and their lines, with those names for the folders."""

    @property
    def inputs(self) -> object:
        """What changes when the environment does."""
        commands = [(entry.name, str(entry.path), entry.content) for entry in self.commands]
        editable = [(name, found.stamps) for name, found in self.editable]
        base = (str(self.base), self.base.stat().st_mtime_ns)
        return (base, self.packages.stamps, self.rest.stamps, commands, editable, self.paths)

    def content(self, scratch: Path, progress: Progress) -> Content:
        """What goes into the archive.

        Raises:
            PackingError: the interpreter cannot be packed.
        """
        python = interpreter(self.base, scratch / "elf")
        # How deep a Python has its packages differs: Debian's has them in local/lib.
        added = {name: posixpath.relpath(name, python.site) for name, _ in self.editable}
        own = {
            f"{python.site}/{name}": "".join(f"{added.get(line, line)}\n" for line in lines)
            for name, lines in self.paths
        }
        placed = [_below(python.site, entry) for entry in self.packages.entries]
        placed = [entry for entry in placed if entry.name not in own]
        placed += [
            TarEntry(name, content=text.encode("utf-8", "surrogateescape"))
            for name, text in own.items()
        ]
        for name, found in self.editable:
            placed += [_below(name, entry) for entry in found.entries]
        plain = [*python.entries, *placed, *self.commands]
        taken = {entry.name for entry in plain}
        taken |= {str(above) for name in taken for above in PurePosixPath(name).parents}
        # An interpreter and its libraries must fit each other.
        twice = [entry.name for entry in self.rest.entries if entry.name in taken]
        plain += [entry for entry in self.rest.entries if entry.name not in taken]
        entries = with_byte_code(plain, python.executable, scratch / "pyc", progress)
        return Content(
            entries=entries,
            python="bin/python",
            rows=_rows(python, (self.packages, self.rest), entries[len(plain) :]),
            notes=(
                f"Python {python.version} of {python.executable}; {glibc_note(python.glibc)}",
                *(f"{name}: a development install, copied" for name, _ in self.editable),
                _SAID,
                *(f"{name}: left out, the interpreter has its own" for name in twice),
            ),
        )


def look(folder: Path, progress: Progress) -> VenvContents:
    """Look at a virtual environment.

    Raises:
        PackingError: it is broken, not for Linux, or has parts that cannot be shipped.
    """
    progress("looking at the environment", 0, None)
    config = (folder / "pyvenv.cfg").read_text("utf-8")
    if _SYSTEM.search(config):
        raise PackingError(
            f"{folder} uses packages of the system's Python as well (include-system-site-packages "
            "in pyvenv.cfg), which would be missing on the nodes; make it without them"
        )
    base = _base(folder, config)
    site = _site(folder)
    packages = look_at(site, ignore_rules.only_caches(site.resolve()), links_out=True)
    editable, paths, outside = _development(site, packages)
    whole = folder.resolve()
    rules = Rules([(whole, GitIgnoreSpec.from_lines(_LEFT_OUT))], fixed=True)
    return VenvContents(
        folder=folder,
        base=base,
        site=site,
        packages=packages,
        rest=look_at(whole, rules, outside, links_out=True),
        commands=tuple(_commands(folder / "bin")),
        editable=editable,
        paths=paths,
    )


def _base(folder: Path, config: str) -> Path:
    python = folder / "bin/python"
    if not python.exists():
        broken = (
            f"it leads to {python.resolve()}, which is not there"
            if python.is_symlink()
            else "it is missing"
        )
        raise PackingError(f"{folder} is broken: {python}: {broken}; make it anew")
    with python.resolve().open("rb") as file:
        magic = file.read(4)
    if magic in _MACH_O:
        raise PackingError(
            f"{folder} is a macOS environment: its interpreter and compiled packages do not run on "
            "Linux nodes. Name what it was made from instead (requirements or project, packed on "
            "Linux), or an archive made on Linux"
        )
    home = _HOME.search(config)
    base = python.resolve()
    # A virtual environment may have a copy of the interpreter, which knows its home only.
    if base.is_relative_to(folder.resolve()) and home:
        base = Path(home[1], base.name).resolve()
        if not base.exists():
            raise PackingError(f"{folder} is broken: the Python it was made of, {base}, is gone")
    return base


def _site(folder: Path) -> Path:
    found = sorted(folder.glob("lib/python3*/site-packages"))
    if len(found) != 1:
        what = "no folder of packages" if not found else "packages of several Pythons"
        raise PackingError(f"{folder} has {what} (lib/python3.*/site-packages); make it anew")
    return found[0]


def _commands(folder: Path) -> list[TarEntry]:
    found: list[TarEntry] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        if _NOT_SHIPPED.fullmatch(entry.name) or not entry.is_file():
            continue
        executable = is_executable(entry.stat().st_mode)
        small = executable and entry.stat().st_size < 1 << 20
        script = relative(path.read_bytes(), folder) if small else None
        if script is None:
            found.append(TarEntry(f"bin/{entry.name}", path=path, executable=executable))
        else:
            found.append(TarEntry(f"bin/{entry.name}", content=script, executable=True))
    return found


def _development(
    site: Path, packages: FolderContent
) -> tuple[
    tuple[tuple[str, FolderContent], ...],
    tuple[tuple[str, tuple[str, ...]], ...],
    tuple[Path, ...],
]:
    """Folders outside that development installs add by ``.pth`` files, to be shipped as well: what is in them
    by name, the lines of those files, and the folders."""
    folders: dict[Path, str] = {}
    changed: list[tuple[str, tuple[str, ...]]] = []
    for entry in packages.entries:
        if "/" in entry.name or entry.path is None:
            continue
        if entry.name.startswith("__editable___") and entry.name.endswith(".py"):
            raise PackingError(
                f"{site}/{entry.name} leads to a folder outside of the environment (a development "
                "install by setuptools); install that package without -e, or give the project "
                "itself ([environment] project)"
            )
        if entry.name.endswith(".pth"):
            lines = entry.path.read_text("utf-8", "surrogateescape").splitlines()
            shipped = [_shipped(line, site, folders) for line in lines]
            if shipped != lines:
                changed.append((entry.name, tuple(shipped)))
    editable = [
        (name, look_at(path, ignore_rules.rules(path.resolve()))) for path, name in folders.items()
    ]
    return tuple(editable), tuple(changed), tuple(folders)


def _shipped(line: str, site: Path, folders: dict[Path, str]) -> str:
    path = distributions.outside(line, site)
    if path is None:
        return line
    return folders.setdefault(path, f"development/{len(folders)}-{path.name}")


def _below(folder: str, entry: TarEntry) -> TarEntry:
    return TarEntry(
        f"{folder}/{entry.name}", entry.path, entry.content, entry.link, entry.executable
    )


def _rows(
    python: Interpreter, found: Sequence[FolderContent], byte_code: tuple[TarEntry, ...]
) -> tuple[SizeRow, ...]:
    rows = [
        SizeRow(f"Python {python.version}", _total(python.entries), len(python.entries)),
        SizeRow("byte code", _total(byte_code), len(byte_code)),
        *(row for part in found for row in part.by_top()),
    ]
    return tuple(sorted(rows, key=lambda row: -row.size))


def _total(entries: tuple[TarEntry, ...]) -> int:
    return sum(entry.path.stat().st_size for entry in entries if entry.path)

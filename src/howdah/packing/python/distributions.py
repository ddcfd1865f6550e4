"""Installed distributions and what they need, from their metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

import msgspec

from howdah.packing import ignore_rules
from howdah.packing.archives import PackingError
from howdah.packing.folders import FolderContent, look
from howdah.packing.tarball import TarEntry, is_executable

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def normal(name: str) -> str:
    """A distribution's name as the packaging standards compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(
    roots: Iterable[str], optional: Iterable[str] = (), without: Iterable[str] = ()
) -> list[metadata.Distribution]:
    """The distributions and all they need, sorted by name. Those that are needed under conditions
    (other versions, other systems) come along where they are installed; extras do not.

    Raises:
        PackingError: one is not installed.
    """
    left_out = set(map(normal, without))
    found: dict[str, metadata.Distribution] = {}
    waiting = [(name, True) for name in roots]
    waiting += [(name, False) for name in optional]
    while waiting:
        name, must = waiting.pop()
        if normal(name) in found or normal(name) in left_out:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if must:
                raise PackingError(
                    f"the package {name} is not installed in {_here()}, and Howdah needs it on "
                    f"the cluster; install it: pip install {name}"
                ) from None
            continue
        found[normal(name)] = distribution
        for requirement in distribution.requires or ():
            text, _, marker = requirement.partition(";")
            if "extra" in marker:
                continue
            match = _NAME.match(text)
            if match:
                waiting.append((match[1], not marker))
    return [found[name] for name in sorted(found)]


def entries(distribution: metadata.Distribution, site: str) -> Iterator[TarEntry]:
    """Its files, in a folder for packages; byte code, tests and scripts are left out, but programs
    that are no Python scripts (py-spy) go to ``bin``. Of a development install, a copy of its folders.

    Raises:
        PackingError: its metadata does not say which files it has, or it is a development install that cannot
            be shipped.
    """
    files = distribution.files
    if files is None:
        raise PackingError(
            f"{distribution.name} does not say which files it has (no RECORD); install it with "
            "pip or uv"
        )
    for file in files:
        name = PurePosixPath(file)
        path = Path(str(distribution.locate_file(file)))
        if name.match("__editable___*_finder.py") and path.is_file():
            raise PackingError(
                f"{path} leads to a folder outside of the environment (a development install by "
                f"setuptools); install {distribution.name} without -e"
            )
        if "__pycache__" in name.parts or name.suffix in (".pyc", ".pyi"):
            continue
        if name.parts[0] == "..":
            if name.parent.name == "bin" and path.is_file() and _is_program(path):
                yield TarEntry(f"bin/{name.name}", path=path, executable=True)
            continue
        if name.parts[0].endswith(".dist-info") and name.name not in (
            "METADATA",
            "entry_points.txt",
        ):
            continue
        if len(name.parts) == 1 and name.suffix == ".pth" and path.is_file():
            yield from _developed(distribution, path, site)
        elif path.is_file():
            mode = path.stat().st_mode
            yield TarEntry(f"{site}/{name}", path=path, executable=is_executable(mode))


def developed(distribution: metadata.Distribution) -> dict[Path, FolderContent]:
    """What is in the folders that ``.pth`` files of a development install lead to.

    Raises:
        PackingError: one cannot be shipped.
    """
    found: dict[Path, FolderContent] = {}
    for file in distribution.files or ():
        if file.suffix == ".pth" and len(file.parts) == 1:
            for path in elsewhere(Path(str(distribution.locate_file(file)))):
                found[path] = look(path, ignore_rules.rules(path.resolve()))
    return found


def elsewhere(path: Path) -> list[Path]:
    """The folders of this machine, outside of its own, that a ``.pth`` file leads to."""
    found = [outside(line, path.parent) for line in _lines(path)]
    return [each for each in found if each is not None]


def outside(line: str, site: Path) -> Path | None:
    """The folder outside of ``site``, in which a ``.pth`` file is, that a line of it adds; None if it adds
    none."""
    path = Path(line.strip() or ".")
    leads_out = path.is_absolute() and path.is_dir() and not path.is_relative_to(site)
    return path if leads_out else None


def _developed(distribution: metadata.Distribution, path: Path, site: str) -> Iterator[TarEntry]:
    folders = dict.fromkeys(elsewhere(path))
    if not folders:
        yield TarEntry(f"{site}/{path.name}", path=path)
        return
    contents = developed(distribution)
    names = {
        folder: f"development/{normal(distribution.name)}-{number}"
        for number, folder in enumerate(contents)
    }
    text = "".join(f"{names.get(Path(line), line)}\n" for line in _lines(path))
    yield TarEntry(f"{site}/{path.name}", content=text.encode("utf-8", "surrogateescape"))
    for folder in folders:
        for entry in contents[folder].entries:
            yield msgspec.structs.replace(entry, name=f"{site}/{names[folder]}/{entry.name}")


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    return [line.strip() for line in path.read_text("utf-8", "surrogateescape").splitlines()]


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _here() -> str:
    import sys

    return sys.prefix

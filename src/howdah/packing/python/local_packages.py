"""Packages that an environment is built from and that lie on this machine: folders, wheels, archives."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import msgspec

from howdah.packing import ignore_rules
from howdah.packing.ignore_rules import Rules

_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)")
_NAMED = re.compile(r"[\w.-]+\s*(?:\[[^\]]*\])?\s*@\s*")
_END = re.compile(r"[\s;#\[]")
_FILES = (".whl", ".tar.gz", ".zip")
_DESCRIPTIONS = ("pyproject.toml", "setup.py", "setup.cfg")
_BUILT = ("*.egg-info", "build/lib", "build/lib.*", "build/bdist.*", "build/temp.*")
"""What setuptools leaves in a package's folder each time it builds it."""


class _Source(msgspec.Struct, frozen=True):
    path: str | None = None
    workspace: bool = False


class _Workspace(msgspec.Struct, frozen=True):
    members: tuple[str, ...] = ()


class _Uv(msgspec.Struct, frozen=True):
    sources: dict[str, _Source | tuple[_Source, ...]] = {}
    workspace: _Workspace | None = None


class _Tool(msgspec.Struct, frozen=True):
    uv: _Uv = _Uv()


class _Project(msgspec.Struct, frozen=True):
    name: str = ""
    dependencies: tuple[str, ...] = ()


class _ProjectFile(msgspec.Struct, frozen=True):
    project: _Project = _Project()
    tool: _Tool = _Tool()


# Made once, while this is imported: see `howdah.wire.decoders`.
_decode = msgspec.json.Decoder(_ProjectFile).decode


class LocalPackages:
    """Local packages, with those that their project files name in turn."""

    def __init__(self) -> None:
        self.stamps: list[object] = []
        """What changes when an environment with them does."""
        self.edited: list[object] = []
        """What changes when only that does which an environment on this machine finds where it is: editable
        packages."""
        self._seen: set[Path] = set()
        self._folders: list[Path] = []

    def add(self, place: Path, *, editable: bool = False) -> None:
        """A package at this place, if there is something."""
        place = Path(os.path.normpath(place))
        if place in self._seen:
            return
        self._seen.add(place)
        if place.is_file():
            self.stamps.append(_stamp(place, place.stat()))
        elif place.is_dir():
            real = place.resolve()
            content = list(_content(real, real, ignore_rules.rules(real)))
            if editable:
                self.edited.append(content)
                described = [place / name for name in _DESCRIPTIONS]
                self.stamps += [_stamp(path, path.stat()) for path in described if path.is_file()]
            else:
                self.stamps.append(content)
                self._folders.append(place)
            self.add_named_by(place)

    def add_requirements(self, text: str, folder: Path) -> None:
        """The packages that lines of a requirements file name, for a uv that is run in that folder."""
        for line in text.splitlines():
            line = line.strip()
            option = _EDITABLE.match(line)
            line = line[option.end() :] if option else line
            if (named := _NAMED.match(line)) is not None:
                line = line[named.end() :]
            place = _END.split(line, 1)[0]
            if place.startswith("file:"):
                place = unquote(place.removeprefix("file:").removeprefix("//"))
            if option or "/" in place or place in (".", "..") or place.endswith(_FILES):
                self.add(folder / place, editable=option is not None)

    def add_named_by(self, folder: Path) -> None:
        """The packages that a project's file names: as uv's sources, its workspace's too, or by URLs."""
        own = _read(folder)
        self.add_requirements("\n".join(own.project.dependencies), folder)
        above = ((each, _read(each)) for each in (folder, *folder.parents))
        roots = [(each, file) for each, file in above if file.tool.uv.workspace is not None]
        for base, file in [(folder, own), *roots[:1]]:
            for named in file.tool.uv.sources.values():
                for source in named if isinstance(named, tuple) else (named,):
                    if source.path is not None:
                        self.add(base / source.path)
                    if source.workspace:
                        self._add_members(roots[:1])

    def reinstalling(self) -> list[str]:
        """Options of uv, which otherwise takes what it has built of a folder before, unless the package's
        description has changed."""
        names = [_read(folder).project.name for folder in self._folders]
        if not all(names):
            return ["--reinstall"]
        return [option for name in names for option in ("--reinstall-package", name)]

    def _add_members(self, roots: Iterable[tuple[Path, _ProjectFile]]) -> None:
        for root, file in roots:
            assert file.tool.uv.workspace is not None
            for pattern in file.tool.uv.workspace.members:
                with contextlib.suppress(ValueError, NotImplementedError):  # for uv to refuse
                    for member in sorted(root.glob(pattern)):
                        # uv takes nothing else for a member.
                        if (member / "pyproject.toml").is_file():
                            self.add(member)


def _read(folder: Path) -> _ProjectFile:
    """A project's file; empty where there is none, or none that uv takes."""
    try:
        text = (folder / "pyproject.toml").read_text("utf-8")
        return _decode(msgspec.json.encode(tomllib.loads(text), enc_hook=str))
    except (OSError, ValueError, msgspec.MsgspecError):
        return _ProjectFile()


def _content(top: Path, folder: Path, rules: Rules) -> Iterator[tuple[object, ...]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # what cannot be read is not built from either
    for entry in entries:
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        name = str(path.relative_to(top))
        if rules.leave_out(path, is_folder=is_folder) or any(
            fnmatch.fnmatchcase(name, pattern) for pattern in _BUILT
        ):
            continue
        if not is_folder:
            with contextlib.suppress(FileNotFoundError):
                yield _stamp(path, entry.stat(follow_symlinks=False))
        elif not (path / "pyvenv.cfg").is_file():
            yield from _content(top, path, rules.below(path))


def _stamp(path: Path, status: os.stat_result) -> tuple[object, ...]:
    return (os.fsencode(path), status.st_size, status.st_ctime_ns, status.st_ino)

"""A task's working folder, and the container's folder in what a coordinator writes.

Programs start in ``<work_dir>/task``. What they read is the source folder's, through one link for
each entry; what they write with a relative path stays in the container.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from howdah.agent.launch import HERE

TASK = "task"

_T = TypeVar("_T")


def substitute(document: _T, folder: str) -> _T:
    """The same with the container's folder in place of `HERE`, in every text of it."""
    value: Any = document
    match value:
        case str():
            value = value.replace(HERE, folder)
        case list() | tuple():
            value = type(value)(substitute(each, folder) for each in value)
        case dict():
            value = {name: substitute(each, folder) for name, each in value.items()}
        case msgspec.Struct():
            fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
            changes = {name: substitute(each, folder) for name, each in fields}
            value = msgspec.structs.replace(value, **changes)
        case _:
            pass
    return value


def make(
    task: Path, source: Path | None, folders: Iterable[str], files: Mapping[str, str] = {}
) -> None:
    """Make or complete the folder; what programs have put there stays.

    ``files`` are paths by name that are linked too, and before the source. ``folders`` are paths inside it that must be the task's own, whatever the source has of that
    name: they are never links, and an entry on the way to one of them becomes a real folder with
    links of its own.

    Raises:
        OSError: it can't be made, or the source can't be read.
    """
    task.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = [parts for parts in map(_parts, folders) if parts]
    for name, path in files.items():
        with contextlib.suppress(FileExistsError):
            (task / name).symlink_to(path)
    if source is not None:
        _link(task, source, inside)
    for parts in inside:
        task.joinpath(*parts[:-1]).mkdir(parents=True, exist_ok=True)


def place(task: Path, folder: str) -> Path:
    """Where a folder named in the job file is: relative ones are below the working folder."""
    return Path(os.path.normpath(task / folder))


def has_files(folder: str | Path) -> bool:
    """Whether there is a file in the folder or below."""
    return any(files for _, _, files in os.walk(folder))


def _parts(folder: str) -> tuple[str, ...]:
    """Empty for one that is not inside the working folder."""
    parts = PurePath(os.path.normpath(folder)).parts
    if not parts or parts[0] in ("/", "..", "."):
        return ()
    return parts


def _link(target: Path, source: Path, real: list[tuple[str, ...]]) -> None:
    for entry in os.scandir(source):
        below = [parts for parts in real if parts[0] == entry.name]
        path = target / entry.name
        if not below:
            with contextlib.suppress(FileExistsError):
                path.symlink_to(entry.path)
        elif all(len(parts) > 1 for parts in below) and entry.is_dir():
            path.mkdir(exist_ok=True)
            _link(path, Path(entry.path), [parts[1:] for parts in below])

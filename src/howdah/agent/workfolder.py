"""A task's working folder, and the container's folder in what a coordinator writes.

Programs start in ``<work_dir>/task``, which has the source's folders as folders of its own, its small
files as copies, and the other files as links, one by one: what they write beside their script stays in
the container, and what walks through the folder finds every file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from howdah.agent.launch import HERE
from howdah.storage.folders import LEFT_OUT, Signature, link_file, scan

TASK = "task"

COPIED_BYTES = 1 << 20
"""Files up to this size are copied; larger ones are links to the source's file."""
MOST_BYTES = 64 << 20
MOST_COPIES = 1000
"""Copied in all. Files that come after that are linked too: a large source must not delay each start."""
CACHES = ("__pycache__", "*.py[co]", ".ipynb_checkpoints", ".nfs*", ".DS_Store")
"""Names that nobody made."""

_CORE = re.compile(r"core(\.\d+)?")

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
) -> set[str]:
    """Make or complete the folder; what programs have put there stays.

    ``files`` are paths by name that are put there too, and before the source. ``folders`` are paths
    inside it that are the task's own: nothing that the source has of that name is put there.

    Returns what was put there, as paths relative to it.

    Raises:
        OSError: it can't be made, one of ``files`` is gone, or the source can't be read.
    """
    task.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = {parts for parts in map(_parts, folders) if parts}
    filling = _Filling(task, own)
    for name, path in files.items():
        filling.put((name,), path)
        if (name,) not in own and not (task / name).exists():
            raise FileNotFoundError(errno.ENOENT, f"{name!r}, of the job's files, is gone", path)
    filling.below()
    if source is not None:
        filling.all_of((), str(source))
        filling.below()
    for parts in own:
        task.joinpath(*parts[:-1]).mkdir(parents=True, exist_ok=True)
    return filling.made


def fill(
    task: Path,
    source: Path | None,
    folders: Iterable[str],
    files: Mapping[str, str],
    given: dict[str, Signature],
) -> None:
    """`make` the folder, and note in ``given`` how the files are that were put there.

    Raises:
        OSError: as `make`.
    """
    made = make(task, source, folders, files)
    if made:
        found = scan(task)
        given.update({name: found.get(name, LEFT_OUT) for name in made})


def changed(
    task: Path, given: Mapping[str, Signature], without: Iterable[str] = ()
) -> dict[str, Signature]:
    """The files that are new in the folder, or changed; caches and folders ``without`` do not
    count."""
    left_out = tuple(f"{'/'.join(parts)}/" for parts in map(_parts, without) if parts)
    return {
        name: signature
        for name, signature in scan(task, CACHES).items()
        if not signature.is_as(given.get(name))
        and not f"{name}/".startswith(left_out)
        and not _is_core(task / name)
    }


def _is_core(path: Path) -> bool:
    """Whether the system wrote it when a program crashed: as large as its memory, and not its work."""
    if not _CORE.fullmatch(path.name):
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def place(task: Path, folder: str) -> Path:
    """Where a folder named in the job file is: relative ones are below the working folder."""
    return Path(os.path.normpath(task / folder))


def _parts(folder: str) -> tuple[str, ...]:
    """Empty for one that is not inside the working folder."""
    parts = PurePath(os.path.normpath(folder)).parts
    if not parts or parts[0] in ("/", "..", "."):
        return ()
    return parts


class _Filling:
    """Entries of the source on their way into a working folder."""

    def __init__(self, task: Path, own: set[tuple[str, ...]]) -> None:
        self.made: set[str] = set()
        self._task = str(task)
        self._own = own
        self._on_the_way = {parts[:end] for parts in own for end in range(1, len(parts))}
        self._folders: deque[tuple[tuple[str, ...], str]] = deque()
        """Those that were made and are not filled yet."""
        self._bytes = self._copies = 0

    def below(self) -> None:
        """Fill the folders that were made, the upper ones first."""
        while self._folders:
            with contextlib.suppress(FileNotFoundError):  # it went away meanwhile
                self.all_of(*self._folders.popleft())

    def all_of(self, parts: tuple[str, ...], source: str) -> None:
        """Put there what is in a folder of the source."""
        for entry in os.scandir(source):
            self.put((*parts, entry.name), entry.path)

    # Not with pathlib: there may be many thousands of them.
    def put(self, parts: tuple[str, ...], source: str) -> None:
        """Put one entry there, unless there is something or it is the task's own folder."""
        if parts in self._own or f"{self._task}/".startswith(f"{source}/"):
            return  # a job's folder may be in the source folder: that ends nowhere
        name = "/".join(parts)
        target = f"{self._task}/{name}"
        try:
            status = os.lstat(source)
        except FileNotFoundError:
            return  # it went away meanwhile
        on_the_way = parts in self._on_the_way and os.path.isdir(source)
        if stat.S_ISDIR(status.st_mode) or on_the_way:
            if not Path(target).is_symlink():
                with contextlib.suppress(FileExistsError):
                    Path(target).mkdir(mode=stat.S_IMODE(status.st_mode) | 0o700)
                if os.path.isdir(target):
                    self._folders.append((parts, source))
            return
        try:
            if not stat.S_ISREG(status.st_mode):
                Path(target).symlink_to(_target(source, status, len(parts)))
            elif not self._copied(source, target, status):
                link_file(source, target)
            self.made.add(name)
        except FileExistsError:
            return
        except FileNotFoundError:
            if os.path.lexists(source):
                raise  # or it went away meanwhile

    def _copied(self, source: str, target: str, status: os.stat_result) -> bool:
        size = status.st_size
        if size > COPIED_BYTES or self._bytes + size > MOST_BYTES or self._copies == MOST_COPIES:
            return False
        try:
            readable = os.open(source, os.O_RDONLY)
        except PermissionError:
            return False
        self._bytes += size
        self._copies += 1
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        with open(readable, "rb") as old:
            writable = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with open(writable, "wb") as new:
                new.write(old.read())
        # Compiled modules are valid as long as their source has the time it had.
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        return True


def _target(source: str, status: os.stat_result, depth: int) -> str:
    """What a link in the working folder points to: a link within the source stays one within."""
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(source)  # noqa: PTH115 - as above
        inside = os.path.normpath("/".join(["x"] * (depth - 1) + [target]))
        if not Path(target).is_absolute() and not inside.startswith(".."):
            return target
    return source

"""The source folder as it is at submission, for programs of this machine: a copy that they may write to.

What a program writes never reaches the user's own files, and a restart runs what was submitted. Not
copied but linked are environments and version control, and of folders beyond the limits the largest
files and the lowest levels; a note names those. Howdah's own folders (``.howdah``) are left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from howdah.packing.archives import Progress, quantity, quiet

MOST_FILES = 5000
MOST_BYTES = 256 * 10**6
"""Of files that cannot share blocks with their copies."""
SURPRISING = 100 * 10**6
"""Bytes whose copying is shown."""

LINKED = frozenset((".git", ".hg", ".svn", ".bzr", ".tox", ".nox", ".cache", "node_modules"))
"""Folders that programs read, if at all. Environments are linked too."""
_JOBS = ".howdah"
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_FICLONE = 0x40049409
"""``linux/fs.h``: let a file share another one's blocks until either is written to."""
_WORTH_SHARING = 1 << 20
_TOLD = 3


class _Entry(msgspec.Struct):
    """One entry of the folder."""

    name: str
    """Relative to the folder."""
    size: int = 0
    link: str = ""
    """What it is linked to; empty for a file that is copied, and for a folder that is made."""
    is_folder: bool = False


def snapshot(
    folder: Path,
    target: Path,
    without: Collection[Path] = (),
    progress: Progress = quiet,
    *,
    most_files: int = MOST_FILES,
    most_bytes: int = MOST_BYTES,
) -> str:
    """Copy the folder to ``target``, which is not there yet; what stands there is whole.

    ``without`` are paths that are left out, whichever links they are named through.

    Returns a note for the user about what is linked because it is too much; empty if there is nothing.

    Raises:
        OSError: it cannot be read or written.
    """
    folder = folder.resolve()
    entries = list(_look(folder, {path.resolve() for path in without}, most_files))
    fresh = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    too_much = [entry for entry in entries if entry.is_folder and entry.link]
    shares = _shares_blocks(folder, entries, fresh)
    if not shares:
        too_much += _too_large(folder, entries, most_bytes)
    total = sum(entry.size for entry in entries if not entry.link)
    unshared = 0
    done = 0
    for entry in entries:
        source, path = folder / entry.name, fresh / entry.name
        if entry.link:
            path.symlink_to(entry.link)
        elif entry.is_folder:
            path.mkdir(mode=0o700)
        else:
            with contextlib.suppress(FileNotFoundError):  # it went away meanwhile
                if not shares:
                    _copy(source, path)
                elif not _clone(source, path):  # it is in a mount, or never copied on write
                    if unshared + entry.size <= most_bytes:
                        _copy(source, path)
                        unshared += entry.size
                    else:
                        path.symlink_to(source)
                        too_much.append(entry)
            done += entry.size
            if total > SURPRISING:
                progress("copying the source folder", done, total)
    fresh.rename(target)
    return _note(folder, too_much)


def _shares_blocks(folder: Path, entries: list[_Entry], fresh: Path) -> bool:
    """Whether a copy costs neither time nor room here."""
    largest = max(entries, key=lambda entry: entry.size, default=None)
    if largest is None or largest.size < _WORTH_SHARING:
        return False
    trial = fresh / ".trial"
    try:
        return _clone(folder / largest.name, trial)
    except OSError:
        return False
    finally:
        trial.unlink(missing_ok=True)


def _clone(source: Path, target: Path) -> bool:
    """Make a copy that shares the file's blocks. False if it cannot share them; then there is no copy."""
    try:
        _copy(source, target, lambda old, new: fcntl.ioctl(new.fileno(), _FICLONE, old.fileno()))
    except FileNotFoundError:
        raise
    except OSError:
        target.unlink(missing_ok=True)
        return False
    return True


def _copy_bytes(old: BinaryIO, new: BinaryIO) -> None:
    shutil.copyfileobj(old, new, 1 << 20)


def _copy(
    source: Path, target: Path, write: Callable[[BinaryIO, BinaryIO], object] = _copy_bytes
) -> None:
    with open(source, "rb") as old:
        status = os.fstat(old.fileno())
        mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(target, flags, mode), "wb") as new:
            write(old, new)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _look(folder: Path, without: Collection[Path], most: int) -> Iterator[_Entry]:
    """What is in it, the upper levels first. Folders that come after so many files are links."""
    waiting = deque([""])
    files = 0
    while waiting:
        place = waiting.popleft()
        if place and files >= most:
            yield _Entry(place, link=str(folder / place), is_folder=True)
            continue
        if place:
            yield _Entry(place, is_folder=True)
        for entry in _listed(folder / place, gone_is_empty=bool(place)):
            name, path = f"{place}/{entry.name}".lstrip("/"), Path(entry.path)
            if path in without or (entry.name == _JOBS and entry.is_dir(follow_symlinks=False)):
                continue
            try:
                if entry.is_symlink():
                    yield _Entry(name, link=_target(path, name))
                    continue
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # it went away meanwhile
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            if not os.access(path, os.R_OK | (os.X_OK if is_folder else 0)):
                yield _Entry(name, link=str(path))
            elif not is_folder:
                files += 1
                is_file = stat.S_ISREG(status.st_mode)
                yield _Entry(name, status.st_size) if is_file else _Entry(name, link=str(path))
            elif entry.name in LINKED or any((path / mark).exists() for mark in _ENVIRONMENT):
                yield _Entry(name, link=str(path))
            else:
                waiting.append(name)


def _listed(folder: Path, gone_is_empty: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        if not gone_is_empty:
            raise
        return []


def _target(link: Path, name: str) -> str:
    """What a link of the folder points to in the copy: within it, or to the same outside."""
    target = link.readlink()
    inside = os.path.normpath(Path(name).parent / target)
    if target.is_absolute() or inside == ".." or inside.startswith("../"):
        return os.path.normpath(link.parent / target)
    return str(target)


def _too_large(folder: Path, entries: list[_Entry], most: int) -> list[_Entry]:
    """The largest files, which are linked until the rest fits."""
    linked: list[_Entry] = []
    total = sum(entry.size for entry in entries if not entry.link)
    for entry in sorted(entries, key=lambda entry: -entry.size):
        if total <= most:
            break
        total -= entry.size
        entry.link = str(folder / entry.name)
        linked.append(entry)
    return linked


def _note(folder: Path, linked: list[_Entry]) -> str:
    if not linked:
        return ""
    shown = [
        f"{entry.name}/" if entry.is_folder else f"{entry.name} ({quantity(entry.size)})"
        for entry in linked[:_TOLD]
    ]
    more = f" and {len(linked) - _TOLD} more" if len(linked) > _TOLD else ""
    return (
        f"{folder} is large: {', '.join(shown)}{more} are not copied, and a program that writes to "
        "them writes to your own. Data is better kept elsewhere"
    )

"""The source folder as it is at submission, for programs of this machine: a copy that they may write to.

What a program writes never reaches the user's own files, and a restart runs what was submitted. The
copy has the same folders and the same files, so whatever walks through it finds all of them. Only
environments, version control and what the job file says are links as whole folders. Of files beyond
the limits the largest and the lowest are linked one by one, and a note says so. Howdah's own folders
(``.howdah``) are left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from howdah.packing import ignore_rules
from howdah.packing.archives import Progress, quantity, quiet
from howdah.packing.folders import MOST_FILES, too_many_files
from howdah.packing.ignore_rules import Rules
from howdah.storage.folders import link_file

MOST_COPIES = 5_000
"""What comes after so many is linked, file by file."""
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
    """What a symbolic link leads to; empty for all else."""
    is_folder: bool = False
    is_own: bool = False
    """The user's own file, not a copy."""


def snapshot(
    folder: Path,
    target: Path,
    without: Collection[Path] = (),
    progress: Progress = quiet,
    *,
    ignore: Sequence[str] = (),
    link: Collection[str] = (),
    most_copies: int = MOST_COPIES,
    most_bytes: int = MOST_BYTES,
) -> str:
    """Copy the folder to ``target``, which is not there yet; what stands there is whole.

    ``without`` are paths that are left out, whichever links they are named through; ``ignore`` and
    ``link`` are the job file's.

    Returns a note for the user about what is linked because it is too much; empty if there is nothing.

    Raises:
        PackingError: it has more than `MOST_FILES` files, or a pattern to ignore means nothing.
        OSError: it cannot be read or written.
    """
    folder = folder.resolve()
    rules = ignore_rules.only(folder, ignore) if ignore else None
    entries: list[_Entry] = []
    files = 0
    for entry in _look(folder, {path.resolve() for path in without}, rules, _linked(folder, link)):
        entries.append(entry)
        files += not entry.is_folder
        if files > MOST_FILES:
            raise too_many_files(folder)
    fresh = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    shares = _shares_blocks(folder, entries, fresh)
    _choose(entries, most_copies, most_bytes if not shares else None)
    total = sum(entry.size for entry in entries if not entry.is_own)
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
                if entry.is_own:
                    link_file(source, path)
                    continue
                if not shares:
                    _copy(source, path)
                elif not _clone(source, path):  # it is in a mount, or never copied on write
                    if unshared + entry.size <= most_bytes:
                        _copy(source, path)
                        unshared += entry.size
                    else:
                        link_file(source, path)
                        entry.is_own = True
            done += entry.size
            if total > SURPRISING:
                progress("copying the source folder", done, total)
    fresh.rename(target)
    return _note(folder, [entry for entry in entries if entry.is_own])


def _linked(folder: Path, names: Collection[str]) -> set[Path]:
    return {Path(os.path.normpath(folder / name)) for name in names}


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
    # A buffer of a megabyte for each of thousands of small files takes longer than they do.
    shutil.copyfileobj(old, new, min(os.fstat(old.fileno()).st_size + 1, 1 << 20))


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


def _look(
    folder: Path, without: Collection[Path], rules: Rules | None, linked: Collection[Path]
) -> Iterator[_Entry]:
    """What is in it, the upper levels first."""
    waiting = deque([""])
    while waiting:
        place = waiting.popleft()
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
            if rules is not None and rules.leave_out(path, is_folder=is_folder):
                continue
            if not os.access(path, os.R_OK | (os.X_OK if is_folder else 0)) or path in linked:
                yield _Entry(name, link=str(path))
            elif not is_folder:
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


def _choose(entries: list[_Entry], most_files: int, most_bytes: int | None) -> None:
    """Which files are linked: the largest, until the rest fits, and of those the lowest."""
    files = [entry for entry in entries if not (entry.is_folder or entry.link)]
    if most_bytes is not None:
        total = sum(entry.size for entry in files)
        for entry in sorted(files, key=lambda entry: -entry.size):
            if total <= most_bytes:
                break
            total -= entry.size
            entry.is_own = True
    for entry in [entry for entry in files if not entry.is_own][most_files:]:
        entry.is_own = True


def _note(folder: Path, linked: list[_Entry]) -> str:
    if not linked:
        return ""
    largest = sorted(linked, key=lambda entry: -entry.size)[:_TOLD]
    shown = [f"{entry.name} ({quantity(entry.size)})" for entry in largest]
    more = f" and {len(linked) - _TOLD} more" if len(linked) > _TOLD else ""
    return (
        f"{folder} is large: {', '.join(shown)}{more} are not copied but linked, and a program that "
        "writes to them writes to your own. Data is better kept elsewhere"
    )

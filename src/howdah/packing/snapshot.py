"""The source folder as it is at submission, for programs of this machine: a copy that they may write to.

What a program writes never reaches the user's own files, and a restart runs what was submitted. Not
copied but linked are environments and version control, and of folders beyond the limits the largest
files and the lowest levels; a note names those.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from howdah.packing.archives import Progress, quantity, quiet

MOST_FILES = 20_000
MOST_BYTES = 1 << 30
SURPRISING = 100 * 10**6
"""Bytes whose copying is shown."""

LINKED = frozenset((".git", ".hg", ".svn", ".bzr", ".tox", ".nox", "node_modules"))
"""Folders that programs read, if at all. Virtual environments are linked too."""
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

    ``without`` are paths that are left out.

    Returns a note for the user about what is linked because it is too much; empty if there is nothing.

    Raises:
        OSError: it cannot be read or written.
    """
    entries = list(_look(folder, frozenset(without), most_files))
    too_much = [entry for entry in entries if entry.is_folder and entry.link]
    too_much += _too_large(folder, entries, most_bytes)
    fresh = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    total = sum(entry.size for entry in entries if not entry.link)
    done = 0
    for entry in entries:
        path = fresh / entry.name
        if entry.link:
            path.symlink_to(entry.link)
        elif entry.is_folder:
            path.mkdir(mode=0o700)
        else:
            with contextlib.suppress(FileNotFoundError):  # it went away meanwhile
                shutil.copy2(folder / entry.name, path, follow_symlinks=False)
            done += entry.size
            if total > SURPRISING:
                progress("copying the source folder", done, total)
    fresh.rename(target)
    return _note(folder, too_much)


def _look(folder: Path, without: Collection[Path], most: int) -> Iterator[_Entry]:
    """What is in it, the upper levels first. Folders that come after so many files are links."""
    waiting = deque([""])
    files = 0
    while waiting:
        place = waiting.popleft()
        for entry in os.scandir(folder / place):
            name, path = f"{place}{entry.name}", Path(entry.path)
            if path in without:
                continue
            if entry.is_symlink():
                yield _Entry(name, link=_target(path, name))
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if entry.name in LINKED or (path / "pyvenv.cfg").is_file():
                    yield _Entry(name, link=str(path))
                elif files >= most or not os.access(path, os.R_OK | os.X_OK):
                    yield _Entry(name, link=str(path), is_folder=True)
                else:
                    yield _Entry(name, is_folder=True)
                    waiting.append(f"{name}/")
            elif stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK):
                files += 1
                yield _Entry(name, size=status.st_size)
            else:
                yield _Entry(name, link=str(path))


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
    told = [
        f"{entry.name}/" if entry.is_folder else f"{entry.name} ({quantity(entry.size)})"
        for entry in linked[:_TOLD]
    ]
    more = f" and {len(linked) - _TOLD} more" if len(linked) > _TOLD else ""
    return (
        f"{folder} is large: {', '.join(told)}{more} are not copied, and a program that writes to "
        "them writes to your own"
    )

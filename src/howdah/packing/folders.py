"""A folder as entries of an archive: what is taken, how links are kept, what is refused."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from howdah.packing.archives import PackingError, SizeRow
from howdah.packing.ignore_rules import Rules
from howdah.packing.tarball import TarEntry, is_executable

MOST_FILES = 200_000
"""A folder with more is refused: each task gets all of them, one by one, which would take minutes."""
_TOLD = 5


def too_many_files(folder: Path) -> PackingError:
    """What is said of a source folder that is refused because of their number."""
    return PackingError(
        f"{folder} has more than {MOST_FILES:,} files, and each task gets a folder with all of them. Leave out "
        'what the programs do not need (ignore = ["old-runs"] in the job file); or, on this machine, link '
        'folders as a whole that they open by path (link = ["data"]), or run in your own folder (--in-place)'
    )


class FolderContent(msgspec.Struct, frozen=True):
    """What a folder has to ship."""

    entries: tuple[TarEntry, ...]
    stamps: tuple[tuple[object, ...], ...]
    """What changes when the folder's content does: names, sizes, times of change."""
    sizes: tuple[int, ...]
    """Of the entries."""
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def biggest(self, count: int) -> list[SizeRow]:
        """Its biggest files."""
        pairs = zip(self.sizes, self.entries)
        rows = [SizeRow(entry.name, size) for size, entry in pairs if entry.path is not None]
        return sorted(rows, key=lambda row: (-row.size, row.name))[:count]

    def by_top(self) -> tuple[SizeRow, ...]:
        """What each of its top entries has in it, the biggest first."""
        sizes: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for entry, size in zip(self.entries, self.sizes):
            top, below, _ = entry.name.partition("/")
            sizes[top + below] += size
            files[top + below] += 1
        return tuple(SizeRow(name, size, files[name]) for name, size in sizes.most_common())


class _Item(msgspec.Struct, frozen=True):
    entry: TarEntry
    size: int
    stamp: tuple[object, ...]


def look(
    folder: Path, rules: Rules, without: tuple[Path, ...] = (), *, links_out: bool = False
) -> FolderContent:
    """Everything in the folder that the rules leave, but for the paths ``without``.

    Links to something inside stay links, relative ones. With ``links_out`` a link to a file outside
    becomes a copy of the file. Virtual environments, sockets, pipes and devices are left out.

    Raises:
        PackingError: a link leads out of the folder, or something cannot be read; all at once.
    """
    walk = _Walk(folder.resolve(), {path.resolve() for path in without}, links_out)
    try:
        items = list(walk.items(walk.folder, "", rules))
    except OSError as error:
        raise PackingError(
            f"{error.filename} cannot be read: {error.strerror or error}; make it readable, or "
            "name it in a .howdahignore file"
        ) from error
    if walk.problems:
        more = len(walk.problems) - _TOLD
        shown = [*walk.problems[:_TOLD], *([f"and {more} more"] if more > 0 else [])]
        raise PackingError(f"{folder} cannot be shipped: " + "; ".join(shown))
    items.sort(key=lambda item: item.entry.name)
    return FolderContent(
        entries=tuple(item.entry for item in items),
        stamps=tuple(item.stamp for item in items),
        sizes=tuple(item.size for item in items),
        notes=tuple(walk.notes),
    )


class _Walk:
    def __init__(self, folder: Path, without: set[Path], links_out: bool) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._without = without
        self._links_out = links_out

    def items(self, folder: Path, name: str, rules: Rules) -> Iterator[_Item]:
        """What is in a folder; an empty one is an entry itself."""
        any_ = False
        for entry in os.scandir(folder):
            path = Path(entry.path)
            inside = f"{name}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if path in self._without or rules.leave_out(path, is_folder=is_folder):
                continue
            any_ = True
            if not _is_utf8(entry.name):
                self.problems.append(f"the name of {inside!r} is not UTF-8 (rename it)")
            elif is_folder:
                if (path / "pyvenv.cfg").is_file():
                    self.notes.append(f"{inside}: left out, it is a virtual environment")
                else:
                    yield from self.items(path, f"{inside}/", rules.below(path))
            elif entry.is_symlink():
                yield from self._link(path, inside)
            else:
                yield from self._file(path, inside, entry.stat(follow_symlinks=False))
        if name and not any_:
            yield _Item(TarEntry(name.rstrip("/")), 0, (name,))

    def _file(self, path: Path, name: str, status: os.stat_result) -> Iterator[_Item]:
        if not stat.S_ISREG(status.st_mode):
            self.notes.append(f"{name}: left out, it is no regular file")
            return
        if not os.access(path, os.R_OK):
            self.problems.append(f"{name} cannot be read (make it readable, or ignore it)")
            return
        executable = is_executable(status.st_mode)
        stamp = (name, status.st_size, status.st_ctime_ns, status.st_ino, executable)
        yield _Item(TarEntry(name, path=path, executable=executable), status.st_size, stamp)

    def _link(self, path: Path, name: str) -> Iterator[_Item]:
        target = str(path.readlink())
        # Resolved without the last step: the link itself may lie below another link.
        meant = Path(os.path.normpath(path.parent / target))
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # a circle of links: nobody gets out by it
            real = meant
        if not (meant.is_relative_to(self.folder) and real.is_relative_to(self.folder)):
            if self._links_out and real.is_file():
                yield from self._file(real, name, real.stat())
                return
            self.problems.append(
                f"{name} is a link to {target}, outside of the folder (copy what it leads to, ship "
                "it with `files`, or name the link in a .howdahignore file)"
            )
            return
        if not _is_utf8(target):
            self.problems.append(f"the target of the link {name} is not UTF-8")
            return
        relative = os.path.relpath(meant, path.parent) if Path(target).is_absolute() else target
        yield _Item(TarEntry(name, link=relative), 0, (name, relative))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

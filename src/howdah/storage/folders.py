"""What is in a task's folder, whether it is finished, and copies that are proven equal.

Local files only, and only the standard library: this runs while a program trains.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from howdah.storage.confined_paths import escaping

Tree = Mapping[str, "Signature"]
"""Files by path relative to the folder, with ``/``."""


_NAMED = 5
"""Of the links that are left out, in what is said of them."""


class Signature(NamedTuple):
    """What changes whenever a file does, as far as the file system tells."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    link: str = ""
    """Where a symbolic link within the folder points; it is kept as a link."""

    def is_as(self, given: Signature | None) -> bool:
        """Whether the file is as it was given to the programs. A hard link that is made or removed elsewhere
        changes ``ctime_ns`` alone."""
        return given is not None and given._replace(ctime_ns=self.ctime_ns) == self


LEFT_OUT = Signature(0, 0, 0, 0)
"""Of what a scan leaves out, where it is noted that it was there."""


def link_file(source: str | Path, target: str | Path) -> None:
    """A hard link, which is a file to whatever walks through the folder; where there can be none (another
    file system, another user's file) a symbolic one.

    Raises:
        FileExistsError: the target is there.
        FileNotFoundError: the source is not there.
        OSError: the target's folder cannot be written.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        Path(target).symlink_to(source)


def set_aside(folder: Path, files: Mapping[str, str | Path], target: Path) -> Path | None:
    """Let files that nothing has saved outlive ``folder``: the same under ``target``, by hard links, which need
    no room, or else as copies.

    ``files`` are paths relative to the folder by name there. What is there already stays, what cannot be put
    there does not stop the others.

    Returns where they are: ``target``; its name with ``-partly`` if some are missing; None if all are.
    """
    put = 0
    for name, path in files.items():
        place = target / name
        with contextlib.suppress(OSError):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                os.link(folder / path, place, follow_symlinks=False)
            except FileExistsError:
                pass
            except OSError:
                import shutil  # the agent, which uses this module too, does without

                half = place.with_name(f"{place.name}.tmp")
                shutil.copy2(folder / path, half, follow_symlinks=False)
                half.rename(place)
            put += 1
    if put == len(files):
        return target if files else None
    partly = target.with_name(f"{target.name}-partly")
    with contextlib.suppress(OSError):
        target.rename(partly)
    return partly if put else None


class FolderChanged(Exception):
    """A file changed while it was copied; the text names it. Try again once it is finished."""


def files_below(folder: str | Path) -> Iterator[Path]:
    """The files in the folder or below, but for what goes away meanwhile (`Path.rglob` raises then) and
    folders that this user may not read.

    Raises:
        OSError: it cannot be read for another reason.
    """
    for place, _, names in os.walk(folder, onerror=_raise_others):
        yield from (Path(place, name) for name in names)


def _raise_others(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | PermissionError):
        raise error


def empty_folders(folder: Path, ignore: Iterable[str] = ()) -> tuple[str, ...]:
    """Folders below with nothing in them, by relative path, but for those below a name that fits ``ignore``."""
    patterns = tuple(ignore)
    found = (
        Path(place).relative_to(folder)
        for place, folders, files in os.walk(folder)
        if not folders and not files and Path(place) != folder
    )
    return tuple(
        sorted(
            path.as_posix()
            for path in found
            if not any(fnmatch.fnmatchcase(part, each) for part in path.parts for each in patterns)
        )
    )


def has_files(folder: str | Path) -> bool:
    """Whether there is a file in the folder or below."""
    return any(files for _, _, files in os.walk(folder))


def scan(
    folder: Path, ignore: Iterable[str] = (), left_out: dict[str, str] | None = None
) -> dict[str, Signature]:
    """The files below ``folder`` by relative path.

    Symbolic links that stay inside are links; those that lead outside count as the files they
    point to. Those that lead to folders outside, or to nothing there, are left out: ``left_out`` gets
    them, with what they point to. A file or folder is left out if its name fits one of
    the shell patterns ``ignore``, or if it goes away during the scan. A missing folder is empty.
    """
    patterns = tuple(ignore)
    found: dict[str, Signature] = {}
    links: dict[str, str] = {}
    pending = [""]
    while pending:
        place = pending.pop()
        try:
            entries = list(os.scandir(folder / place))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns):
                continue
            name = place + entry.name
            try:
                link = str(Path(entry.path).readlink()) if entry.is_symlink() else ""
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{name}/")
                elif link:
                    links[name] = link
                elif entry.is_file():
                    found[name] = _signature(entry.stat())
            except FileNotFoundError:
                continue
    return found | _links(folder, links, {} if left_out is None else left_out)


def _links(folder: Path, links: dict[str, str], left_out: dict[str, str]) -> dict[str, Signature]:
    """What the links of a folder count as; see `scan`."""
    found: dict[str, Signature] = {}
    while outside := escaping(links):
        # Each round with those that stay alone: what is left must lead inside without the others.
        for name in outside:
            link = links.pop(name)
            with contextlib.suppress(FileNotFoundError):
                if (folder / name).is_file():
                    found[name] = _signature((folder / name).stat())
                    continue
            left_out[name] = link
    for name, link in links.items():
        with contextlib.suppress(FileNotFoundError):
            found[name] = _signature((folder / name).lstat(), link)
    return found


def links_left_out(folder: Path, links: Mapping[str, str]) -> str:
    """What a user is told of the links that `scan` left out; empty where there are none."""
    if not links:
        return ""
    named = ", ".join(f"{name} -> {links[name]}" for name in sorted(links)[:_NAMED])
    more = f" and {len(links) - _NAMED} more" if len(links) > _NAMED else ""
    return (
        f"links in {folder} to folders outside of it, or to nothing there, are not saved: {named}{more}; have the program"
        " write into the folder itself"
    )


def _signature(stat: os.stat_result, link: str = "") -> Signature:
    return Signature(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, link)


def last_change(tree: Tree) -> float:
    """When a file last changed, seconds since the epoch; 0 for an empty folder."""
    # Not the mtime, which a program may set to anything.
    return max((signature.ctime_ns for signature in tree.values()), default=0) / 1e9


def sha256(path: Path) -> str:
    """Hexadecimal digest of the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_proven(source: Path, target: Path) -> str:
    """Copy the file, durably, and return its SHA-256, which original and copy share.

    The original is read once more after the copy: a program that writes through a memory map
    changes content without changing time stamps.

    Raises:
        FolderChanged: the original is not what was copied, or gone.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with source.open("rb") as reader, target.open("xb") as writer:
            os.fchmod(writer.fileno(), 0o600)
            _copy(reader.fileno(), writer.fileno())
            os.fsync(writer.fileno())
        digest = sha256(target)
        if sha256(source) != digest:
            raise FolderChanged(f"{source} changed while it was copied")
    except FileNotFoundError as error:
        raise FolderChanged(f"{source} went away while it was copied") from error
    return digest


def _copy(reader: int, writer: int) -> None:
    """By sharing blocks where the file system can, else in the kernel, else through memory."""
    copy_range = getattr(os, "copy_file_range", None)
    try:
        while copy_range is not None:
            if not copy_range(reader, writer, 1 << 30):
                return
    except OSError:
        # Not on this pair of file systems. Begin anew: nothing says how far it came.
        os.lseek(reader, 0, os.SEEK_SET)
        os.lseek(writer, 0, os.SEEK_SET)
        os.ftruncate(writer, 0)
    import shutil  # the agent, which uses this module too, does without

    with open(reader, "rb", closefd=False) as source, open(writer, "wb", closefd=False) as target:
        shutil.copyfileobj(source, target, 1 << 20)


def written_now(folder: Path, tree: Tree) -> str | None:
    """A file of the tree that a process of this user has open for writing, if one is found.

    Linux only; elsewhere nothing is found. Files mapped and then closed are not seen.
    """
    inodes = {signature.inode for signature in tree.values()}
    root = os.path.realpath(folder) + "/"
    for descriptor in _open_files():
        try:
            target = os.readlink(descriptor)  # noqa: PTH115 - thousands of them: no Path each
            if target.startswith(root) and Path(descriptor).stat().st_ino in inodes:
                if _for_writing(Path(descriptor)):
                    return target.removeprefix(root)
        except OSError:
            continue  # closed, or its process ended, while we looked
    return None


def _open_files() -> Iterator[str]:
    user = os.getuid()
    try:
        processes = [entry for entry in os.scandir("/proc") if entry.name.isdecimal()]
    except OSError:
        return
    for process in processes:
        try:
            if process.stat().st_uid != user or process.name == str(os.getpid()):
                continue
            yield from (entry.path for entry in os.scandir(f"{process.path}/fd"))
        except OSError:
            continue


def _for_writing(descriptor: Path) -> bool:
    information = descriptor.parent.parent / "fdinfo" / descriptor.name
    for line in information.read_text("utf-8", "surrogateescape").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False

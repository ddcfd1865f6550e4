"""Small files written whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def own_umask() -> int:
    """The umask of this process."""
    mask = os.umask(
        0o077
    )  # there is no other way to read it; private, should another thread write now
    os.umask(mask)
    return mask


def make_private_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Create the folder, and each level above it that is missing, 0700 whatever the umask.

    Raises:
        FileExistsError: it exists and ``exist_ok`` is false.
    """
    for level in reversed(path.parents):
        # Not `parents=True`: what that makes has the modes of the umask.
        with contextlib.suppress(FileExistsError):
            if not level.exists():
                level.mkdir(PRIVATE_FOLDER)
    path.mkdir(mode=PRIVATE_FOLDER, exist_ok=exist_ok)
    path.chmod(PRIVATE_FOLDER)


def write_private(path: Path, data: bytes) -> None:
    """A file of its owner alone, in a folder that is there. Readers may see a part of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(path, flags, PRIVATE_FILE), "wb") as file:
        file.write(data)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by a file with that content, 0600; durable when it returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE
    )
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), PRIVATE_FILE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make creations, renames and removals in the folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

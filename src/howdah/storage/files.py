"""Small files written whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
LARGEST = 256 << 20
"""Bytes of a document that is read whole: of a job with 100,000 tasks it has a fifth."""


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


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. A pipe would have its reader wait, and a device never end.

    Raises:
        OSError: it is not there, cannot be read, or is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file, but a pipe, device or folder", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """The content of a regular file; as `open_regular`.

    Raises:
        OSError: it is not there, cannot be read, is something else, or is larger than `LARGEST`.
    """
    with open_regular(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST} bytes", str(path))
    return data


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

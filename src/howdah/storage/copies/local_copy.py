"""Copies of other users' job directories; here those on this machine or a file system that it sees.

Who copies may be able to read everything, as root is; the owners may put anything into their
directories. So no link is followed there, and only regular files of the directory's owner are copied:
nobody is shown through a job what its owner could not read.

Not guaranteed: a file that is written meanwhile is copied as far as it had come.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pwd
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from howdah.storage import layout
from howdah.storage.confined_paths import parts
from howdah.storage.files import PRIVATE_FILE, make_private_folder, write_atomically
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire.decoders import document_decoder

log: logging.Logger = logging.getLogger(__name__)

SCHEME = "file://"
"""In a copy's meta data ``url`` begins so."""
LARGEST = 1 << 30
"""Bytes; a larger file is not copied."""
LARGEST_DOCUMENT = 16 << 20
"""The same of documents and secrets, which are read whole."""
ORIGIN = "origin.json"
AT_FIRST = frozenset({layout.JOB, layout.META, layout.FINAL, layout.COORDINATOR})
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CopyOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a copy comes from."""

    folder: str
    """A path, or the URL of a folder elsewhere."""
    owner: str
    """The account's name, as the file system has it."""
    uid: int | None = None
    """Its number, where the folder is a path."""
    partial: bool = False
    """It is still being made: what it says of itself is not yet put right."""


def account(uid: int) -> str:
    """The account's name, or ``uid-1000`` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def adopt(folder: Path, local: Path) -> JobDirectory | None:
    """Copy what is needed to list the job and to ask its coordinator; None if it is none (yet).

    Raises:
        OSError: it cannot be read.
    """
    with _opened(folder, None) as (at, uid):
        if layout.META not in _names(at):
            return None
    begin(local, CopyOrigin(folder=os.fspath(folder), uid=uid, owner=account(uid)))
    bring(local, accept=AT_FIRST.__contains__)
    with contextlib.suppress(FileNotFoundError):
        bring(local, layout.SECRETS, accept=layout.VARIABLES.__ne__)
    url = SCHEME + quote(os.fspath(folder))
    return own_meta(local, url=url, application_id=None, hadoop_conf=None)


def begin(local: Path, origin: CopyOrigin) -> None:
    """Make the folder of a copy, partial until `own_meta`."""
    make_private_folder(local)
    for name in (layout.SECRETS, layout.LOGS, layout.STACKS):
        make_private_folder(local / name)
    _write_origin(local, msgspec.structs.replace(origin, partial=True))


def own_meta(local: Path, **known: str | None) -> JobDirectory:
    """Put what is known in the place of what the owner says: it must not lead to what is not theirs."""
    directory, origin = JobDirectory(local), origin_of(local)
    owner = origin.owner
    try:
        meta = directory.meta()
    except StorageError:
        (local / layout.META).unlink(missing_ok=True)
    else:
        known = {"job_id": directory.job_id, "user": owner, "owner": owner, **known}
        directory.write_meta(msgspec.structs.replace(meta, **known))
    _write_origin(local, msgspec.structs.replace(origin, partial=False))
    return directory


def _write_origin(local: Path, origin: CopyOrigin) -> None:
    write_atomically(local / ORIGIN, msgspec.json.encode(origin))


def origin_of(local: Path) -> CopyOrigin:
    """Where that copy comes from.

    Raises:
        StorageError: it is no copy.
    """
    try:
        return document_decoder(CopyOrigin)((local / ORIGIN).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise StorageError(f"{local} is no copy of a job directory: {error}") from error


def bring(local: Path, below: str = "", accept: Callable[[str], bool] = lambda name: True) -> None:
    """Bring the files of one folder of the job directory that are new or have changed.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: it cannot be read, is not the owner's any more, or its name leads elsewhere.
    """
    origin = origin_of(local)
    with _opened(Path(origin.folder), origin.uid, below) as (at, uid):
        target = local / below
        make_private_folder(target)
        for name in filter(accept, _names(at)):
            if name != ORIGIN or below:
                whole = name in AT_FIRST or below == layout.SECRETS
                largest = LARGEST_DOCUMENT if whole else LARGEST
                _bring_file(at, name, uid, target / name, largest)


def folders(local: Path, below: str) -> list[str]:
    """Names of folders in one folder of the job directory."""
    origin = origin_of(local)
    try:
        with _opened(Path(origin.folder), origin.uid, below) as (at, _), os.scandir(at) as entries:
            return [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _names(at: int) -> list[str]:
    with os.scandir(at) as entries:
        return [each.name for each in entries]


@contextlib.contextmanager
def _opened(folder: Path, uid: int | None, below: str = "") -> Iterator[tuple[int, int]]:
    """The folder, and its owner: that one, unless it is None."""
    at = os.open(folder, _FOLDER)
    try:
        owner = os.fstat(at).st_uid
        for part in parts(below) if below else ():
            inner = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        if {owner, os.fstat(at).st_uid} != {owner if uid is None else uid}:
            raise PermissionError(errno.EPERM, "it is another user's now", f"{folder}/{below}")
        yield at, owner
    finally:
        os.close(at)


def _bring_file(at: int, name: str, uid: int, target: Path, largest: int) -> None:
    try:
        # A pipe would have its reader wait.
        source = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at
        )
    except OSError:  # a link, a socket, or it has just gone
        return
    with open(source, "rb") as file:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            return
        if status.st_size > largest:
            log.warning("%s is too large to be copied: %d bytes", target, status.st_size)
            return
        with contextlib.suppress(FileNotFoundError):
            there = target.stat()
            if (there.st_size, there.st_mtime_ns) == (status.st_size, status.st_mtime_ns):
                return
        temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with open(os.open(temporary, flags, PRIVATE_FILE), "wb") as copy:
                left = status.st_size
                while left and (data := file.read(min(left, _CHUNK))):
                    copy.write(data)
                    left -= len(data)
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

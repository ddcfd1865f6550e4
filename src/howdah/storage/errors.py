"""Whether an error may pass by itself: the one classification for agents and stores.

A transient error is worth another try after a pause; a final one is not, until a person has changed
something. Standard library only: the agent uses it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from howdah.storage.hdfs.errors import HdfsQuotaExceeded

_FINAL = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.EROFS,
        errno.ENOENT,
        errno.EISDIR,
        errno.ENOTEMPTY,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EXDEV,
        errno.EFBIG,
        errno.E2BIG,
        errno.ENOEXEC,
        errno.EAFNOSUPPORT,
        errno.EPROTONOSUPPORT,
    }
)
"""Rights and names of files. Not ENOTDIR and EEXIST: a file where a store's folder was is how a mount
looks that is away. All other numbers tell of machines, networks and room: ENOSPC, EDQUOT, EMFILE,
ESTALE, EIO, ETIMEDOUT, ECONNREFUSED, EAGAIN, …"""

_FINAL_KINDS = (PermissionError, FileNotFoundError, IsADirectoryError)

_RETRIED_STATUS = frozenset({408, 425, 429})
"""HTTP: too slow, too early, too often. From 500 on the server itself is in trouble."""

_PASSING = ("timeout", "timedout", "connect", "throttl", "slowdown", "unavailable", "retriable")
"""Parts of the class names with which libraries of cloud stores name what passes."""


class Outdated(Exception):
    """A later attempt of the task has written there: what an earlier one has is not wanted any more."""

    transient = False


def lacks_room(error: BaseException) -> bool:
    """Whether a disk or a quota is full, which may last."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, HdfsQuotaExceeded)


def not_written(place: str, error: BaseException) -> str:
    """That a place could not be written, and why; of a full one how much is free."""
    text = f"{place} can't be written: {in_words(error)}"
    return f"{text} (storage-full{_free(place)})" if lacks_room(error) else text


def _free(place: str) -> str:
    place = place.removeprefix("file://")
    for path in () if "://" in place else (Path(place), *Path(place).parents):
        with contextlib.suppress(OSError):
            found = os.statvfs(path)
            free = found.f_bavail * found.f_frsize >> 20
            return f": {free:,} MiB and {found.f_favail:,} inodes are free there"
    return ""


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later, without anybody's doing.

    An error that knows says so itself (``transient``: `howdah.storage.hdfs.errors`). Of the others,
    what the operating system reports may pass unless it is about rights, names or kinds of files;
    anything else is a defect or a wrong setting, unless it tells of a server or a network.
    """
    own = getattr(error, "transient", None)
    if own is not None:
        return bool(own)
    status = _http_status(error)
    if status is not None:
        return status >= 500 or status in _RETRIED_STATUS
    if isinstance(error, OSError):
        if error.errno is not None:
            return error.errno not in _FINAL
        return not isinstance(error, _FINAL_KINDS)
    if isinstance(error, MemoryError):
        return True
    names = " ".join(kind.__name__ for kind in type(error).__mro__).lower()
    return any(part in names for part in _PASSING)


def in_words(error: BaseException) -> str:
    """What happened, for people: texts of the system and of Howdah suffice, others need a class."""
    if str(error) and (isinstance(error, OSError) or hasattr(error, "transient")):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _http_status(error: BaseException) -> int | None:
    """The answer's status, where a library of a cloud store gives it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's ClientError
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:  # aiohttp, gcsfs, azure; requests and httpx
        found = getattr(error, "status", None) or getattr(error, "status_code", None)
        found = found or getattr(error, "code", None) or getattr(response, "status_code", None)
    try:
        status = int(found)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return None
    return status if 100 <= status < 600 else None

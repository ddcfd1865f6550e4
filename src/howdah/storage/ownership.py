"""Whether a folder is its user's alone, as OpenSSH asks of ``~/.ssh``.

Commands of a job are run from its job directory, programs from the cache of environments, and sockets
are trusted by the folder they are in. A directory that somebody else has made, or can put in the place of
one, must never be taken for the user's.

Not guaranteed: access control lists are not looked at; root may do anything.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path

from howdah.storage.files import make_private_folder

TRUSTED = "HOWDAH_TRUSTED_FOLDER"
"""Environment variable: the user trusts whoever can write to this folder, or to one above it."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def owner_problem(folder: Path) -> str:
    """Why the folder itself cannot be taken for the user's own: "" if it can. A missing one can."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror or error}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is a link or a file"
    if status.st_uid != os.getuid():
        return f"{folder} belongs to {_user(status.st_uid)}"
    if _others_write(status):
        return f"others may write to {folder} (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def exposed(folder: Path) -> str:
    """Why somebody else could put another folder in the place of this one: "" if nobody can.

    The folder must be the user's, and each level above the user's or root's; none may be writable by
    others. Above it a sticky one such as ``/tmp`` may: there everybody replaces their own only.
    Levels that do not exist yet are left out, and so is what the user trusts (`TRUSTED`).
    """
    return owner_problem(Path(os.path.realpath(folder))) or replaceable(folder)


def replaceable(folder: Path) -> str:
    """The same, whatever stands there now: "" if nobody else can put a folder in that place."""
    trusted = os.environ.get(TRUSTED)
    end = os.path.realpath(trusted) if trusted else None
    # The levels above the folder, and those above what links lead to.
    for level in _levels(os.path.realpath(folder), end) | _levels(folder.absolute(), end):
        try:
            status = level.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{level} cannot be looked at: {error.strerror or error}"
        if status.st_uid not in (0, os.getuid()):
            return f"{level}, above {folder}, belongs to {_user(status.st_uid)}"
        if _others_write(status) and not status.st_mode & stat.S_ISVTX:
            mode = stat.S_IMODE(status.st_mode)
            return f"others may write to {level}, above {folder} (mode {mode:o})"
    return ""


def _levels(folder: str | Path, end: str | None) -> dict[Path, None]:
    """The folders above, nearest first, up to what is trusted."""
    found: dict[Path, None] = {}
    for level in Path(folder).parents:
        if os.path.realpath(level) == end:
            break
        found[level] = None
    return found


def make_own_folder(folder: Path) -> None:
    """Make the folder the user's alone, and the missing ones above it; one that is there is closed to
    others.

    Raises:
        PermissionError: somebody else could write to it, or put another one in its place.
        OSError: it cannot be made.
    """
    if why := owner_problem(Path(os.path.realpath(folder))):
        why += (
            ", so that what is in it may be somebody else's: remove it, or `chmod go-w` it if you know it for "
            "your own"
        )
    elif why := replaceable(folder):
        why += f", so that they could put another folder in its place; {REMEDY}"
    if why:
        raise PermissionError(errno.EPERM, why, str(folder))
    make_private_folder(folder)


REMEDY = (
    f"`chmod go-w` it, or `chmod +t` it where others must go on writing there; or, if you trust all of "
    f"them, set {TRUSTED} to it"
)
"""For a level above a folder that others may write to."""


def _others_write(status: os.stat_result) -> bool:
    writable = status.st_mode & _OTHERS_WRITE
    if writable == stat.S_IWGRP:
        return not _is_private(status.st_gid)
    return bool(writable)


def _is_private(group: int) -> bool:
    """Whether it is the user's own group, as most Linux systems give each user one (umask 002)."""
    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return (
        group == user.pw_gid
        and found.gr_name == user.pw_name
        and set(found.gr_mem) <= {user.pw_name}
    )


def _user(number: int) -> str:
    try:
        return f"another user, {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"another user, uid {number}"

"""This user's private folder with a short path: sockets and locks are in it. Standard library only.

It is ``howdah-<uid>`` in ``$HOWDAH_RUNTIME_DIR``, else in ``/tmp``. Not in ``$XDG_RUNTIME_DIR``, which
many systems remove when the user logs out, while a detached job goes on.

In ``/tmp`` anybody can make a folder, link or file of that name first. Then it is stepped around:
``howdah-<uid>-<random>`` takes its place, which processes that come later find by its owner.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from howdah.storage import ownership

VARIABLE = "HOWDAH_RUNTIME_DIR"
"""Environment variable: folder for sockets instead of ``/tmp``."""
SHARED = Path("/tmp")  # noqa: S108 - what is used in it is private

Made = TypeVar("Made")

log: logging.Logger = logging.getLogger(__name__)


def base(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the private folder is made."""
    return Path(environ.get(VARIABLE) or SHARED)


def private_folder(where: Path) -> Path:
    """This user's folder in ``where``, 0700, made if there is none.

    Raises:
        PermissionError: somebody else could replace a folder there.
        OSError: none can be made there.
    """
    usual = where / _name()
    if why := ownership.replaceable(usual):
        raise PermissionError(errno.EPERM, f"{why}; {ownership.REMEDY}", str(where))
    while not is_ours(usual):
        try:
            usual.mkdir(mode=0o700)
        except FileExistsError:
            if not is_ours(usual) and os.path.lexists(usual):
                break
        # Else its last user has just removed it.
    else:
        return usual
    for other in others(where):
        return other
    import tempfile  # agents mostly do without

    fresh = Path(tempfile.mkdtemp(prefix=f"{_name()}-", dir=where))
    log.warning("%s is not this user's alone, so %s is used instead of it", usual, fresh)
    return fresh


def retry_with_folder(make: Callable[[], Made]) -> Made:
    """``make()``, which makes the first thing of this process in the private folder: once more if another
    job's process, the last one there, has just removed the empty folder.

    Raises:
        OSError: it cannot be made.
    """
    try:
        return make()
    except FileNotFoundError:
        private_folder(base())
        return make()


def others(where: Path) -> Iterator[Path]:
    """Folders made where somebody else had the usual name, always in the same order."""
    for path in sorted(where.glob(f"{_name()}-*")):
        if is_ours(path):
            yield path


def is_ours(folder: Path) -> bool:
    """Whether it is a folder of this user, no link, that nobody else could ever have written to. What
    others may only look into is closed."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        if status.st_mode & 0o777 != 0o700:
            folder.chmod(0o700)
    except OSError:
        return False
    return True


def _name() -> str:
    return f"howdah-{os.getuid()}"

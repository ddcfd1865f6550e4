"""Where the node daemon's socket is: a private folder with a short path (`howdah.storage.runtime`).

A Unix socket's path has at most 103 bytes (macOS; 107 on Linux), so it can't be in the job directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from pathlib import Path

from howdah.backends.base import BackendError
from howdah.storage import runtime

FOLDER_VARIABLE = runtime.VARIABLE
LONGEST_PATH = 103
YOUNG_S = 60.0

_PREFIX = "node-"


def runtime_folder() -> Path:
    """This user's folder for sockets, made if there is none, 0700.

    Raises:
        BackendError: it cannot be made.
    """
    try:
        return runtime.private_folder(runtime.base())
    except OSError as error:
        raise BackendError(
            f"The folder for sockets cannot be used: {error}. "
            f"Set {FOLDER_VARIABLE} to a short, writable folder on this machine"
        ) from error


def tidy(folder: Path) -> None:
    """Remove sockets of daemons that were killed together with their coordinators, and the folder
    if nothing is left in it."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*"):
            # Not a young one: it may be bound and not listen yet.
            if time.time() - path.stat().st_mtime > YOUNG_S and not _answers(path):
                path.unlink()
        folder.rmdir()


def remove_leftover(job_dir: Path) -> None:
    """Remove the socket of a daemon that was killed together with its coordinator: none will come after it."""
    with contextlib.suppress(BackendError, OSError):
        path = socket_path(job_dir)
        if path.exists() and not _answers(path):
            path.unlink()
        tidy(path.parent)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def socket_path(job_dir: Path) -> Path:
    """The node daemon's socket for that job directory.

    Raises:
        BackendError: the folder cannot be used, or its path is too long for a socket.
    """
    name = hashlib.blake2s(os.fsencode(job_dir.resolve()), digest_size=8).hexdigest()
    usual = runtime_folder()
    # The daemon may have found another folder than this process does: one that was there first.
    there = (each / f"{_PREFIX}{name}" for each in (usual, *runtime.others(usual.parent)))
    path = next(filter(Path.exists, there), usual / f"{_PREFIX}{name}")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise BackendError(
            f"{path} is too long for a Unix socket (at most {LONGEST_PATH} bytes). "
            f"Set {FOLDER_VARIABLE} to a shorter folder"
        )
    return path

"""Whether a store can be written, found out by writing to it.

A store that isn't there yet is made by the first task that saves. So what is tried then is its
nearest folder that is there, and nothing of the trial is left: no file, and no folder either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import secrets
from pathlib import Path

from howdah.storage.hdfs import is_hdfs
from howdah.storage.stores import file_system

HDFS_PATIENCE_S = 5.0
"""Each call waits so long for a NameNode that restarts."""

_CONTENT = b"Howdah tries whether it may write here; this file may be removed.\n"


def try_to_write(store: str, *, hadoop_conf: str | None = None) -> None:
    """Create a small file in the store, and delete it.

    Args:
        store: a path or an fsspec URL.
        hadoop_conf: folder of the Hadoop cluster's configuration, where it is not the usual one.

    Raises:
        OSError: it can't be written, or not be reached.
        Exception: whatever else the URL's fsspec implementation raises.
    """
    store = store.removeprefix("file://")
    if is_hdfs(store):
        _try_hdfs(store, hadoop_conf)
    elif "://" in store or "::" in store:
        _try_url(store)
    else:
        _try_folder(Path(store).expanduser())


def _name() -> str:
    return f".howdah-trial-{secrets.token_hex(4)}"


def _try_folder(store: Path) -> None:
    there = next(path for path in (store, *store.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is not a folder")
    if there == store:
        _try_file(store / _name())
        return
    folder = there / _name()
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        why = f"no folder can be made in {there}: {error.strerror}"
        raise OSError(error.errno, why) from error
    try:
        _try_file(folder / "file")
    finally:
        folder.rmdir()


def _try_file(path: Path) -> None:
    try:
        with path.open("xb") as file:
            file.write(_CONTENT)
            file.flush()
            os.fsync(file.fileno())  # a quota or a full disk may be noticed only then
    finally:
        path.unlink(missing_ok=True)


def _try_hdfs(store: str, hadoop_conf: str | None) -> None:
    from howdah.storage.hdfs.files import Hdfs

    hdfs = Hdfs(store, conf_dir=hadoop_conf, patience_s=HDFS_PATIENCE_S)
    root = there = hdfs.path(store)
    while not hdfs.exists(there):
        there = posixpath.dirname(there)
    if not hdfs.stat(there).is_dir:
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is not a folder")
    trial = f"{there}/{_name()}"
    if there != root:
        hdfs.mkdirs(trial)
    try:
        hdfs.write_new(trial if there == root else f"{trial}/file", _CONTENT)
    finally:
        with contextlib.suppress(OSError):
            hdfs.remove(trial, recursive=True)


def _try_url(store: str) -> None:
    fs, path = file_system(store)
    root = str(path).rstrip("/")
    was_there = fs.exists(root)
    file = f"{root}/{_name()}"
    try:
        fs.makedirs(root, exist_ok=True)
        fs.pipe_file(file, _CONTENT)
        fs.rm_file(file)
    finally:
        if not was_there:
            with contextlib.suppress(Exception):  # object stores have no folders to remove
                fs.rmdir(root)

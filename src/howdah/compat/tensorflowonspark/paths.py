"""The path rules of `TFNode.hdfs_path`, as a pure function."""

from __future__ import annotations

import re
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USER_FOLDERS = ("hdfs://", "viewfs://")
"""File systems on which a relative path begins in ``/user/<name>``."""


def absolute(path: str, *, default_fs: str, working_dir: str, user: str) -> str:
    """A path with its file system.

    * With a scheme (``hdfs://``, ``s3a://``, ``gs://``, ``abfs://``, …) it stays as it is.
    * ``/x`` is on the default file system.
    * ``x`` is in ``/user/<user>`` on HDFS and ViewFs, in the working folder on ``file://``, and at
      the root of any other file system.
    """
    if _SCHEME.match(path):
        return path
    base = default_fs.rstrip("/") if not default_fs.endswith("://") else default_fs
    # ``file:/`` and ``file:///`` are one place; ``rstrip`` may have taken the slashes of the scheme.
    if base in ("file:", "file://"):
        base = "file://"
    if path.startswith("/"):
        return base + path
    if base.startswith(_USER_FOLDERS):
        return f"{base}/user/{user}/{path}"
    if base.startswith("file://"):
        return f"{base}{Path(working_dir).absolute()}/{path}"
    return f"{base}/{path}"


def default_file_system(configured: str | None) -> str:
    """``fs.defaultFS`` as programs expect it: ``file://``, ``hdfs://namenode:8020``, no slash after."""
    value = configured or "file:///"
    if value.startswith("file:"):
        return "file://"
    return value.rstrip("/")

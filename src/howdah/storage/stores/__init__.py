"""Stores: places that a job file names, each a local folder, a folder on HDFS, or any fsspec URL.

`file_system` is the one way from a URL to fsspec. `checkpoint_stores` has versions of a folder, `destinations` files
that are copied there and grow. `write_probe` finds out at submission whether a store can be written.
"""

from __future__ import annotations

from typing import Any

from howdah.spec.urls import url_problem


def file_system(url: str, *, written: bool = True) -> tuple[Any, str]:
    """The file system of a URL, and the path on it. Nothing is connected yet.

    Args:
        written: it is for writing, too.

    Raises:
        ValueError: a URL of that kind is not taken (`howdah.spec.urls`).
        Exception: what the URL's fsspec implementation raises.
    """
    if why := url_problem(url, written=written):
        raise ValueError(f"{url[:200]!r}: {why}")
    from fsspec.core import url_to_fs

    return url_to_fs(url)

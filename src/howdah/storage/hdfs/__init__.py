"""Files on HDFS, without a JVM: what Howdah needs of them, over `hdfs_native` (Rust).

`files` is where to start; `session` is one connection and what is done again, `calls` are calls that can be
given up. What is here, and `errors`, imports nothing that takes time and may be used anywhere.
"""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urlsplit


def is_hdfs(place: str) -> bool:
    """Whether a path or URL is for this module."""
    return place.startswith("hdfs://")


def split(url: str) -> tuple[str, str]:
    """File system and path of a URL: ``("hdfs://nn:8020", "/a/b")``; the first is empty for a path
    or for ``hdfs:///a/b``, which stand for the default file system.

    Raises:
        ValueError: it is a URL of something else, or a relative path.
    """
    if "://" not in url:
        if not url.startswith("/"):
            raise ValueError(f"{url!r} is neither an absolute path nor an hdfs:// URL")
        return "", posixpath.normpath(url)
    parts = urlsplit(url)
    if parts.scheme != "hdfs":
        raise ValueError(f"{url!r} is no URL of HDFS: it begins with {parts.scheme}://")
    fs = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    path = unquote(parts.path) if "%" in parts.path else parts.path
    return fs, posixpath.normpath(path or "/")

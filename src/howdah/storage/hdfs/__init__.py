"""Files on HDFS, without a JVM: what Howdah needs of them, over `hdfs_native` (Rust).

`files` is where to start; `session` is one connection and what is done again, `calls` are calls that can be
given up. What is here, and `errors`, imports nothing that takes time and may be used anywhere.
"""

from __future__ import annotations

import posixpath


def is_hdfs(place: str) -> bool:
    """Whether a path or URL is for this module."""
    return place.startswith("hdfs://")


def split(url: str) -> tuple[str, str]:
    """File system and path of a URL: ``("hdfs://nn:8020", "/a/b")``; the first is empty for a path
    or for ``hdfs:///a/b``, which stand for the default file system. As for Hadoop's ``Path`` no character
    is escaped: Spark's folder of the value ``a/b`` is called ``k=a%2Fb``.

    Raises:
        ValueError: it is a URL of something else, or a relative path.
    """
    if "://" not in url:
        if not url.startswith("/"):
            raise ValueError(f"{url!r} is neither an absolute path nor an hdfs:// URL")
        return "", posixpath.normpath(url)
    scheme, _, rest = url.partition("://")
    if scheme != "hdfs":
        raise ValueError(f"{url!r} is no URL of HDFS: it begins with {scheme}://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}" if host else "", posixpath.normpath(f"/{path}")

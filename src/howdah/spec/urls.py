"""Which URLs a job file may name: a job file may be a stranger's, and some URLs run code of theirs.

fsspec knows many more protocols. ``reference::http://…`` fills in templates that it has fetched, others
unpack, cache, or reach through one another. Only those that are meant as stores are let through.
"""

from __future__ import annotations

_READ = ("http", "https", "webhdfs")
STORES = (
    *("file", "hdfs", "viewfs", "s3", "s3a", "gs", "gcs"),
    *("abfs", "abfss", "az", "adl", "memory"),
)
"""Protocols of places that can be written."""


def url_problem(url: str, *, written: bool = True) -> str:
    """Why nothing is read from that URL, or ``written`` to it: "" if it may be."""
    if "::" in url:
        return "URLs that lead through one another (::) are not followed"
    protocol = url.partition("://")[0]
    if protocol in STORES:
        return ""
    if protocol in _READ:
        return f"{protocol}:// can only be read" if written else ""
    known = ", ".join(STORES[:-1] if written else (*STORES[:-1], *_READ))
    return f"{protocol[:40]}:// is none of the protocols that are taken: {known}"

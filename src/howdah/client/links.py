"""Addresses that people open in a browser."""

from __future__ import annotations

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def local_base(job_id: str, port: int) -> str:
    """The address of a port of this machine that serves one job.

    Cookies know hosts and no ports: below a host name of its own (browsers take all of ``.localhost``
    for this machine, RFC 6761 6.3) a job's cookies go to that job alone. A job id is a DNS label.
    """
    return f"http://{job_id}.localhost:{port}"


def base(job_id: str, host: str, port: int) -> str:
    """The address of a job's page, where its coordinator is at that host and port."""
    if host in LOOPBACK:
        return local_base(job_id, port)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

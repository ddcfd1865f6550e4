"""Open files of this process: as many as the system lets it have, and who may use them."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Generator

STRANGERS_SHARE = 4
"""Connections that have proven nothing get one descriptor in so many, at each port."""
STRANGERS_MOST = 512
"""They cost up to 50 kB each, whatever the number of descriptors."""
STRANGERS_LEAST = 16

_before: tuple[int, int] | None = None
"""The limits before `raise_limit`."""


def raise_limit() -> None:
    """Let this process open as many files as the hard limit allows. Harmless twice."""
    global _before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    # A system may promise more than it gives: then the limit stays.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _before = _before or (soft, hard)


@contextlib.contextmanager
def limit_as_found() -> Generator[None]:
    """Start programs with the limit they would have had without `raise_limit`.

    Programs that use ``select`` fail with descriptors above 1,023.
    """
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _before is None or raised == _before:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, _before)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raised)


def strangers_at_a_port() -> int:
    """How many connections may wait at one port that have not proven who they are."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return STRANGERS_MOST
    return max(STRANGERS_LEAST, min(soft // STRANGERS_SHARE, STRANGERS_MOST))

"""Limits of this process: as many open files as the system lets it have, and who may use them; and no
core files."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Generator

UNAUTHENTICATED_SHARE = 4
"""Connections that have proven nothing get one descriptor in so many, at each port."""
UNAUTHENTICATED_MOST = 512
"""They cost up to 50 kB each, whatever the number of descriptors."""
UNAUTHENTICATED_LEAST = 16

_before: dict[int, tuple[int, int]] = {}
"""The limits before they were changed."""


def raise_limit() -> None:
    """Let this process open as many files as the hard limit allows. Harmless twice."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        _change(resource.RLIMIT_NOFILE, hard)


def no_core_files() -> None:
    """Leave no memory behind, if this process is killed, in a file: keys and the token are in it."""
    _change(resource.RLIMIT_CORE, 0)


def _change(limit: int, soft: int) -> None:
    found = resource.getrlimit(limit)
    # A system may promise more than it gives: then the limit stays.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(limit, (soft, found[1]))
        _before.setdefault(limit, found)


@contextlib.contextmanager
def limits_as_found() -> Generator[None]:
    """Start programs with the limits they would have had without this module's changes.

    Programs that use ``select`` fail with descriptors above 1,023.
    """
    changed = {limit: resource.getrlimit(limit) for limit in _before}
    for limit, found in _before.items():
        resource.setrlimit(limit, found)
    try:
        yield
    finally:
        for limit, ours in changed.items():
            resource.setrlimit(limit, ours)


def unauthenticated_at_a_port() -> int:
    """How many connections may wait at one port that have not proven who they are."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNAUTHENTICATED_MOST
    return max(UNAUTHENTICATED_LEAST, min(soft // UNAUTHENTICATED_SHARE, UNAUTHENTICATED_MOST))

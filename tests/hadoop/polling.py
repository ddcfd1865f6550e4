"""Waiting for what a cluster does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_POLL_S = 0.1


def wait(what: str, test: Callable[[], T], timeout_s: float = 120.0) -> T:
    """Wait until ``test`` gives something; a daemon that does not answer has not said so yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if found := test():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(_POLL_S)

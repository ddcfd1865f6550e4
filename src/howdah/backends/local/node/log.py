"""The node daemon's own log: few lines, to standard error."""

from __future__ import annotations

import sys
import time


def note(text: str) -> None:
    """A line in the daemon's log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    print(f"{stamp} {text}", file=sys.stderr)  # noqa: T201

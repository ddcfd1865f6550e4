"""Logs of the node daemon and of what it forks: standard output and error, appended to a file."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? "
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:(?:howdah|asyncio)[\w.]*: )?)?(?=\S)"
)
"""Time, level and logger, as agents, coordinators and `note` write them."""


def log_to(path: Path) -> None:
    """Append standard output and error of this process to a file of its owner alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    # Lines appear when they are written: whoever reads a log of the dead wants the last one.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)


def note(text: str) -> None:
    """A line in the daemon's log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    print(f"{stamp} {text}", file=sys.stderr)  # noqa: T201


def last_line(log: Path) -> str:
    """The last line of a file that is not blank, without its stamp, at most 500 characters; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return line[found.end() if (found := _STAMP.match(line)) else 0 :][:500]

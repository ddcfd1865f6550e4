"""Another user of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user as well")


@contextlib.contextmanager
def program(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of another user, its output a pipe; it is ended at last."""
    # Not by Popen's own ``user``: the interpreter may be where only its owner can reach it.
    become = f"import os\nos.setgroups([])\nos.setgid({NOBODY})\nos.setuid({NOBODY})\n"
    process = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-c",
            f"import encodings.idna, socket, sys\n{become}{code}",
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()

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
def program(
    code: str, *arguments: str, fds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A program of another user, its output a pipe; it is ended at last.

    ``fds``: what it inherits open, as if it had got there by itself.
    """
    # Not by Popen's own ``user``: the interpreter may be where only its owner can reach it.
    become = f"os.setgroups([])\nos.setgid({NOBODY})\nos.setuid({NOBODY})\n"
    process = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-c",
            f"import ctypes, encodings.idna, json, os, socket, ssl, stat, sys\n{become}{code}",
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=fds,
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

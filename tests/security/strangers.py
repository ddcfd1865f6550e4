"""Another user of this machine."""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def bare_context(secrets: Path | None = None, role: str = "agent") -> ssl.SSLContext:
    """A stranger's: any server will do, and it has no certificate, or that of a role of some job."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if secrets is not None:
        context.load_cert_chain(secrets / f"{role}.pem", secrets / f"{role}.key")
    return context


def line(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()

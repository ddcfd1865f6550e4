"""The node daemon's process, started with as few imports as can be: a job's launch waits for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

_BOOT = os.path.join(os.path.dirname(__file__), "boot.py")


class Spawned:
    """A daemon that waits on a socket for the word to go, or for its end."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.socket: socket.socket
        self.socket, theirs = socket.socketpair()
        with theirs:
            # Isolated: neither PYTHONPATH nor the current folder of the submitter reaches it.
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", _BOOT, *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=theirs.fileno(),
                close_fds=True,
            )

    def close(self) -> None:
        """Without the word to go, the daemon ends."""
        self.socket.close()
        # It only forked the daemon, and has ended long ago.
        try:
            self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            pass

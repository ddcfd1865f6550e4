"""A coordinator's process, as the driver program starts it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from howdah.backends.spark import pythonpath
from howdah.backends.spark.link import LINK, LISTEN

_MODULE = "howdah.backends.spark.coordinate"


class Child:
    """One coordinator, which waits for `go`."""

    def __init__(self, listener: socket.socket) -> None:
        """
        Raises:
            OSError: no process can be started.
        """
        self.link, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        with theirs:
            env = {
                **os.environ,
                LINK: str(theirs.fileno()),
                LISTEN: str(listener.fileno()),
                # Whatever the program was given to find us by: --py-files, a folder, a zip file.
                "PYTHONPATH": pythonpath.told(),
            }
            # In a session of its own: Ctrl-C in a notebook is not meant for it.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=self._words,
                stderr=self._words,
                pass_fds=(theirs.fileno(), listener.fileno()),
                env=env,
                start_new_session=True,
            )

    def go(self, job_dir: Path) -> None:
        """The job directory is complete: begin."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: that is noticed in its own time
            self.process.stdin.write(os.fsencode(job_dir) + b"\n")
            self.process.stdin.close()

    def last_words(self) -> str:
        """What it said before it had a log."""
        with contextlib.suppress(OSError, ValueError):
            self._words.seek(0)
            lines = self._words.read().decode(errors="replace").strip().splitlines()
            return lines[-1][:500] if lines else ""
        return ""

    def close(self) -> None:
        """Let go; one that was never told to go ends."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.link.close()
        with contextlib.suppress(OSError):
            self._words.close()

"""The submission of a job from a command line, to a driver program of its own (`program`)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.backends.base import BackendError, Step
from howdah.backends.spark import pythonpath
from howdah.storage.jobdir import JobDirectory, base_folder

if TYPE_CHECKING:
    from howdah.spec.load import LoadedJob
    from howdah.spec.model import Job

START_S = 180.0
"""For a Spark application to start, and for its executors to register."""


class DetachedSubmission:
    """A driver program that waits for the job."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "howdah.backends.spark.program"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": pythonpath.told()},
                start_new_session=True,
            )
        self._answers = self._socket.makefile("rb")
        self._gone = False

    def base(self, job: Job) -> Path:
        """See `howdah.backends.base.Submission.base`."""
        return base_folder(job.store)

    def check(self, job: Job, loaded: LoadedJob) -> None:
        """See `howdah.backends.base.Submission.check`."""
        from howdah.backends.spark.program import Check

        self._ask(Check(job=job, source=str(loaded.source) if loaded.source else None))

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        """See `howdah.backends.base.Submission.go`."""
        from howdah.backends.spark.program import Go

        self._ask(Go(directory=str(directory.path)))
        self._gone = True

    def cancel(self) -> None:
        """Nothing: `go` takes no time."""

    def close(self) -> None:
        """Without `go`, the program ends, and its application."""
        self._answers.close()
        self._socket.close()
        if not self._gone:
            try:
                self._process.wait(timeout=20.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _ask(self, question: msgspec.Struct) -> None:
        from howdah.backends.spark.program import Answer

        try:
            self._socket.settimeout(START_S)
            self._socket.sendall(msgspec.json.encode(question) + b"\n")
            line = self._answers.readline()
        except TimeoutError:
            raise BackendError(
                f"The Spark application was not there within {START_S:g} s; see what its cluster "
                "waits for"
            ) from None
        except OSError:
            line = b""
        if not line:
            raise BackendError(
                f"The program that makes the Spark session ended without a word ({sys.executable}"
                " -m howdah.backends.spark.program): is there a Java that Spark can use?"
            )
        answer = msgspec.json.decode(line, type=Answer)
        if answer.problem:
            raise BackendError(answer.problem)

"""A driver program of our own, for jobs from a command line: ``python -m howdah.backends.spark.program``.

It makes a session, is told of one job over standard input, and lasts as long as that. Whoever has
started it may go: the job is not tied to a terminal. What Spark prints is in ``logs/spark.log``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.local.forks import log_to, no_input
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory, base_folder

LOG = "logs/spark.log"


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Can it ever run there?"""

    job: Job
    source: str | None


class Go(msgspec.Struct, frozen=True, kw_only=True, tag="go"):
    """The job directory is complete."""

    directory: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """To each."""

    problem: str = ""


def main() -> int:
    """Serve one job; returns the exit code."""
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    client = socket.socket(fileno=os.dup(0))
    log = _log()
    try:
        return _serve(client, log)
    finally:
        log.unlink(missing_ok=True)  # moved, or nobody's


def _serve(client: socket.socket, log: Path) -> int:
    from howdah.backends.spark.application import session
    from howdah.backends.spark.submission import SparkSubmission

    requests = client.makefile("rb")
    submission: SparkSubmission | None = None
    directory: JobDirectory | None = None

    def answered(do: Callable[[], None]) -> bool:
        problem = ""
        try:
            do()
        except BackendError as error:
            problem = str(error)
        except Exception as error:  # pyspark's and py4j's own
            problem = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            client.sendall(msgspec.json.encode(Answer(problem=problem)) + b"\n")
        return not problem

    spark: Any = None
    trouble = ""
    try:
        spark = session()
        submission = SparkSubmission(spark)
    except BackendError as error:
        trouble = str(error)
    try:
        for line in requests:
            if submission is None:
                client.sendall(msgspec.json.encode(Answer(problem=trouble)) + b"\n")
                return 1
            match msgspec.json.decode(line, type=Check | Go):
                case Check() as wanted:
                    checked = submission
                    if not answered(lambda w=wanted, s=checked: _check(s, w)):
                        return 1
                case Go() as wanted:
                    directory = JobDirectory(wanted.directory)
                    log = _keep(log, directory.path / LOG)
                    going, where = submission, directory
                    if not answered(lambda s=going, d=where: s.go(d, lambda step: None)):
                        return 1
                    break
        if directory is None or submission is None:
            return 0  # whoever wanted a job has gone
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        client.close()
        submission.closed.wait()
        return 0
    finally:
        if submission is not None:
            submission.close()
        if spark is not None:
            spark.stop()
        if directory is not None and log != directory.path / LOG:
            with contextlib.suppress(OSError):
                shutil.copyfile(log, directory.path / LOG)


def _check(submission: Any, wanted: Check) -> None:
    from howdah.spec.load import LoadedJob

    source = Path(wanted.source) if wanted.source is not None else None
    submission.check(wanted.job, LoadedJob(job=wanted.job, source=source))


def _log() -> Path:
    """Where all output goes, Java's too, until there is a job directory."""
    folder = base_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f".spark-{os.getpid()}.log"
    log_to(path)
    no_input()
    return path


def _keep(log: Path, place: Path) -> Path:
    """Move it into the job directory; where that is another file system it is copied at the end."""
    try:
        return log.rename(place)
    except OSError:
        return log


if __name__ == "__main__":
    sys.exit(main())

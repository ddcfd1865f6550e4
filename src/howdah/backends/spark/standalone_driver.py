"""Jobs submitted without a Spark session: a driver program of their own.

In a program that has a session, or that ``spark-submit`` has started, `begin` submits the job to that
application. Otherwise it starts a driver program (`main`, ``python -m`` this module) while the job
is loaded. That makes a session, is given one job over its standard input, and lasts as long as it.
The submitter may go: the job is not tied to a terminal. What Spark prints is in ``logs/spark.log``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from howdah.backends.base import BackendError, Step, Submission
from howdah.backends.interpreter import python_path
from howdah.spec.model import Job
from howdah.storage import ownership
from howdah.storage.jobdir import JobDirectory, base_folder

if TYPE_CHECKING:
    from howdah.spec.load import LoadedJob

LOG = "logs/spark.log"
START_S = 180.0
"""For a Spark application to start, and for its executors to register."""

_MODULE = "howdah.backends.spark.standalone_driver"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit`` for the program it starts."""


class CheckJob(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Can it ever run there?"""

    job: Job
    source: str | None


class BeginJob(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """The job directory is complete."""

    directory: str


class DriverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """To each request."""

    problem: str = ""


# -- the submitter's side --------------------------------------------------------------------------


def begin() -> Submission:
    """The submission of one job.

    Raises:
        BackendError: there is no pyspark, or no application can be started.
    """
    if _GATEWAY in os.environ or _has_session():
        from howdah.backends.spark.application import in_this_program

        return in_this_program()
    return StandaloneSubmission()


def _has_session() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from howdah.backends.spark.application import active

    return active() is not None


class StandaloneSubmission(Submission):
    """A driver program that waits for the job."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": python_path()},
                start_new_session=True,
            )
        self._answers = self._socket.makefile("rb")
        self._begun = False

    def check(self, job: Job, loaded: LoadedJob) -> None:
        self._request(CheckJob(job=job, source=str(loaded.source) if loaded.source else None))

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        self._request(BeginJob(directory=str(directory.path)))
        self._begun = True

    def close(self) -> None:
        """Without `go`, the program ends, and its application."""
        self._answers.close()
        self._socket.close()
        if not self._begun:
            try:
                self._process.wait(timeout=20.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _request(self, request: msgspec.Struct) -> None:
        try:
            self._socket.settimeout(START_S)
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
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
                f"The program that makes the Spark session ended without a message ({sys.executable}"
                f" -m {_MODULE}): is there a Java that Spark can use?"
            )
        answer = msgspec.json.decode(line, type=DriverAnswer)
        if answer.problem:
            raise BackendError(answer.problem)


# -- the driver program ----------------------------------------------------------------------------


def main() -> int:
    """Serve one job; returns the exit code."""
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    client = socket.socket(fileno=os.dup(0))
    log = _redirect_output()
    try:
        return _serve(client, log)
    finally:
        log.unlink(missing_ok=True)  # moved, or there was no job


def _serve(client: socket.socket, log: Path) -> int:
    from howdah.backends.spark.application import session
    from howdah.backends.spark.submission import SparkSubmission

    requests = client.makefile("rb")
    submission: SparkSubmission | None = None
    directory: JobDirectory | None = None

    def answered(do: Callable[..., None], *args: Any) -> bool:
        problem = ""
        try:
            do(*args)
        except BackendError as error:
            problem = str(error)
        except Exception as error:  # pyspark's and py4j's own
            problem = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            client.sendall(msgspec.json.encode(DriverAnswer(problem=problem)) + b"\n")
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
                client.sendall(msgspec.json.encode(DriverAnswer(problem=trouble)) + b"\n")
                return 1
            match msgspec.json.decode(line, type=CheckJob | BeginJob):
                case CheckJob() as request:
                    if not answered(_check, submission, request):
                        return 1
                case BeginJob() as request:
                    directory = JobDirectory(request.directory)
                    with contextlib.suppress(OSError):  # another file system: copied at the end
                        log = log.rename(directory.path / LOG)
                    if not answered(submission.go, directory, lambda step: None):
                        return 1
                    break
        if directory is None or submission is None:
            return 0  # the submitter has ended
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


def _check(submission: Any, request: CheckJob) -> None:
    from howdah.spec.load import LoadedJob

    source = Path(request.source) if request.source is not None else None
    submission.check(request.job, LoadedJob(job=request.job, source=source))


def _redirect_output() -> Path:
    """The file that gets all output, Java's too, until there is a job directory."""
    from howdah.backends.local.node.forking import no_input
    from howdah.backends.local.node.log import log_to

    folder = base_folder()
    ownership.make_own_folder(folder)
    path = folder / f".spark-{os.getpid()}.log"
    log_to(path)
    no_input()
    return path


if __name__ == "__main__":
    sys.exit(main())

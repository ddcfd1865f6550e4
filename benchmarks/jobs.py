"""Jobs in a place of their own: nothing of the user's is touched, nothing is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from howdah.backends.local.submit import node_alive
from howdah.core.messages import AnyEvent
from howdah.storage import journal
from howdah.storage.jobdir import JobDirectory, list_jobs, user_name
from howdah.wire.status import JobView

T = TypeVar("T")

PROGRAMS = Path(__file__).with_name("programs")
LIMIT_S = 120.0
"""For anything a benchmark waits for."""


class Stuck(Exception):
    """Something a benchmark waited for did not happen."""


def until(condition: Callable[[], T | None], what: str, within_s: float = LIMIT_S) -> T:
    """What the condition gives once it gives something.

    Raises:
        Stuck: it did not in time.
    """
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise Stuck(f"did not happen within {within_s:g} s: {what}")
        time.sleep(0.005)
    return found


def howdah() -> list[str]:
    """The command, as installed beside this interpreter."""
    script = Path(sys.executable).with_name("howdah")
    return [str(script)] if script.exists() else [sys.executable, "-m", "howdah"]


class Place:
    """A folder for jobs, with the environment that leads Howdah there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "source"
        """An empty folder to start jobs in."""
        self.env = {
            **os.environ,
            "HOWDAH_HOME": str(folder / "home"),
            "HOWDAH_RUNTIME_DIR": str(folder / "run"),
        }
        for name in ("source", "home", "run"):
            (folder / name).mkdir(mode=0o700)

    def submit(self, workers: int, program: Sequence[str]) -> JobDirectory:
        """Start a detached job.

        Raises:
            subprocess.SubprocessError: Howdah did not take it.
        """
        line = [*howdah(), "submit", *_job(workers, "command"), "--", *program]
        done = subprocess.run(
            line, cwd=self.source, env=self.env, check=True, timeout=LIMIT_S, capture_output=True
        )
        return JobDirectory(self.jobs / done.stdout.decode().strip())

    def run(
        self, workers: int, program: Sequence[str], *sets: str, framework: str = "command"
    ) -> subprocess.Popen[bytes]:
        """Start an attached job; standard output is a pipe with the tasks' lines."""
        line = [*howdah(), "run", *_job(workers, framework, *sets), "--", *program]
        return self.start(line, {})

    def start(self, line: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start any other command in the same surroundings."""
        return subprocess.Popen(
            line,
            cwd=self.source,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def jobs(self) -> Path:
        """Where the job directories are."""
        return self.folder / "home" / "jobs" / user_name()

    def newest(self) -> JobDirectory:
        """The job that was submitted last."""
        return until(lambda: next(iter(list_jobs(self.jobs)), None), "a job directory")

    def stop(self, directory: JobDirectory) -> None:
        """End the job at once and wait until nothing of it is left."""
        if directory.final() is None:
            line = [*howdah(), "stop", "--now", directory.job_id]
            subprocess.run(line, env=self.env, timeout=LIMIT_S, capture_output=True)
        self.gone(directory)

    def gone(self, directory: JobDirectory) -> JobView:
        """Wait for the job's end and for its processes'."""
        view = until(directory.final, f"the end of {directory.job_id}")
        until(lambda: not node_alive(directory.path), f"the end of {directory.job_id}'s processes")
        return view

    def close(self) -> None:
        """End what still runs."""
        for directory in list_jobs(self.jobs):
            with contextlib.suppress(Stuck, subprocess.SubprocessError):
                self.stop(directory)


def _job(workers: int, framework: str, *sets: str) -> list[str]:
    options = [part for each in sets for part in ("--set", each)]
    return ["--framework", framework, "--role", f"worker={workers}", *options]


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """A place that is gone afterwards. Its path is short: sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="hwb-", dir="/tmp"))
    try:
        there = Place(folder)
        try:
            yield there
        finally:
            there.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def python(program: str, *arguments: object) -> list[str]:
    """The command line of one of the benchmarks' own programs."""
    return [sys.executable, str(PROGRAMS / program), *map(str, arguments)]


def events(directory: JobDirectory) -> list[tuple[float, AnyEvent]]:
    """The job's journaled facts so far, with when the coordinator had them."""
    return [
        (entry.now, entry.event)
        for entry in journal.read(directory.path)
        if isinstance(entry, journal.EventEntry)
    ]


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """See that the process has ended afterwards, by force if need be."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

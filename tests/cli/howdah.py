"""The howdah command as a user runs it: a process of its own, its output read as it comes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil

from howdah.client.lookup import listing
from howdah.storage.jobdir import JobDirectory, base_folder, list_jobs
from howdah.wire.status import JobView
from tests.processes import runs

T = TypeVar("T")

WAIT_S = 90.0
HOWDAH = (sys.executable, "-m", "howdah")


def until(condition: Callable[[], T | None], what: str, within_s: float = WAIT_S) -> T:
    """Wait for a condition to give something; fail in words."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"did not happen within {within_s:g}s: {what}")


class Run:
    """One running command line."""

    def __init__(self, arguments: Sequence[str], cwd: Path | None, **popen: Any) -> None:
        self.process = subprocess.Popen(
            [*HOWDAH, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=popen.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        with contextlib.closing(stream):
            for line in stream:
                lines.append(line.rstrip("\n"))

    def until_line(self, text: str) -> str:
        """Wait until a line with that text has been printed."""
        return until(
            lambda: next((x for x in [*self.out, *self.err] if text in x), None),
            f"a line with {text!r}; so far {self.out} {self.err}",
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, within_s: float = WAIT_S) -> int:
        """Wait for its end; the exit code."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not end: {self.out} {self.err}") from None
        for reader in self._readers:
            reader.join(10)
        return code

    @property
    def text(self) -> str:
        return "\n".join(self.out)

    @property
    def told(self) -> str:
        return "\n".join(self.err)

    def documents(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out]


def start(*arguments: str, cwd: Path | None = None, **popen: Any) -> Run:
    """Start a command line; its end is the test's to wait for."""
    return Run(arguments, cwd, **popen)


def howdah(*arguments: str, cwd: Path | None = None, code: int = 0) -> Run:
    """Run a command line to its end, which must be that exit code."""
    run = start(*arguments, cwd=cwd)
    ended = run.end()
    assert ended == code, f"exit code {ended}: {run.text}\n{run.told}"
    return run


def job_file(folder: Path, script: str, **fields: Any) -> Path:
    """A job file in a folder of its own whose program is that Python script."""
    source = folder / "job"
    source.mkdir(parents=True, exist_ok=True)
    (source / "train.py").write_text(script)
    job = {"name": "test", "command": [sys.executable, "train.py"], **fields}
    path = source / "job.json"
    path.write_text(json.dumps(job))
    return path


def resolved(link: str) -> str:
    """A printed link with a host name that the system's resolver knows; browsers know the other."""
    parts = urlsplit(link)
    assert parts.hostname == f"{newest().job_id}.localhost"
    return parts._replace(netloc=f"127.0.0.1:{parts.port}").geturl()


def newest() -> JobDirectory:
    """The newest job's directory."""
    return until(lambda: listing.newest(base_folder()), "a job directory")


def gone(directory: JobDirectory) -> JobView:
    """Wait until the job has ended and its processes with it: nobody changes its directory any more."""
    view = until(directory.final, f"the end of {directory.job_id}")
    until(lambda: not _is_held(directory.path / "node.lock"), "the end of the node daemon")
    return view


def _is_held(lock: Path) -> bool:
    """The daemon removes its lock last of all; of one that was killed it is there, and free."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def lose(directory: JobDirectory) -> None:
    """Kill the job's node daemon and its coordinator at once; its agents and programs end with them."""
    node = psutil.Process(json.loads((directory.path / "node.json").read_bytes())["pid"])
    coordinator = until(directory.coordinator, "the coordinator's address")
    both = (node, psutil.Process(coordinator.pid))
    for number in (signal.SIGSTOP, signal.SIGKILL):  # or one would start the other again
        for process in both:
            process.send_signal(number)
    until(lambda: not any(map(runs, both)), "the end of both")


@contextlib.contextmanager
def agents_paused(directory: JobDirectory) -> Iterator[None]:
    """Stop the job's agents, so that their lease does not end them meanwhile."""
    files = directory.containers.glob("*/agent.json")
    agents = [psutil.Process(json.loads(file.read_bytes())["pid"]) for file in files]
    for agent in agents:
        agent.suspend()
    try:
        yield
    finally:
        for agent in agents:
            agent.resume()


def node_pid(directory: JobDirectory) -> int | None:
    """The node daemon's process id, while it lives."""
    try:
        pid = json.loads((directory.path / "node.json").read_bytes())["pid"]
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


@contextlib.contextmanager
def ended_at_last() -> Iterator[None]:
    """Stop whatever job a failing test leaves running."""
    try:
        yield
    finally:
        for directory in list_jobs(base_folder()):
            if directory.final() is None:
                subprocess.run([*HOWDAH, "stop", "--now", directory.job_id], timeout=60)

"""Real Spark servers for tests: Standalone masters with workers, Connect servers.

Each is a context manager. What it started ends with it, also what left its process group, and it
writes into the given folder only.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.spark.versions import Version, environment, settings

_START_S = 120.0
_END_S = 10.0
_POLL_S = 0.05
_MARK = "HOWDAH_TEST_SPARK"


class Server:
    """One process that logs into a file; what it starts in turn ends with it."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        self._mark = secrets.token_hex(8)
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=log.parent,
                env={**os.environ, **env, _MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """Its log until now."""
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> list[str]:
        """All matches of the pattern in its log (of its group, if it has one), once there are so many.

        Raises AssertionError if the process ends before, or they do not come in time.
        """
        deadline = time.monotonic() + _START_S
        while len(found := re.findall(pattern, self.said())) < times:
            ended = self.process.poll() is not None
            story = "\n".join(self.said().splitlines()[-30:])
            assert not ended, f"{self.process.args} ended while waiting for {pattern}:\n{story}"
            assert time.monotonic() < deadline, f"waited in vain for {pattern}:\n{story}"
            time.sleep(_POLL_S)
        return found

    def processes(self) -> list[psutil.Process]:
        """It and all that came from it, in whatever session they are now."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == self._mark:
                    found.append(process)
        return found

    def kill(self) -> None:
        """SIGKILL to that one process: those it started must notice by themselves."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """SIGTERM, then SIGKILL to whatever is left of it."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
        # Executors are in the worker's process group, Python workers in groups of their own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, _END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class Standalone:
    """A Standalone master with workers, each its own host as far as Spark can tell."""

    def __init__(
        self,
        folder: Path,
        version: Version | None = None,
        *,
        workers: int = 2,
        cores: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start them, and wait until the workers are registered."""
        self.folder = folder
        self.version = version
        self._env = {**environment(version), **(env or {})}
        self._class = str(Path(self._env["SPARK_HOME"]) / "bin" / "spark-class")
        self._cores = cores
        self.workers: list[Server] = []
        folder.mkdir(parents=True, exist_ok=True)
        command = [self._class, "org.apache.spark.deploy.master.Master"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self.master = Server(command, folder / "master.log", self._env)
        try:
            self.url = self.master.wait_for(r"Starting Spark master at (spark://\S+)")[0]
            for _ in range(workers):
                self.add_worker(wait=False)
            self.wait_registered(workers)
        except BaseException:
            self.end()
            raise

    def add_worker(self, *, wait: bool = True) -> Server:
        """One more worker."""
        before = len(self.workers)
        folder = self.folder / f"worker-{before}"
        folder.mkdir()
        command = [self._class, "org.apache.spark.deploy.worker.Worker", self.url]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command += ["--cores", str(self._cores), "--memory", "2g", "--work-dir", str(folder)]
        self.workers.append(Server(command, folder / "log", self._env))
        if wait:
            self.wait_registered(before + 1)
        return self.workers[-1]

    def wait_registered(self, workers: int) -> None:
        """Wait until so many workers have ever registered."""
        self.master.wait_for(r"Registering worker", workers)

    def wait_for_executors(self, count: int) -> None:
        """Wait until so many executors have ever been started."""
        self.master.wait_for(r"Launching executor", count)

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs that run now."""
        found: list[psutil.Process] = []
        for worker in self.workers:
            for process in worker.processes():
                with contextlib.suppress(psutil.Error):
                    if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                        found.append(process)
        return found

    @property
    def cores(self) -> int:
        """Of all workers."""
        return len(self.workers) * self._cores

    def settings(self) -> dict[str, str]:
        """Settings of a session on it, which takes all cores."""
        cores = {"spark.cores.max": str(self.cores)}
        return {**settings(self.folder, self.version), "spark.master": self.url, **cores}

    def end(self) -> None:
        """Stop them all."""
        for server in [*self.workers, self.master]:
            server.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def feeders(worker: Server) -> list[psutil.Process]:
    """Python workers of Spark's on that worker, not their parent."""
    parents: dict[psutil.Process, int] = {}
    for each in worker.processes():
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            if "pyspark.daemon" in " ".join(each.cmdline()):
                parents[each] = each.ppid()
    daemons = {each.pid for each in parents}
    return [each for each, parent in parents.items() if parent in daemons]


@contextlib.contextmanager
def connect(folder: Path, master: str = "local[2]", **conf: str) -> Iterator[str]:
    """A Connect server with executors at that master: the address for ``builder.remote``."""
    folder.mkdir(parents=True, exist_ok=True)
    # Spark takes a Connect server for a daemon, and its executors run inside.
    env = {**environment(Version.NEWEST), "SPARK_DAEMON_MEMORY": "640m"}
    chosen = {
        **settings(folder),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        **conf,
    }
    command = [str(Path(env["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", master]
    for name, value in chosen.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    with Server([*command, "spark-internal"], folder / "connect.log", env) as server:
        port = server.wait_for(r"Spark Connect server started at: \S*:(\d+)")[0]
        yield f"sc://127.0.0.1:{port}"

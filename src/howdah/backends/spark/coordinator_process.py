"""The coordinator as a child process of the driver program.

- `CoordinatorProcess`: the driver's side, which starts it
- `main`: the process itself (``python -m`` this module)
- `DriverConnection`: the coordinator's end of its connection to the driver
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.interpreter import python_path
from howdah.backends.local.processes import alive
from howdah.backends.spark.messages import FromDriver, QuerySlots, SlotsReport, ToDriver
from howdah.backends.spark.site import SparkSettings
from howdah.wire.framed import FramedConnection
from howdah.wire.frames import FrameError

log: logging.Logger = logging.getLogger(__name__)

DRIVER = "HOWDAH_SPARK_DRIVER"
"""Environment variable: descriptor of the connection to the driver."""
LISTEN = "HOWDAH_SPARK_LISTEN"
"""Environment variable: descriptor of the socket that container processes connect to."""
ALIVE_S = 2.0
"""Between two checks of the driver program's process."""
REPORT_S = 2.0
"""For the driver to say what it knows of the slots."""

_MODULE = "howdah.backends.spark.coordinator_process"


class CoordinatorProcess:
    """One coordinator, which waits for `begin`."""

    def __init__(self, listener: socket.socket) -> None:
        """
        Raises:
            OSError: no process can be started.
        """
        own, theirs = socket.socketpair()
        self.connection: FramedConnection[ToDriver] = FramedConnection(own, ToDriver)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        with theirs:
            env = {
                **os.environ,
                DRIVER: str(theirs.fileno()),
                LISTEN: str(listener.fileno()),
                # However this program finds Howdah: --py-files, a folder, a zip file.
                "PYTHONPATH": python_path(),
            }
            # In a session of its own: Ctrl-C in a notebook is not meant for it.
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(theirs.fileno(), listener.fileno()),
                env=env,
                start_new_session=True,
            )

    def begin(self, job_dir: Path) -> None:
        """The job directory is complete: coordinate its job."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died, which is noticed elsewhere
            self.process.stdin.write(os.fsencode(job_dir) + b"\n")
            self.process.stdin.close()

    def last_output(self) -> str:
        """The last line it printed before it had a log."""
        with contextlib.suppress(OSError, ValueError):
            self._output.seek(0)
            lines = self._output.read().decode(errors="replace").strip().splitlines()
            return lines[-1][:500] if lines else ""
        return ""

    def close(self) -> None:
        """Close the connection; a process that never began ends."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.connection.close()
        with contextlib.suppress(OSError):
            self._output.close()


def main() -> int:
    """Coordinate a job to its end; returns the process's exit code.

    Imports what it needs while the job directory is still being written; a line on standard input
    names the directory, an end without one means that there is no job.
    """
    # By name: `howdah.coordinator` is above this package.
    coordinator = importlib.import_module("howdah.coordinator.main")
    importlib.import_module("howdah.backends.spark.backend")
    job_dir = sys.stdin.readline().strip()
    if not job_dir:
        return 0
    from howdah.backends.local.node.coordinator_supervisor import COORDINATOR_LOG
    from howdah.backends.local.node.log import log_to

    log_to(Path(job_dir, COORDINATOR_LOG))
    return coordinator.main(job_dir)


class DriverConnection:
    """Messages both ways, until the driver has ended."""

    def __init__(
        self,
        sock: socket.socket,
        settings: SparkSettings,
        receive: Callable[[Any], None],
        lost: Callable[[], None],
    ) -> None:
        """``lost`` is called once, unless it is closed before."""
        self._connection: FramedConnection[FromDriver] = FramedConnection(sock, FromDriver)
        self._driver = settings.driver_pid, settings.driver_start
        self._receive = receive
        self._report_lost = lost
        self._report: asyncio.Future[str] | None = None
        self._closed = False

    def open(self) -> None:
        """Begin to receive messages."""
        asyncio.get_running_loop().add_reader(self._connection.socket, self._readable)
        self._check_process()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. One to a driver that has ended is dropped: `lost` reports it."""
        if self._closed:
            return
        try:
            done = self._connection.send(message)
        except OSError as error:
            log.warning("the driver cannot be reached: %s", error)
            return
        if not done:
            asyncio.get_running_loop().add_writer(self._connection.socket, self._writable)

    async def slots_report(self, wanted: int) -> str:
        """What the driver knows of the slots that are still wanted; empty if it does not answer soon."""
        self._report = asyncio.get_running_loop().create_future()
        self.send(QuerySlots(wanted=wanted))
        try:
            async with asyncio.timeout(REPORT_S):
                return await self._report
        except TimeoutError:
            return ""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._connection.socket)
            loop.remove_writer(self._connection.socket)
            self._connection.close()

    def _readable(self) -> None:
        try:
            messages, there = self._connection.receive()
        except FrameError as error:
            log.error("the driver sent what is no message: %s", error)
            messages, there = [], False
        for message in messages:
            if not isinstance(message, SlotsReport):
                self._receive(message)
            elif self._report is not None and not self._report.done():
                self._report.set_result(message.text)
        if not there:
            self._lost()

    def _writable(self) -> None:
        with contextlib.suppress(OSError):
            if not self._connection.flush():
                return
        asyncio.get_running_loop().remove_writer(self._connection.socket)

    def _check_process(self) -> None:
        """A process that the program had forked may still hold its end of the connection."""
        pid, start = self._driver
        if pid and not alive(pid, start):
            self._lost()
        elif pid and not self._closed:
            asyncio.get_running_loop().call_later(ALIVE_S, self._check_process)

    def _lost(self) -> None:
        if not self._closed:
            self.close()
            self._report_lost()


def inherited(env: Mapping[str, str]) -> tuple[socket.socket, socket.socket]:
    """The socket to the driver and the one that container processes connect to.

    Raises:
        BackendError: this process was not started by a driver.
    """
    try:
        return socket.socket(fileno=int(env[DRIVER])), socket.socket(fileno=int(env[LISTEN]))
    except (KeyError, ValueError, OSError) as error:
        raise BackendError(
            "A job in a Spark application is coordinated by a child of the application's driver; "
            f"this process is none ({type(error).__name__}: {error}). When the application has "
            "ended, so has the job: start it again in another one"
        ) from error


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())

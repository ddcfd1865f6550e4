"""The node daemon: this machine's containers of one job, and the care for its coordinator.

It

- keeps a coordinator alive (`coordinator_supervisor`);
- forks an agent in milliseconds whenever the coordinator asks (`containers`);
- tells the coordinator of every container's end, again and again until it is acknowledged;
- ends with the job, and leaves nothing behind.

When it is killed, the coordinator starts another that adopts coordinator and agents; they never
notice. When both are killed, the agents end by their leases.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import msgspec

from howdah.agent.host.processes import become_subreaper, send_signal
from howdah.backends.base import BackendError
from howdah.backends.local import processes, runtime_paths
from howdah.backends.local.messages import (
    Acknowledge,
    Ended,
    Finished,
    Hello,
    Inventory,
    Launch,
    Launched,
    NodeAddress,
    Release,
    ToNode,
)
from howdah.backends.local.node.containers import Containers
from howdah.backends.local.node.coordinator_program import CoordinatorProgram
from howdah.backends.local.node.coordinator_supervisor import CoordinatorSupervisor
from howdah.backends.local.node.event_loop import EventLoop
from howdah.backends.local.node.log import note
from howdah.backends.local.node.lost_job import write_lost
from howdah.backends.local.node.server_socket import DaemonSocket
from howdah.backends.local.unix_connection import UnixConnection
from howdah.wire.frames import FrameError

ADDRESS = "node.json"
META = "meta.json"
LOCK = "node.lock"
LOG = "logs/node.log"

LOCK_WAIT_S = 2.0
"""How long a daemon waits for a dying predecessor's lock."""
LOOK_S = 1.0
"""How often the job directory is looked for."""
LOOKS = 3
"""Missing so often in a row, it has been removed."""
LAST_GRACE_S = 2.0
"""For agents that are still there when the job is over or given up."""
LAST_WAIT_S = 30.0
KEEP_VARIABLE = "HOWDAH_KEEP_WORK"
"""Environment variable: keep the containers' working folders after the job."""


class NodeDaemon:
    """One job's daemon."""

    def __init__(self, job_dir: Path, agent: str, coordinator: CoordinatorProgram) -> None:
        """Become the job's only daemon. ``agent`` is ``module:function``.

        Raises:
            BackendError: the job has a living one, or sockets cannot be made here.
            OSError: the job directory cannot be used.
        """
        self._job_dir = job_dir
        # What is written meanwhile, metrics say, makes the directory anew; this file nobody does.
        meta = job_dir / META
        self._looked_for = meta if meta.exists() else job_dir
        self._lock = _only_one(job_dir)
        self._loop = EventLoop()
        self._containers = Containers(
            self._loop, job_dir.name, job_dir / "containers", agent, self._container_ended
        )
        self._supervisor = CoordinatorSupervisor(self._loop, job_dir, coordinator, self._over)
        self._socket = DaemonSocket(
            self._loop,
            runtime_paths.socket_path(job_dir),
            self._handle,
            self._supervisor.disconnected,
        )
        self._ending = False
        become_subreaper()
        self._loop.on_signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def start(self, coordinator: int) -> None:
        """Begin a new job with a coordinator that is this process's child."""
        self._write_address()
        self._supervisor.watch(coordinator)

    def adopt(self, coordinator: int | None, start: int | None = None) -> None:
        """Take over from a daemon that died: its agents, and the coordinator if it lives.

        ``start`` is when that process began."""
        self._write_address()
        self._containers.adopt()
        if coordinator is None:
            self._supervisor.start()
        else:
            self._supervisor.adopt(coordinator, start)

    def run(self) -> None:
        """Until the job is over."""
        note(f"node daemon {os.getpid()} of {self._job_dir.name}")
        self._loop.later(LOOK_S, self._look)
        self._loop.run()
        self._leave()

    # -- what the coordinator says -------------------------------------------------------------

    def _handle(self, channel: UnixConnection[ToNode], message: ToNode) -> None:
        if isinstance(message, Hello):
            if message.job_id != self._job_dir.name:
                raise FrameError(f"it asks for job {message.job_id}")
            self._socket.admit(channel)
            self._socket.tell(
                Inventory(running=self._containers.running(), ended=self._containers.ended())
            )
        elif not self._socket.admitted(channel):
            raise FrameError("it has not said hello, or a newer coordinator has")
        elif isinstance(message, Launch):
            self._launch(channel, message)
        elif isinstance(message, Release):
            self._containers.release(message.container_id, message.grace_s)
        elif isinstance(message, Acknowledge):
            self._containers.acknowledge(message.container_id)
        elif isinstance(message, Finished):
            self._supervisor.finished = True

    def _launch(self, channel: UnixConnection[ToNode], message: Launch) -> None:
        locks = channel.take_descriptors(message.locks)
        try:
            self._containers.launch(message, locks)
        finally:
            for descriptor in locks:
                os.close(descriptor)
        pid = self._containers.pid(message.container_id)
        if pid:
            self._socket.tell(Launched(container_id=message.container_id, pid=pid))

    def _container_ended(self, ended: Ended) -> None:
        # Whoever listens later asks for everything anyway.
        self._socket.tell(ended)
        self._stop_when_empty()

    def _look(self, missed: int = 0) -> None:
        """End a job whose directory has been removed: nobody could find or stop it any more."""
        try:
            self._looked_for.stat()
        except FileNotFoundError:
            missed += 1
        except OSError:
            pass  # a store that does not answer is still there
        else:
            missed = 0
        if missed == LOOKS:
            self._supervisor.give_up("its job directory was removed")
        else:
            self._loop.later(LOOK_S, partial(self._look, missed))

    def _terminate(self) -> None:
        note("SIGTERM")
        self._supervisor.terminate()

    # -- the end -------------------------------------------------------------------------------

    def _over(self, reason: str) -> None:
        """The job is over; with a reason it was given up, and nobody else will say so."""
        if reason:
            self._record(reason)
        self._ending = True
        for container in self._containers.running():
            self._containers.release(container.container_id, LAST_GRACE_S)
        self._loop.later(LAST_WAIT_S, self._loop.stop)
        self._stop_when_empty()

    def _record(self, reason: str) -> None:
        words = self._supervisor.last_words()
        note(f"given up: {reason}")
        try:
            write_lost(self._job_dir, f"{reason}: {words}" if words else reason)
        except Exception as error:  # whatever is wrong with the directory, agents must end
            note(f"the outcome could not be written: {type(error).__name__}: {error}")

    def _stop_when_empty(self) -> None:
        if self._ending and not self._containers.running():
            self._loop.stop()

    def _leave(self) -> None:
        """Leave nothing behind but the job directory's documents."""
        own = {os.getpid(), self._supervisor.pid}
        job = f"{self._job_dir.name}/"
        for process in processes.snapshot():
            orphan = process.stat.parent == os.getpid()
            marked = process.marker is not None and process.marker.startswith(job)
            if process.stat.pid not in own and (orphan or marked):
                note(f"process {process.stat.pid} outlived its container and is ended")
                send_signal(process.stat, signal.SIGKILL)
        if not os.environ.get(KEEP_VARIABLE):
            shutil.rmtree(self._job_dir / "containers", ignore_errors=True)
        self._socket.close()
        for name in (ADDRESS, LOCK):
            with contextlib.suppress(OSError):
                (self._job_dir / name).unlink()

    def _write_address(self) -> None:
        address = NodeAddress(
            pid=os.getpid(),
            start=processes.start_of(os.getpid()) or 0,
            socket=str(self._socket.path),
        )
        temporary = self._job_dir / f".{ADDRESS}.tmp"
        temporary.write_bytes(msgspec.json.encode(address))
        temporary.replace(self._job_dir / ADDRESS)


def _only_one(job_dir: Path) -> int:
    """The lock that makes this the job's only daemon, held until it ends."""
    descriptor = os.open(job_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BackendError(f"{job_dir} has a node daemon already") from None
            time.sleep(0.01)

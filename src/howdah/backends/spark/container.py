"""The executor-side container: a process that runs a job's containers where a Spark task started it.

``python -m howdah.backends.spark.container <folder>``, with ``container.json`` in the folder. The
container process

- leaves the Spark task's process tree, if that is to end before it. Where the slot is held it stays
  the task's child, so that it counts as one of the executor's processes;
- connects to the coordinator, again after each break, and starts, watches and ends one agent at a
  time for it;
- uploads files where its host does not see the job directory;
- ends when it is told to, when it has had no coordinator for the length of the lease, or when the
  Spark task whose slot it holds is ended. Nothing of it is left then.

Standard input is a pipe from the Spark task: ``stay`` on it means that the task will end and the
process is to stay; its end without that means that Spark has ended the task. Standard output gets
``ready``, or the reason why there will be no container.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
import signal
import socket
import ssl
import sys
import time
from functools import partial
from pathlib import Path

import msgspec

from howdah.agent.host.processes import become_subreaper, end_with_parent, name_process
from howdah.backends.local.messages import Ended, Launch, Release
from howdah.backends.local.node.containers import Containers
from howdah.backends.local.node.event_loop import EventLoop, Timer
from howdah.backends.local.node.forking import no_input
from howdah.backends.local.node.log import log_to, note
from howdah.backends.spark import container_folder
from howdah.backends.spark.artifacts import LARGEST, ArtifactUploader
from howdah.backends.spark.launch_bundle import ContainerConfig
from howdah.backends.spark.messages import (
    LAST_UPLOAD_S,
    ON_DRIVER,
    AcknowledgeExit,
    Exited,
    Preempted,
    Register,
    Registered,
    StopProcess,
    ToContainer,
)
from howdah.backends.spark.slot_task import READY, STAY
from howdah.core.messages import ContainerEndKind
from howdah.spec.model import Slots
from howdah.storage import layout
from howdah.storage.files import write_private
from howdah.wire.framed import FramedConnection
from howdah.wire.frames import FrameError
from howdah.wire.sockets import dial_tls
from howdah.wire.tls import PeerRole, certificate_name, client_context

DIAL_S = 5.0
"""For one attempt to connect. Nothing else happens meanwhile, which does no harm."""
REACH_S = 20.0
"""For the first connection: the coordinator's process is starting, its socket is there before."""
NAME_S = 3.0
"""The same where the coordinator's name cannot be resolved."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.5
UPLOAD_S = 0.5
"""Between two looks for what has to be uploaded."""
FULL_BYTES = 4 << 20
"""Nothing more is uploaded while so much waits to be sent."""
PREEMPTED_GRACE_S = 2.0
"""For the agent, once Spark has ended the task."""
STOP_GRACE_S = 1.0


class ContainerProcess:
    """The life of one container process."""

    def __init__(self, base: Path, config: ContainerConfig, task: int, answer: int) -> None:
        """``task`` and ``answer`` are the descriptors of the pipes from and to the Spark task."""
        self._base = base
        self._task = task
        self._answer = answer
        self._config = config
        self._sees_job_dir = container_folder.sees_job_dir(config)
        self._tls = client_context(base / container_folder.SECRETS, PeerRole.AGENT)
        self._loop = EventLoop()
        self._containers = Containers(
            self._loop, config.job_id, base, config.agent, self._container_ended
        )
        self._connection: FramedConnection[ToContainer] | None = None
        self._secret = secrets.token_hex(16)
        self._container_id = ""
        """The container that has, or had, an agent, until its end is acknowledged."""
        self._exited: Exited | None = None
        self._uploader: ArtifactUploader | None = None
        self._upload_until = 0.0
        self._began = self._alone_since = time.monotonic()
        self._registered = False
        self._address = b""
        self._staying = False
        """The Spark task has said that it will end, or there is none."""
        self._stopping = ""
        self._pause_s = FIRST_PAUSE_S
        self._upload_timer: Timer | None = None
        self._from_task = b""

    def run(self) -> None:
        """Serve the coordinator until there is a reason to stop."""
        become_subreaper()
        self._loop.on_signal(signal.SIGTERM, partial(self._stop, "SIGTERM"))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.set_blocking(self._task, False)
        self._loop.watch(self._task, self._read_task)
        self._loop.later(0.0, self._connect)
        self._loop.run()
        if self._connection is not None:
            self._connection.flush_now()
        if not self._config.keep:
            shutil.rmtree(self._base, ignore_errors=True)
        if self._connection is not None:
            self._connection.close()  # after the folder: whoever waits for the end finds nothing left
        with contextlib.suppress(OSError):
            self._base.parent.rmdir()

    # -- the Spark task ------------------------------------------------------------------------

    def _read_task(self) -> None:
        try:
            data = os.read(self._task, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._from_task += data
            self._staying = self._staying or STAY in self._from_task
            return
        self._loop.unwatch(self._task)
        if self._staying:
            return
        note("the Spark task was ended")
        self._send(Preempted(reason="Spark has ended the task that held its slot"))
        self._stop("its Spark task was ended", PREEMPTED_GRACE_S)

    def _tell_task(self, text: str) -> None:
        """To the Spark task, if it still listens."""
        with contextlib.suppress(OSError):
            os.write(self._answer, text.replace("\n", " ").encode() + b"\n")

    # -- the coordinator -----------------------------------------------------------------------

    def _connect(self) -> None:
        if self._stopping:
            return
        config = self._config
        name = certificate_name(PeerRole.COORDINATOR, config.job_id)
        try:
            sock = dial_tls(config.coordinator, self._tls, name, DIAL_S)
        except OSError as error:
            self._not_reached(error)
            return
        connection: FramedConnection[ToContainer] = FramedConnection(sock, ToContainer)
        self._connection = connection
        self._pause_s = FIRST_PAUSE_S
        self._loop.watch(connection.socket, partial(self._readable, connection))
        self._send(self._registration())
        if self._exited is not None and self._uploader is not None:
            self._upload()
        if connection is self._connection:
            self._readable(connection)  # what came with the handshake is not in the socket any more

    def _registration(self) -> Register:
        config = self._config
        return Register(
            name=config.name,
            secret=self._secret,
            spark_job=config.spark_job,
            host=config.host,
            base=str(self._base),
            gpus=config.gpus,
            sees_job_dir=self._sees_job_dir,
            container_id=self._container_id,
            # Its files, all of which are sent again, come before its end.
            exited=self._exited if self._uploader is None else None,
        )

    def _not_reached(self, error: OSError) -> None:
        now = time.monotonic()
        host, port = self._config.coordinator
        patience_s = NAME_S if isinstance(error, socket.gaierror) else REACH_S
        # Where another server is trying again is of no use.
        permanent = isinstance(error, ssl.SSLCertVerificationError)
        if (not self._registered and now - self._began > patience_s) or permanent:
            problem = (
                f"{self._config.host} does not reach the coordinator at {host}:{port}: {error}"
            )
            self._tell_task(problem)
            note(problem)
            self._stop(problem)
        elif self._registered and now - self._alone_since > self._config.lease_s:
            self._stop(f"no coordinator for {self._config.lease_s:g} s")
        else:
            self._loop.later(self._pause_s, self._connect)
            self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)

    def _readable(self, connection: FramedConnection[ToContainer]) -> None:
        try:
            messages, there = connection.receive()
            for message in messages:
                self._handle(message)
        except FrameError as error:
            note(f"the coordinator sent what is no message: {error}")
            there = False
        if not there:
            self._lost(connection)

    def _writable(self, connection: FramedConnection[ToContainer]) -> None:
        try:
            done = connection.flush()
        except OSError:
            self._lost(connection)
            return
        if done:
            self._loop.watch(connection.socket, partial(self._readable, connection))

    def _send(self, message: msgspec.Struct) -> bool:
        """Send a message, if connected: the next registration says everything."""
        connection = self._connection
        if connection is None:
            return False
        try:
            done = connection.send(message)
        except OSError:
            self._lost(connection)
            return False
        if not done:
            self._loop.watch(
                connection.socket,
                partial(self._readable, connection),
                partial(self._writable, connection),
            )
        return True

    def _lost(self, connection: FramedConnection[ToContainer]) -> None:
        if connection is not self._connection:
            return
        self._loop.unwatch(connection.socket)
        connection.close()
        self._connection = None
        self._alone_since = time.monotonic()
        if self._uploader is not None:
            self._uploader.restart()
        if not self._stopping:
            self._loop.later(FIRST_PAUSE_S, self._connect)

    def _handle(self, message: ToContainer) -> None:
        match message:
            case Registered():
                self._on_registered(message)
            case Launch():
                self._launch(message)
            case Release():
                self._containers.release(message.container_id, message.grace_s)
            case AcknowledgeExit():
                self._acknowledged(message.container_id)
            case StopProcess():
                self._stop("it is not needed any more")

    def _on_registered(self, message: Registered) -> None:
        self._config = msgspec.structs.replace(self._config, lease_s=message.lease_s)
        self._address = message.address
        self._write_address()
        if not self._registered:
            self._registered = True
            self._tell_task(READY)
            if self._config.spark_job == ON_DRIVER:
                self._staying = True

    def _write_address(self) -> None:
        """For an agent that does not see the job directory."""
        if self._sees_job_dir or not self._container_id or not self._address:
            return
        path = self._base / self._container_id / container_folder.JOB / layout.COORDINATOR
        with contextlib.suppress(OSError):
            temporary = path.with_name(f".{path.name}")
            write_private(temporary, self._address)
            temporary.replace(path)

    # -- the container -------------------------------------------------------------------------

    def _launch(self, message: Launch) -> None:
        if self._container_id == message.container_id:
            if self._exited is not None:
                self._send(self._exited)
            return
        self._container_id = message.container_id
        try:
            folder = container_folder.make_container(
                self._base, message.container_id, self._config, seen=self._sees_job_dir
            )
            self._write_address()
        except OSError as error:
            kind = ContainerEndKind.LAUNCH_FAILED
            text = f"its folder could not be made: {error}"
            self._exited = Exited(container_id=message.container_id, kind=kind, detail=text)
            self._send(self._exited)
            return
        if not self._sees_job_dir:
            self._uploader = ArtifactUploader(folder / container_folder.JOB)
            self._upload_timer = self._loop.later(UPLOAD_S, self._upload)
        self._containers.launch(message, ())

    def _container_ended(self, ended: Ended) -> None:
        self._exited = Exited(container_id=ended.container_id, kind=ended.kind, detail=ended.detail)
        self._upload_until = time.monotonic() + LAST_UPLOAD_S
        if self._stopping:
            if self._connection is not None:
                done = self._send_changes()
                self._send(self._with_unsaved(self._exited, done=done))
            self._loop.stop()
            return
        self._upload()

    def _upload(self) -> None:
        """Upload what is new; at the container's end all of it, and then report the end."""
        if self._upload_timer is not None:
            self._upload_timer.cancel()
            self._upload_timer = None
        done = self._send_changes()
        late = time.monotonic() > self._upload_until
        if self._exited is not None and self._connection is not None and (done or late):
            self._send(self._with_unsaved(self._exited, done=done))
        elif self._uploader is not None or self._exited is not None:
            pause_s = UPLOAD_S if self._exited is None else 0.02
            self._upload_timer = self._loop.later(pause_s, self._upload)

    def _with_unsaved(self, exited: Exited, *, done: bool) -> Exited:
        """With what of its files was not uploaded; ``done``: all that may be was."""
        if self._uploader is None:
            return exited
        lines = [
            f"{folder}: not all was uploaded to the driver's machine: it is more than {LARGEST >> 30} GiB"
            for folder in self._uploader.truncated
        ]
        if not done:
            lines.append(
                f"{self._uploader.latest or 'its files'} and what follows: not uploaded to the driver's "
                "machine in time"
            )
        return msgspec.structs.replace(exited, unsaved=tuple(lines))

    def _send_changes(self) -> bool:
        """True if all there is has been given to the connection."""
        connection = self._connection
        if self._uploader is None:
            return True
        if connection is None or connection.pending_bytes > FULL_BYTES:
            return False
        for part in self._uploader.changes(ended=self._exited is not None):
            self._send(part)
            if self._connection is None or self._connection.pending_bytes > FULL_BYTES:
                return False
        return True

    def _acknowledged(self, container_id: str) -> None:
        """The end is recorded: the process is free for another container."""
        if container_id != self._container_id or self._exited is None:
            return
        self._containers.acknowledge(container_id)
        if not self._config.keep:
            shutil.rmtree(self._base / container_id, ignore_errors=True)
        self._container_id = ""
        self._exited = None
        self._uploader = None

    # -- the end -------------------------------------------------------------------------------

    def _stop(self, reason: str, grace_s: float = STOP_GRACE_S) -> None:
        if self._stopping:
            return
        self._stopping = reason
        note(f"stopping: {reason}")
        running = self._containers.running()
        for container in running:
            self._containers.release(container.container_id, grace_s)
        if not running:
            self._loop.stop()


def run_agent(launch_file: str) -> int:
    """As `howdah.agent.main.main`, in an agent that ends with its container process."""
    from howdah.agent import main as agent

    parent = os.getppid()
    if end_with_parent() and os.getppid() != parent:  # it died between the fork and here
        return 128 + signal.SIGTERM
    return agent.main(launch_file)


def main(folder: str) -> None:
    """Run the container process of that folder."""
    base = Path(folder)
    os.umask(0o077)
    data = (base / container_folder.CONFIG).read_bytes()
    config = msgspec.json.decode(data, type=ContainerConfig)
    if config.slots is Slots.SHARED and os.fork():
        os._exit(0)
    os.chdir(base)
    # Out of the way: agents inherit the first three.
    task, answer = os.dup(0), os.dup(1)
    no_input()
    log_to(base / container_folder.LOG)
    name_process("howdah-spark")
    lock = container_folder.lock(base)
    sys.path.extend(path for path in config.paths if path not in sys.path)
    os.environ["HOWDAH_SPARK_SECRETS"] = str(base / container_folder.SECRETS)
    os.environ["HOWDAH_SPARK_FOLDER"] = config.folder
    if config.other_python:
        os.environ.pop("PYTHONPATH", None)  # set for this Python, not for that one
    for module in ("howdah.agent.main", config.agent.partition(":")[0]):
        # Once for all agents. One that cannot be imported reports it when it is launched.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    ContainerProcess(base, config, task, answer).run()
    os.close(lock)


if __name__ == "__main__":
    main(sys.argv[1])

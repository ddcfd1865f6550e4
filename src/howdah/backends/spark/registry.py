"""The container registry: the coordinator's connections to container processes, and their state.

What has to survive the coordinator's death is in ``spark-containers.json`` (`RegistryState`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import socket
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from howdah.backends.local.messages import Launch
from howdah.backends.spark.artifacts import ArtifactWriter
from howdah.backends.spark.messages import (
    ON_DRIVER,
    AcknowledgeExit,
    Exited,
    FilePart,
    FromContainer,
    Preempted,
    Register,
    Registered,
    StopProcess,
)
from howdah.core.messages import ContainerEndKind
from howdah.storage.files import write_atomically
from howdah.storage.jobdir import JobDirectory
from howdah.wire import tls
from howdah.wire.channel import Channel, serve
from howdah.wire.sockets import Listener

log: logging.Logger = logging.getLogger(__name__)

FILE = "spark-containers.json"
SPARE_S = 90.0
"""How long a process without a container is kept for a restart: longer than the longest backoff."""
UNUSED_S = 20.0
"""The same for one that never had a container: it does not seem to be needed."""
UNWRITTEN_NAMED = 3
"""Of files that could not be written, so many are named."""


# -- what is on disk -------------------------------------------------------------------------------


class LaunchedContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container with an agent."""

    name: str
    """Of its process."""
    role: str
    host: str
    spark_job: int = 0
    sees_job_dir: bool = True
    proof: str = ""
    """See `RegisteredContainer`."""


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """``spark-containers.json``."""

    containers: dict[str, LaunchedContainer] = {}
    spark_jobs: int = 0
    """The highest number that was given to a Spark job."""


def read_state(job_dir: Path) -> SavedState:
    """What the last coordinator wrote; empty if there was none."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((job_dir / FILE).read_bytes(), type=SavedState)
    return SavedState()


class RegistryState:
    """Launched containers, on disk: all changes of one turn of the event loop are written once."""

    def __init__(self, job_dir: Path) -> None:
        self._job_dir = job_dir
        saved = read_state(job_dir)
        self.containers: dict[str, LaunchedContainer] = dict(saved.containers)
        self.spark_jobs: int = saved.spark_jobs
        self._due: asyncio.Event | None = None
        """Set when what has changed is written."""

    def next_spark_job(self) -> int:
        self.spark_jobs += 1
        self._write_soon()
        return self.spark_jobs

    async def launched(self, container_id: str, entry: LaunchedContainer) -> None:
        """To be called before the launch is sent; it is on disk when this returns."""
        self.containers[container_id] = entry
        await self._write_soon().wait()

    def ended(self, container_id: str) -> None:
        if self.containers.pop(container_id, None) is not None:
            self._write_soon()

    def _write_soon(self) -> asyncio.Event:
        if self._due is None:
            self._due = asyncio.Event()
            asyncio.get_running_loop().call_soon(self._write, self._due)
        return self._due

    def _write(self, written: asyncio.Event) -> None:
        self._due = None
        state = SavedState(containers=dict(self.containers), spark_jobs=self.spark_jobs)
        with contextlib.suppress(OSError):  # a full disk: the journal will report it
            write_atomically(self._job_dir / FILE, msgspec.json.encode(state))
        written.set()


# -- connections -----------------------------------------------------------------------------------


class RegisteredContainer:
    """One container process as the coordinator knows it.

    ``proof`` is the digest of its secret, so that what is on disk gives nobody the secret itself; empty for
    one of an older release, which has none.
    """

    def __init__(self, registration: Register, proof: str) -> None:
        self.registration = registration
        self.proof = proof
        self.channel: Channel[Any] | None = None
        self.container_id = ""
        """What was granted in it."""
        self.launch: Launch | None = None
        """The launch of that container by this coordinator."""
        self.acknowledged = ""
        """The last container in it whose end is recorded."""
        self.reconnected = False
        """It was registered before."""
        self.stopping = False
        self.preempted = ""
        """Why Spark has ended its task."""
        self.unwritten: dict[str, str] = {}
        """Files of its container that could not be written here, by path: why."""
        self._timer: asyncio.TimerHandle | None = None

    def send(self, message: msgspec.Struct) -> None:
        """Nothing, while it is not connected: it gets everything when it registers again."""
        if self.channel is not None:
            self.channel.send(message)

    def start_timer(self, delay_s: float, call: Any) -> None:
        self.cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, call, self)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RegistryOwner(Protocol):
    """What is called back: `howdah.backends.spark.backend.SparkBackend`."""

    def registered(self, container: RegisteredContainer) -> None: ...
    def exited(self, exited: Exited) -> None: ...
    def lost(self, container: RegisteredContainer, reason: str, kind: ContainerEndKind) -> None: ...


class ContainerRegistry:
    """All container processes of one job."""

    def __init__(self, owner: RegistryOwner, directory: JobDirectory, lease_s: float) -> None:
        self._owner = owner
        self._directory = directory
        self._artifacts = ArtifactWriter(directory.path)
        self._address = b""
        self._lease_s = lease_s
        self._containers: dict[str, RegisteredContainer] = {}
        """By name of the process."""
        self._server: Listener | None = None
        self._changed = asyncio.Event()
        self._shutting_down = False
        self.avoid: frozenset[str] = frozenset()
        """Hosts that are given last."""

    async def open(self, listener: socket.socket) -> None:
        """Serve on a socket that is bound already.

        Raises:
            OSError: it cannot be listened on.
        """
        context = tls.server_context(self._directory.secrets)
        self._server = await serve(
            self._serve, None, 0, context, receives={"agent": FromContainer}, sock=listener
        )

    def announce(self, address: bytes) -> None:
        """Send the coordinator's address to all."""
        self._address = address
        for container in self._containers.values():
            container.send(self._registered())

    def expect(self, container_id: str, entry: LaunchedContainer) -> None:
        """A process that an earlier coordinator had, with a container."""
        registration = Register(
            name=entry.name,
            spark_job=entry.spark_job,
            host=entry.host,
            base="",
            sees_job_dir=entry.sees_job_dir,
        )
        container = self._containers[entry.name] = RegisteredContainer(registration, entry.proof)
        container.container_id = container_id
        container.start_timer(self._lease_s, self._gone)

    def find(self, container_id: str) -> RegisteredContainer | None:
        """The process that has that container."""
        return next((c for c in self._containers.values() if c.container_id == container_id), None)

    def count_of(self, spark_job: int) -> int:
        """How many of a Spark job's processes are registered."""
        return sum(each.registration.spark_job == spark_job for each in self._containers.values())

    def free(self, *, on_driver: bool) -> RegisteredContainer | None:
        """A process that is connected and has no container."""
        found = [
            each
            for each in self._containers.values()
            if each.channel is not None
            and not each.container_id
            and not each.stopping
            and not each.preempted
            and (each.registration.spark_job == ON_DRIVER) == on_driver
        ]
        return min(found, key=lambda each: each.registration.host in self.avoid, default=None)

    def end_slots(self, spark_job: int, reason: str) -> list[RegisteredContainer]:
        """Spark has ended that Spark job, or is about to, and with it all its tasks: its processes get no
        container any more, and those that have none are stopped. Returns the others."""
        busy: list[RegisteredContainer] = []
        for container in self._containers.values():
            if container.registration.spark_job != spark_job:
                continue
            container.preempted = container.preempted or reason
            if container.container_id:
                busy.append(container)
            else:
                self._stop(container)
        return busy

    def stop(self, container: RegisteredContainer) -> None:
        """Stop a process that has no container."""
        container.container_id = ""
        self._stop(container)

    async def shut_down(self, within_s: float) -> None:
        """Stop all processes, and wait until they have ended."""
        self._shutting_down = True
        for container in self._containers.values():
            self._stop(container)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while any(each.channel is not None for each in self._containers.values()):
                    self._changed.clear()
                    await self._changed.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for container in self._containers.values():
            container.cancel_timer()
            if container.channel is not None:
                container.channel.abort()

    async def _serve(self, channel: Channel[Any]) -> None:
        registration = await channel.receive()
        if not isinstance(registration, Register):
            return
        container = self._register(registration, channel)
        if container is None:
            log.warning(
                "a connection that registers as container process %s on %s is refused: it does not show "
                "that process's secret",
                registration.name[:100],
                channel.peer.host,
            )
            return
        try:
            await channel.dispatch(lambda message: self._handle(container, message))
        finally:
            if container.channel is channel:
                container.channel = None
                self._changed.set()
                self._disconnected(container)

    def _register(
        self, registration: Register, channel: Channel[Any]
    ) -> RegisteredContainer | None:
        """The process; None where that is not the one of its name."""
        container = self._containers.get(registration.name)
        proof = _proof(registration)
        if container is None:
            container = RegisteredContainer(registration, proof)
            self._containers[registration.name] = container
        elif container.proof and not hmac.compare_digest(container.proof, proof):
            return None
        else:
            container.reconnected = True
            if container.channel is not None:
                container.channel.abort("its container process has a newer connection")
        container.registration = registration
        container.channel = channel
        container.cancel_timer()
        channel.send(self._registered())
        if self._shutting_down:
            self._stop(container)
            return container
        if registration.exited is not None:
            self._exited(container, registration.exited)  # acknowledged before the next launch
        elif registration.container_id and registration.container_id == container.acknowledged:
            self._acknowledge(container, registration.container_id)
        else:
            container.start_timer(UNUSED_S, self._unused)
        self._owner.registered(container)
        return container

    def _handle(self, container: RegisteredContainer, message: Any) -> None:
        match message:
            case FilePart():
                self._write(container, message)
            case Exited():
                self._exited(container, message)
            case Preempted():
                container.preempted = message.reason
                host = container.registration.host
                log.warning("a slot on %s is lost: %s", host, message.reason)

    def _write(self, container: RegisteredContainer, part: FilePart) -> None:
        if not container.container_id:
            return  # sent again by one whose end is recorded
        if part.offset == 0:
            container.unwritten.pop(part.path, None)
        elif part.path in container.unwritten:
            return  # behind a hole nothing is of use
        try:
            running = {each.container_id for each in self._containers.values()}
            self._artifacts.write(part, container.container_id, running)
        except (OSError, ValueError) as error:
            container.unwritten[part.path] = str(error)
            log.error("%s of %s is lost: %s", part.path, container.registration.host, error)

    def _exited(self, container: RegisteredContainer, exited: Exited) -> None:
        if container.unwritten:
            exited = msgspec.structs.replace(
                exited, unsaved=(*exited.unsaved, *_not_written(container.unwritten))
            )
            container.unwritten.clear()
        self._acknowledge(container, exited.container_id)
        if container.preempted:
            exited = msgspec.structs.replace(
                exited, kind=ContainerEndKind.PREEMPTED, detail=container.preempted
            )
        if container.container_id == exited.container_id:
            container.container_id = ""
            container.launch = None
        self._owner.exited(exited)

    def _acknowledge(self, container: RegisteredContainer, container_id: str) -> None:
        container.acknowledged = container_id
        container.send(AcknowledgeExit(container_id=container_id))
        container.registration = msgspec.structs.replace(
            container.registration, container_id="", exited=None
        )
        if container.preempted:
            self._stop(container)
        else:
            container.start_timer(SPARE_S, self._unused)

    def _disconnected(self, container: RegisteredContainer) -> None:
        if container.stopping:
            self._containers.pop(container.registration.name, None)
        elif container.preempted:
            self._gone(container)
        elif not self._shutting_down:
            container.start_timer(self._lease_s, self._gone)

    def _gone(self, container: RegisteredContainer) -> None:
        self._containers.pop(container.registration.name, None)
        if container.preempted:
            self._owner.lost(container, container.preempted, ContainerEndKind.PREEMPTED)
            return
        reason = f"{container.registration.host} has not been heard of for {self._lease_s:g} s"
        self._owner.lost(container, reason, ContainerEndKind.NODE_LOST)

    def _unused(self, container: RegisteredContainer) -> None:
        if not container.container_id:
            self._stop(container)

    def _stop(self, container: RegisteredContainer) -> None:
        container.stopping = True
        container.send(StopProcess())

    def _registered(self) -> Registered:
        return Registered(address=self._address, lease_s=self._lease_s)


def _not_written(problems: Mapping[str, str]) -> Iterator[str]:
    for path, problem in islice(problems.items(), UNWRITTEN_NAMED):
        yield f"{path}: could not be written on the driver's machine: {problem}"
    if len(problems) > UNWRITTEN_NAMED:
        yield f"{len(problems) - UNWRITTEN_NAMED} more files could not be written there"


def _proof(registration: Register) -> str:
    secret = registration.secret.encode()
    return hashlib.sha256(secret).hexdigest() if secret else ""

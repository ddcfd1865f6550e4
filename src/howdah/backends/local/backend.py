"""The local backend: containers are granted at once, GPUs as they are free.

Memory and cores are not reserved: memory is enforced by the agents where it is given, cores are
shared by the kernel. A GPU is a container's own, for all jobs on the host (`howdah.backends.gpus`).

Not guaranteed beyond `howdah.backends.base`: ``avoid_nodes``, placement and racks mean nothing,
there is one node. A container that was granted and not launched when its coordinator died is gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import Backend, BackendError, PageReaders, Places, RoleResources
from howdah.backends.gpus import Device, DeviceLocks, GpuError, Lister, nvml_devices
from howdah.backends.local import container_paths
from howdah.backends.local.allocation import (
    MachineCapacity,
    choose,
    gpus_short,
    minimums,
)
from howdah.backends.local.connection import NodeConnection
from howdah.backends.local.machine import look, refuse_impossible
from howdah.backends.local.messages import (
    FIRST_LOCK,
    LEASE_S,
    Acknowledge,
    Ended,
    Finished,
    FromNode,
    Inventory,
    Launch,
    Launched,
    Release,
)
from howdah.backends.local.processes import PROCESS
from howdah.backends.local.submit import NodeOptions
from howdah.core.messages import (
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    ContainerRequest,
    Event,
    RequestRefused,
)
from howdah.core.plan import Plan
from howdah.frameworks import planning
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress

log: logging.Logger = logging.getLogger(__name__)

RELEASE_GRACE_S = 2.0
"""For an agent to end by itself. Its task was given its own grace before."""
RETRY_S = (0.3, 0.7)
"""Between two looks for free GPUs, at random between these."""
LISTED_AGAIN_S: Sequence[float] = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Before a driver that fails after a take-over is asked again; then requests are refused."""
FRESH_S = 5.0
"""What is known of the machine's GPUs for longer is asked for anew before some of them are chosen."""


class LocalContainer:
    """One container this backend has granted, or found."""

    def __init__(self, container_id: str, role: str, devices: Sequence[Device]) -> None:
        self.container_id = container_id
        self.role = role
        self.devices: tuple[Device, ...] = tuple(devices)
        self.locks: list[int] = []
        """Descriptors of the devices' locks, until the agent has its own."""
        self.launch: AgentLaunch | None = None
        """Set once launched."""
        self.launched = False
        """The daemon has confirmed it, or holds it from before."""
        self.releasing = False


class LocalBackend(Backend):
    """The containers of one job on this machine."""

    name = "local"
    lease_s = LEASE_S
    lists_all = True
    host = bind = "127.0.0.1"
    ports: tuple[int, int] | None = None
    page_readers: PageReaders = PageReaders()
    queue = ""

    def __init__(
        self,
        directory: JobDirectory,
        *,
        node: NodeOptions | None = None,
        lister: Lister = nvml_devices,
        locks: DeviceLocks | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """``lister``, ``locks`` and ``node`` are other than the defaults only in tests."""
        self._directory = directory
        self._lister = lister
        self._locks = locks or DeviceLocks()
        self._visible = env.get("CUDA_VISIBLE_DEVICES")
        self._connection = NodeConnection(directory.path, node, self._on_message)
        self._node = socket.gethostname()
        self._emit: Callable[[Event], None] | None = None
        self._early: list[Event] = []
        """Facts that came before `start` had returned."""
        self._roles: Mapping[str, RoleResources] = {}
        self._minimum: Mapping[str, int] = {}
        self._devices: Sequence[Device] = ()
        self._listed = -math.inf
        """When they were listed, by the loop's clock."""
        self._listing: asyncio.Task[None] | None = None
        self._listing_problem = ""
        """Why the driver did not tell after a take-over, while it is asked again."""
        self._impossible = ""
        """Why this machine can't run the job any more, whose containers of an earlier coordinator go on."""
        self._pending: dict[int, ContainerRequest] = {}
        self._known: set[int] = set()
        """Requests that were granted or refused."""
        self._containers: dict[str, LocalContainer] = {}
        self._free: int | None = None
        """Devices nobody held at the last look."""
        self._found: tuple[str, ...] = ()
        """Containers of an earlier coordinator, also those whose end it did not hear of."""
        self._retry: asyncio.TimerHandle | None = None
        self._chance = random.Random()
        self._closed = False

    # -- the contract --------------------------------------------------------------------------

    def places(self, job: Job, directory: JobDirectory) -> Places:
        return container_paths.places(job, directory)

    async def announce(self, address: CoordinatorAddress) -> None:
        """Who looks for the coordinator finds it in the job directory."""

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        self._roles = roles
        plan = self._plan()
        self._minimum = minimums(plan)
        goes_on = any(self._directory.containers.glob(f"*/{PROCESS}"))
        if goes_on and any(role.gpus for role in roles.values()):
            # Its agents end if they have to wait, and the driver may take long, or never answer.
            self._impossible = "It is not known which GPUs this machine has"
            self._list_again()
            await asyncio.to_thread(self._lay_out)
        else:
            (machine, self._devices), _ = await asyncio.gather(
                self._look(), asyncio.to_thread(self._lay_out)
            )
            self._listed = asyncio.get_running_loop().time()
            if not goes_on:
                refuse_impossible(roles, plan, machine)
            if machine.unusable_gpus:
                log.warning("%s", machine.unusable_gpus)
            for name, role in roles.items():
                if role.cores is not None and role.cores > machine.cores:
                    log.warning(
                        "roles.%s.cores = %d, this machine has %d: its tasks will take turns",
                        name,
                        role.cores,
                        machine.cores,
                    )
        await self._connection.open()
        self._emit = emit
        for event in self._early:
            self._later(event)
        return self._found

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        for request in requests:
            known = request.request_id in self._known or request.request_id in self._pending
            if known or _container_id(request.request_id) in self._containers:
                continue
            if request.role not in self._roles:
                self._known.add(request.request_id)
                self._later(
                    RequestRefused(
                        request_id=request.request_id,
                        reason=f"the job has no role {request.role!r}",
                    )
                )
                continue
            self._pending[request.request_id] = request
        self._grant()

    async def waiting(self) -> str:
        """See `howdah.backends.base.Backend.waiting`: here only GPUs are waited for."""
        if self._pending and self._listing_problem:
            return (
                "which GPUs this machine has is not known, and the driver is asked again: "
                f"{self._listing_problem}"
            )
        if self._pending and self._listing is not None:
            return "the GPU driver was asked which GPUs can be used, and has not answered yet"
        if self._free is None:
            return ""
        return gpus_short(
            sum(self._roles[request.role].gpus for request in self._pending.values()),
            self._free,
            sum(len(container.devices) for container in self._containers.values()),
            len(self._devices),
        )

    async def cancel(self, request_ids: Sequence[int]) -> None:
        for request_id in request_ids:
            if self._pending.pop(request_id, None) is not None:
                self._known.add(request_id)

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        container = self._containers.get(container_id)
        if container is None or container.launch is not None or container.launched:
            return
        container.launch = msgspec.structs.replace(
            launch,
            gpus=tuple(device.uuid for device in container.devices),
            gpu_locks=tuple(range(FIRST_LOCK, FIRST_LOCK + len(container.locks))),
        )
        self._send_launch(container)

    async def release(self, container_id: str) -> None:
        container = self._containers.get(container_id)
        if container is None:
            return
        container.releasing = True
        if container.launch is None and not container.launched:
            self._ended(container, ContainerEndKind.RELEASED, "")
        else:
            self._connection.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))

    async def close(self) -> None:
        self._connection.send(Finished())
        await self.disconnect()

    async def disconnect(self) -> None:
        """Let go without an end: another coordinator takes over."""
        self._closed = True
        if self._listing is not None:
            self._listing.cancel()
        if self._retry is not None:
            self._retry.cancel()
        for container in self._containers.values():
            _close(container.locks)
        await self._connection.close()

    # -- granting ------------------------------------------------------------------------------

    def _grant(self, *, listed: bool = False) -> None:
        """Grant what can be granted now; look again later for the rest.

        ``listed``: the machine's devices have just been listed.
        """
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self._pending or self._closed:
            return
        gpus = {name: role.gpus for name, role in self._roles.items()}
        pending = list(self._pending.values())
        held = Counter(container.role for container in self._containers.values())
        if self._listing is not None:  # what needs no GPUs waits for none
            for request in choose(pending, gpus, held, self._minimum, 0):
                self._give(request, ())
            return
        chosen: list[ContainerRequest] = []
        known = listed or asyncio.get_running_loop().time() - self._listed < FRESH_S
        if self._impossible and (wanting := [r for r in pending if gpus[r.role]]):
            if listed:
                self._refuse(wanting, self._impossible)
                self._grant()
            else:
                self._list_again()
            return

        def decide(free: int) -> int:
            self._free = free
            chosen[:] = choose(pending, gpus, held, self._minimum, free)
            count = sum(gpus[request.role] for request in chosen)
            if 0 < count < free and not known:
                self._list_again()
                chosen.clear()
                return 0
            return count

        taken: list[tuple[Device, int]] | None = []
        if any(gpus[request.role] for request in pending):
            try:
                taken = self._locks.take(self._devices, decide)
            except GpuError as error:
                self._refuse(pending, str(error))
                return
        else:
            decide(0)
        if taken is None:  # another job is choosing
            self._look_again(0.01)
            return
        for request in chosen:
            count = gpus[request.role]
            self._give(request, taken[:count])
            del taken[:count]
        if self._pending and self._listing is None:
            self._look_again(self._chance.uniform(*RETRY_S))

    def _list_again(self) -> None:
        """Grant with what the driver says then: which devices are in use, and which can't be used."""
        self._listing = asyncio.create_task(self._list(), name="list GPUs")

    async def _list(self) -> None:
        try:
            machine, devices = await self._look()
            for pause_s in LISTED_AGAIN_S if self._impossible else ():
                self._listing_problem = machine.gpu_problem
                if not self._listing_problem:
                    break
                log.warning("GPUs are listed again in %g s: %s", pause_s, self._listing_problem)
                await asyncio.sleep(pause_s)
                machine, devices = await self._look()
            if machine.gpu_problem:
                log.warning("GPUs are chosen by what was known before: %s", machine.gpu_problem)
            else:
                self._devices = devices
            if self._impossible:
                try:
                    refuse_impossible(self._roles, self._plan(), machine)
                    self._impossible = ""
                except BackendError as error:
                    self._impossible = str(error)
                    log.warning("%s\nIts containers go on, and it gets no other GPUs", error)
        finally:
            self._listing, self._listing_problem = None, ""
            self._listed = asyncio.get_running_loop().time()
            self._grant(listed=True)

    async def _look(self) -> tuple[MachineCapacity, Sequence[Device]]:
        """See `look`. Nothing waits for its thread, nor does the end of this process: a driver may
        never answer."""
        found: Future[tuple[MachineCapacity, Sequence[Device]]] = Future()
        found.set_running_or_notify_cancel()
        with_gpus = any(role.gpus for role in self._roles.values())

        def work() -> None:
            try:
                found.set_result(look(with_gpus, self._lister, self._visible))
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=work, name="list GPUs", daemon=True).start()
        return await asyncio.wrap_future(found)

    def _look_again(self, delay_s: float) -> None:
        self._retry = asyncio.get_running_loop().call_later(delay_s, self._grant)

    def _give(self, request: ContainerRequest, devices: Sequence[tuple[Device, int]]) -> None:
        del self._pending[request.request_id]
        self._known.add(request.request_id)
        container_id = _container_id(request.request_id)
        container = LocalContainer(container_id, request.role, [device for device, _ in devices])
        container.locks = [descriptor for _, descriptor in devices]
        self._containers[container_id] = container
        self._later(
            ContainerGranted(
                request_id=request.request_id, container_id=container_id, node=self._node
            )
        )

    def _refuse(self, requests: Sequence[ContainerRequest], reason: str) -> None:
        for request in requests:
            del self._pending[request.request_id]
            self._known.add(request.request_id)
            self._later(RequestRefused(request_id=request.request_id, reason=reason))

    # -- the daemon ----------------------------------------------------------------------------

    def _on_message(self, message: FromNode) -> None:
        if isinstance(message, Inventory):
            self._reconcile(message)
        elif isinstance(message, Launched):
            container = self._containers.get(message.container_id)
            if container is not None:
                container.launched = True
                _close(container.locks)
        elif isinstance(message, Ended):
            self._on_ended(message)

    def _reconcile(self, inventory: Inventory) -> None:
        """Hold what the daemon has against what this backend knows of."""
        over = {ended.container_id for ended in inventory.ended}
        there = {running.container_id: running.role for running in inventory.running}
        there |= dict.fromkeys(over, "")
        if self._emit is None:
            self._found = tuple(sorted(there))
        for container_id, role in there.items():
            container = self._containers.setdefault(
                container_id, LocalContainer(container_id, role, ())
            )
            container.launched = True
            _close(container.locks)
            if container.releasing and container_id not in over:
                self._connection.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        for container in list(self._containers.values()):
            if container.container_id in there or container.launch is None:
                continue
            if container.launched:
                kind = ContainerEndKind.EXITED
                self._ended(container, kind, "it ended while there was no node daemon")
            else:
                self._send_launch(container)  # the dead daemon did not come to it
        for ended in inventory.ended:
            self._on_ended(ended)

    def _send_launch(self, container: LocalContainer) -> None:
        assert container.launch is not None
        launch = Launch(
            container_id=container.container_id,
            role=container.role,
            launch=container.launch,
            locks=len(container.locks),
        )
        # The locks stay open here until the daemon has confirmed: it may die before.
        if self._connection.send(launch, container.locks) and container.releasing:
            self._connection.send(
                Release(container_id=container.container_id, grace_s=RELEASE_GRACE_S)
            )

    def _on_ended(self, ended: Ended) -> None:
        container = self._containers.get(ended.container_id)
        self._connection.send(Acknowledge(container_id=ended.container_id))
        if container is None:
            return
        kind = ended.kind
        if container.releasing and kind is ContainerEndKind.EXITED:
            kind = ContainerEndKind.RELEASED
        self._ended(container, kind, ended.detail)

    def _ended(self, container: LocalContainer, kind: ContainerEndKind, detail: str) -> None:
        del self._containers[container.container_id]
        _close(container.locks)
        self._later(ContainerEnded(container_id=container.container_id, kind=kind, detail=detail))
        if self._pending:
            self._grant()

    def _later(self, event: Event) -> None:
        """Not from within a call: who calls has not written down yet that it has called."""
        asyncio.get_running_loop().call_soon(self._deliver, event)

    def _deliver(self, event: Event) -> None:
        if self._emit is None:
            self._early.append(event)
        elif not self._closed:
            self._emit(event)

    # -- what is here --------------------------------------------------------------------------

    def _lay_out(self) -> None:
        container_paths.lay_out(self._directory.job(), self._directory)

    def _plan(self) -> Plan:
        job = planning.expand(self._directory.job())
        return planning.plan(job, self._directory.job_id)


def _container_id(request_id: int) -> str:
    """Made of the request, so that a request asked for again after a take-over is known."""
    return f"c{request_id:04d}"


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    descriptors.clear()

"""The Spark backend, in the coordinator: containers in the slots of a Spark application.

The driver program runs Spark jobs whose tasks start container processes
(`howdah.backends.spark.slot_task`). Those connect to this process, and each has one container at a
time. A process whose container has ended serves the next request, so that a restart needs no slot.

Not guaranteed beyond `howdah.backends.base`: a container that was granted and not launched when its
coordinator died is lost. Its process is not, nor its request if that is made again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import Backend, PageReaders, Places, RoleResources
from howdah.backends.local.messages import Launch, Release
from howdah.backends.spark import container_folder
from howdah.backends.spark.coordinator_process import DriverConnection, inherited
from howdah.backends.spark.driver_containers import DriverContainers
from howdah.backends.spark.facts import role_gpus, too_few_gpus, unseen
from howdah.backends.spark.launch_bundle import REGISTER_S
from howdah.backends.spark.messages import (
    LAST_UPLOAD_S,
    LEASE_S,
    Exited,
    RequestSlots,
    SlotsCompleted,
    SlotsPending,
)
from howdah.backends.spark.registry import (
    ContainerRegistry,
    LaunchedContainer,
    RegisteredContainer,
    RegistryState,
)
from howdah.backends.spark.site import SparkSettings, read_settings
from howdah.core.messages import (
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    ContainerRequest,
    Event,
    RequestRefused,
    StopRequested,
)
from howdah.spec.model import Job, Slots
from howdah.spec.units import port_range
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress

log: logging.Logger = logging.getLogger(__name__)

RELEASE_GRACE_S = 2.0
"""For an agent to end by itself. Its task was given its own grace before."""
RETRY_S = 1.0
"""Before the next request for slots that the application did not have."""
CLOSE_S = 5.0
"""For container processes to clean up at the end."""
EXPECT_S = 15.0
"""For the container processes of a Spark job that an earlier coordinator had requested."""
MISSING_S = REGISTER_S + 15.0
"""For the others of a Spark job that holds its slots, once the first has registered."""
GIVE_BACK_S = LAST_UPLOAD_S + 15.0
"""For the agent to end, and its last files to be uploaded."""
AGENT_LEASE_S = 20.0
"""Longer than that of container processes: a busy driver's host must not cost a training."""


class SparkBackend(Backend):
    """The containers of one job in one Spark application."""

    name = "spark"
    lease_s = AGENT_LEASE_S
    give_back_s = GIVE_BACK_S
    lists_all = True
    page_readers: PageReaders = PageReaders()
    queue = ""

    def __init__(self, directory: JobDirectory, *, env: Mapping[str, str] = os.environ) -> None:
        """
        Raises:
            BackendError: the job was never submitted to a Spark application.
        """
        self._directory = directory
        self._settings: SparkSettings = read_settings(directory.path)
        self.host: str = self._settings.host
        self.bind: str = self._settings.bind
        self.ports: tuple[int, int] = port_range(directory.job().network.ports)
        self._env = env
        self._emit: Callable[[Event], None] | None = None
        self._unsent: list[Event] = []
        self._agents = ("", 0)
        self._roles: Mapping[str, RoleResources] = {}
        self._state = RegistryState(directory.path)
        self._pending: dict[int, ContainerRequest] = {}
        self._known: set[int] = set()
        self._granted: dict[str, tuple[ContainerRequest, RegisteredContainer]] = {}
        """Containers of this coordinator's own, until they end."""
        self._releasing: set[str] = set()
        self._expected: dict[int, int] = {}
        """By Spark job: container processes that it may still start."""
        self._assigning: asyncio.Handle | None = None
        self._driver_containers = DriverContainers(directory, self._settings)
        self._registry = ContainerRegistry(self, directory, LEASE_S)
        self._driver: DriverConnection | None = None
        """Once it is started."""
        self._closed = False

    # -- the contract --------------------------------------------------------------------------

    def places(self, job: Job, directory: JobDirectory) -> Places:
        return container_folder.places(job, directory.meta().source, self._settings.path)

    async def announce(self, address: CoordinatorAddress) -> None:
        self._agents = (address.host, address.port)
        self._registry.announce(msgspec.json.encode(address))

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        self._roles = roles
        if self._driver is not None:  # it was started before
            self._emit = emit
            return sorted(self._state.containers)
        driver, listener = inherited(self._env)
        await self._registry.open(listener)
        self._driver = DriverConnection(
            driver, self._settings, self._from_driver, self._driver_lost
        )
        self._driver.open()
        for container_id, entry in self._state.containers.items():
            self._registry.expect(container_id, entry)
            self._known.add(int(container_id[1:]))
        self._emit = emit
        for event in self._unsent:
            self._emit_soon(event)
        return sorted(self._state.containers)

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        """See `howdah.backends.base.Backend.request`. ``avoid_nodes`` applies to registered
        processes; which hosts Spark gives cannot be said."""
        self._registry.avoid = frozenset(avoid_nodes)
        for request in requests:
            if request.request_id in self._known or request.request_id in self._pending:
                continue
            if request.role not in self._roles:
                self._refuse(request.request_id, f"the job has no role {request.role!r}")
                continue
            self._pending[request.request_id] = request
        self._assign_soon()

    async def waiting(self) -> str:
        if self._driver is None or not self._pending:
            return ""
        return await self._driver.slots_report(len(self._wanted(on_driver=False)))

    async def cancel(self, request_ids: Sequence[int]) -> None:
        for request_id in request_ids:
            if self._pending.pop(request_id, None) is not None:
                self._known.add(request_id)

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        granted = self._granted.get(container_id)
        if granted is None or container_id in self._state.containers:
            return
        request, container = granted
        role, registration = request.role, container.registration
        entry = LaunchedContainer(
            name=registration.name,
            role=role,
            host=registration.host,
            spark_job=registration.spark_job,
            sees_job_dir=registration.sees_job_dir,
            proof=container.proof,
        )
        await self._state.launched(container_id, entry)
        if container_id not in self._state.containers:
            return  # its process was lost meanwhile
        container.launch = Launch(
            container_id=container_id,
            role=role,
            launch=container_folder.complete_launch(
                launch,
                registration,
                self._agents,
                role_gpus(self._roles, role, registration.gpus),
            ),
        )
        container.send(container.launch)

    async def release(self, container_id: str) -> None:
        if container_id in self._state.containers:
            self._releasing.add(container_id)
            container = self._registry.find(container_id)
            if container is not None:
                container.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        elif container_id in self._granted:
            _, container = self._granted.pop(container_id)
            container.container_id = ""
            self._emit_soon(
                ContainerEnded(container_id=container_id, kind=ContainerEndKind.RELEASED)
            )
            self._assign_soon()

    async def close(self) -> None:
        await self._registry.shut_down(CLOSE_S)
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close without ending anything: another coordinator takes over."""
        self._closed = True
        if self._assigning is not None:
            self._assigning.cancel()
        await self._registry.close()
        if self._driver is not None:
            self._driver.close()

    # -- requests and containers ---------------------------------------------------------------

    def _assign_soon(self, delay_s: float = 0.0) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._assigning is not None:
            self._assigning.cancel()
        self._assigning = (
            loop.call_later(delay_s, self._assign) if delay_s else loop.call_soon(self._assign)
        )

    def _assign(self) -> None:
        """Give free processes to requests, and request slots for the others."""
        self._assigning = None
        if self._closed or self._driver is None:
            return
        for _ in range(self._fill(on_driver=True) - self._driver_containers.pending):
            self._driver_containers.start(self._no_driver_container)
        missing = self._fill(on_driver=False) - sum(self._expected.values())
        if missing > 0:
            spark_job = self._state.next_spark_job()
            self._expected[spark_job] = missing
            self._driver.send(RequestSlots(spark_job=spark_job, count=missing))

    def _fill(self, *, on_driver: bool) -> int:
        """Give free processes to requests; returns how many have none."""
        for request in self._wanted(on_driver=on_driver):
            container = self._registry.free(on_driver=on_driver)
            if container is None:
                break
            self._grant(request, container)
        return len(self._wanted(on_driver=on_driver))

    def _wanted(self, *, on_driver: bool) -> list[ContainerRequest]:
        """Requests for containers on the driver's machine, or for slots."""
        roles = self._settings.on_driver
        return [each for each in self._pending.values() if (each.role in roles) == on_driver]

    def _grant(self, request: ContainerRequest, container: RegisteredContainer) -> None:
        registration, role = container.registration, request.role
        problem = too_few_gpus(self._roles, role, registration.gpus)
        if not registration.sees_job_dir:
            problem = unseen(self._directory.job(), role, registration.host) or problem
        if problem:
            self._refuse(request.request_id, problem)
            return
        del self._pending[request.request_id]
        self._known.add(request.request_id)
        container_id = f"c{request.request_id:04d}"
        container.container_id = container_id
        self._granted[container_id] = request, container
        self._emit_soon(
            ContainerGranted(
                request_id=request.request_id, container_id=container_id, node=registration.host
            )
        )

    def _refuse(self, request_id: int, reason: str) -> None:
        self._pending.pop(request_id, None)
        self._known.add(request_id)
        self._emit_soon(RequestRefused(request_id=request_id, reason=reason))

    def _refuse_all(self, reason: str, *, on_driver: bool) -> None:
        for request in self._wanted(on_driver=on_driver):
            self._refuse(request.request_id, reason)

    def _no_driver_container(self, problem: str) -> None:
        self._refuse_all(f"no container on the driver's machine: {problem}", on_driver=True)

    # -- the registry (howdah.backends.spark.registry.RegistryOwner) ---------------------------

    def registered(self, container: RegisteredContainer) -> None:
        """A container process has registered, for the first time or again."""
        registration = container.registration
        if not container.reconnected and registration.spark_job in self._expected:
            self._expected[registration.spark_job] -= 1
            if self._expected[registration.spark_job] <= 0:
                del self._expected[registration.spark_job]
            elif (
                self._settings.slots is Slots.HELD
                and self._registry.count_of(registration.spark_job) == 1
            ):
                # Why a task ended without one is known when all have ended, which those that hold their slots
                # do not: requested again, it is a Spark job of its own. Of two that come, one ends unused.
                self._expect_no_more_in(MISSING_S, registration.spark_job)
        if not container.reconnected:
            self._driver_containers.registered(registration.name)
        container_id = registration.container_id
        if container_id and container_id in self._state.containers:
            container.container_id = container_id
            if container_id in self._releasing:
                container.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        elif container_id and registration.exited is None:
            # Reported as lost, and it runs: its machine was cut off. Nothing else starts beside it.
            container.container_id = container_id
            container.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        elif container.launch is not None and container.container_id in self._state.containers:
            container.send(container.launch)  # the connection broke before it arrived
        elif (
            container.container_id in self._state.containers
            and container.container_id not in self._granted
        ):
            # The coordinator that had launched it died before the launch was sent.
            lost, container.container_id = container.container_id, ""
            self._ended(lost, ContainerEndKind.LAUNCH_FAILED, "it was never started")
        self._assign_soon()

    def exited(self, exited: Exited) -> None:
        """A container has ended, and its files are uploaded."""
        kind = exited.kind
        if exited.container_id in self._releasing and kind is ContainerEndKind.EXITED:
            kind = ContainerEndKind.RELEASED
        self._ended(exited.container_id, kind, exited.detail, exited.unsaved)
        self._assign_soon()

    def lost(self, container: RegisteredContainer, reason: str, kind: ContainerEndKind) -> None:
        """A container process is lost for good."""
        container_id = container.container_id
        if container_id in self._granted and container_id not in self._state.containers:
            del self._granted[container_id]
            self._emit_soon(ContainerEnded(container_id=container_id, kind=kind, detail=reason))
        elif container_id:
            unsaved = container_id in self._releasing and not container.registration.sees_job_dir
            line = f"its last files may not have been uploaded to the driver's machine: {reason}"
            self._ended(container_id, kind, reason, (line,) if unsaved else ())

    def _ended(
        self,
        container_id: str,
        kind: ContainerEndKind,
        detail: str,
        unsaved: tuple[str, ...] = (),
    ) -> None:
        self._granted.pop(container_id, None)
        self._releasing.discard(container_id)
        if container_id in self._state.containers:
            self._state.ended(container_id)
            self._emit_soon(
                ContainerEnded(container_id=container_id, kind=kind, detail=detail, unsaved=unsaved)
            )

    # -- the driver ----------------------------------------------------------------------------

    def _from_driver(self, message: SlotsPending | SlotsCompleted) -> None:
        match message:
            case SlotsPending():
                known = message.spark_job <= self._state.spark_jobs
                self._state.spark_jobs = max(self._state.spark_jobs, message.spark_job)
                present = self._registry.count_of(message.spark_job)
                if message.count > present:
                    self._expected[message.spark_job] = message.count - present
                    if known and self._settings.slots is Slots.HELD:
                        # Its processes may have registered with an earlier coordinator, and ended.
                        self._expect_no_more_in(EXPECT_S, message.spark_job)
            case SlotsCompleted():
                self._slots_completed(message)

    def _expect_no_more_in(self, seconds: float, spark_job: int) -> None:
        asyncio.get_running_loop().call_later(seconds, self._expect_no_more, spark_job)

    def _expect_no_more(self, spark_job: int) -> None:
        if self._expected.pop(spark_job, None) is not None:
            self._assign_soon()

    def _slots_completed(self, message: SlotsCompleted) -> None:
        came = self._expected.pop(message.spark_job, None) is None
        if message.cancelled:
            self._stop(message.problem)
        elif message.problem and came:
            # All its processes had registered: each reports its own end. With
            # spark.task.maxFailures = 1 one lost executor ends the tasks on all others, too.
            log.warning("Spark has ended the tasks of the containers: %s", message.problem)
            if self._settings.slots is Slots.HELD:
                self._slots_ended(message.spark_job)
            self._assign_soon(0.2)
        elif message.problem:
            log.error("no slots: %s", message.problem)
            self._refuse_all(message.problem, on_driver=False)
        elif message.full:
            self._assign_soon(RETRY_S)
        else:
            self._assign_soon(0.2)  # registrations may be on their way

    def _slots_ended(self, spark_job: int) -> None:
        """End the containers of a Spark job that failed: Spark takes seconds to end its tasks, and what
        formed anew in them would be lost once more."""
        reason = "Spark has ended all tasks that held slots beside it"
        for container in self._registry.end_slots(spark_job, reason):
            container_id = container.container_id
            if container_id in self._state.containers:
                self._releasing.add(container_id)
                container.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
            elif self._granted.pop(container_id, None) is not None:
                self._registry.stop(container)
                kind = ContainerEndKind.PREEMPTED
                self._emit_soon(ContainerEnded(container_id=container_id, kind=kind, detail=reason))

    def _driver_lost(self) -> None:
        if not self._closed:
            self._stop("the program that had the Spark session has ended")

    def _stop(self, reason: str) -> None:
        log.warning("the job is stopped: %s", reason)
        self._emit_soon(StopRequested(by="Spark", reason=reason, firm=True))

    # -- events --------------------------------------------------------------------------------

    def _emit_soon(self, event: Event) -> None:
        """Emit it after the current call, which the caller has not recorded yet."""
        asyncio.get_running_loop().call_soon(self._deliver, event)

    def _deliver(self, event: Event) -> None:
        if self._emit is None:
            self._unsent.append(event)
        elif not self._closed:
            self._emit(event)

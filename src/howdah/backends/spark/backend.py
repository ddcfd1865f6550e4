"""The Spark backend, in the coordinator: containers in the slots of a Spark application.

The driver program runs Spark jobs whose tasks start holders (`howdah.backends.spark.slots`), the
holders dial this process, and each has one container at a time. A holder whose container has ended
serves the next request, so that a restart needs no slot.

Not guaranteed beyond `howdah.backends.base`: a container that was granted and not launched when its
coordinator died is gone; its holder, and its request asked for again, are not.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import PageReaders, Places, RoleResources
from howdah.backends.spark import inside
from howdah.backends.spark.books import Books, Launched
from howdah.backends.spark.desk import Desk, Place
from howdah.backends.spark.facts import unseen
from howdah.backends.spark.launching import completed, share, too_few_gpus
from howdah.backends.spark.link import Link, inherited
from howdah.backends.spark.local_holders import LocalHolders
from howdah.backends.spark.messages import (
    LEASE_S,
    Launch,
    Over,
    Release,
    Settings,
    SlotsOver,
    UnderWay,
    Want,
)
from howdah.backends.spark.settings import read_settings
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
from howdah.wire.status import JobView

log = logging.getLogger(__name__)

RELEASE_GRACE_S = 2.0
"""For an agent to end by itself. Its task was given its own grace before."""
AGAIN_S = 1.0
"""Before slots are asked for again that the application did not have."""
CLOSE_S = 5.0
"""For holders to clean up at the end."""
FORGET_S = 15.0
"""For the holders of a Spark job that an earlier coordinator had asked for."""
AGENT_LEASE_S = 20.0
"""Longer than holders wait: a coordinator on a driver's host that is busy must not cost a training."""


class SparkBackend:
    """Implements `howdah.backends.base.Backend` for one job in one Spark application."""

    name = "spark"
    lease_s = AGENT_LEASE_S
    lists_all = True
    page_readers = PageReaders()

    def __init__(self, directory: JobDirectory, *, env: Mapping[str, str] = os.environ) -> None:
        """
        Raises:
            BackendError: the job was never submitted to a Spark application.
        """
        self._directory = directory
        self._settings: Settings = read_settings(directory.path)
        self.host = self._settings.host
        self.bind = self._settings.bind
        self.ports = port_range(directory.job().network.ports)
        self._env = env
        self._emit: Callable[[Event], None] | None = None
        self._early: list[Event] = []
        self._address = b""
        self._agents = ("", 0)
        self._roles: Mapping[str, RoleResources] = {}
        self._books = Books(directory.path)
        self._pending: dict[int, ContainerRequest] = {}
        self._known: set[int] = set()
        self._granted: dict[str, tuple[ContainerRequest, Place]] = {}
        """Containers of this coordinator's own, until they end."""
        self._releasing: set[str] = set()
        self._under_way: dict[int, int] = {}
        """By ticket: holders that Spark jobs may still bring."""
        self._balancing: asyncio.Handle | None = None
        self._local: LocalHolders | None = None
        self._desk: Desk | None = None
        self._link: Link | None = None
        self._closed = False

    # -- the contract --------------------------------------------------------------------------

    def places(self, job: Job, directory: JobDirectory) -> Places:
        """See `howdah.backends.base.Backend.places`."""
        return inside.places(job, directory.meta().source, self._settings.path)

    async def announce(self, address: CoordinatorAddress) -> None:
        """See `howdah.backends.base.Backend.announce`."""
        self._address = msgspec.json.encode(address)
        self._agents = (address.host, address.port)
        if self._desk is not None:
            self._desk.announce(self._address)

    async def finished(self, view: JobView) -> None:
        """The end is in the job directory."""

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        """See `howdah.backends.base.Backend.start`."""
        self._roles = roles
        if self._desk is not None:  # it has begun before
            self._emit = emit
            return sorted(self._books.containers)
        link, listener = inherited(self._env)
        self._desk = Desk(self, self._directory, self._address, LEASE_S)
        await self._desk.open(listener)
        self._local = LocalHolders(self._directory, self._settings, LEASE_S)
        self._link = Link(link, self._settings, self._on_driver, self._driver_gone)
        self._link.open()
        for container_id, entry in self._books.containers.items():
            self._desk.expect(container_id, entry)
            self._known.add(int(container_id[1:]))
        self._emit = emit
        for event in self._early:
            self._later(event)
        return sorted(self._books.containers)

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        """See `howdah.backends.base.Backend.request`. ``avoid_nodes`` is heeded among holders that
        are there; which hosts Spark gives nobody can say."""
        if self._desk is not None:
            self._desk.avoid = frozenset(avoid_nodes)
        for request in requests:
            if request.request_id in self._known or request.request_id in self._pending:
                continue
            if request.role not in self._roles:
                self._refuse(request.request_id, f"the job has no role {request.role!r}")
                continue
            self._pending[request.request_id] = request
        self._balance_soon()

    async def waiting(self) -> str:
        """See `howdah.backends.base.Backend.waiting`."""
        if self._link is None or not self._pending:
            return ""
        return await self._link.seen()

    async def cancel(self, request_ids: Sequence[int]) -> None:
        """See `howdah.backends.base.Backend.cancel`."""
        for request_id in request_ids:
            if self._pending.pop(request_id, None) is not None:
                self._known.add(request_id)

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        """See `howdah.backends.base.Backend.launch`."""
        granted = self._granted.get(container_id)
        if granted is None or container_id in self._books.containers:
            return
        request, place = granted
        role, here = request.role, place.here
        entry = Launched(holder=here.holder, role=role, host=here.host, ticket=here.ticket)
        await self._books.launched(container_id, entry)
        if container_id not in self._books.containers:
            return  # its holder was lost meanwhile
        place.launch = Launch(
            container_id=container_id,
            role=role,
            launch=completed(launch, here, self._agents, share(self._roles, role, here.gpus)),
        )
        place.send(place.launch)

    async def release(self, container_id: str) -> None:
        """See `howdah.backends.base.Backend.release`."""
        if container_id in self._books.containers:
            self._releasing.add(container_id)
            assert self._desk is not None
            place = self._desk.of(container_id)
            if place is not None:
                place.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        elif container_id in self._granted:
            _, place = self._granted.pop(container_id)
            place.container_id = ""
            self._later(ContainerEnded(container_id=container_id, kind=ContainerEndKind.RELEASED))
            self._balance_soon()

    async def superseded(self) -> str:
        """The driver has one coordinator at a time, and the journal one writer."""
        return await asyncio.Future()

    async def credentials(self) -> bytes:
        """Containers have no credential files."""
        return await asyncio.Future()

    async def close(self) -> None:
        """See `howdah.backends.base.Backend.close`."""
        if self._desk is not None:
            await self._desk.dismiss(CLOSE_S)
        await self.disconnect()

    async def disconnect(self) -> None:
        """Let go without an end: another coordinator takes over."""
        self._closed = True
        if self._balancing is not None:
            self._balancing.cancel()
        if self._desk is not None:
            await self._desk.close()
        if self._link is not None:
            self._link.close()

    # -- requests and places -------------------------------------------------------------------

    def _balance_soon(self, delay_s: float = 0.0) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._balancing is not None:
            self._balancing.cancel()
        self._balancing = (
            loop.call_later(delay_s, self._balance) if delay_s else loop.call_soon(self._balance)
        )

    def _balance(self) -> None:
        """Give free places to requests, and ask for what is missing."""
        self._balancing = None
        if self._closed or self._desk is None or self._local is None:
            return
        for _ in range(self._fill(on_driver=True) - self._local.starting):
            self._local.start(self._local_problem)
        missing = self._fill(on_driver=False) - sum(self._under_way.values())
        if missing > 0 and self._link is not None:
            ticket = self._books.next_ticket()
            self._under_way[ticket] = missing
            self._link.send(Want(ticket=ticket, count=missing))

    def _fill(self, *, on_driver: bool) -> int:
        """Give free places to requests; returns how many have none."""
        assert self._desk is not None
        for request in self._wanted(on_driver=on_driver):
            place = self._desk.free(on_driver=on_driver)
            if place is None:
                break
            self._grant(request, place)
        return len(self._wanted(on_driver=on_driver))

    def _wanted(self, *, on_driver: bool) -> list[ContainerRequest]:
        """Requests for places on the driver's machine, or for slots."""
        roles = self._settings.on_driver
        return [each for each in self._pending.values() if (each.role in roles) == on_driver]

    def _grant(self, request: ContainerRequest, place: Place) -> None:
        if not place.here.sees and (problem := unseen(self._directory.job(), place.here.host)):
            self._refuse(request.request_id, problem)
            return
        if problem := too_few_gpus(self._roles, request.role, place.here.gpus):
            self._refuse(request.request_id, problem)
            return
        del self._pending[request.request_id]
        self._known.add(request.request_id)
        container_id = f"c{request.request_id:04d}"
        place.container_id = container_id
        self._granted[container_id] = request, place
        self._later(
            ContainerGranted(
                request_id=request.request_id, container_id=container_id, node=place.here.host
            )
        )

    def _refuse(self, request_id: int, reason: str) -> None:
        self._pending.pop(request_id, None)
        self._known.add(request_id)
        self._later(RequestRefused(request_id=request_id, reason=reason))

    def _refuse_all(self, reason: str, *, on_driver: bool) -> None:
        for request in self._wanted(on_driver=on_driver):
            self._refuse(request.request_id, reason)

    def _local_problem(self, problem: str) -> None:
        self._refuse_all(f"no container on the driver's machine: {problem}", on_driver=True)

    # -- what holders say (howdah.backends.spark.desk.Owner) -----------------------------------

    def arrived(self, place: Place) -> None:
        """A holder has said for the first time, or again, what it holds."""
        if not place.known_before and place.here.ticket in self._under_way:
            self._under_way[place.here.ticket] -= 1
            if self._under_way[place.here.ticket] <= 0:
                del self._under_way[place.here.ticket]
        if self._local is not None and not place.known_before:
            self._local.arrived(place.here.holder)
        container_id = place.here.container_id
        if container_id and container_id in self._books.containers:
            place.container_id = container_id
            if container_id in self._releasing:
                place.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        elif container_id and place.here.over is None:
            # Told as lost, and it runs: its machine had been away. Nothing else begins beside it.
            place.container_id = container_id
            place.send(Release(container_id=container_id, grace_s=RELEASE_GRACE_S))
        elif place.launch is not None and place.container_id in self._books.containers:
            place.send(place.launch)  # the connection broke before it came there
        elif (
            place.container_id in self._books.containers and place.container_id not in self._granted
        ):
            # The coordinator that had launched it died before the word had left.
            lost, place.container_id = place.container_id, ""
            self._ended(lost, ContainerEndKind.LAUNCH_FAILED, "it never began")
        self._balance_soon()

    def over(self, over: Over) -> None:
        """A container has ended, and its files are here."""
        kind = over.kind
        if over.container_id in self._releasing and kind is ContainerEndKind.EXITED:
            kind = ContainerEndKind.RELEASED
        self._ended(over.container_id, kind, over.detail)
        self._balance_soon()

    def lost(self, place: Place, reason: str, kind: ContainerEndKind) -> None:
        """A holder is gone for good."""
        container_id = place.container_id
        if container_id in self._granted and container_id not in self._books.containers:
            del self._granted[container_id]
            self._later(ContainerEnded(container_id=container_id, kind=kind, detail=reason))
        elif container_id:
            self._ended(container_id, kind, reason)

    def _ended(self, container_id: str, kind: ContainerEndKind, detail: str) -> None:
        self._granted.pop(container_id, None)
        self._releasing.discard(container_id)
        if container_id in self._books.containers:
            self._books.ended(container_id)
            self._later(ContainerEnded(container_id=container_id, kind=kind, detail=detail))

    # -- what the driver says ------------------------------------------------------------------

    def _on_driver(self, message: UnderWay | SlotsOver) -> None:
        match message:
            case UnderWay():
                known = message.ticket <= self._books.tickets
                self._books.tickets = max(self._books.tickets, message.ticket)
                there = self._desk.of_ticket(message.ticket) if self._desk is not None else 0
                if message.count > there:
                    self._under_way[message.ticket] = message.count - there
                    if known and self._settings.slots is Slots.HELD:
                        # Its holders may have come to an earlier coordinator, and left.
                        loop = asyncio.get_running_loop()
                        loop.call_later(FORGET_S, self._forget, message.ticket)
            case SlotsOver():
                self._slots_over(message)

    def _forget(self, ticket: int) -> None:
        if self._under_way.pop(ticket, None) is not None:
            self._balance_soon()

    def _slots_over(self, message: SlotsOver) -> None:
        came = self._under_way.pop(message.ticket, None) is None
        if message.cancelled:
            self._stop(message.problem)
        elif message.problem and came:
            # All its containers were there: how they ended they say themselves. With
            # spark.task.maxFailures = 1 one lost executor ends the tasks on all others, too.
            log.warning("Spark has ended the tasks of the containers: %s", message.problem)
            self._balance_soon(0.2)
        elif message.problem:
            log.error("no slots: %s", message.problem)
            self._refuse_all(message.problem, on_driver=False)
        elif message.full:
            self._balance_soon(AGAIN_S)
        else:
            self._balance_soon(0.2)  # what has just registered is on its way

    def _driver_gone(self) -> None:
        if not self._closed:
            self._stop("the program that had the Spark session has ended")

    def _stop(self, reason: str) -> None:
        log.warning("the job is stopped: %s", reason)
        self._later(StopRequested(by="Spark", reason=reason, firm=True))

    # -- facts ---------------------------------------------------------------------------------

    def _later(self, event: Event) -> None:
        """Not from within a call: who calls has not written down yet that it has called."""
        asyncio.get_running_loop().call_soon(self._deliver, event)

    def _deliver(self, event: Event) -> None:
        if self._emit is None:
            self._early.append(event)
        elif not self._closed:
            self._emit(event)

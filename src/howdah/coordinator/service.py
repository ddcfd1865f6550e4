"""One job's coordinator: its parts, put together, and its life from journal to final.json."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any

from howdah.backends.base import Backend, BackendError
from howdah.backends.resources import role_resources
from howdah.coordinator import away, ending, tunnels, webapp
from howdah.coordinator.agents import Agents
from howdah.coordinator.clients import Clients
from howdah.coordinator.clock import Clock
from howdah.coordinator.document import document
from howdah.coordinator.driver import Driver
from howdah.coordinator.executor import Executor
from howdah.coordinator.files import JobLogs, save_stacks
from howdah.coordinator.inspection import Inspection
from howdah.coordinator.live import LiveBoard
from howdah.coordinator.logs import LogHub
from howdah.coordinator.metrics import Metrics
from howdah.coordinator.orders import BEAT_S, Orders
from howdah.coordinator.publishing import Publisher
from howdah.coordinator.replay import replay
from howdah.coordinator.status import Status
from howdah.coordinator.story import Story
from howdah.coordinator.unusable import Unusable
from howdah.coordinator.vitals import Vitals
from howdah.coordinator.waits import Waits
from howdah.coordinator.watcher import Watcher
from howdah.core.machine import Machine
from howdah.core.messages import (
    AnyEvent,
    CoordinatorStarted,
    JobSubmitted,
    Record,
    StacksTaken,
    StopRequested,
    Task,
)
from howdah.core.state import UP, JobState, TaskState
from howdah.frameworks import planning
from howdah.storage import journal
from howdah.storage.jobdir import JobDirectory
from howdah.wire import tls
from howdah.wire.channel import Channel, serve
from howdah.wire.messages import (
    AgentHello,
    ClientHello,
    FromAgent,
    FromClient,
    Heartbeat,
    LogChunk,
    Refuse,
    Watch,
    Welcome,
)
from howdah.wire.status import JobIdentity, JobView

log = logging.getLogger(__name__)

REFRESH_S = 1.0
_RUNNING = UP | {TaskState.STOPPING}


class Superseded(Exception):
    """Another coordinator has the job; the text says how that is known."""


class Coordinator:
    """Drives one job to its end; a later one takes over where a dead one left off."""

    def __init__(
        self,
        directory: JobDirectory,
        backend: Backend,
        *,
        clock: Clock | None = None,
        with_page: bool = True,
    ) -> None:
        """Open the journal and replay it.

        Raises:
            JournalError: another coordinator lives, or the journal is damaged.
            StorageError: the job directory is not whole.
        """
        self.directory = directory
        self.backend = backend
        self.clock = clock or Clock()
        self.meta = directory.meta()
        self.job_id = self.meta.job_id
        self.job = planning.expand(directory.job())
        self.journal = journal.Journal.open(directory.path, replica=away.journal_replica(self.meta))
        self.machine = Machine()
        self._past = replay(self.machine, journal.read(directory.path))
        self.clock.not_before(self._past.last_time)
        self.incarnation = self._past.incarnations + 1
        self.plan = self.machine.state.plan or planning.plan(
            self.job, self.job_id, lease_s=backend.lease_s
        )
        self._identity = JobIdentity(
            name=self.job.name,
            framework=self.job.framework,
            user=self.meta.user,
            backend=self.meta.backend,
            directory=self.meta.url or str(directory.path),
        )
        self._with_page = with_page
        self._put_together()

    def _put_together(self) -> None:
        state = self._state
        self.live = LiveBoard()
        self.metrics = Metrics(sum(role.maximum for role in self.plan.roles))
        self.story = Story()
        self.story.tell(self._past.records)
        self.live.remember(update.record for update in self._past.records)
        self.waits = Waits(lambda: self.backend, state, lambda: self.status.touch())
        self.status = Status(self._document)
        self.driver = Driver(
            self.machine, self.journal, self.clock, self.story, lambda c: self.executor.carry_out(c)
        )
        self.agents = Agents(
            self.job_id,
            state,
            self.driver.emit,
            self.driver.note,
            self,
            self.live,
            self.clock,
            welcome=self.welcome,
        )
        far = away.FarLogs(self, self.meta.url) if self.meta.url is not None else None
        self.files = JobLogs(self.directory, far)
        self.logs = LogHub(
            self.files,
            self.agents.send,
            self._holder,
            keep=far.keep if far is not None else None,
            reported=far.reported if far is not None else None,
        )
        self.vitals = Vitals(
            self.plan,
            state,
            self.driver.emit,
            self.live,
            self.metrics,
            self.clock,
            beat_s=BEAT_S,
            silent=self.agents.silent,
        )
        self.inspection = Inspection(state, self.agents.send)
        self.clients = Clients(self)
        self.orders = Orders(
            self.job,
            self.plan,
            self.directory,
            self.backend.lease_s,
            self.backend.places(self.job, self.directory),
        )
        self.executor = Executor(
            self.backend,
            self.agents,
            self.orders,
            self.driver.emit,
            started=self.logs.started,
            finish=self.driver.stop,
            broken=self._break,
        )
        self.publisher = Publisher(self.directory, self.backend, self.incarnation, self._break)
        self.finished = asyncio.Event()
        """Set when final.json is written: watchers send what is left and end."""
        self.page: str | None = None
        self._broken: asyncio.Future[None] | None = None
        self._server: asyncio.Server | None = None
        self._channels: set[Channel[Any]] = set()
        self._begun = asyncio.Event()
        self._over = False
        self._page_server: asyncio.Task[None] | None = None
        self.driver.advanced.add(self._advanced)

    # -- life -----------------------------------------------------------------------------------

    async def run(self) -> JobView:
        """Bring the job to its end; returns the final document.

        Raises:
            Exception: a defect, or the journal cannot be written. The job goes on under the next
                coordinator.
        """
        self._broken = asyncio.get_running_loop().create_future()
        self._broken.add_done_callback(_look_at)
        try:
            former = self.directory.coordinator()
            await self._begin()
            if self._with_page:
                page = webapp.serving(self, former.http_port if former else 0)
                self._page_server = asyncio.create_task(page)
            await self._drive()
            return await ending.end(self)
        finally:
            await self._let_go()

    async def _begin(self) -> None:
        # Who connects now waits until the first events are handled.
        self._server = await serve(
            self._connection,
            self.backend.bind,
            0,
            tls.server_context(self.directory.secrets),
            receives={"agent": FromAgent, "client": FromClient},
        )
        self.orders.master = (self.backend.host, self.port)
        await self.backend.announce(self.publisher.address(self.port, http_port=0))
        held = await self._start_backend()
        self.publisher.publish(self.port, http_port=0)
        first: list[AnyEvent | Record] = [*self._past.untold]
        if self.machine.state.plan is None:
            first.append(JobSubmitted(plan=self.plan, seed=random.randrange(2**31)))
        first.append(CoordinatorStarted(incarnation=self.incarnation, containers=held))
        self.driver.first(first)
        log.info(
            "coordinator %d of %s listens on port %d", self.incarnation, self.job_id, self.port
        )

    @property
    def port(self) -> int:
        """Where agents and clients connect."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    def page_is_up(self, port: int) -> None:
        """The web app has begun to serve at that port."""
        self.page = f"http://{self.backend.host}:{port}/"
        self.publisher.publish(self.port, http_port=port)
        self.status.touch()
        log.info("the job's page is %s", self.page)

    async def _start_backend(self) -> tuple[str, ...]:
        try:
            return tuple(await self.backend.start(role_resources(self.job), self.driver.emit))
        except BackendError as error:
            # The job ends with these words, by the same way as when a request is refused.
            log.error("the %s backend cannot be used: %s", self.backend.name, error)
            self.executor.use(Unusable(self.backend, str(error)))
            return ()

    async def _drive(self) -> None:
        """Until the job has finished; whatever fails on the way ends it here."""
        assert self._broken is not None
        driving = asyncio.create_task(self.driver.run())
        beside = [
            asyncio.create_task(each)
            for each in (
                self.vitals.run(),
                self._refresh(),
                self.waits.run(),
                self._heed_successor(),
                *ending.meanwhile(self),
            )
        ]
        try:
            done, _ = await asyncio.wait(
                [driving, *beside, self._broken], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            await _end([driving, *beside])

    async def _heed_successor(self) -> None:
        """End here, and leave the job as it is, when another coordinator has it."""
        raise Superseded(await self.backend.superseded())

    async def _refresh(self) -> None:
        """While somebody watches, show measurements anew each second."""
        while True:
            await asyncio.sleep(REFRESH_S)
            if self.status.changed:
                await self.live.read_last_lines(self.files)
                self.status.touch()

    async def _let_go(self) -> None:
        self._over = True
        if self._page_server is not None:
            await _end([self._page_server])
        if self._server is not None:
            self._server.close()
        for channel in list(self._channels):
            channel.close()
        await self.journal.close()

    def _break(self, error: BaseException) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    # -- connections ----------------------------------------------------------------------------

    async def _connection(self, channel: Channel[Any]) -> None:
        if self._over:
            return  # its handshake was under way when the listening ended
        # Whoever asks before the first events are handled would find no job.
        await self._begun.wait()
        self._channels.add(channel)
        try:
            hello = await channel.receive()
            match hello:
                case AgentHello():
                    await self.agents.serve(channel, hello)
                case ClientHello():
                    await self.clients.serve(channel, hello)
                case None:
                    pass
                case _:
                    channel.send(Refuse(reason="the first message must be a hello"))
        finally:
            self._channels.discard(channel)

    def welcome(self) -> Welcome:
        """What every peer is told first."""
        return Welcome(incarnation=self.incarnation, beat_s=BEAT_S, lease_s=self.backend.lease_s)

    # -- what agents say (howdah.coordinator.agents.Observer) -----------------------------------

    def connected(self, container_id: str, task: Task | None) -> None:
        self.vitals.connected(container_id)
        if task is not None:
            self.logs.connected(container_id, task)

    def disconnected(self, container_id: str) -> None:
        self.vitals.disconnected(container_id)

    def beat(self, container_id: str, task: Task, beat: Heartbeat, now: float) -> None:
        self.vitals.beat(container_id, task, beat, now)

    def log_chunk(self, chunk: LogChunk) -> None:
        self.logs.chunk(chunk)

    def stacks_taken(self, stacks: StacksTaken) -> str:
        self.inspection.answered(stacks)
        return stacks.path or save_stacks(self.directory, stacks)

    # -- for clients and the web app ------------------------------------------------------------

    def status_json(self) -> bytes:
        """The status document of this moment."""
        return self.status.json()

    def watcher(self, channel: Channel[Any], watch: Watch) -> Watcher:
        """One that serves this request on this connection."""
        return Watcher(
            channel, watch, self.story, self.status, self.logs, self.tasks, self.finished
        )

    def tunnel_target(self, task: Task | None) -> tuple[str, int]:
        """See `howdah.coordinator.tunnels.target`."""
        return tunnels.target(self.live.pages(), self.page, task)

    async def begun(self) -> None:
        """Return once the first events are handled."""
        await self._begun.wait()

    async def stop(self, by: str, reason: str, firm: bool) -> None:
        """Ask for the job's end; durable when it returns."""
        await self.driver.durably(StopRequested(by=by, reason=reason, firm=firm))

    async def stacks(self, task: Task) -> str:
        """See `Inspection.stacks`."""
        return await self.inspection.stacks(task)

    def tasks(self) -> list[Task]:
        """All tasks of the job."""
        return [data.task for data in self._state().tasks.values()]

    # -- inside ---------------------------------------------------------------------------------

    def _state(self) -> JobState:
        return self.machine.state

    def _document(self) -> JobView:
        return document(
            self.machine.state,
            self._identity,
            self.live,
            self.clock.now(),
            self.page,
            self.waits.why,
        )

    def _holder(self, task: Task) -> tuple[int, str] | None:
        """Whose program runs where: its agent is the one to ask for its log."""
        data = self.machine.state.tasks.get(str(task))
        if data is None or data.state not in _RUNNING or data.container_id is None:
            return None
        return data.attempt, data.container_id

    def _advanced(self) -> None:
        self._begun.set()
        self.logs.look()
        self.status.touch()

    def holds(self, task: Task, attempt: int) -> bool:
        """Whether that attempt is running: its log is still written."""
        held = self._holder(task)
        return held is not None and held[0] == attempt

    def newest_attempt(self, task: Task) -> int:
        """The task's attempt of the moment; 0 if it has had none."""
        data = self.machine.state.tasks.get(str(task))
        return data.attempt if data is not None else 0


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel them and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _look_at(future: asyncio.Future[None]) -> None:
    """Retrieve its exception: it may come when nobody waits for it any more."""
    if not future.cancelled():
        future.exception()

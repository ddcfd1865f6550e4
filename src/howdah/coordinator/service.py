"""One job's coordinator: its parts, put together, and its life from journal to final.json."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from howdah.backends.base import Backend, BackendError, role_resources
from howdah.coordinator import remote_directory
from howdah.coordinator.address import AddressAnnouncer, Redial, own_address
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.coordinator.agents.heartbeats import (
    BEAT_S,
    REMEMBERED_S,
    STORE_S,
    HeartbeatMonitor,
    Metrics,
)
from howdah.coordinator.agents.launch_specs import LaunchSpecs
from howdah.coordinator.agents.server import Agents, AgentServer, StackRequests
from howdah.coordinator.background import persist, trim_memory
from howdah.coordinator.clients.execs import ExecRelay, unrecorded_ends
from howdah.coordinator.clients.live_job import LiveJob
from howdah.coordinator.clients.server import Clients
from howdah.coordinator.driver import Clock, EventDriver, replay
from howdah.coordinator.event_log import EventLog
from howdah.coordinator.executor import Executor
from howdah.coordinator.job_logs import JobLogs
from howdah.coordinator.job_page import JobPage
from howdah.coordinator.remote_directory import RemoteLogs
from howdah.coordinator.status import LiveState, PendingReasons, StatusDocument, document
from howdah.core.machine import Machine
from howdah.core.messages import AnyEvent, CoordinatorStarted, JobSubmitted, Record
from howdah.core.plan import Plan
from howdah.core.state import JobState, Outcome
from howdah.frameworks import planning
from howdah.spec.model import Job
from howdah.storage import coordinator_ends, journal, outputs
from howdah.storage.errors import in_words, is_transient
from howdah.storage.hdfs import is_hdfs
from howdah.storage.jobdir import JobDirectory, JobMeta
from howdah.wire import tls
from howdah.wire.addresses import listening
from howdah.wire.channel import Channel, serve
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    ClientHello,
    ExecHello,
    FromAgent,
    FromClient,
    Moved,
    NewCredentials,
    Refuse,
    Shutdown,
    Welcome,
)
from howdah.wire.sockets import Listener
from howdah.wire.status import JobIdentity, JobView

log: logging.Logger = logging.getLogger(__name__)

REFRESH_S = 1.0
FINAL_S = 120.0
"""For the end to be written down, where the disk is full; then the next coordinator tries."""
PUBLISH_S = 300.0
"""For outputs to get their name in their store; a NameNode that restarts is back in a minute or two."""
PUBLISH_PAUSES_S = (1.0, 30.0)
"""First and longest pause between tries."""
WATCHERS_S = 10.0
"""How long slow watchers are waited for at the job's end; the rest is in the job directory."""


class Superseded(Exception):
    """Another coordinator has the job; the text says how that is known."""


class Coordinator:
    """Drives one job to its end; a later one takes over where a dead one left off.

    Only the machine (through its driver), the journal and the backend may end it before: what else
    fails is logged and tried again.
    """

    def __init__(
        self,
        directory: JobDirectory,
        backend: Backend,
        *,
        clock: Clock | None = None,
        with_page: bool = True,
    ) -> None:
        """Open the journal, replay it, and put the parts together.

        Raises:
            JournalError: another coordinator lives, or the journal is damaged.
            StorageError: the job directory is not whole.
        """
        self.directory = directory
        self.backend = backend
        self.clock: Clock = clock or Clock()
        self.meta: JobMeta = directory.meta()
        self.job: Job = planning.expand(directory.job())
        self.journal: journal.Journal = journal.Journal.open(
            directory.path, replica=_replica(self.meta.url)
        )
        if self.journal.time_now is not None:
            self.clock.go_on_from(self.journal.time_now)
        self.machine: Machine = Machine()
        self._past = replay(self.machine, journal.read(directory.path))
        self.clock.not_before(self._past.last_time)
        self.incarnation: int = self._past.incarnations + 1
        self.plan: Plan = self.machine.state.plan or planning.plan(
            self.job,
            directory.job_id,
            lease_s=backend.lease_s,
            give_back_s=backend.give_back_s,
        )
        self._identity = JobIdentity(
            name=self.job.name,
            framework=self.job.framework,
            user=self.meta.user,
            backend=self.meta.backend,
            directory=self.meta.url or str(directory.path),
        )
        self._with_page = with_page
        self._begun = asyncio.Event()
        """The first events are handled."""
        self._unpublished: tuple[str, ...] | None = () if self._publishes is None else None
        """What of the outputs could not be published; None before that was tried."""
        self._over = False
        self._failure: asyncio.Future[None] | None = None
        self._server: Listener | None = None
        self._channels: set[Channel[Any]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._page: list[asyncio.Task[None]] = []

        # Each part is given what it needs; those made first are given a call that is made later.
        self.live: LiveState = LiveState()
        self.live.remember(update.record for update in self._past.records)
        self.events: EventLog = EventLog()
        self.events.record(self._past.records)
        self.status: StatusDocument = StatusDocument(self._document)
        self.driver: EventDriver = EventDriver(
            self.machine,
            self.journal,
            self.clock,
            self.events,
            lambda commands: self.executor.carry_out(commands),
        )
        self.driver.advanced.add(self._advanced)
        self.agents: Agents = Agents()
        self.stacks: StackRequests = StackRequests(self._state, self.agents.send)
        self.metrics: Metrics = Metrics(
            sum(role.maximum for role in self.plan.roles), self.incarnation
        )
        self.heartbeats: HeartbeatMonitor = HeartbeatMonitor(
            self.plan,
            self._state,
            self.driver.emit,
            self.live,
            self.metrics,
            self.clock,
            silent=self.agents.silent,
        )
        self.logs: JobLogs = JobLogs(
            directory,
            self._state,
            self.live,
            self.agents.send,
            None if self.meta.url is None else RemoteLogs(self.meta.url, directory.path),
        )
        secrets = ContainerSecrets(directory.containers_key())
        self.specs: LaunchSpecs = LaunchSpecs(
            self.job,
            self.plan,
            directory,
            backend.lease_s,
            backend.places(self.job, directory),
            secrets,
            directory.secret_variables(),
            umask=self.meta.umask,
        )
        self.executor: Executor = Executor(
            backend,
            self.agents,
            self.specs,
            self.driver.emit,
            started=self.logs.started,
            finish=self.driver.stop,
            failed=self._fail,
        )
        self.pending: PendingReasons = PendingReasons(
            self.executor.pending_reason, self._state, self.status.touch
        )
        self.live_job: LiveJob = LiveJob(
            job_id=directory.job_id,
            token=directory.token(),
            job=self.job,
            plan=self.plan,
            state=self._state,
            driver=self.driver,
            status=self.status,
            events=self.events,
            logs=self.logs,
            live=self.live,
            metrics=self.metrics,
            stacks=self.stacks,
        )

        def welcome() -> Welcome:
            return Welcome(
                protocol=PROTOCOL,
                incarnation=self.incarnation,
                beat_s=BEAT_S,
                lease_s=backend.lease_s,
                time=self.clock.now(),
            )

        self.agent_server: AgentServer = AgentServer(
            self.agents,
            directory,
            self._state,
            self.driver.emit,
            self.driver.note,
            kept=lambda: self.driver.kept,
            secrets=secrets,
            welcome=welcome,
            heartbeats=self.heartbeats,
            logs=self.logs,
            live=self.live,
            stacks=self.stacks,
        )
        self.execs: ExecRelay = ExecRelay(
            directory.job_id,
            self._state,
            self.agents,
            self.driver.durably,
            self.driver.note,
            allowed=self.job.limits.exec is not False,
        )
        self.clients: Clients = Clients(self.live_job, self.execs, welcome)
        self.announcer: AddressAnnouncer = AddressAnnouncer(directory, backend, self._fail)

    # -- life -----------------------------------------------------------------------------------

    async def run(self) -> JobView:
        """Bring the job to its end; returns the final document.

        Raises:
            Exception: a defect, or the journal cannot be written. The job goes on under the next
                coordinator.
        """
        self._failure = asyncio.get_running_loop().create_future()
        self._failure.add_done_callback(_retrieve)
        try:
            former = self.directory.coordinator()
            await self._begin()
            self._start_background(former.http_port if former else 0)
            await self._drive()
            return await self._end()
        finally:
            await self._close()

    async def _begin(self) -> None:
        # A peer that connects now waits until the first events are handled.
        self._server = await serve(
            self._connection,
            None,
            0,
            tls.server_context(self.directory.secrets),
            receives={"agent": FromAgent, "client": FromClient},
            sock=listening(self.backend.bind, self.backend.ports),
        )
        self.specs.master = (self.backend.host, self.port)
        address = own_address(self.backend, self.incarnation, self.port)
        await self.backend.announce(address)
        held = await self._start_backend()
        self.announcer.announce(address)
        recorded = [update.record for update in self._past.records]
        ends = coordinator_ends.records(self.directory.path, recorded) + unrecorded_ends(recorded)
        first: list[AnyEvent | Record] = [*self._past.missing, *ends]
        if self.machine.state.plan is None:
            submitted, now = self.backend.submitted, self.clock.now()
            first.append(
                JobSubmitted(
                    plan=self.plan,
                    seed=random.randrange(2**31),
                    waited_s=0.0 if submitted is None else max(0.0, now - submitted),
                )
            )
        first.append(
            CoordinatorStarted(
                incarnation=self.incarnation,
                containers=held,
                others_ended=self.backend.lists_all,
            )
        )
        self.driver.first(first)
        log.info(
            "coordinator %d of %s listens on port %d",
            self.incarnation,
            self.directory.job_id,
            self.port,
        )

    @property
    def port(self) -> int:
        """Where agents and clients connect."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def _start_backend(self) -> tuple[str, ...]:
        try:
            held = tuple(await self.backend.start(role_resources(self.job), self.driver.emit))
        except BackendError as error:
            # The job ends with these words, by the same way as when a request is refused.
            log.error("the %s backend cannot be used: %s", self.backend.name, error)
            self.executor.backend_failed(str(error))
            return ()
        self._identity = msgspec.structs.replace(
            self._identity, queue=getattr(self.backend, "queue", "")
        )
        return held

    async def _drive(self) -> None:
        """Until the job has finished."""
        assert self._failure is not None
        driving = asyncio.create_task(self.driver.run())
        watching = asyncio.create_task(self._watch_takeover())
        try:
            done, _ = await asyncio.wait(
                [driving, watching, self._failure], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            await _cancel([driving, watching])

    async def _watch_takeover(self) -> None:
        """End here, and leave the job as it is, when another coordinator has it."""
        raise Superseded(await self.backend.superseded())

    async def _end(self) -> JobView:
        """The job has finished: write it down, let clients and agents know, tidy up."""
        await _cancel(self._background)
        await self.execs.finish()
        await self.driver.finish()
        await self.metrics.store(self.directory.path, last=True)
        await self._publish_outputs()
        self.status.touch()
        final = self.status.view()
        if self.meta.url is not None:
            # However long that takes: where final.json is, all of the journal is too.
            await self.journal.commit()
            await self.journal.close()
        async with asyncio.timeout(FINAL_S):
            await persist(
                "final.json cannot be written",
                lambda: asyncio.to_thread(self.directory.write_final, final),
            )
        self.live_job.finished.set()
        self.status.touch()  # wakes the watchers
        await self.clients.finish(WATCHERS_S, self._page)
        self.agents.close_all(Shutdown())
        await self.executor.close()
        await self.backend.finished(final)
        await self.backend.close()
        await self.announcer.close()
        try:
            await asyncio.to_thread(tidy, self.directory)
        except OSError as error:
            log.warning("the job directory could not be tidied up: %s", error)
        log.info("%s is over: %s", self.directory.job_id, final.outcome)
        return final

    @property
    def _publishes(self) -> str | None:
        """The store in which outputs get their name at the end, if there is one."""
        table = self.job.outputs
        store = table.store if table is not None else None
        return store if store is not None and is_hdfs(store) else None

    async def _publish_outputs(self) -> None:
        """If the job has succeeded, let its outputs be seen where its job file says."""
        store, loop = self._publishes, asyncio.get_running_loop()
        if store is None or self.machine.state.outcome is not Outcome.SUCCEEDED:
            self._unpublished = ()
            return
        deadline, (pause_s, longest_s) = loop.time() + PUBLISH_S, PUBLISH_PAUSES_S
        while self._unpublished is None:
            try:
                await asyncio.to_thread(outputs.publish, store, self.directory.job_id)
                self._unpublished = ()
            except OSError as error:
                log.warning("the outputs are not published: %s", in_words(error))
                if not is_transient(error) or loop.time() + pause_s > deadline:
                    self._unpublished = (outputs.unpublished(store, self.directory.job_id, error),)
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)

    async def _close(self) -> None:
        self._over = True
        await _cancel([*self._background, *self._page])
        if self._server is not None:
            self._server.close()
        for channel in list(self._channels):
            channel.close()
        await self.announcer.close()
        await self.journal.close()

    def _fail(self, error: BaseException) -> None:
        """The backend raised: end here."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    # -- beside the driver ------------------------------------------------------------------------

    def _start_background(self, former_page: int) -> None:
        def start(trouble: str, work: Callable[[], Awaitable[None]]) -> None:
            self._background.append(asyncio.create_task(persist(trouble, work)))

        start("missed heartbeats and hangs are not looked for", self.heartbeats.run)
        start("last lines and measurements are not refreshed", self._refresh)
        start("why containers do not come is not asked", self.pending.run)
        start("measurements are not stored", self._keep_metrics)
        start("agents have no new tokens", self._renew_credentials)
        start(
            "unused memory is not given back",
            functools.partial(trim_memory, sum(role.maximum for role in self.plan.roles)),
        )
        if self.incarnation > 1:
            start("agents are not told of this coordinator", self._redial)
        if self.meta.url is not None:
            start(
                f"measurements and logs are not copied to {self.meta.url}",
                functools.partial(
                    remote_directory.keep_uploaded, self.meta.url, self.directory.path
                ),
            )
        if self._with_page:
            page = JobPage(
                self.live_job,
                self.backend,
                self._state,
                self.driver.advanced,
                self._page_is_up,
                self.clock.now,
            )
            serving = persist(
                "the job's page is not served", functools.partial(page.serve, former_page)
            )
            self._page.append(asyncio.create_task(serving))

    async def _renew_credentials(self) -> None:
        while True:
            self.agents.renew(NewCredentials(file=await self.backend.credentials()))

    async def _refresh(self) -> None:
        """While there are watchers, show measurements anew each second."""
        while True:
            await asyncio.sleep(REFRESH_S)
            if self.status.changed or self.events.grown:  # attached commands, or streams of pages
                await self.live.read_last_lines(self.logs.last_line)
                self.status.touch()

    async def _keep_metrics(self) -> None:
        folder = self.directory.path
        if self.incarnation > 1:
            await asyncio.sleep(STORE_S)  # taking the job over comes first
            if self.meta.url is not None:
                await remote_directory.bring_metrics(self.meta.url, folder)
            await self.metrics.remember_stored(folder, self.clock.now() - REMEMBERED_S)
        await self.metrics.keep_stored(folder)

    async def _redial(self) -> None:
        await self._begun.wait()
        news = Moved(incarnation=self.incarnation, host=self.backend.host, port=self.port)
        context = functools.partial(
            tls.client_context, self.directory.secrets, tls.PeerRole.COORDINATOR
        )
        await Redial(self._state, self.directory.job_id, context, news).run()

    def _page_is_up(self, port: int) -> None:
        self.live_job.page = f"http://{self.backend.host}:{port}/"
        self.announcer.announce(own_address(self.backend, self.incarnation, self.port, port))
        self.status.touch()
        log.info("the job's page is %s", self.live_job.page)

    # -- connections ----------------------------------------------------------------------------

    async def _connection(self, channel: Channel[Any]) -> None:
        if self._over:
            return  # its handshake was under way when the listening ended
        # Before the first events are handled there is no job to speak of.
        await self._begun.wait()
        self._channels.add(channel)
        try:
            hello = await channel.receive()
            match hello:
                case AgentHello():
                    await self.agent_server.serve(channel, hello)
                case ExecHello():
                    await self.execs.agent(channel, hello)
                case ClientHello():
                    await self.clients.serve(channel, hello)
                case None:
                    pass
                case _:
                    channel.send(Refuse(reason="the first message must be a hello"))
        finally:
            self._channels.discard(channel)

    # -- inside ---------------------------------------------------------------------------------

    def _state(self) -> JobState:
        return self.machine.state

    def _document(self) -> JobView:
        return document(
            self.machine.state,
            self._identity,
            self.live,
            self.clock.now(),
            self.live_job.page,
            self.pending.why,
            self._unpublished,
        )

    def _advanced(self) -> None:
        self._begun.set()
        self.logs.find_ended()
        self.status.touch()


def _replica(url: str | None) -> journal.Replica | None:
    if url is None:
        return None
    from howdah.storage.copies.mirror import open_replica

    return open_replica(url)


def tidy(directory: JobDirectory) -> None:
    """Remove what is of no use after the job."""
    directory.remove_coordinator()
    if not os.environ.get("HOWDAH_KEEP_WORK"):
        shutil.rmtree(directory.containers, ignore_errors=True)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _retrieve(future: asyncio.Future[None]) -> None:
    """Retrieve its exception: it may come when it is not waited for any more."""
    if not future.cancelled():
        future.exception()

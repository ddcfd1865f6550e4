"""A backend without a machine below it, and agents without processes: they live in the test's
event loop and speak with the coordinator over real TLS connections."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import PageReaders, Places, RoleResources
from howdah.backends.local import container_paths
from howdah.core.messages import (
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    ContainerRequest,
    DumpStacks,
    Event,
    Exit,
    Held,
    HeldPhase,
    StacksTaken,
    StopTask,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
)
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress, JobMeta
from howdah.storage.logs import LogWriter
from howdah.wire import authority, tls
from howdah.wire.channel import Channel, connect
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    ClientHello,
    FollowLog,
    Heartbeat,
    LogChunk,
    Prepare,
    Refuse,
    Shutdown,
    Start,
    ToAgent,
    ToClient,
    Welcome,
)
from howdah.wire.status import JobView

JOB = "fake-20261121-120000-aaaa"


def make_job(
    base: Path, job: Job | None = None, job_id: str = JOB, backend: str = "fake"
) -> JobDirectory:
    """A job directory as a client makes it."""
    directory = JobDirectory(base / job_id)
    job = job or Job(
        name="fake", command="true", roles={"worker": Role(instances=2)}, framework="command"
    )
    directory.create(
        job,
        JobMeta(
            job_id=job_id,
            user="someone",
            backend=backend,
            submitted=1.0,
            source=str(base),
        ),
    )
    authority.create(job_id, directory.secrets)
    return directory


async def until(condition: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """Wait for something that has no event of its own; gives what the condition gave."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not (found := condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"did not come true within {limit_s:g}s: {condition}")
        await asyncio.sleep(0.002)
    return found


class FakeAgent:
    """One agent: obeys the protocol, runs nothing. The test says when programs end."""

    def __init__(self, launch: AgentLaunch, ended: Callable[[str], None]) -> None:
        self.launch = launch
        self.container_id = launch.container_id
        self._ended = ended
        self.channel: Channel[Any] | None = None
        self.heard: list[Any] = []
        """Every message but `Welcome`, in order, over all connections."""
        self.welcomes: list[Welcome] = []
        self.refused: str | None = None
        self.held: Held | None = None
        self.following: FollowLog | None = None
        self.auto_join = True
        self.deaf = False
        """Its programs do not end when they are told to."""
        self._logs: dict[int, LogWriter] = {}
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        try:
            while self.refused is None:
                address = _address(Path(self.launch.coordinator_file or ""))
                with contextlib.suppress(OSError):
                    if address is not None and await self._converse(address):
                        return
                await asyncio.sleep(0.01)
        finally:
            if self.channel is not None:
                self.channel.close()
            for log in self._logs.values():
                log.close()
            self._ended(self.container_id)

    async def _converse(self, address: CoordinatorAddress) -> bool:
        context = tls.client_context_from(self.launch.ca, self.launch.certificate, self.launch.key)
        channel = await connect(
            address.host, address.port, context, job_id=self.launch.job_id, receives=ToAgent
        )
        self.channel = channel
        channel.send(
            AgentHello(
                job_id=self.launch.job_id,
                container_id=self.container_id,
                host="127.0.0.1",
                pid=1,
                held=self.held,
                protocol=PROTOCOL,
                secret=self.launch.secret,
            )
        )
        while (message := await channel.receive()) is not None:
            match message:
                case Welcome():
                    self.welcomes.append(message)
                    continue
                case Refuse():
                    self.refused = message.reason
                    return True
                case Shutdown():
                    self.heard.append(message)
                    return True
            self.heard.append(message)
            self._obey(message)
        return False

    def _obey(self, message: Any) -> None:
        match message:
            case Prepare():
                ports = message.keep_ports or tuple(
                    20000 + message.task.index * 10 + n for n in range(message.ports)
                )
                self.held = Held(
                    task=message.task,
                    attempt=message.attempt,
                    generation=message.generation,
                    phase=HeldPhase.PREPARED,
                    host="127.0.0.1",
                    ports=ports,
                )
                self.say(TaskPrepared(task=message.task, attempt=message.attempt, ports=ports))
            case Start():
                self._hold(phase=HeldPhase.RUNNING, pids=(100 + message.task.index,))
                self.say(
                    TaskStarted(
                        task=message.task,
                        attempt=message.attempt,
                        pids=(100 + message.task.index,),
                    )
                )
                if self.auto_join:
                    self.join()
            case StopTask() if self.held and self.held.attempt == message.attempt:
                if self.held.phase is not HeldPhase.EXITED and not self.deaf:
                    self.exit(Exit(signal=15))
            case FollowLog() if self.held is not None:
                self.following = message if message.on else None
                if message.on:
                    log = self.log(message.attempt)
                    data = Path(
                        self.launch.log_dir,
                        f"{message.task.role}-{message.task.index}/{message.attempt}.log",
                    ).read_bytes()
                    if log.offset > message.offset:
                        self.say(
                            LogChunk(
                                task=message.task,
                                attempt=message.attempt,
                                offset=message.offset,
                                data=data[message.offset :],
                            )
                        )
            case DumpStacks():
                self.say(
                    StacksTaken(
                        task=message.task,
                        attempt=message.attempt,
                        innermost="train.py:3 in step",
                        text="all the stacks",
                    )
                )
            case _:
                pass

    @property
    def task(self) -> Task:
        assert self.held is not None
        return self.held.task

    def _hold(self, **changes: Any) -> None:
        assert self.held is not None
        self.held = msgspec.structs.replace(self.held, **changes)

    def say(self, message: msgspec.Struct) -> None:
        if self.channel is not None:
            self.channel.send(message)

    def join(self) -> None:
        assert self.held is not None
        self._hold(joined=True)
        self.say(TaskJoined(task=self.held.task, attempt=self.held.attempt))

    def exit(self, how: Exit | int = 0) -> None:
        """The programs end."""
        assert self.held is not None
        how = Exit(code=how) if isinstance(how, int) else how
        self._hold(phase=HeldPhase.EXITED, exit=how)
        self.say(TaskExited(task=self.held.task, attempt=self.held.attempt, exit=how))

    def beat(self, **details: Any) -> None:
        assert self.held is not None
        self.say(Heartbeat(attempt=self.held.attempt, **details))

    def log(self, attempt: int) -> LogWriter:
        assert self.held is not None
        if attempt not in self._logs:
            task = self.held.task
            path = Path(self.launch.log_dir, f"{task.role}-{task.index}", f"{attempt}.log")
            self._logs[attempt] = LogWriter(path)
        return self._logs[attempt]

    def write(self, data: bytes) -> None:
        """The programs print something."""
        assert self.held is not None
        log = self.log(self.held.attempt)
        offset = log.offset
        log.write(data)
        if self.following is not None and self.following.attempt == self.held.attempt:
            self.say(
                LogChunk(task=self.held.task, attempt=self.held.attempt, offset=offset, data=data)
            )

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(message, kind) for message in self.heard)

    async def hear(self, kind: type[Any], nth: int = 1) -> Any:
        """The nth message of that kind."""
        await until(lambda: self.count(kind) >= nth)
        return [message for message in self.heard if isinstance(message, kind)][nth - 1]

    async def kill(self) -> None:
        """As kill -9 does."""
        self._life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._life


def _address(path: Path) -> CoordinatorAddress | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=CoordinatorAddress)
    except OSError:
        return None


class FakeBackend:
    """Grants everything at once. Outlives coordinators, as a cluster does."""

    name = "fake"
    lease_s = 30.0
    give_back_s = 30.0
    lists_all = True
    host = bind = "127.0.0.1"
    ports: tuple[int, int] | None = None
    page_readers = PageReaders()
    queue = ""
    submitted: float | None = None
    why = ""

    def __init__(self, *, before_launch: Callable[[str], None] = lambda _: None) -> None:
        self.agents: dict[str, FakeAgent] = {}
        self.history: list[FakeAgent] = []
        self.held: set[str] = set()
        self.launched: list[str] = []
        self.requested: set[int] = set()
        self.closed = 0
        self.succeeded = asyncio.Event()
        self.new_credentials: asyncio.Queue[bytes] = asyncio.Queue()
        """Set by a test: this backend's coordinator may no longer act for the job."""
        self.announced: list[CoordinatorAddress] = []
        self.final: JobView | None = None
        self._emit: Callable[[Event], None] = lambda event: None
        self._ids = itertools.count(1)
        self._before_launch = before_launch
        self.refuse = ""

    def places(self, job: Job, directory: JobDirectory) -> Places:
        return container_paths.places_with(job, directory, directory.meta().source)

    async def announce(self, address: CoordinatorAddress) -> None:
        self.announced.append(address)

    async def finished(self, view: JobView) -> None:
        self.final = view

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        self._emit = emit
        return sorted(self.held)

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        for request in requests:
            if request.request_id in self.requested:
                continue
            self.requested.add(request.request_id)
            container_id = f"c{next(self._ids)}"
            self.held.add(container_id)
            self._emit(
                ContainerGranted(
                    request_id=request.request_id, container_id=container_id, node="node-1"
                )
            )

    async def waiting(self) -> str:
        return self.why

    async def cancel(self, request_ids: Sequence[int]) -> None:
        pass

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        self._before_launch(container_id)
        self.launched.append(container_id)
        if container_id in self.held and container_id not in self.agents:
            agent = FakeAgent(launch, self._agent_ended)
            self.agents[container_id] = agent
            self.history.append(agent)

    def _agent_ended(self, container_id: str) -> None:
        self.agents.pop(container_id, None)
        if container_id in self.held:
            self.held.discard(container_id)
            self._emit(ContainerEnded(container_id=container_id, kind=ContainerEndKind.EXITED))

    async def release(self, container_id: str) -> None:
        if (agent := self.agents.get(container_id)) is not None:
            await agent.kill()
        elif container_id in self.held:
            self.held.discard(container_id)
            self._emit(ContainerEnded(container_id=container_id, kind=ContainerEndKind.RELEASED))

    async def superseded(self) -> str:
        await self.succeeded.wait()
        return "another one has the job"

    async def credentials(self) -> bytes:
        return await self.new_credentials.get()

    async def close(self) -> None:
        self.closed += 1

    async def running(self, count: int, attempt: int = 1) -> list[FakeAgent]:
        """The agents, once so many run that attempt; by task."""

        agents = await until(lambda: self.ready(count, attempt))
        return sorted(agents, key=lambda agent: agent.task)

    def ready(self, count: int, attempt: int = 1) -> list[FakeAgent]:
        """The agents that run that attempt if they are so many, else none."""
        agents = [
            agent
            for agent in self.agents.values()
            if agent.held
            and agent.held.phase is HeldPhase.RUNNING
            and agent.held.attempt == attempt
        ]
        return agents if len(agents) == count else []


async def client(directory: JobDirectory) -> Channel[Any]:
    """A connected client that has been welcomed."""
    address = await until(directory.coordinator)
    channel = await connect(
        address.host,
        address.port,
        tls.client_context(directory.secrets, "client"),
        job_id=directory.job_id,
        receives=ToClient,
    )
    channel.send(ClientHello(job_id=directory.job_id, user="someone"))
    assert isinstance(await channel.receive(5.0), Welcome)
    return channel

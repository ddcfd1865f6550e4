"""The agents: which are connected, what they say, and what they are told.

An agent's messages are events; attempts that are over are the machine's to ignore. What is
decided here is who may speak at all: an agent of this job, in a container the job holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.coordinator.agents.heartbeats import HeartbeatMonitor
from howdah.coordinator.agents.limits import Allowances, is_planned
from howdah.coordinator.job_logs import JobLogs, save_stacks
from howdah.coordinator.status import LiveState, UnknownTask
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AnyEvent,
    DumpStacks,
    Event,
    Level,
    Record,
    StacksTaken,
    Task,
)
from howdah.core.state import UP, JobState
from howdah.storage.jobdir import JobDirectory
from howdah.wire.channel import Channel
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    AgentNote,
    ExecData,
    ExecEnded,
    ExecHello,
    ExecTaken,
    FromAgent,
    Heartbeat,
    LeaseRenewed,
    LogChunk,
    NewCredentials,
    Prepare,
    Refuse,
    ToAgent,
    WebAddress,
    WebWithdrawn,
    Welcome,
)
from howdah.wire.unauthenticated_peers import Seldom

log: logging.Logger = logging.getLogger(__name__)

STACKS_S = 30.0
"""For an agent to answer with stacks."""
_RENEWED = (LeaseRenewed(kept=False), LeaseRenewed())
_EXEC = (ExecHello, ExecData, ExecTaken, ExecEnded)
_LEVELS = {level.value: level for level in Level}


class AgentSession:
    """One agent's present connection."""

    __slots__ = ("channel", "container_id", "host", "name", "over", "protocol", "silent", "task")

    def __init__(self, channel: Channel[Any], hello: AgentHello, task: Task | None) -> None:
        self.container_id: str = hello.container_id
        self.channel: Channel[Any] = channel
        self.host: str = hello.host
        self.protocol: tuple[int, int] = hello.protocol
        self.silent: bool = False
        self.over: asyncio.Event | None = None
        """Made when its end is waited for."""
        self.serve(task)

    def serve(self, task: Task | None) -> None:
        """The task its container serves; what it says of any other is ignored."""
        self.task: Task | None = task
        self.name: str = str(task)

    def end(self) -> None:
        if self.over is not None:
            self.over.set()


class Agents:
    """The connected agents of one job, by container."""

    def __init__(self) -> None:
        self._sessions: dict[str, AgentSession] = {}
        self._credentials: NewCredentials | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def present(self, session: AgentSession) -> bool:
        """Whether that is still its container's connection; a newer one may have replaced it."""
        return self._sessions.get(session.container_id) is session

    def add(self, session: AgentSession) -> None:
        """Take a new connection in the place of the container's former one."""
        if former := self._sessions.get(session.container_id):
            # The agent knows better than a dead connection that was not noticed yet.
            former.channel.close()
        self._sessions[session.container_id] = session

    def remove(self, session: AgentSession) -> bool:
        """The connection has ended; whether the container has none now."""
        session.end()
        if not self.present(session):
            return False
        del self._sessions[session.container_id]
        return True

    def connected(self, container_id: str) -> bool:
        return container_id in self._sessions

    def protocol(self, container_id: str) -> tuple[int, int] | None:
        """What that container's agent speaks; None while it is not connected."""
        session = self._sessions.get(container_id)
        return None if session is None or session.channel.closed else session.protocol

    def send(self, container_id: str, message: ToAgent) -> bool:
        """Send if connected. A message that is lost with its connection is the machine's to repeat
        when the agent registers again; so is one that was not sent."""
        session = self._sessions.get(container_id)
        if session is None or session.channel.closed:
            return False
        if isinstance(message, Prepare):
            session.serve(message.task)
        session.channel.send(message)
        return True

    def renew(self, credentials: NewCredentials) -> None:
        """Give all of them a new credential file, and each that connects from now on."""
        self._credentials = credentials
        for container_id in list(self._sessions):
            self.send(container_id, credentials)

    def brief(self, session: AgentSession) -> None:
        """Tell a new connection what was told to all."""
        if self._credentials is not None:
            session.channel.send(self._credentials)

    async def gone(self, container_id: str) -> None:
        """Return when that container's agent is not connected, or has fallen silent."""
        session = self._sessions.get(container_id)
        if session is None or session.silent:
            return
        if session.over is None:
            session.over = asyncio.Event()
        await session.over.wait()

    def silent(self, container_id: str) -> None:
        """The agent misses its heartbeats: its end is not to be waited for. Should it be there after
        all, it comes back over a new connection, and is told to go."""
        if (session := self._sessions.get(container_id)) is not None:
            session.silent = True
            session.end()
            session.channel.abort("Its agent is silent")

    def close_all(self, message: ToAgent) -> None:
        """Send a last message to all, then hang up."""
        for session in list(self._sessions.values()):
            self.send(session.container_id, message)
            session.channel.close()


class AgentServer:
    """Lets agents in, and passes on what they say: events to the machine, the rest to those who
    keep it."""

    def __init__(
        self,
        agents: Agents,
        directory: JobDirectory,
        state: Callable[[], JobState],
        emit: Callable[[AnyEvent], None],
        note: Callable[[Record], None],
        *,
        kept: Callable[[], bool],
        secrets: ContainerSecrets,
        welcome: Callable[[], Welcome],
        heartbeats: HeartbeatMonitor,
        logs: JobLogs,
        live: LiveState,
        stacks: StackRequests,
    ) -> None:
        """``kept``: whether all that was emitted and noted is in the journal."""
        self._agents = agents
        self._directory = directory
        self._state = state
        self._emit = emit
        self._note = note
        self._kept = kept
        self._secrets = secrets
        self._welcome = welcome
        self._heartbeats = heartbeats
        self._logs = logs
        self._live = live
        self._stacks = stacks
        self._allowances = Allowances(time.monotonic)
        self._refusals, self._floods = Seldom(1.0), Seldom()
        self._on: dict[type[Any], Callable[[Any], None]] = {
            StacksTaken: self._stacks_taken,
            LogChunk: logs.chunk,
            WebAddress: self._web_address,
            WebWithdrawn: self._web_withdrawn,
            AgentNote: self._agent_note,
        }

    def refusal(self, channel: Channel[Any], hello: AgentHello) -> str:
        """Why this connection is not taken; empty if it is."""
        job_id = self._directory.job_id
        if hello.job_id != job_id or not channel.peer.is_of(job_id):
            return f"this is the coordinator of {job_id}, not of {hello.job_id}"
        if hello.protocol[0] != PROTOCOL[0]:
            return (
                f"the agent speaks protocol {hello.protocol[0]}.{hello.protocol[1]}, the "
                f"coordinator {PROTOCOL[0]}.{PROTOCOL[1]}; install the same Howdah on both sides"
            )
        if hello.container_id not in self._state().containers:
            return (
                f"the job does not hold container {hello.container_id[:100]}: it was given up or "
                "never granted; end what runs in it"
            )
        if reason := self._secrets.refusal(hello):
            return reason
        if hello.held is not None and not is_planned(hello.held.task, self._state().plan):
            return "the job has no such task as the agent holds; end what runs in its container"
        return ""

    async def serve(self, channel: Channel[Any], hello: AgentHello) -> None:
        if reason := self.refusal(channel, hello):
            if self._refusals.now():
                log.warning("agent of %s refused: %s", hello.container_id[:100], reason)
            channel.send(Refuse(reason=reason))
            return
        container_id = hello.container_id
        if not self._allowances.take(container_id, hello):
            self._has_said_too_much(container_id, channel)
            return
        task = self._state().containers[container_id].task
        if task is None and hello.held is not None:
            task = hello.held.task
        session = AgentSession(channel, hello, task)
        self._agents.add(session)
        channel.send(self._welcome())
        self._agents.brief(session)
        self._heartbeats.connected(container_id)
        if task is not None:
            self._logs.connected(container_id, task)
        self._emit(
            AgentRegistered(
                container_id=container_id, host=hello.host, held=hello.held, listen=hello.listen
            )
        )
        try:
            await self._listen(session)
        finally:
            if self._agents.remove(session):
                self._heartbeats.disconnected(container_id)
                if session.task is not None:
                    self._live.unattended(session.task)
                self._emit(AgentDisconnected(container_id=container_id))

    async def _listen(self, session: AgentSession) -> None:
        """Take what it says until the connection ends, without waking a task for each message."""
        present, heartbeat, on = self._agents.present, self._heartbeats.heartbeat, self._on
        allowed = self._allowances.take

        def take(message: FromAgent) -> None:
            if not present(session):
                return  # replaced: the newer connection speaks for this container
            if session.silent:
                return  # given up: its lease is running out
            if type(message) is Heartbeat and message.renew:
                session.channel.send(_RENEWED[self._kept()])
            if isinstance(message, _EXEC):
                session.channel.abort("A command's messages have a connection of their own")
                return
            if session.task is None:
                return
            about: Any = message  # all but heartbeats name a task
            data = self._state().tasks.get(session.name)
            # Others are made up: an agent has its attempt from the coordinator.
            real = data is not None and 0 <= about.attempt <= data.attempt
            if type(message) is Heartbeat:
                heartbeat(session.container_id, session.task, message if real else Heartbeat())
                return
            if not real or about.task != session.task:
                return
            counted = (
                msgspec.structs.replace(about, text="") if type(about) is StacksTaken else about
            )
            if type(message) is not LogChunk and not allowed(session.container_id, counted):
                self._has_said_too_much(session.container_id, session.channel)
                return
            if (handle := on.get(type(message))) is not None:
                handle(message)
            elif isinstance(message, Event):
                self._emit(about)

        await session.channel.dispatch(take)

    def _has_said_too_much(self, container_id: str, channel: Channel[Any]) -> None:
        channel.abort("The agent says more than its share")
        if self._floods.now():
            log.warning(
                "the agent of %s says more than its share, and is cut off", container_id[:100]
            )

    def _stacks_taken(self, stacks: StacksTaken) -> None:
        self._stacks.answered(stacks)
        own = self._directory.stacks_path(stacks.task, stacks.attempt)
        path = stacks.path or save_stacks(self._directory, stacks)
        if path != str(own.relative_to(self._directory.path)):
            path = ""
        self._emit(msgspec.structs.replace(stacks, path=path, text=""))

    def _web_address(self, address: WebAddress) -> None:
        if (record := self._live.announce(address)) is not None:
            self._note(record)

    def _web_withdrawn(self, page: WebWithdrawn) -> None:
        if (record := self._live.withdraw(page)) is not None:
            self._note(record)

    def _agent_note(self, note: AgentNote) -> None:
        self._note(
            Record(
                kind="agent-note",
                text=f"{note.task}: {note.text}",
                level=_LEVELS.get(note.level, Level.WARNING),
                task=note.task,
                attempt=note.attempt,
            )
        )


class StackRequests:
    """Requests for stacks by clients and the page, each answered by the task's agent."""

    def __init__(self, state: Callable[[], JobState], send: Callable[[str, ToAgent], bool]) -> None:
        self._state = state
        self._send = send
        self._waiting: dict[tuple[Task, int], list[asyncio.Future[StacksTaken]]] = {}

    async def ask(self, task: Task) -> str:
        """Stacks of the task's programs as they are now.

        Raises:
            UnknownTask: the job has no such task.
            RuntimeError: they could not be taken; the text says why.
        """
        tasks = self._state().tasks
        data = tasks.get(str(task))
        if data is None:
            raise UnknownTask(task, tasks)
        if data.state not in UP or data.container_id is None:
            raise RuntimeError(f"{task} has no program running (it is {data.state.value})")
        answer: asyncio.Future[StacksTaken] = asyncio.get_running_loop().create_future()
        key = (task, data.attempt)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(answer)
        try:
            if not self._send(
                data.container_id,
                DumpStacks(container_id=data.container_id, task=task, attempt=data.attempt),
            ):
                raise RuntimeError(f"the agent of {task} is not connected at present; try again")
            async with asyncio.timeout(STACKS_S):
                stacks = await answer
        except TimeoutError:
            raise RuntimeError(f"the agent of {task} did not answer in {STACKS_S:g}s") from None
        finally:
            waiting.remove(answer)
            if not waiting:
                self._waiting.pop(key, None)
        if stacks.problem:
            raise RuntimeError(stacks.problem)
        return stacks.text

    def answered(self, stacks: StacksTaken) -> None:
        """An agent has sent stacks, whatever they were asked for."""
        for answer in self._waiting.get((stacks.task, stacks.attempt), ()):
            if not answer.done():
                answer.set_result(stacks)

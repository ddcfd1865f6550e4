"""The agents: who is connected, what they say, and what they are told.

An agent's messages become events; attempts that are over are the machine's to ignore. What is
decided here is who may speak at all: an agent of this job, in a container the job holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from howdah.coordinator.clock import Clock
from howdah.coordinator.live import LiveBoard, announcement
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AnyEvent,
    Event,
    Level,
    Record,
    StacksTaken,
    Task,
)
from howdah.core.state import JobState
from howdah.wire.channel import Channel
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    AgentNote,
    FromAgent,
    Heartbeat,
    LogChunk,
    Prepare,
    Refuse,
    ToAgent,
    WebAddress,
    Welcome,
)

log = logging.getLogger(__name__)


class Observer(Protocol):
    """Who else wants to know what agents say; called on the event loop, must not block."""

    def connected(self, container_id: str, task: Task | None) -> None: ...
    def disconnected(self, container_id: str) -> None: ...
    def beat(self, container_id: str, task: Task, beat: Heartbeat, now: float) -> None: ...
    def log_chunk(self, chunk: LogChunk) -> None: ...
    def stacks_taken(self, stacks: StacksTaken) -> str:
        """Returns where they are, relative to the job directory."""
        ...


class Session:
    """One agent's present connection."""

    __slots__ = ("channel", "container_id", "host", "over", "silent", "task")

    def __init__(self, container_id: str, channel: Channel, host: str, task: Task | None) -> None:
        self.container_id = container_id
        self.channel = channel
        self.host = host
        self.silent = False
        self.over: asyncio.Event | None = None
        """Made when somebody waits for its end."""
        self.task = task
        """The task its container serves; what it says of any other is not heard."""

    def end(self) -> None:
        """Wake who waits for its end."""
        if self.over is not None:
            self.over.set()


class Agents:
    """All connected agents of one job."""

    def __init__(
        self,
        job_id: str,
        state: Callable[[], JobState],
        emit: Callable[[AnyEvent], None],
        note: Callable[[Record], None],
        observer: Observer,
        live: LiveBoard,
        clock: Clock,
        *,
        welcome: Callable[[], Welcome],
    ) -> None:
        self._job_id = job_id
        self._state = state
        self._emit = emit
        self._note = note
        self._observer = observer
        self._live = live
        self._clock = clock
        self._welcome = welcome
        self._sessions: dict[str, Session] = {}
        self._on: dict[type[Any], Callable[[Any], None]] = {
            StacksTaken: self._stacks,
            LogChunk: observer.log_chunk,
            WebAddress: self._web_address,
            AgentNote: self._agent_note,
        }

    def __len__(self) -> int:
        return len(self._sessions)

    def connected(self, container_id: str) -> bool:
        """Whether that container's agent has a connection."""
        return container_id in self._sessions

    def send(self, container_id: str, message: ToAgent) -> bool:
        """Send if connected. A message that is lost with its connection is the machine's to repeat
        when the agent registers again; so is one that was not sent."""
        session = self._sessions.get(container_id)
        if session is None or session.channel.closed:
            return False
        if isinstance(message, Prepare):
            session.task = message.task
        session.channel.send(message)
        return True

    async def gone(self, container_id: str) -> None:
        """Return when that container's agent is not connected, or has fallen silent."""
        session = self._sessions.get(container_id)
        if session is None or session.silent:
            return
        if session.over is None:
            session.over = asyncio.Event()
        await session.over.wait()

    def silent(self, container_id: str) -> None:
        """The agent misses its beats: nobody is to wait for it."""
        if (session := self._sessions.get(container_id)) is not None:
            session.silent = True
            session.end()

    def close_all(self, message: ToAgent) -> None:
        """A last word to everybody, then hang up."""
        for session in list(self._sessions.values()):
            self.send(session.container_id, message)
            session.channel.close()

    def refusal(self, channel: Channel, hello: AgentHello) -> str:
        """Why this connection is not taken; empty if it is."""
        if not hello.job_id == channel.peer.job_id == self._job_id:
            return f"this is the coordinator of {self._job_id}, not of {hello.job_id}"
        if hello.protocol[0] != PROTOCOL[0]:
            return (
                f"the agent speaks protocol {hello.protocol[0]}.{hello.protocol[1]}, the "
                f"coordinator {PROTOCOL[0]}.{PROTOCOL[1]}; install the same Howdah on both sides"
            )
        if hello.container_id not in self._state().containers:
            return (
                f"the job does not hold container {hello.container_id}: it was given up or never "
                "granted; end what runs in it"
            )
        return ""

    async def serve(self, channel: Channel, hello: AgentHello) -> None:
        """Speak with one agent until its connection ends."""
        if reason := self.refusal(channel, hello):
            log.warning("agent of %s refused: %s", hello.container_id, reason)
            channel.send(Refuse(reason=reason))
            return
        container_id = hello.container_id
        task = self._state().containers[container_id].task
        if task is None and hello.held is not None:
            task = hello.held.task
        session = Session(container_id, channel, hello.host, task)
        if former := self._sessions.get(container_id):
            # The agent knows better than a dead connection that nobody has noticed yet.
            former.channel.close()
        self._sessions[container_id] = session
        channel.send(self._welcome())
        self._observer.connected(container_id, task)
        self._emit(
            AgentRegistered(
                container_id=container_id, host=hello.host, held=hello.held, listen=hello.listen
            )
        )
        try:
            await self._listen(session)
        finally:
            session.end()
            if self._sessions.get(container_id) is session:
                del self._sessions[container_id]
                self._observer.disconnected(container_id)
                self._emit(AgentDisconnected(container_id=container_id))

    async def _listen(self, session: Session) -> None:
        """Take what it says until the connection ends, without waking a task for each message."""
        sessions, container_id, on = self._sessions, session.container_id, self._on

        def take(message: FromAgent) -> None:
            if sessions.get(container_id) is not session:
                return  # replaced: the newer connection speaks for this container
            if type(message) is Heartbeat:
                self._beat(session, message)
                return
            about: Any = message  # all others name a task and an attempt
            if about.task != session.task:
                return
            if (handle := on.get(type(message))) is not None:
                handle(message)
            elif isinstance(message, Event):
                self._emit(about)

        await session.channel.dispatch(take)

    def _beat(self, session: Session, beat: Heartbeat) -> None:
        if session.task is None:
            return
        now = self._clock.now()
        self._observer.beat(session.container_id, session.task, beat, now)

    def _stacks(self, said: StacksTaken) -> None:
        path = self._observer.stacks_taken(said)
        self._emit(msgspec.structs.replace(said, path=path, text=""))

    def _web_address(self, said: WebAddress) -> None:
        if self._live.announce(said):
            self._note(announcement(said))

    def _agent_note(self, said: AgentNote) -> None:
        levels = {level.value: level for level in Level}
        self._note(
            Record(
                kind="agent-note",
                text=f"{said.task}: {said.text}",
                level=levels.get(said.level, Level.WARNING),
                task=said.task,
                attempt=said.attempt,
            )
        )

"""Commands that a job's owner runs beside its programs (`howdah exec`).

The client's connection becomes the command's. The task's agent is asked to connect once more for it, so
that bulk output does not hold up heartbeats, and the two connections are joined here, message by message.
How much may be under way is bounded by what the ends have said they took (`ExecData`): a late reader
costs this process `EXEC_WINDOW` messages a direction and delays nobody else.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from howdah.coordinator.agents.server import Agents
from howdah.coordinator.driver import JobOver
from howdah.coordinator.status import UnknownTask
from howdah.core.messages import Record, Task
from howdah.core.state import OVER, UP, JobState, TaskData
from howdah.wire.channel import Channel, ChannelClosed
from howdah.wire.messages import (
    EXEC_CHUNK,
    EXEC_PROTOCOL,
    EXEC_WINDOW,
    Answer,
    ClientHello,
    DialExec,
    ExecData,
    ExecEnded,
    ExecHello,
    ExecResize,
    ExecSignal,
    ExecTaken,
    OpenExec,
    Refuse,
)

MOST = 64
"""Commands of one job at once."""
DIAL_S = 20.0
"""For an agent to connect for a command."""
FINISH_S = 5.0
"""For agents to say how the job's last commands ended."""
SHOWN = 200
"""Characters of a command in the event log."""
COMMAND_BYTES = 128 * 1024
"""Of a command's arguments together: what Linux takes of a single one."""

STARTED, ENDED = "exec-started", "exec-ended"
"""Kinds of records."""


class ExecRelay:
    """All commands of one job, each between its client and its agent."""

    def __init__(
        self,
        job_id: str,
        state: Callable[[], JobState],
        agents: Agents,
        durably: Callable[[Record], Awaitable[None]],
        note: Callable[[Record], None],
        *,
        allowed: bool,
    ) -> None:
        """``durably`` returns once a record is in the journal. ``allowed``: as the site file says."""
        self._job_id = job_id
        self._state = state
        self._agents = agents
        self._durably = durably
        self._note = note
        self._allowed = allowed
        self._running: set[asyncio.Future[None]] = set()
        """Of each command, done when it has ended and its end is noted."""
        self._dialled: dict[str, asyncio.Future[Channel[Any]]] = {}

    async def serve(self, channel: Channel[Any], hello: ClientHello, wanted: OpenExec) -> None:
        """Run a client's command; returns when nothing of it is left here."""
        running = asyncio.get_running_loop().create_future()
        self._running.add(running)
        try:
            await self._serve(channel, hello, wanted)
        finally:
            self._running.discard(running)
            running.set_result(None)
        while await channel.receive() is not None:
            pass  # it hangs up when it has read all, however late

    async def finish(self) -> None:
        """The job is over, and all commands with it: have their ends noted."""
        if self._running:
            await asyncio.wait(self._running, timeout=FINISH_S)

    async def _serve(self, client: Channel[Any], hello: ClientHello, wanted: OpenExec) -> None:
        agent: Channel[Any] | None = None
        try:
            data = self._task_for(wanted)
            agent = await self._dial(data)
            begun = time.monotonic()
            await self._durably(_started(hello, wanted, data))
        except (LookupError, RuntimeError, JobOver) as error:
            if agent is not None:
                agent.close()
            over = "the job ends: no command can be started in it any more"
            client.send(Answer(problem=over if isinstance(error, JobOver) else str(error)))
            return
        ended = None
        try:
            if not client.closed:  # it may have gone meanwhile
                client.send(Answer())
                agent.send(wanted)
                ended = await _join(client, agent, wanted)
        finally:
            agent.close()
            self._note(_ended(ended, data, time.monotonic() - begun))

    async def agent(self, channel: Channel[Any], hello: ExecHello) -> None:
        """An agent connects for a command."""
        waiting = self._dialled.pop(hello.exec_id, None)
        if waiting is None or waiting.done() or not channel.peer.is_of(self._job_id):
            channel.send(Refuse(reason="no command waits for this connection"))
            return
        waiting.set_result(channel)
        await channel.wait_closed()

    def _task_for(self, wanted: OpenExec) -> TaskData:
        """The task, if a command may and can run there."""
        if not self._allowed:
            raise RuntimeError(
                "the site allows no commands beside programs: its site file has `exec = false` under "
                "[limits]"
            )
        if len(self._running) > MOST:
            raise RuntimeError(f"{MOST} commands run beside this job's programs now; end one first")
        if sum(len(each) + 1 for each in wanted.command) > COMMAND_BYTES:
            raise RuntimeError("the command is too long; put it into a file, or on standard input")
        state = self._state()
        data = state.tasks.get(str(wanted.task))
        if data is None:
            raise UnknownTask(wanted.task, state.tasks)
        if data.state not in UP or data.container_id is None:
            done = data.state in OVER
            raise RuntimeError(
                f"{wanted.task} does not run {'any more' if done else 'now'}: it is "
                f"{data.state.value}. Commands run beside its program only"
            )
        protocol = self._agents.protocol(data.container_id)
        if protocol is None:
            raise RuntimeError(f"the agent of {wanted.task} is not connected now; try again")
        if protocol < EXEC_PROTOCOL:
            raise RuntimeError(
                f"the agent of {wanted.task} is of an older Howdah, which runs no commands; submit the "
                "job anew with this one"
            )
        return msgspec.structs.replace(data)  # what it is now, in the records too

    async def _dial(self, data: TaskData) -> Channel[Any]:
        """A connection of the agent's for one command."""
        assert data.container_id is not None
        exec_id = secrets.token_hex(16)
        waiting: asyncio.Future[Channel[Any]] = asyncio.get_running_loop().create_future()
        self._dialled[exec_id] = waiting
        try:
            self._agents.send(
                data.container_id, DialExec(task=data.task, attempt=data.attempt, exec_id=exec_id)
            )
            async with asyncio.timeout(DIAL_S):
                return await waiting
        except TimeoutError:
            raise RuntimeError(
                f"the agent of {data.task} did not connect within {DIAL_S:g} s; try again"
            ) from None
        finally:
            self._dialled.pop(exec_id, None)


class _Flow:
    """What of one direction is under way."""

    def __init__(self) -> None:
        self._under_way = 0

    def sent(self, data: ExecData) -> bool:
        """Whether that may be sent."""
        self._under_way += 1
        return self._under_way <= EXEC_WINDOW and len(data.data) <= EXEC_CHUNK

    def taken(self) -> bool:
        """Whether there was something to be taken."""
        self._under_way -= 1
        return self._under_way >= 0


async def _join(client: Channel[Any], agent: Channel[Any], wanted: OpenExec) -> ExecEnded | None:
    """Carry both ways until the command has ended, which the client is told; None if it went away."""
    to_agent, to_client = _Flow(), _Flow()
    way_in = asyncio.create_task(
        _carry(client, agent, to_agent, to_client, (ExecSignal, ExecResize))
    )
    way_out = asyncio.create_task(_carry(agent, client, to_client, to_agent, (ExecEnded,)))
    try:
        await asyncio.wait({way_in, way_out}, return_when=asyncio.FIRST_COMPLETED)
        end = client if way_in.done() and way_in.result() is client else await way_out
    finally:
        for way in (way_in, way_out):
            way.cancel()
        await asyncio.gather(way_in, way_out, return_exceptions=True)
    if end is client:
        return None
    if isinstance(end, ExecEnded):
        return end
    problem = f"the connection to the agent of {wanted.task} broke, and the command was ended"
    ended = ExecEnded(code=None, problem=problem)
    client.send(ended)
    return ended


async def _carry(
    source: Channel[Any], sink: Channel[Any], ahead: _Flow, back: _Flow, also: tuple[type[Any], ...]
) -> ExecEnded | Channel[Any]:
    """Carry one way to the command's end, or until a connection ends: that one."""
    while (message := await source.receive()) is not None:
        kind = type(message)
        if kind is ExecData:
            may = ahead.sent(message)
        elif kind is ExecTaken:
            may = back.taken()
        else:
            may = kind in also
        if not may:
            source.abort(f"A {kind.__name__} more than a command's connection may carry now")
            break
        sink.send(message)
        if kind is ExecEnded:
            return message
        try:
            await sink.drain()
        except ChannelClosed:
            return sink
    return source


def _started(hello: ClientHello, wanted: OpenExec, data: TaskData) -> Record:
    words = (each.decode(errors="replace") for each in wanted.command)
    shown = shlex.join(words).replace("\n", "\\n") or "a shell"
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
    who = hello.user[:100] or "its owner"
    return Record(
        kind=STARTED,
        text=f"{who} runs beside {data.task}: {shown}",
        task=data.task,
        attempt=data.attempt,
        data={"user": who, "command": shown},
    )


def _ended(ended: ExecEnded | None, data: TaskData, seconds: float) -> Record:
    code = None if ended is None else ended.code
    how = f"ended with code {code}" if code is not None else "was ended"
    why = "its client went away" if ended is None else ended.problem
    return Record(
        kind=ENDED,
        text=f"the command beside {data.task} {how} after {seconds:.1f} s{f': {why}' if why else ''}",
        task=data.task,
        attempt=data.attempt,
        data={"code": code, "seconds": round(seconds, 3)},
    )


def unrecorded_ends(recorded: Iterable[Record]) -> list[Record]:
    """Ends of the commands that a former coordinator carried when it died: they died with it."""
    running: Counter[tuple[Task | None, int | None]] = Counter()
    for record in recorded:
        running[record.task, record.attempt] += (record.kind == STARTED) - (record.kind == ENDED)
    return [
        Record(
            kind=ENDED,
            text=f"the command beside {task} was ended: its coordinator died",
            task=task,
            attempt=attempt,
            data={"code": None},
        )
        for task, attempt in running.elements()
    ]

"""Commands beside programs, in the coordinator: who may, how much is under way, and what is written down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from howdah.backends.base import Running
from howdah.client.errors import Refused
from howdah.client.following.execs import open_exec
from howdah.core.messages import Task
from howdah.spec.model import Job, Limits, Role
from howdah.storage import journal
from howdah.wire import tls
from howdah.wire.channel import Channel, connect
from howdah.wire.messages import (
    EXEC_CHUNK,
    EXEC_WINDOW,
    UNSAID,
    Answer,
    DialExec,
    ExecData,
    ExecEnded,
    ExecHello,
    ExecSignal,
    ExecTaken,
    OpenExec,
    Refuse,
    ToExec,
    Welcome,
)
from tests.coordinator.fakes import FakeAgent, client, until
from tests.coordinator.world import World, in_loop, world

WANTED = OpenExec(task=Task("worker", 0), command=(b"nvidia-smi",))
ONE = Job(name="fake", command="true", roles={"worker": Role()}, framework="command")


def kinds(job: World) -> list[str]:
    """Of the records about commands in the journal."""
    entries = journal.read(job.directory.path)
    records = [each.record.kind for each in entries if isinstance(each, journal.RecordEntry)]
    return [kind for kind in records if kind.startswith("exec-")]


async def dial(agent: FakeAgent, exec_id: str) -> Channel[Any]:
    """A connection of an agent's for a command."""
    launch = agent.launch
    context = tls.client_context_from(launch.ca, launch.certificate, launch.key)
    assert agent.channel is not None and agent.channel._transport is not None
    host, port = agent.channel._transport.get_extra_info("peername")
    channel = await connect(host, port, context, job_id=launch.job_id, receives=ToExec)
    channel.send(ExecHello(job_id=launch.job_id, exec_id=exec_id))
    return channel


async def opened(job: World, nth: int = 1) -> tuple[Channel[Any], Channel[Any]]:
    """A command that has been started: the client's side and the agent's."""
    (agent,) = await job.backend.running(1)
    asking = await client(job.directory)
    asking.send(WANTED)
    order = await agent.hear(DialExec, nth)
    side = await dial(agent, order.exec_id)
    assert await side.receive(10) == WANTED
    assert await asking.receive(10) == Answer()
    return asking, side


@in_loop
async def test_a_command_is_carried_and_written_down_before_it_starts(tmp_path: Path) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        (agent,) = await job.backend.running(1)
        asking = await client(job.directory)
        asking.send(WANTED)
        side = await dial(agent, (await agent.hear(DialExec)).exec_id)
        assert await side.receive(10) == WANTED
        assert kinds(job) == ["exec-started"]
        assert await asking.receive(10) == Answer()
        asking.send(ExecData(data=b"in"))
        asking.send(ExecSignal(number=2))
        assert [await side.receive(10) for _ in range(2)] == [
            ExecData(data=b"in"),
            ExecSignal(number=2),
        ]
        side.send(ExecTaken())
        side.send(ExecData(stream=1, data=b"out"))
        side.send(ExecEnded(code=3))
        assert [await asking.receive(10) for _ in range(3)] == [
            ExecTaken(),
            ExecData(stream=1, data=b"out"),
            ExecEnded(code=3),
        ]
        await until(lambda: kinds(job) == ["exec-started", "exec-ended"])


@pytest.mark.parametrize(
    "too_much",
    [
        [ExecData(stream=1, data=b"x")] * (EXEC_WINDOW + 1),
        [ExecData(stream=1, data=b"x" * (EXEC_CHUNK + 1))],
        [ExecTaken()],
    ],
    ids=["messages", "bytes", "taken"],
)
@in_loop
async def test_more_than_may_be_under_way_ends_the_connection(
    tmp_path: Path, too_much: list[Any]
) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        asking, side = await opened(job)
        for message in too_much:
            side.send(message)
        while isinstance(told := await asking.receive(10), ExecData):
            pass
        assert isinstance(told, ExecEnded) and told.code is None
        assert "the connection to the agent of worker:0 broke" in told.problem
        assert await side.receive(10) is None


@in_loop
async def test_what_is_taken_makes_room_and_one_command_holds_up_no_other(tmp_path: Path) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        late, slow = await opened(job)
        for _ in range(EXEC_WINDOW):
            slow.send(ExecData(stream=1, data=b"x" * EXEC_CHUNK))
        asking, side = await opened(job, 2)
        for _ in range(3 * EXEC_WINDOW):
            side.send(ExecData(stream=1, data=b"y" * EXEC_CHUNK))
            assert isinstance(await asking.receive(10), ExecData)
            asking.send(ExecTaken())
            assert isinstance(await side.receive(10), ExecTaken)
        late.send(ExecTaken())
        assert isinstance(await slow.receive(10), ExecTaken)
        slow.send(ExecData(stream=1, data=b"z"))
        read = [await late.receive(10) for _ in range(EXEC_WINDOW + 1)]
        assert read[-1] == ExecData(stream=1, data=b"z")


@in_loop
async def test_the_agents_side_ends_with_the_clients(tmp_path: Path) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        asking, side = await opened(job)
        asking.abort()
        assert await side.receive(10) is None
        await until(lambda: kinds(job) == ["exec-started", "exec-ended"])


@in_loop
async def test_no_command_is_started_for_a_client_that_has_gone(tmp_path: Path) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        (agent,) = await job.backend.running(1)
        asking = await client(job.directory)
        asking.send(WANTED)
        order = await agent.hear(DialExec)
        asking.abort()
        await until(lambda: any(channel.closed for channel in job.coordinator._channels))
        side = await dial(agent, order.exec_id)
        assert await side.receive(10) is None
        await until(lambda: kinds(job) == ["exec-started", "exec-ended"])


@in_loop
async def test_how_the_last_commands_ended_is_written_down_before_the_job_is(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        asking, side = await opened(job)
        (agent,) = await job.backend.running(1)
        agent.exit(0)
        await until(lambda: job.coordinator.driver._stopped)
        side.send(ExecEnded(code=137))
        await job.finished()
        assert kinds(job) == ["exec-started", "exec-ended"]
        assert await asking.receive(10) == ExecEnded(code=137)


@in_loop
async def test_a_successor_writes_down_the_ends_that_came_with_a_coordinators_death(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        await opened(job)
        await job.kill()
        assert kinds(job) == ["exec-started"]
        for _ in range(2):
            job.start()
            await until(lambda: kinds(job) == ["exec-started", "exec-ended"])
            await job.backend.running(1)
            await job.kill()
        assert kinds(job) == ["exec-started", "exec-ended"]


@in_loop
async def test_a_connection_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, ONE) as job:
        job.start()
        (agent,) = await job.backend.running(1)
        guess = await dial(agent, "0" * 32)
        assert isinstance(await guess.receive(10), Refuse)
        # On the agent's own connection a command's messages have no business either.
        agent.say(ExecEnded(code=0))
        await until(lambda: len(agent.welcomes) == 2)


async def refusal(job: World, wanted: OpenExec = WANTED) -> str:
    """Why a command is refused."""
    with pytest.raises(Refused) as refused:
        await open_exec(job.directory, wanted)
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda job, patch: patch.setattr("howdah.coordinator.clients.execs.MOST", 0),
            "0 commands run",
        ),
        (
            lambda job, patch: setattr(job.coordinator.clients, "_welcome", Welcome),
            "the coordinator of fake-20261121-120000-aaaa is of an older Howdah",
        ),
    ],
    ids=["many", "old-coordinator"],
)
@in_loop
async def test_refusals(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[World, pytest.MonkeyPatch], None],
    said: str,
) -> None:
    async with world(tmp_path, ONE) as job:
        monkeypatch.setattr(
            "howdah.client.following.remote.site_of", lambda directory: Here(directory)
        )
        job.start()
        await job.backend.running(1)
        change(job, monkeypatch)
        assert said in await refusal(job)


class Here:
    """The fake backend's job, as a client finds it."""

    at_hand = True

    def __init__(self, directory: Any) -> None:
        self.coordinator = directory.coordinator
        self.final = directory.final
        self.running = lambda: Running.YES


@in_loop
async def test_what_does_not_run_and_what_a_site_forbids_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("howdah.client.following.remote.site_of", lambda directory: Here(directory))
    async with world(tmp_path, ONE) as job:
        monkeypatch.setattr(job.backend, "request", nothing)
        job.start()
        assert "worker:0 does not run now: it is waiting" in await refusal(job)
        unknown = OpenExec(task=Task("ps", 0))
        assert "the job has no task ps:0; it has worker:0" in await refusal(job, unknown)
    forbidding = msgspec.structs.replace(ONE, limits=Limits(exec=False))
    async with world(tmp_path / "forbidding", forbidding) as job:
        job.start()
        await job.backend.running(1)
        assert "its site file has `exec = false` under [limits]" in await refusal(job)
        assert kinds(job) == []


@in_loop
async def test_an_older_agent_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("howdah.client.following.remote.site_of", lambda directory: Here(directory))
    monkeypatch.setattr("tests.coordinator.fakes.PROTOCOL", UNSAID)
    async with world(tmp_path, ONE) as job:
        (job.directory.secrets / "containers.key").unlink()  # as in a job that it was launched for
        job.start()
        (agent,) = await job.backend.running(1)
        assert "the agent of worker:0 is of an older Howdah" in await refusal(job)
        assert not agent.count(DialExec)


async def nothing(*_: Any) -> None:
    """Grant none."""

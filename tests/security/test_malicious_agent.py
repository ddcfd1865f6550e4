"""A compromised task with its agent's certificate against the coordinator: it ends, at most, itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as kinds
import pytest

from benchmarks import processes, standin
from benchmarks.coordinator import ROOT, Fleets
from benchmarks.jobs import events
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.core.messages import (
    CheckpointSaved,
    Exit,
    Held,
    HeldPhase,
    StacksTaken,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
)
from howdah.storage.jobdir import JobDirectory
from howdah.wire import tls
from howdah.wire.channel import Channel, ChannelClosed, connect
from howdah.wire.frames import FrameError
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    AgentNote,
    FromAgent,
    Heartbeat,
    LogChunk,
    Prepare,
    Refuse,
    Sample,
    Start,
    ToAgent,
    WebAddress,
)
from tests.changing_folders import contents
from tests.cli.howdah import until

GOOD = 2
MINE = "c3"
JOB_ID = "victim-20261121-120000-aaaa"
ESCAPE = Task("../../../../escaped", 0)


class Victim:
    """A coordinator with two good agents; the third is the attacker's."""

    def __init__(self, directory: JobDirectory, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.process = process
        self.address = until(directory.coordinator, "an address")

    @property
    def secret(self) -> str:
        """What the attacker's own container was launched with."""
        return ContainerSecrets(self.directory.containers_key()).of(MINE)

    def get(self, path: str) -> bytes:
        address = self.directory.coordinator()
        assert address is not None
        link = http.client.HTTPConnection("127.0.0.1", address.http_port, timeout=20)
        headers = {"Authorization": f"Bearer {self.directory.token()}", "Connection": "close"}
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:300])
        return body

    def unharmed(self) -> None:
        """The same coordinator answers every question, and the others' tasks go on."""
        job = self.answers()
        states = [t["state"] for t in job["tasks"]][:GOOD]
        assert states == ["running"] * GOOD, (job["reason"], job["failures"])

    def answers(self) -> Any:
        """The same coordinator answers every question; the status document."""
        assert self.process.poll() is None, "the coordinator has ended"
        for path in ("/", "/api/v1/job", "/api/v1/records", "/api/v1/plan", "/metrics"):
            self.get(path)
        job = msgspec.json.decode(self.get("/api/v1/job"))
        assert job["incarnation"] == 1
        log = (self.directory.logs / "coordinator.log").read_text()
        assert "Traceback" not in log
        assert len(log) < 200_000
        return job

    def size(self) -> int:
        """Bytes of the job directory's own files."""
        return sum(len(content) for _, content in contents(self.directory.path))

    async def agent(self, **fields: Any) -> Channel[Any]:
        """A connection with the attacker's certificate, after its hello."""
        channel = await connect(
            "127.0.0.1",
            self.address.port,
            tls.client_context(self.directory.secrets, "agent"),
            job_id=JOB_ID,
            receives=ToAgent,
        )
        said = {
            "protocol": PROTOCOL,
            "job_id": JOB_ID,
            "container_id": MINE,
            "host": "127.0.0.1",
            "pid": 1,
            "secret": self.secret,
            **fields,
        }
        channel.send(AgentHello(**said))
        return channel

    async def play_along(self) -> Channel[Any]:
        """Run task worker:2 as an agent does."""
        channel = await self.agent()
        while (order := await channel.receive(20.0)) is not None:
            if isinstance(order, Prepare):
                channel.send(
                    TaskPrepared(
                        task=order.task, attempt=order.attempt, ports=(20_009,) * order.ports
                    )
                )
            elif isinstance(order, Start):
                channel.send(TaskStarted(task=order.task, attempt=order.attempt, pids=(1,)))
                channel.send(TaskJoined(task=order.task, attempt=order.attempt))
                return channel
        raise AssertionError(channel.problem)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with running(tmp_path_factory.mktemp("jobs")) as made:
        yield made


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Victim]:
    directory = JobDirectory(folder / JOB_ID)
    standin.make_job(directory, GOOD + 1)
    line = [sys.executable, "-m", "benchmarks.standin", str(directory.path)]
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        until((directory.path / standin.LAUNCHED).exists, "the grants")
        fleets = Fleets(stack, directory, GOOD, 1)
        made = Victim(directory, process)

        async def begin() -> None:
            channel = await made.play_along()
            channel.send(Heartbeat(attempt=1))
            channel.close()
            await channel.wait_closed()

        asyncio.run(begin())
        fleets.until(incarnation=1, running=True)
        until(lambda: (found := directory.coordinator()) and found.http_port, "the page")
        yield made


def attack(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            with contextlib.suppress(ChannelClosed, ConnectionError):
                await body()

    asyncio.run(limited())


TASK = Task("worker", 2)
HELD = Held(task=TASK, attempt=1, generation=1, phase=HeldPhase.RUNNING, pids=(1,), joined=True)


async def settled(channel: Channel[Any]) -> None:
    """All that was sent has been read, or the coordinator has hung up."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        await channel.drain()
    channel.close()
    await channel.wait_closed()


def test_a_task_name_that_is_a_path_leads_nowhere(victim: Victim) -> None:
    """An agent says that it holds a task called ../../x, to have files written there. It is
    refused."""

    async def body() -> None:
        for task in (ESCAPE, Task("worker", -1), Task("worker", 2**63), Task("", 0)):
            channel = await victim.agent(held=msgspec.structs.replace(HELD, task=task))
            channel.send(StacksTaken(task=task, attempt=1, text="escaped"))
            assert isinstance(await channel.receive(20.0), Refuse)
            await settled(channel)
        for container in ("../c1", "", "c" * 1_000_000):
            channel = await victim.agent(held=HELD, container_id=container)
            assert isinstance(await channel.receive(20.0), Refuse)
            await settled(channel)
        channel = await victim.agent(held=HELD)
        channel.send(StacksTaken(task=TASK, attempt=1, path="../../../../etc/passwd"))
        channel.send(StacksTaken(task=ESCAPE, attempt=1, text="escaped"))
        channel.send(LogChunk(task=ESCAPE, attempt=1, offset=0, data=b"escaped"))
        await settled(channel)

    attack(body)
    victim.unharmed()
    for parent in list(victim.directory.path.parents)[:4]:
        assert not list(parent.glob("escaped*")), parent
    told = [event for _, event in events(victim.directory) if isinstance(event, StacksTaken)]
    assert [event.path for event in told] == [""]


def test_a_program_cannot_register_as_another_containers_agent(victim: Victim) -> None:
    """A program with the certificate that agents of a job share says that it is another container's
    agent: with its own container's secret, with none, or as an agent of the first release. It is
    refused with a message, and the real agent keeps its place."""
    refused: list[Any] = []

    async def body() -> None:
        for said in ({}, {"secret": ""}, {"secret": "é" * 64}, {"secret": "", "protocol": (1, 0)}):
            channel = await victim.agent(container_id="c1", **said)
            refused.append(await channel.receive(20.0))
            assert await channel.receive(20.0) is None

    attack(body)
    assert [type(each) for each in refused] == [Refuse] * 4
    assert "this is not the agent of c1" in refused[0].reason
    assert victim.secret not in repr(refused)
    victim.unharmed()
    assert victim.secret not in (victim.directory.logs / "coordinator.log").read_text()


def test_old_and_made_up_attempts_and_other_tasks_change_nothing(victim: Victim) -> None:
    """An agent sends messages about another task, or with the number of another attempt. They
    change nothing."""

    async def body() -> None:
        channel = await victim.agent(held=HELD)
        for task in (Task("worker", 0), Task("worker", 1), Task("nobody", 9), ESCAPE):
            for attempt in (1, 0, -1, 2, 2**63, 2**64 - 1):
                channel.send(TaskExited(task=task, attempt=attempt, exit=Exit(code=1)))
                channel.send(CheckpointSaved(task=task, attempt=attempt, name="../../x"))
                channel.send(StacksTaken(task=task, attempt=attempt, text="x"))
        for attempt in (0, -1, 2, 2**64 - 1):
            channel.send(TaskExited(task=TASK, attempt=attempt, exit=Exit(code=1)))
            channel.send(TaskSaving(task=TASK, attempt=attempt, exit=Exit(code=1), limit_s=1e308))
            channel.send(Heartbeat(attempt=attempt, step=float("nan"), progress_s=-1e308))
        await settled(channel)

    attack(body)
    victim.unharmed()
    job = msgspec.json.decode(victim.get("/api/v1/job"))
    assert job["failures"] == []


def test_a_flood_of_messages_costs_only_its_sender(victim: Victim) -> None:
    """Endless notes, pages, names and events filled the memory and the journal. Now they end the
    connection."""
    memory, size = processes.memory(victim.process.pid).rss, victim.size()

    async def body() -> None:
        for number in range(2):
            channel = await victim.agent(held=HELD)
            with contextlib.suppress(ChannelClosed, FrameError):
                for turn in range(1500):
                    mark = f"{number}.{turn}"
                    channel.send(AgentNote(task=TASK, attempt=1, text=f"{mark}" + "n" * 2000))
                    channel.send(
                        WebAddress(
                            task=TASK, attempt=1, name=mark + "w" * 2000, host="h", port=turn
                        )
                    )
                    values = {f"{mark}.{i}": 1.0 for i in range(50)}
                    channel.send(
                        Heartbeat(attempt=1, sample=Sample(time=3e9 + turn, values=values))
                    )
                    channel.send(TaskJoined(task=TASK, attempt=1))
                    channel.send(CheckpointSaved(task=TASK, attempt=1, name=mark + "c" * 2000))
                    await channel.drain()
            await settled(channel)

    attack(body)
    victim.unharmed()
    assert processes.memory(victim.process.pid).rss - memory < 60
    assert victim.size() - size < 40_000_000
    assert len(victim.get("/metrics")) < 500_000
    assert len(victim.get("/api/v1/job")) < 500_000


NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)
FRACTIONS = (0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "../../x", "\0", "\x1b]0;x\x07", "é" * 500, "1" * 5000, "%s{}", "127.0.0.1")


def hostile(kind: Any, chance: random.Random) -> Any:
    """A value of that type that no agent of ours would send."""
    match kind:
        case kinds.UnionType():
            return hostile(chance.choice(kind.types), chance)
        case kinds.IntType():
            return chance.choice(NUMBERS)
        case kinds.FloatType():
            return chance.choice(FRACTIONS)
        case kinds.StrType():
            return chance.choice(TEXTS)
        case kinds.BytesType():
            return chance.choice(TEXTS).encode()
        case kinds.BoolType():
            return chance.random() < 0.5
        case kinds.EnumType():
            return chance.choice(list(kind.cls))
        case kinds.VarTupleType():
            number = chance.choice((0, 1, 3, 2000))
            return tuple(hostile(kind.item_type, chance) for _ in range(number))
        case kinds.TupleType():
            return tuple(hostile(each, chance) for each in kind.item_types)
        case kinds.DictType():
            return {
                hostile(kind.key_type, chance): hostile(kind.value_type, chance) for _ in range(3)
            }
        case kinds.StructType():
            if kind.cls is Task:
                return TASK
            made = {}
            for field in kind.fields:
                if field.required or chance.random() < 0.7:
                    value = hostile(field.type, chance)
                    true = field.name == "attempt" and chance.random() < 0.8
                    made[field.name] = 1 if true else value
            return kind.cls(**made)
        case _:
            return None


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 8))]
)
def test_no_message_of_an_agent_ends_the_coordinator(tmp_path: Path, seed: int) -> None:
    """An agent sends every message that it may send, with any values and in any order. Each is
    taken or dropped.

    One with an infinite number in it went into the journal, which no coordinator could read then.
    """
    chance = random.Random(seed)
    messages = [kind for kind in kinds.type_info(FromAgent).types if kind.cls is not AgentHello]  # type: ignore[attr-defined]

    async def body(victim: Victim) -> None:
        for _ in range(30):
            held = hostile(kinds.type_info(Held), chance) if chance.random() < 0.3 else HELD
            channel = await victim.agent(held=held, listen=("x" * 300, -1))
            for _ in range(20):
                with contextlib.suppress(FrameError):
                    channel.send(hostile(chance.choice(messages), chance))
            await settled(channel)

    with running(tmp_path) as victim:
        attack(functools.partial(body, victim))
        victim.answers()
        assert events(victim.directory), "the next coordinator can read what was kept"

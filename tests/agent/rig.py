"""A coordinator that does what a test tells it, and the agents that connect to it.

Everything is real but the decisions: TLS, frames, processes, files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from howdah.agent.host import procfs
from howdah.agent.host.processes import MARKER, marker
from howdah.agent.launch import AgentLaunch
from howdah.core.messages import Exit, StopTask, Task, TaskExited, TaskPrepared, TaskStarted
from howdah.storage.layout import CoordinatorAddress
from howdah.wire import authority
from howdah.wire.channel import Channel, connect, serve
from howdah.wire.messages import (
    AgentHello,
    FromAgent,
    Heartbeat,
    LeaseRenewed,
    Moved,
    Prepare,
    ProcessSpec,
    Start,
    Welcome,
)
from howdah.wire.tls import PeerRole, client_context, server_context

JOB = f"rig-20261121-120000-{secrets.token_hex(3)}"
"""Its own in each test process: what carries a job's marker is ended by any agent of that job."""
CONTAINER = "c1"
TASK = Task("worker", 0)
HOST = "127.0.0.1"
WAIT_S = 60.0

M = TypeVar("M")


async def until(what: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Poll until it is true; returns its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_s} s")
        await asyncio.sleep(0.02)
    return value


def python(code: str, **env: str) -> ProcessSpec:
    """A program that runs that Python code."""
    return ProcessSpec(
        argv=(sys.executable, "-S", "-u", "-c", code), env={"PATH": os.environ["PATH"], **env}
    )


def shell(text: str, **env: str) -> ProcessSpec:
    """A program that runs that shell command line."""
    return ProcessSpec(argv=("/bin/bash", "-c", text), env={"PATH": os.environ["PATH"], **env})


NURSERY = """
import json, os, select, signal, sys
import howdah.agent.main

signal.signal(signal.SIGCHLD, lambda *_: None)
wake = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(wake[1])
while True:
    ready, _, _ = select.select([0, wake[0]], [], [])
    if wake[0] in ready:
        os.read(wake[0], 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            print(pid, os.waitstatus_to_exitcode(status), flush=True)
    if 0 in ready:
        line = sys.stdin.buffer.raw.readline()
        if not line:
            break
        file, errors, test = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.environ["PYTEST_CURRENT_TEST"] = test
            out = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            signal.set_wakeup_fd(-1)
            os.closerange(3, 2**20)
            sys.exit(howdah.agent.main.main(file))
        print("pid", pid, flush=True)
"""
"""Forks agents, as a node daemon does: an interpreter of its own for each test's would cost ten times as much."""


class Nursery:
    """The process that agents are forked from, one for all tests of a run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._codes: dict[int, int] = {}

    def fork(self, file: Path, errors: Path) -> Forked:
        """An agent with that launch file."""
        assert self._process.stdin is not None
        line = json.dumps([str(file), str(errors), os.environ.get("PYTEST_CURRENT_TEST", "")])
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        while (said := self._hear())[0] != b"pid":
            pass
        return Forked(self, int(said[1]))

    def code(self, pid: int, *, wait: bool = False) -> int | None:
        """The exit code of an agent that has ended."""
        assert self._process.stdout is not None
        while pid not in self._codes:
            if not wait and not select.select([self._process.stdout], [], [], 0)[0]:
                return None
            self._hear()
        return self._codes[pid]

    def _hear(self) -> list[bytes]:
        assert self._process.stdout is not None
        line = b""
        # Unbuffered, for `select` tells only of what has not been read.
        while not line.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            assert byte, "the nursery has ended"
            line += byte
        said = line.split()
        if said[0] != b"pid":
            self._codes[int(said[0])] = int(said[1])
        return said

    def close(self) -> None:
        """End it; its agents have ended."""
        self._process.communicate()


class Forked:
    """An agent's process, with the methods of `subprocess.Popen` that are needed."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    @property
    def returncode(self) -> int | None:
        return self._nursery.code(self.pid)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int | None:
        return self._nursery.code(self.pid, wait=True)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)


_nurseries: list[Nursery] = []
_shared: list[bool] = []


def nursery() -> Nursery:
    """The one there is, or a new one."""
    if not _nurseries:
        _nurseries.append(Nursery())
    return _nurseries[0]


def close_nursery() -> None:
    while _nurseries:
        _nurseries.pop().close()


@contextlib.contextmanager
def shared_nursery() -> Iterator[None]:
    """Agents of all rigs come from the same nursery meanwhile; else each rig ends its own."""
    _shared.append(True)
    try:
        yield
    finally:
        _shared.pop()
        close_nursery()


class Agent:
    """One real agent's process."""

    def __init__(
        self,
        process: Forked,
        launch: AgentLaunch,
        errors: Path,
        heard_out: Callable[[], bool],
    ) -> None:
        """``heard_out`` tells whether all it said has been read, once it has ended."""
        self.process = process
        self.launch = launch
        self.errors = errors
        self._heard_out = heard_out
        self.marker = marker(launch.job_id, launch.container_id)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()

    async def code(self, timeout_s: float = WAIT_S) -> int:
        """Its exit code, once it has ended and its last words have been heard."""
        await until(lambda: self.process.poll() is not None, timeout_s)
        await until(self._heard_out)
        assert self.process.returncode is not None
        return self.process.returncode

    def marked(self) -> list[int]:
        """Living processes of its container."""
        return sorted(procfs.marked(MARKER, self.marker))

    def watchdog(self) -> int:
        """Process id of its watchdog."""
        pid = self.watchdog_or_none()
        assert pid is not None, "the agent has no watchdog"
        return pid

    def watchdog_or_none(self) -> int | None:
        for pid in procfs.all_pids():
            status = procfs.stat(pid)
            if status is None or status.zombie or status.parent != self.pid:
                continue
            if name_of(pid) == "howdah-watchdog":
                return pid
        return None

    def log(self, task: Task = TASK, attempt: int = 1) -> bytes:
        """What is in the log of an attempt."""
        path = Path(self.launch.log_dir) / f"{task.role}-{task.index}" / f"{attempt}.log"
        return path.read_bytes() if path.exists() else b""


def name_of(pid: int) -> str:
    """The name the kernel shows for a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def alive(pid: int) -> bool:
    status = procfs.stat(pid)
    return status is not None and not status.zombie


class Rig:
    """The coordinator; use it as ``async with Rig(tmp_path) as rig``."""

    def __init__(self, folder: Path, *, beat_s: float = 0.1, lease_s: float = 30.0) -> None:
        self.folder = folder
        self.beat_s = beat_s
        self.lease_s = lease_s
        self.host = HOST
        """Where the coordinator listens."""
        self.deaf = False
        """It renews no lease."""
        self.keeps = True
        """What it has heard is in its journal."""
        self.heard: list[Any] = []
        self.hellos: list[AgentHello] = []
        self.channels: list[Channel[Any]] = []
        self.agents: list[Agent] = []
        self.source = folder / "source"
        self.answer: Callable[[AgentHello], Any] = lambda hello: self.welcome()
        self._talking: list[int] = []
        """Process id of the agent at each connection that has not ended."""
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.incarnation = 1

    async def __aenter__(self) -> Rig:
        for name in ("logs", "stacks", "shared", "source"):
            (self.folder / name).mkdir(mode=0o700)
        authority.create(JOB, self.folder / "secrets")
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.process.terminate()
                try:
                    await agent.code(10.0)
                except AssertionError:
                    agent.kill()
                    agent.process.wait()
            if error is not None:
                print(f"agent {agent.pid} said:\n{agent.errors.read_text()}")
        await self.vanish()
        for agent in self.agents:
            await until(lambda agent=agent: not agent.marked())
        if not _shared:
            close_nursery()

    # -- being a coordinator ---------------------------------------------------------------------

    def welcome(self) -> Welcome:
        return Welcome(incarnation=self.incarnation, beat_s=self.beat_s, lease_s=self.lease_s)

    async def begin(self) -> None:
        """A (new) coordinator listens and writes down where."""
        self._server = await serve(  # pyright: ignore[reportAttributeAccessIssue]
            self._handle,
            self.host,
            0,
            server_context(self.folder / "secrets"),
            receives={"agent": FromAgent},
        )
        self.port = self._server.sockets[0].getsockname()[1]
        address = CoordinatorAddress(
            incarnation=self.incarnation,
            host=self.host,
            port=self.port,
            http_port=0,
            pid=os.getpid(),
        )
        file = self.folder / "coordinator.json"
        file.with_suffix(".tmp").write_bytes(msgspec.json.encode(address))
        file.with_suffix(".tmp").replace(file)

    async def vanish(self) -> None:
        """No coordinator any more: as after kill -9."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for channel in self.channels:
            channel.abort()
        self.channels.clear()
        await asyncio.sleep(0)

    async def call(self, where: tuple[str, int], **changes: Any) -> None:
        """Tell the agent that listens there where we are now."""
        news = Moved(**{"incarnation": self.incarnation, "host": HOST, "port": self.port} | changes)
        context = client_context(self.folder / "secrets", PeerRole.COORDINATOR)
        channel = await connect(*where, context, job_id=JOB, receives=Moved, role=PeerRole.AGENT)
        channel.send(news)
        channel.close()
        await channel.wait_closed()

    async def _handle(self, channel: Channel[Any]) -> None:
        hello = await channel.receive()
        assert isinstance(hello, AgentHello)
        self.hellos.append(hello)
        self._talking.append(hello.pid)
        try:
            answer = self.answer(hello)
            channel.send(answer)
            if isinstance(answer, Welcome):
                self.channels.append(channel)
            self._news.set()
            while (message := await channel.receive()) is not None:
                if isinstance(message, Heartbeat) and message.renew and not self.deaf:
                    channel.send(LeaseRenewed(kept=self.keeps))
                self.heard.append(message)
                self._news.set()
        finally:
            self._talking.remove(hello.pid)

    def tell(self, message: Any) -> None:
        """To the agent that connected last."""
        self.channels[-1].send(message)

    async def hear(
        self,
        kind: type[M],
        where: Callable[[M], bool] = lambda message: True,
        *,
        after: int = 0,
        timeout_s: float = WAIT_S,
    ) -> M:
        """The first message of that kind (from place ``after`` on), now or when it comes."""
        deadline = time.monotonic() + timeout_s
        while True:
            for message in self.heard[after:]:
                if isinstance(message, kind) and where(message):
                    return message
            self._news.clear()
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.001)):
                    await self._news.wait()
            except TimeoutError:
                last = [type(m).__name__ for m in self.heard[-10:]]
                raise AssertionError(
                    f"no {kind.__name__} came within {timeout_s} s; {last}"
                ) from None

    async def connected(self, count: int = 1) -> AgentHello:
        """Wait until so many connections were made; the last one's hello."""
        await until(lambda: len(self.hellos) >= count and self.channels)
        return self.hellos[-1]

    # -- agents and attempts ---------------------------------------------------------------------

    def launch_file(self, **changes: Any) -> tuple[Path, AgentLaunch]:
        """A launch file for an agent of this coordinator."""
        container = changes.get("container_id", CONTAINER)
        settings: dict[str, Any] = {
            "job_id": JOB,
            "container_id": container,
            "coordinator_file": str(self.folder / "coordinator.json"),
            "ca": str(self.folder / "secrets/ca.pem"),
            "certificate": str(self.folder / "secrets/agent.pem"),
            "key": str(self.folder / "secrets/agent.key"),
            "work_dir": str(self.folder / "containers" / container),
            "log_dir": str(self.folder / "logs"),
            "source": str(self.source),
            "shared_dir": str(self.folder / "shared"),
            "beat_s": self.beat_s,
            "lease_s": self.lease_s,
            **changes,
        }
        launch = AgentLaunch(**settings)
        file = self.folder / f"launch-{container}.json"
        file.write_bytes(msgspec.json.encode(launch))
        return file, launch

    def spawn(self, **changes: Any) -> Agent:
        """Start an agent."""
        file, launch = self.launch_file(**changes)
        Path(launch.work_dir).mkdir(parents=True, exist_ok=True)
        errors = self.folder / f"agent-{len(self.agents)}.err"
        process = nursery().fork(file, errors)
        agent = Agent(process, launch, errors, lambda: process.pid not in self._talking)
        self.agents.append(agent)
        return agent

    async def agent(self, **changes: Any) -> Agent:
        """Start an agent and wait for it."""
        count = len(self.hellos)
        agent = self.spawn(**changes)
        await self.connected(count + 1)
        return agent

    async def prepare(self, attempt: int = 1, ports: int = 1, **more: Any) -> TaskPrepared:
        """Have the agent prepare an attempt."""
        prepare = Prepare(task=TASK, attempt=attempt, generation=attempt, ports=ports, **more)
        self.tell(prepare)
        return await self.hear(TaskPrepared, lambda m: m.attempt == attempt)

    async def start(self, *programs: ProcessSpec, attempt: int = 1, **more: Any) -> TaskStarted:
        """Have it start programs."""
        self.tell(start_message(*programs, attempt=attempt, **more))
        return await self.hear(TaskStarted, lambda m: m.attempt == attempt)

    async def run(self, *programs: ProcessSpec, attempt: int = 1, **more: Any) -> Exit:
        """Prepare, start, and wait for the end."""
        await self.prepare(attempt)
        self.tell(start_message(*programs, attempt=attempt, **more))
        return await self.exit(attempt)

    async def exit(self, attempt: int = 1, timeout_s: float = WAIT_S) -> Exit:
        """How the attempt ended, once it has."""
        return (
            await self.hear(TaskExited, lambda m: m.attempt == attempt, timeout_s=timeout_s)
        ).exit

    def tell_stop(self, attempt: int = 1, *, grace_s: float, save_s: float = 0.0) -> None:
        """Stop the attempt."""
        self.tell(
            StopTask(container_id="c1", task=TASK, attempt=attempt, grace_s=grace_s, save_s=save_s)
        )

    async def stop(self, attempt: int = 1, grace_s: float = 5.0, save_s: float = WAIT_S) -> Exit:
        """Stop the attempt and wait for its end."""
        self.tell_stop(attempt, grace_s=grace_s, save_s=save_s)
        return await self.exit(attempt)


def start_message(*programs: ProcessSpec, attempt: int = 1, **more: Any) -> Start:
    """A start of these programs."""
    return Start(task=TASK, attempt=attempt, generation=attempt, processes=programs, **more)


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def listening(folder: Path, **changes: Any) -> AsyncIterator[tuple[Rig, Agent]]:
    """An agent that listens, and has no file to find coordinators by."""
    async with Rig(folder) as rig:
        there = ((HOST, rig.port),)
        agent = await rig.agent(coordinator_file=None, coordinators=there, listen=True, **changes)
        yield rig, agent


def door(rig: Rig) -> tuple[str, int]:
    """Where the agent that connected last listens."""
    where = rig.hellos[-1].listen
    assert where is not None
    return where

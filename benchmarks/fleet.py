"""Many light agents in one process: real connections and messages, no programs.

usage: python -m benchmarks.fleet JOB_DIRECTORY FIRST COUNT [CONTAINER_ID_PATTERN]

They find their coordinator as agents do (`howdah.agent.connection`), hold an attempt as agents do,
and beat once a second, spread evenly over the second. Said on standard output, one JSON object a
line: ``{"incarnation": …, "running": …}`` when that coordinator has all of them, with what runs.
Ends with its standard input, or with its coordinator's word.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.standin import CONTAINER_ID
from howdah.agent import connection
from howdah.agent.connection import Connector, CoordinatorConnection, NoCoordinator
from howdah.agent.launch import AgentLaunch
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.core.messages import Held, HeldPhase, StopTask, TaskJoined, TaskPrepared, TaskStarted
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import COORDINATOR, SECRETS
from howdah.wire import tls
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    Heartbeat,
    LeaseRenewed,
    Prepare,
    Sample,
    Shutdown,
    Start,
)

TICKS = 50
"""A second: agents whose beats fall into the same tick beat together."""

RENEWAL = 10
"""Heartbeats between two that ask whether the agent is heard, as a real one's."""
CONNECTING = 200
"""At once. Thousands of handshakes in one loop take longer than the heartbeats of the others may be
late; real agents have processes of their own."""


async def _nobody_calls(address: str) -> None:
    """They find their coordinator's address in the job directory."""


class Agent:
    """One of them."""

    def __init__(self, fleet: Fleet, launch: AgentLaunch) -> None:
        self._fleet = fleet
        self._launch = launch
        self.connector = Connector(launch, self._hello, _nobody_calls)
        self.held: Held | None = None
        self.link: CoordinatorConnection | None = None

    def _hello(self, host: str) -> AgentHello:
        return AgentHello(
            protocol=PROTOCOL,
            job_id=self._launch.job_id,
            container_id=self._launch.container_id,
            host=host,
            pid=1,
            held=self.held,
            secret=self._launch.secret,
        )

    async def live(self) -> None:
        """Serve coordinators until there is none any more, or one says to go."""
        while isinstance(link := await self._connect(), CoordinatorConnection):
            self.link = link
            self._fleet.connected(self)
            while (order := await link.channel.receive()) is not None:
                if isinstance(order, Shutdown | StopTask):
                    return
                self._obey(order)
            self.link = None
            link.channel.close()

    async def _connect(self) -> CoordinatorConnection | NoCoordinator:
        async with self._fleet.connecting:
            return await self.connector.connect()

    def beat(self, number: int) -> None:
        """With the measurements a real one has."""
        if self.link is None:
            return
        renew = number % RENEWAL == 0
        if self.held is None:
            self.link.channel.send(Heartbeat(renew=renew))
            return
        sample = Sample(
            time=time.time(),
            cpu=0.97,
            rss_mb=1234.5 + number % 10,
            io_read_mb=100.0,
            io_write_mb=10.0,
            values={"loss": 0.5, "step": float(number)},
        )
        self.link.channel.send(
            Heartbeat(
                attempt=self.held.attempt,
                sample=sample,
                progress_s=0.1,
                log_size=number * 100,
                renew=renew,
            )
        )

    def _obey(self, order: Any) -> None:
        assert self.link is not None
        say = self.link.channel.send
        if isinstance(order, Prepare):
            ports = tuple(range(20000, 20000 + order.ports))
            self.held = Held(
                task=order.task,
                attempt=order.attempt,
                generation=order.generation,
                phase=HeldPhase.PREPARED,
                host="127.0.0.1",
                ports=ports,
            )
            say(TaskPrepared(task=order.task, attempt=order.attempt, ports=ports))
        elif isinstance(order, LeaseRenewed):
            self.connector.heard_at = asyncio.get_running_loop().time()
        elif isinstance(order, Start) and self.held is not None:
            pids = (1000 + order.task.index,)
            running = {"phase": HeldPhase.RUNNING, "pids": pids, "joined": True}
            self.held = msgspec.structs.replace(self.held, **running)
            say(TaskStarted(task=order.task, attempt=order.attempt, pids=pids))
            say(TaskJoined(task=order.task, attempt=order.attempt))
            self._fleet.started(self)


class Fleet:
    """All agents of this process."""

    def __init__(self, job_dir: Path, first: int, count: int, pattern: str) -> None:
        # One context for all: a thousand of them are megabytes of certificates each.
        connection.client_context_from = functools.cache(tls.client_context_from)
        secrets = job_dir / SECRETS
        of_containers = ContainerSecrets(JobDirectory(job_dir).containers_key())
        self.connecting = asyncio.Semaphore(CONNECTING)
        self._incarnation = 0
        # Sets: an agent may lose its connection and come back, and an order may be repeated.
        self._connected: set[Agent] = set()
        self._running: set[Agent] = set()
        self.agents = [
            Agent(
                self,
                AgentLaunch(
                    job_id=job_dir.name,
                    container_id=pattern.format(number),
                    coordinator_file=str(job_dir / COORDINATOR),
                    ca=str(secrets / tls.CA_FILE),
                    certificate=str(secrets / "agent.pem"),
                    key=str(secrets / "agent.key"),
                    secret=of_containers.of(pattern.format(number)),
                    work_dir="/nowhere",
                    log_dir="/nowhere",
                    lease_s=600.0,
                ),
            )
            for number in range(first, first + count)
        ]

    def connected(self, agent: Agent) -> None:
        """It has been welcomed."""
        assert agent.link is not None
        if agent.link.welcome.incarnation > self._incarnation:
            self._incarnation = agent.link.welcome.incarnation
            self._connected.clear()
        if agent.link.welcome.incarnation == self._incarnation and agent not in self._connected:
            self._connected.add(agent)
            self._tell()

    def started(self, agent: Agent) -> None:
        """It was given a program."""
        if agent not in self._running:
            self._running.add(agent)
            self._tell()

    def _tell(self) -> None:
        if len(self._connected) == len(self.agents):
            if len(self._running) in (0, len(self.agents)):
                said = {"incarnation": self._incarnation, "running": len(self._running)}
                print(json.dumps(said), flush=True)

    async def run(self) -> None:
        """Until standard input ends, or no agent is left."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        loop.add_reader(0, lambda: over.done() or over.set_result(None))
        beating = loop.create_task(self._beat())
        lives = {loop.create_task(agent.live()) for agent in self.agents}
        all_over = loop.create_task(asyncio.wait(lives))
        await asyncio.wait({all_over, over}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*lives, beating, all_over):
            task.cancel()
        await asyncio.wait(lives)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        tick = 0
        while True:
            for agent in self.agents[tick % TICKS :: TICKS]:
                agent.beat(tick // TICKS)
            tick += 1
            await asyncio.sleep(max(begin + tick / TICKS - loop.time(), 0))


async def main(job_dir: str, first: str, count: str, pattern: str = CONTAINER_ID) -> None:
    """One fleet's whole life."""
    await Fleet(Path(job_dir), int(first), int(count), pattern).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

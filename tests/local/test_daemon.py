"""The node daemon's containers: what agents inherit, and what survives the daemon's own death."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from howdah.backends.local.messages import AgentProcess, NodeAddress
from howdah.backends.local.node import agents
from howdah.backends.local.submit import NodeOptions, node_alive
from howdah.core.messages import ContainerEnded, ContainerEndKind
from tests.conformance.harness import Coordinator, eventually, of_a_local_job
from tests.conformance.local import LocalHarness
from tests.local.conftest import options


class ReportingHarness(LocalHarness):
    """The conformance suite's job with agents that say what they have inherited."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options = NodeOptions(
            agent=options().agent, coordinator=self.options.coordinator, paths=self.options.paths
        )

    async def report(self, container_id: str) -> dict[str, Any]:
        file = self.directory.container_path(container_id) / "report"
        await self.pids(container_id)
        return ast.literal_eval(file.read_text())

    async def kill_node(self) -> int:
        """kill -9 of the daemon; returns what was its process id."""
        pid = self.node_pid()
        os.kill(pid, signal.SIGKILL)
        return pid

    async def next_node(self, dead: int) -> int:
        """The process id of the daemon that comes after the dead one."""

        def there() -> bool:
            return node_alive(self.directory.path) and self.node_pid() != dead

        await eventually(there, "a new daemon comes")
        return self.node_pid()


@of_a_local_job(ReportingHarness)
async def test_an_agent_inherits_nothing_of_the_daemons(
    harness: ReportingHarness, coordinator: Coordinator
) -> None:
    containers = await coordinator.grant(1, 2)
    for container in containers:
        await harness.launch(coordinator, container, "wait")
    for container in containers:
        report = await harness.report(container)
        folder = str(harness.directory.container_path(container))
        assert report["descriptors"] == {
            0: "/dev/null",
            1: f"{folder}/agent.log",
            2: f"{folder}/agent.log",
            3: f"{folder}/agent.lock",
        }
        assert report["handlers"] == []
        assert report["blocked"] == []
        assert report["umask"] == 0o077
        assert report["session"] is True
        assert report["stdin"] is True
        assert report["cwd"] == folder
        assert report["marker"] == f"{harness.directory.job_id}/{container}"
        assert report["mode"] == 0o600


@of_a_local_job(ReportingHarness)
async def test_agents_live_on_when_the_daemon_is_killed_and_the_next_one_adopts_them(
    harness: ReportingHarness, coordinator: Coordinator
) -> None:
    containers = await coordinator.grant(1, 2, 3)
    for container in containers:
        await harness.launch(coordinator, container, "children")
    pids = {c: await harness.pids(c) for c in containers}
    await harness.next_node(await harness.kill_node())
    for container in containers:
        assert await harness.alive(pids[container]) == pids[container]

    await coordinator.backend.release(containers[0])
    assert (await coordinator.ended(containers[0])).kind is ContainerEndKind.RELEASED
    assert await harness.alive(pids[containers[0]]) == []

    await harness.kill_agent(containers[1])
    assert (await coordinator.ended(containers[1])).kind is ContainerEndKind.EXITED
    assert await harness.alive(pids[containers[1]]) == []

    (new,) = await coordinator.grant(4)
    await harness.launch(coordinator, new, "wait")
    assert await harness.pids(new)
    assert await harness.alive(pids[containers[2]]) == pids[containers[2]]


@of_a_local_job(ReportingHarness)
async def test_an_agent_that_dies_while_there_is_no_daemon_is_told_of(
    harness: ReportingHarness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "children")
    pids = await harness.pids(container)
    node = harness.node_pid()
    os.kill(node, signal.SIGSTOP)  # it sees nothing from now on
    os.kill(pids[-1], signal.SIGKILL)
    os.kill(node, signal.SIGKILL)
    await coordinator.ended(container)
    assert await harness.alive(pids) == []
    assert len(coordinator.all(ContainerEnded)) == 1


@of_a_local_job(ReportingHarness)
async def test_a_session_that_now_has_a_dead_agent_s_number_is_left_alone(
    harness: ReportingHarness, coordinator: Coordinator
) -> None:
    """As after a restart of the machine, where process ids begin anew: a daemon of somebody else's, whose
    session's leader has ended."""
    stranger, session = _daemon()
    try:
        folder = harness.directory.container_path("of-old")
        folder.mkdir(parents=True)
        agents.write_process(folder, AgentProcess(pid=session, start=1, role="worker"))
        await harness.next_node(await harness.kill_node())
        assert (await coordinator.ended("of-old")).kind is ContainerEndKind.EXITED
        assert psutil.Process(stranger).status() != psutil.STATUS_ZOMBIE
    finally:
        os.kill(stranger, signal.SIGKILL)


def _daemon() -> tuple[int, int]:
    """Start a program that goes into the background; its process id, and its session's number."""
    code = """
import os, time
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), os.getsid(0), flush=True)
os.close(1)
time.sleep(300)
"""
    line = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    pid, session = map(int, line.split())
    return pid, session


@of_a_local_job(ReportingHarness)
async def test_a_launch_the_dead_daemon_did_not_come_to_is_made_by_the_next(
    harness: ReportingHarness, coordinator: Coordinator
) -> None:
    first, second, third = await coordinator.grant(1, 2, 3)
    node = harness.node_pid()
    os.kill(node, signal.SIGSTOP)
    await harness.launch(coordinator, first, "wait")
    await harness.launch(coordinator, second, "wait")
    await coordinator.backend.release(second)
    os.kill(node, signal.SIGKILL)
    assert len(await harness.pids(first)) == 1
    await coordinator.ended(second)
    await harness.launch(coordinator, third, "wait")
    assert len(await harness.pids(third)) == 1


@of_a_local_job(ReportingHarness)
async def test_a_coordinator_adopted_by_the_second_daemon_is_replaced_when_it_dies(
    harness: ReportingHarness, coordinator: Coordinator
) -> None:
    # The harness's coordinator is this test: it ends by disconnecting with the job finished.
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "wait")
    await harness.pids(container)
    await harness.next_node(await harness.kill_node())
    await harness.crash(coordinator)
    second = await harness.coordinator()
    assert list(second.held) == [container]


@of_a_local_job(LocalHarness)
async def test_an_older_coordinator_that_still_lives_is_shut_out(
    harness: LocalHarness, first: Coordinator
) -> None:
    (container,) = await first.grant(1)
    await harness.launch(first, container, "wait")
    pids = await harness.pids(container)
    second = await harness.coordinator()
    await first.backend.release(container)  # nobody listens to it any more
    (other,) = await second.grant(2)
    await harness.launch(second, other, "wait")
    await harness.pids(other)
    assert await harness.alive(pids) == pids


@of_a_local_job(LocalHarness)
async def test_a_stranger_on_the_socket_is_cut_off_and_costs_nothing(
    harness: LocalHarness, coordinator: Coordinator
) -> None:
    for words in (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 2**31),
        struct.pack(">I", 3) + b"\x93\x01\x02",
        _frame({"type": "Release", "container_id": "c0001"}),
        _frame({"type": "Hello", "job_id": "another", "pid": 1}),
    ):
        assert await asyncio.to_thread(_said_to, _address(harness).socket, words) == b""
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "wait")
    assert await harness.pids(container)


@of_a_local_job(LocalHarness)
async def test_the_socket_and_its_folder_are_its_owners_alone(
    harness: LocalHarness, _: Coordinator
) -> None:
    path = Path(_address(harness).socket)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@of_a_local_job(LocalHarness)
async def test_an_agent_that_is_killed_says_why_when_it_can(
    harness: LocalHarness, coordinator: Coordinator
) -> None:
    first, second = await coordinator.grant(1, 2)
    await harness.launch(coordinator, first, "exit:5")
    detail = (await coordinator.ended(first)).detail
    assert detail == "its agent exited with code 5: the stand-in ends as it was told"
    await harness.launch(coordinator, second, "wait")
    await harness.kill_agent(second)
    assert (await coordinator.ended(second)).detail == "its agent was killed by SIGKILL"


def _address(harness: LocalHarness) -> NodeAddress:
    import msgspec

    raw = (harness.directory.path / "node.json").read_bytes()
    return msgspec.json.decode(raw, type=NodeAddress)


def _frame(message: dict[str, object]) -> bytes:
    import msgspec

    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def _said_to(path: str, words: bytes) -> bytes:
    """What a peer answers before it closes the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(10.0)
        sock.connect(path)
        sock.sendall(words)
        answer = b""
        while part := sock.recv(4096):
            answer += part
        return answer


@of_a_local_job(LocalHarness)
async def test_a_daemon_is_small_and_so_are_its_agents(
    harness: LocalHarness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "wait")
    (pid,) = await harness.pids(container)
    for each in (pid, harness.node_pid()):
        assert psutil.Process(each).memory_info().rss < 30 << 20

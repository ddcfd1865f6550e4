"""The coordinator's connection to daemons that do not last. The daemons are pretended, their sockets are real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from howdah.backends.base import BackendError
from howdah.backends.local import connection
from howdah.backends.local.connection import NodeConnection
from howdah.backends.local.messages import FromNode, Inventory
from howdah.backends.local.unix_connection import UnixConnection
from howdah.wire.frames import encode
from tests.coordinator.fakes import until

Daemon = Callable[[socket.socket], None]
INVENTORY = encode(Inventory(running=(), ended=()))


class Daemons(NodeConnection):
    """A connection to daemons that are functions, one after the other; the last one stays."""

    def __init__(self, *daemons: Daemon) -> None:
        super().__init__(Path("a-job"), None, self._hear)
        self._daemons = list(daemons)
        self.ends: list[socket.socket] = []
        self.heard: list[FromNode] = []

    def _hear(self, message: FromNode) -> None:
        self.heard.append(message)

    def _connect(self) -> UnixConnection[FromNode]:
        daemon = self._daemons[min(len(self.ends), len(self._daemons) - 1)]
        ours, its = socket.socketpair()
        self.ends.append(its)
        daemon(its)
        return UnixConnection(ours, FromNode)

    @property
    def connected(self) -> bool:
        return self.send(Inventory(running=(), ended=()))

    async def aclose(self) -> None:
        await self.close()
        for end in self.ends:
            end.close()


def lasting(end: socket.socket) -> None:
    end.sendall(INVENTORY)


def dead_before_the_greeting(end: socket.socket) -> None:
    end.close()


def dead_after_its_answer(end: socket.socket) -> None:
    end.sendall(INVENTORY)
    end.close()


def answered_and_deaf(end: socket.socket) -> None:
    end.sendall(INVENTORY)
    end.shutdown(socket.SHUT_WR)


@pytest.fixture(autouse=True)
def without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_DELAY_S", 0.001)


@pytest.mark.parametrize(
    "short_lived", [dead_before_the_greeting, dead_after_its_answer, answered_and_deaf]
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_new_daemon_that_dies_while_it_is_greeted_is_followed_by_another(
    short_lived: Daemon, times: int
) -> None:
    async def test() -> None:
        node = Daemons(lasting, *[short_lived] * times, lasting)
        try:
            await node.open()
            node.ends[0].close()
            await until(lambda: len(node.ends) == times + 2 and node.connected)
        finally:
            await node.aclose()

    asyncio.run(test())


def test_a_first_daemon_that_dies_before_it_has_answered_is_an_error() -> None:
    async def test() -> None:
        node = Daemons(dead_before_the_greeting, lasting)
        try:
            with pytest.raises(BackendError, match="before it had answered"):
                await node.open()
        finally:
            await node.aclose()

    asyncio.run(test())


def test_a_first_daemon_that_dies_once_it_has_answered_is_followed_by_another() -> None:
    async def test() -> None:
        node = Daemons(answered_and_deaf, lasting)
        try:
            await node.open()
            await until(lambda: len(node.ends) == 2 and node.connected)
        finally:
            await node.aclose()

    asyncio.run(test())

"""The coordinator's connection to the node daemon, and a new daemon when that has died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.local import runtime_paths, submit
from howdah.backends.local.messages import Displaced, FromNode, Hello, Inventory
from howdah.backends.local.submit import NodeOptions
from howdah.backends.local.unix_connection import UnixConnection
from howdah.wire.frames import FrameError

log: logging.Logger = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1
"""Before a second attempt to start a daemon; doubled each time up to `MAX_DELAY_S`."""
MAX_DELAY_S = 5.0


class NodeConnection:
    """Always on its way to be connected, from `open` to `close`."""

    def __init__(
        self,
        job_dir: Path,
        options: NodeOptions | None,
        receive: Callable[[FromNode], None],
    ) -> None:
        """``receive`` gets every message; an `Inventory` is the first of each connection."""
        self._job_dir = job_dir
        self._options = options
        self._receive = receive
        self._channel: UnixConnection[FromNode] | None = None
        self._answer: asyncio.Future[None] | None = None
        """Of the daemon that is being greeted."""
        self._displaced = False
        self._reconnecting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, starting a daemon if none lives; its `Inventory` has been received then.

        Raises:
            BackendError: there is none and none can be started, or it ended before it had answered.
        """
        await self._greet(await self._connect_or_start())

    def send(self, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> bool:
        """Send it; false if nobody is connected, and an `Inventory` will come."""
        channel = self._channel
        if channel is None:
            return False
        try:
            if not channel.send(message, descriptors):
                asyncio.get_running_loop().add_writer(channel.socket, self._writable, channel)
        except OSError:
            self._lost(channel)
            return False
        return True

    async def close(self) -> None:
        """Let go of the daemon, which goes on unless it was told that the job has finished."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reconnecting
            self._reconnecting = None
        channel, self._channel = self._channel, None
        if channel is not None:
            if not channel.flush_now():
                log.warning("the node daemon does not listen any more")
            self._forget(channel)

    # -- connecting ----------------------------------------------------------------------------

    async def _connect_or_start(self) -> UnixConnection[FromNode]:
        channel = self._connect()
        if channel is None:
            await asyncio.to_thread(self._start_node)
            channel = self._connect()
        if channel is None:
            raise BackendError(
                f"The node daemon of {self._job_dir} was started and does not listen on "
                f"{runtime_paths.socket_path(self._job_dir)}; see logs/node.log there"
            )
        return channel

    def _connect(self) -> UnixConnection[FromNode] | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(runtime_paths.socket_path(self._job_dir)))  # local: it is there or not
        except OSError:
            sock.close()
            return None
        return UnixConnection(sock, FromNode)

    def _start_node(self) -> None:
        starter = submit.begin(self._options, adopt=True)
        starter.go(self._job_dir, coordinator=os.getpid())

    async def _greet(self, channel: UnixConnection[FromNode]) -> None:
        """Say hello, and wait for the answer.

        Raises:
            BackendError: the daemon ended before it had answered.
        """
        loop = asyncio.get_running_loop()
        self._answer = answer = loop.create_future()
        self._channel = channel
        loop.add_reader(channel.socket, self._readable, channel)
        try:
            self.send(Hello(job_id=self._job_dir.name, pid=os.getpid()))
            await answer
        finally:
            self._answer = None

    def _readable(self, channel: UnixConnection[FromNode]) -> None:
        try:
            messages, there = channel.receive()
        except FrameError as error:
            log.error("the node daemon is not understood: %s", error)
            messages, there = [], False
        for message in messages:
            if isinstance(message, Displaced):
                log.error("a newer coordinator has the node daemon now")
                self._displaced = True
                self._channel = None
                self._forget(channel)
                return
            self._receive(message)
            answer = self._answer
            if isinstance(message, Inventory) and answer is not None and not answer.done():
                answer.set_result(None)
        if not there:
            self._lost(channel)

    def _writable(self, channel: UnixConnection[FromNode]) -> None:
        try:
            done = channel.flush()
        except OSError:
            self._lost(channel)
            return
        if done:
            asyncio.get_running_loop().remove_writer(channel.socket)

    def _forget(self, channel: UnixConnection[FromNode]) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(channel.socket)
        loop.remove_writer(channel.socket)
        channel.close()

    def _lost(self, channel: UnixConnection[FromNode]) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        self._forget(channel)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BackendError("The node daemon ended before it had answered"))
        elif self._reconnecting is None or self._reconnecting.done():
            log.warning("the node daemon is gone; a new one is started")
            self._reconnecting = asyncio.create_task(self._reconnect(), name="node daemon")

    async def _reconnect(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            try:
                await self._greet(await self._connect_or_start())
            except (BackendError, OSError) as error:
                log.error("no node daemon: %s", error)
            # One that has answered may be gone again.
            if self._channel is not None or self._displaced:
                return
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_DELAY_S)

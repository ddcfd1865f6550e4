"""The coordinator's end of its connection to the driver program, whose child it is."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.local.processes import alive
from howdah.backends.spark.messages import FromDriver, Look, Seen, Settings
from howdah.wire.frames import FrameDecoder, FrameError, encode

log = logging.getLogger(__name__)

LINK = "HOWDAH_SPARK_LINK"
"""Environment variable: descriptor of the connection."""
LISTEN = "HOWDAH_SPARK_LISTEN"
"""Environment variable: descriptor of the socket that holders dial."""

LOOK_S = 2.0
"""Between two looks for the driver program's process."""
SEEN_S = 2.0


class Link:
    """Messages both ways, until the driver is gone."""

    def __init__(
        self,
        sock: socket.socket,
        settings: Settings,
        receive: Callable[[Any], None],
        gone: Callable[[], None],
    ) -> None:
        """``gone`` is called once, unless it is closed before."""
        sock.setblocking(False)
        self._driver = settings.driver_pid, settings.driver_start
        self._socket = sock
        self._receive = receive
        self._gone = gone
        self._decoder: FrameDecoder[Any] = FrameDecoder(FromDriver)
        self._seen: asyncio.Future[str] | None = None
        self._closed = False

    def open(self) -> None:
        """From now on messages are handed over."""
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        self._look()

    def send(self, message: msgspec.Struct) -> None:
        """Small ones: the pipe takes them, or the driver is gone, which comes by itself."""
        if self._closed:
            return
        try:
            self._socket.sendall(encode(message))
        except OSError as error:
            log.warning("the driver does not listen: %s", error)

    async def seen(self) -> str:
        """What the driver has to say about slots; nothing if it does not answer soon."""
        self._seen = asyncio.get_running_loop().create_future()
        self.send(Look())
        try:
            async with asyncio.timeout(SEEN_S):
                return await self._seen
        except TimeoutError:
            return ""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            messages = self._decoder.feed(data) if data else []
        except FrameError as error:
            log.error("the driver is not understood: %s", error)
            data = b""
            messages = []
        for message in messages:
            if not isinstance(message, Seen):
                self._receive(message)
            elif self._seen is not None and not self._seen.done():
                self._seen.set_result(message.words)
        if not data:
            self._lost()

    def _look(self) -> None:
        """A process that the program had forked may still hold its end of the connection."""
        pid, start = self._driver
        if pid and not alive(pid, start):
            self._lost()
        elif pid and not self._closed:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _lost(self) -> None:
        if not self._closed:
            self.close()
            self._gone()


def inherited(env: Mapping[str, str]) -> tuple[socket.socket, socket.socket]:
    """The socket to the driver and the one that holders dial.

    Raises:
        BackendError: this is no driver's child.
    """
    try:
        return socket.socket(fileno=int(env[LINK])), socket.socket(fileno=int(env[LISTEN]))
    except (KeyError, ValueError, OSError) as error:
        raise BackendError(
            "A job in a Spark application is coordinated by a child of the application's driver; "
            f"this process is none ({type(error).__name__}: {error}). When the application has "
            "ended, so has the job: start it again in another one"
        ) from error

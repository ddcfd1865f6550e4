"""The node daemon's socket: whoever is admitted last is the coordinator."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from howdah.backends.local import runtime_paths
from howdah.backends.local.messages import Displaced, ToNode
from howdah.backends.local.node.event_loop import EventLoop
from howdah.backends.local.node.log import note
from howdah.backends.local.unix_connection import UnixConnection, same_user
from howdah.storage import runtime
from howdah.wire.frames import FrameError


class DaemonSocket:
    """A listening Unix socket, and one admitted connection."""

    def __init__(
        self,
        loop: EventLoop,
        path: Path,
        handle: Callable[[UnixConnection[ToNode], ToNode], None],
        disconnected: Callable[[], None],
    ) -> None:
        """Listen. ``handle`` may raise `FrameError` to have the connection closed.

        Raises:
            OSError: the socket cannot be made.
        """
        self.path = path
        self._loop = loop
        self._handle = handle
        self._disconnected = disconnected
        self._channel: UnixConnection[ToNode] | None = None
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # a dead daemon's: the caller holds the job's lock
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        runtime.retry_with_folder(partial(self._listener.bind, str(path)))
        path.chmod(0o600)
        self._listener.listen(8)
        self._listener.setblocking(False)
        loop.watch(self._listener, self._accept)

    def admit(self, channel: UnixConnection[ToNode]) -> None:
        """This connection is the coordinator's; an older one is closed."""
        former, self._channel = self._channel, channel
        if former is not None and former is not channel:
            with contextlib.suppress(OSError):
                former.send(Displaced())
            self._drop(former)

    def admitted(self, channel: UnixConnection[ToNode]) -> bool:
        return channel is self._channel

    def tell(self, message: msgspec.Struct) -> None:
        """Say it to the coordinator, if one is connected."""
        channel = self._channel
        if channel is None:
            return
        try:
            done = channel.send(message)
        except OSError:
            return  # its end of file comes next
        if not done:
            self._loop.watch(
                channel.socket, partial(self._readable, channel), partial(self._writable, channel)
            )

    def close(self) -> None:
        """Stop listening, and leave no file behind."""
        if self._channel is not None:
            self._drop(self._channel)
        self._loop.unwatch(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
        runtime_paths.tidy(self.path.parent)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if not same_user(sock):
            sock.close()
            return
        channel: UnixConnection[ToNode] = UnixConnection(sock, ToNode)
        self._loop.watch(sock, partial(self._readable, channel))

    def _readable(self, channel: UnixConnection[ToNode]) -> None:
        try:
            messages, there = channel.receive()
            for message in messages:
                self._handle(channel, message)
        except FrameError as error:
            note(f"a connection is closed: {error}")
            there = False
        if not there:
            self._drop(channel)

    def _writable(self, channel: UnixConnection[ToNode]) -> None:
        try:
            done = channel.flush()
        except OSError:
            done = True
        if done:
            self._loop.watch(channel.socket, partial(self._readable, channel))

    def _drop(self, channel: UnixConnection[ToNode]) -> None:
        self._loop.unwatch(channel.socket)
        channel.close()
        if channel is self._channel:
            self._channel = None
            self._disconnected()

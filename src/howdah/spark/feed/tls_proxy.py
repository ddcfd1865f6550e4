"""A process beside a training process that speaks TLS with the feeders of other hosts, and passes on to its Unix
socket what they say.

A record of TLS has 16 KiB, and in the training process each would be a turn at the interpreter's lock: beside a
program that computes in Python, rows came at less than 25 MB/s. The first connection from another host starts it.

Nothing is held for a connection that has proven nothing: one thread accepts, and leads all handshakes side by
side. How many of those there may be, and which is cut off for a newcomer, is in
`howdah.wire.unauthenticated_peers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from howdah.wire.bulk_tls import BulkTls
from howdah.wire.sockets import Listener, detect_dead_peers
from howdah.wire.tls import IdentityError, PeerRole, names_job, peer_identity, server_context
from howdah.wire.unauthenticated_peers import Seldom, UnauthenticatedPeer, UnauthenticatedPeers

HANDSHAKE_S = 20.0
"""From a connection's first bytes to its proof; it may be silent as long before."""
UNAUTHENTICATED = 64
PARENT_S = 0.5
"""Between two looks whether the training process is still there."""
LAST_S = 5.0
"""For what was said last, once the training process hears nothing more."""
UNREAD_S = 2.0
"""For a feeder to read what was said last, and hang up. One that computes its next rows looks later, and what has
arrived by then stays."""
ROWS_BYTES = 1 << 18
ANSWERS_BYTES = 1 << 16

_LOG = logging.getLogger(__name__)


def start(
    listener: socket.socket, secrets: Path, job_id: str, target: str
) -> subprocess.Popen[bytes]:
    """Take over the accepting from that socket, for the Unix socket ``target``. It ends once something is written
    to it, or with this process, and has passed on then what was said last; its output has an end then.

    Raises:
        OSError: the system does not let it start.
    """
    port = listener.fileno()
    arguments = [str(port), str(secrets), job_id, target, str(os.getpid())]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(port,),
    )


def main() -> None:
    """Accept and pass on until the training process has gone, or says that it is over."""
    port, secrets, job_id, target, parent = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):  # the program may still train when it has these
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="howdah: %(message)s")
    context = server_context(Path(secrets), PeerRole.AGENT)
    asyncio.run(_Proxy(context, job_id, target).run(socket.socket(fileno=int(port)), int(parent)))


class _Proxy:
    def __init__(self, context: ssl.SSLContext, job_id: str, target: str) -> None:
        self._context = context
        self._job_id = job_id
        self._target = target
        self._refusals = Seldom()

    async def run(self, listener: socket.socket, parent: int) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, over.set)
        accepting = Listener(
            [listener],
            self._prove,
            UnauthenticatedPeers(UNAUTHENTICATED),
            silent_s=HANDSHAKE_S,
        )
        while os.getppid() == parent and not over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), PARENT_S)
        accepting.close()
        until = time.monotonic() + LAST_S
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    async def _prove(self, peer: UnauthenticatedPeer) -> None:
        """Let a peer in that shows the certificate of a feeder of this job."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                tls = await self._secured(peer)
            role, job = peer_identity(tls.getpeercert())
            if role is not PeerRole.FEEDER:
                raise IdentityError(
                    f"The peer is a {role} of the job; rows are taken from feeders only"
                )
            if not names_job(job, self._job_id):
                raise IdentityError("The peer belongs to another job")
            threading.Thread(target=self._pass_on, args=(tls,), daemon=True).start()
            peer.proven()
        except (OSError, IdentityError, RuntimeError) as error:  # RuntimeError: no more threads
            if self._refusals.now():
                _LOG.warning("A feeder was not let in: %s", str(error) or "it takes too long")
        finally:
            if not peer.is_proven:
                peer.gone()
                peer.sock.close()

    async def _secured(self, peer: UnauthenticatedPeer) -> BulkTls:
        tls = BulkTls(peer.sock, self._context)
        while True:
            try:
                tls.do_handshake()
                return tls
            except BlockingIOError:
                await _readable(peer.sock)

    def _pass_on(self, tls: BulkTls) -> None:
        with tls.socket as far, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as near:
            with contextlib.suppress(OSError):  # the program has ended, or the feeder
                # Spark may let answers wait for hours, as the program may let rows.
                detect_dead_peers(far, held_back=True)
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                near.connect(self._target)
                near.setblocking(False)
                _join(tls, near)
                near.close()
                _hang_up(far)


class _Way:
    """Bytes from one socket to another, neither of which blocks."""

    def __init__(
        self, source: socket.socket | BulkTls, sink: socket.socket | BulkTls, size: int
    ) -> None:
        self._source = source
        self._sink = sink
        self._buffer = memoryview(bytearray(size))
        self._begin = 0
        self._end = 0
        self._broken = False
        self.over = False
        """Whether nothing more comes from the source."""

    @property
    def takes(self) -> bool:
        return not self.over and self._end < len(self._buffer)

    @property
    def gives(self) -> bool:
        return self._begin < self._end

    @property
    def done(self) -> bool:
        """Whether all that came has been passed on, and nothing more comes."""
        return self.over and not self.gives and not self._broken

    def move(self) -> bool:
        """Read and write what can be now; whether anything was."""
        moved = False
        try:
            while self.takes:
                got = self._source.recv_into(self._buffer[self._end :])
                self.over = not got
                self._end += got
                moved = True
        except BlockingIOError:
            pass
        except OSError:
            self.over = moved = True
        try:
            if self.gives:
                self._begin += self._sink.send(self._buffer[self._begin : self._end])
                moved = True
        except BlockingIOError:
            pass
        except OSError:  # what its peer said last may still be on the other way
            self.over = self._broken = moved = True
            self._end = self._begin
        if not self.gives:
            self._begin = self._end = 0
        return moved


def _join(far: socket.socket | BulkTls, near: socket.socket) -> None:
    """Pass on what either says, until one of them ends."""
    rows, answers = ways = (_Way(far, near, ROWS_BYTES), _Way(near, far, ANSWERS_BYTES))
    while not any(way.done for way in ways) and not all(way.over and not way.gives for way in ways):
        moved = [way.move() for way in ways]
        if any(moved):
            continue
        poll = select.poll()
        for sock, incoming, outgoing in ((far, rows, answers), (near, answers, rows)):
            wanted = select.POLLIN if incoming.takes else 0
            wanted |= select.POLLOUT if outgoing.gives else 0
            if wanted:  # poll would say of one that has ended that it has, again and again
                poll.register(sock, wanted)
        poll.poll()


def _hang_up(far: socket.socket) -> None:
    """End a connection in order: a close with unread rows would reset it, and drop what was said last."""
    far.shutdown(socket.SHUT_WR)
    until = time.monotonic() + UNREAD_S
    while (left_s := until - time.monotonic()) > 0:
        far.settimeout(left_s)
        if not far.recv(ROWS_BYTES):
            return


async def _readable(sock: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


if __name__ == "__main__":
    main()

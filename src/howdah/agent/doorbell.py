"""Where a new coordinator calls: the agent's own port.

A coordinator on another host, at another port, cannot be found by agents that see no store. So it
calls them, at the addresses its journal has, and says where it is (`howdah.wire.messages.Moved`).
Only a coordinator of this job gets as far as being heard: both sides show certificates of the job's
authority, and the caller's must be a coordinator's.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable

from howdah.agent import ports
from howdah.agent.guard import Guard
from howdah.agent.launch import AgentLaunch
from howdah.wire.channel import Channel, serve
from howdah.wire.frames import decoder
from howdah.wire.messages import Moved
from howdah.wire.tls import PeerRole, server_context_from

log = logging.getLogger(__name__)

_HANDSHAKE_S = 10.0
_FIRST_FRAME_S = 5.0
_CALLERS = 16
"""Connections at once: strangers cannot make the agent large. A coordinator calls again."""
_TRIES = 5

# Made here, not at the first call: agents are forked by a parent that has imported this.
decoder(Moved)


class Doorbell:
    """The port, from `listen` to `close`."""

    def __init__(self, launch: AgentLaunch, guard: Guard, moved: Callable[[Moved], None]) -> None:
        """``moved`` is called with what a coordinator of this job says."""
        self._launch = launch
        self._guard = guard
        self._moved = moved
        self._server: asyncio.Server | None = None
        self._reservation: ports.Reservation | None = None
        self.address: tuple[str, int] | None = None
        """Where to call; None while nobody can."""

    async def listen(self, host: str) -> None:
        """Listen at that address of this host, on a port of the job's range.

        Without a port the agent works as well, until its coordinator moves.
        """
        if not self._launch.listen or self._server is not None:
            return
        for _ in range(_TRIES):
            try:
                self._reservation = ports.reserve(1, host, self._launch.ports)
                (port,) = self._reservation.ports
                self._reservation.let_go()
                self._server = await self._serve(host, port)
            except (ports.PortsError, OSError) as error:
                self._give_back()
                if getattr(error, "errno", None) == errno.EADDRINUSE:
                    continue  # a foreign program was quicker
                log.warning("no new coordinator can call at %s: %s", host, error)
                return
            except asyncio.CancelledError:
                self._give_back()
                raise
            self._guard.free_port(port)
            self.address = host, port
            return

    def close(self) -> None:
        """Hear nobody any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.address = None
        self._give_back()

    def _give_back(self) -> None:
        if self._reservation is not None:
            held = self._reservation.ports
            self._reservation.release()
            self._reservation = None
            for port in held:
                self._guard.forget_port(port)

    async def _serve(self, host: str, port: int) -> asyncio.Server:
        launch = self._launch
        context = server_context_from(launch.ca, launch.certificate, launch.key)

        async def at(address: str | None) -> asyncio.Server:
            return await serve(
                self._called,
                address,
                port,
                context,
                receives={PeerRole.COORDINATOR: Moved},
                handshake_s=_HANDSHAKE_S,
                first_frame_s=_FIRST_FRAME_S,
                most=_CALLERS,
            )

        try:
            return await at(host)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            # The advertised address is a translated one, which this host does not have itself.
            return await at(None)

    async def _called(self, channel: Channel[Moved]) -> None:
        if channel.peer.job_id != self._launch.job_id:
            log.warning("a coordinator of %s called; it is not ours", channel.peer.job_id)
            return
        message = await channel.receive()
        if message is not None:
            self._moved(message)

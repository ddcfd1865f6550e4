"""The agent's connection to whichever coordinator there is now.

It is made again whenever it breaks, with growing, random pauses, so that a thousand agents do not
all knock at once at a new coordinator.

When a coordinator last heard the agent the length of the lease ago, the agent has to take itself for
orphaned: the coordinator, which counts from when it heard it, may start others in its place then. A
connection that is still open proves nothing, as one to a host that is cut off stays open. So the agent
asks now and then whether it was heard.

A coordinator on another host, at another port, cannot be found by agents that see no store. So it
dials them, at the addresses its journal has, and says where it is (`howdah.wire.messages.Moved`).
Only a coordinator of this job gets as far as being heard: both sides show certificates of the job's
authority, and the caller's must be a coordinator's.

Coordinators are counted (`incarnation`): an agent that has heard of one never goes back to an
earlier one, which has been replaced and only does not know it yet.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent import ports
from howdah.agent.launch import AgentLaunch
from howdah.agent.watchdog import Watchdog
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.addresses import AddressError, NoInterface, advertised
from howdah.wire.channel import Channel, ChannelClosed, connect, serve
from howdah.wire.decoders import message_decoder
from howdah.wire.messages import PROTOCOL, AgentHello, Moved, Refuse, ToAgent, Welcome
from howdah.wire.sockets import Listener
from howdah.wire.tls import PeerRole, client_context_from, server_context_from

log: logging.Logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_ANSWER_S = (10.0, 160.0)
"""For a handshake, and for the answer to the first message: the first time, and at most. It doubles each
time it was too short: a coordinator to which thousands come back at once serves all of them only if none
hangs up while it is being served."""

_HANDSHAKE_S = 10.0
_FIRST_FRAME_S = 5.0
_CALLERS = 16
"""Connections at once: strangers cannot make the agent large. A coordinator dials again."""
_TRIES = 5

_LAST_MOMENT_S = 2.0


# Made here, not at the first use: agents are forked by a parent that has imported this.
_read_address = msgspec.json.Decoder(CoordinatorAddress).decode
message_decoder(ToAgent)
message_decoder(Moved)


class NoCoordinator(enum.Enum):
    """Why the agent has no coordinator any more, for good."""

    REFUSED = "refused"
    LEASE = "lease"


class CoordinatorConnection(msgspec.Struct, frozen=True):
    """One that has been welcomed."""

    channel: Channel[Any]
    welcome: Welcome
    near: bool
    """Both ends are on this host: nothing lies between them that could be cut."""


class Connector:
    """Finds the coordinator, again and again."""

    def __init__(
        self,
        launch: AgentLaunch,
        hello: Callable[[str], AgentHello],
        addressed: Callable[[str], Awaitable[None]],
    ) -> None:
        """``hello`` makes the first message, given the address to advertise; ``addressed`` is
        awaited once before that, when the address is known.

        Raises:
            OSError: the certificates can't be read.
        """
        self._launch = launch
        self._hello = hello
        self._addressed = addressed
        self._moved_to: tuple[str, int] | None = None
        """Where a coordinator said it is."""
        self.incarnation: int = 0
        """Of the newest coordinator heard of."""
        self._context: ssl.SSLContext = client_context_from(
            launch.ca, launch.certificate, launch.key
        )
        self._loop = asyncio.get_running_loop()
        self._chance = random.Random()
        self.lease_s: float = launch.lease_s
        self.heard_at: float = self._loop.time()
        """All that was said before this moment was heard by a coordinator."""
        self.host: str = ""
        """The address peers are told; chosen once, at the first connection."""
        self.problem: str = ""
        """Why there is no connection, or was none the last time."""
        self._reached: tuple[str, int] | None = None
        """Where the last welcome came from."""

    def moved(self, message: Moved, *, connected: bool) -> bool:
        """A coordinator says where it is; whether to redial now."""
        if message.incarnation < self.incarnation or (
            connected and message.incarnation == self.incarnation
        ):
            log.info("coordinator %d dialled, after %d", message.incarnation, self.incarnation)
            return False
        self.incarnation = message.incarnation
        self._moved_to = message.host, message.port
        return True

    @property
    def lease_left(self) -> float:
        """Seconds until the agent is orphaned, unless it is heard before. Its programs are to be gone
        when the lease is over, and have a moment to end."""
        moment_s = min(_LAST_MOMENT_S, self.lease_s / 5)
        return self.heard_at + self.lease_s - moment_s - self._loop.time()

    async def connect(self) -> CoordinatorConnection | NoCoordinator:
        """A welcomed connection, or why there will be none.

        Raises:
            NoInterface: the job names a network interface this host does not have.
        """
        pause, patience_s = _FIRST_PAUSE_S, _ANSWER_S[0]
        while True:
            left = self.lease_left
            if left <= 0:
                return NoCoordinator.LEASE
            for host, port in self._addresses():
                try:
                    async with asyncio.timeout(max(left, 0.1)):
                        connection = await self._try(host, port, patience_s)
                except NoInterface:
                    raise
                except TimeoutError:
                    self.problem = f"coordinator at {host}:{port}: no answer in {patience_s:g} s"
                    patience_s = min(2 * patience_s, _ANSWER_S[1])
                    continue
                except (OSError, ChannelClosed, AddressError) as error:
                    # A certificate that is not believed is an OSError too.
                    self.problem = f"coordinator at {host}:{port}: {error or type(error).__name__}"
                    continue
                if connection is not None:
                    self.problem = ""
                return connection or NoCoordinator.REFUSED
            log.info("no coordinator yet: %s", self.problem)
            wait = self._chance.uniform(0.3, 1.0) * pause
            await asyncio.sleep(max(min(wait, self.lease_left), 0.0))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def another(self, receives: Any) -> Channel:
        """One more connection to the same coordinator, whose messages are such.

        Raises:
            OSError: it can't be made.
        """
        if self._reached is None:
            raise ChannelClosed("no coordinator was reached yet")
        host, port = self._reached
        return await connect(
            host,
            port,
            self._context,
            job_id=self._launch.job_id,
            receives=receives,
            timeout_s=_ANSWER_S[0],
        )

    async def _try(self, host: str, port: int, patience_s: float) -> CoordinatorConnection | None:
        """One attempt; None if the coordinator does not want us."""
        if not self.host:
            found = advertised(self._launch.host, self._launch.interface, (host, port))
            await self._addressed(found)
            self.host = found
        channel = await connect(
            host,
            port,
            self._context,
            job_id=self._launch.job_id,
            receives=ToAgent,
            timeout_s=patience_s,
        )
        try:
            said_at = self._loop.time()
            channel.send(self._hello(self.host))
            answer = await channel.receive(timeout_s=patience_s)
            if isinstance(answer, Welcome):
                if answer.protocol[0] != PROTOCOL[0]:
                    self.problem = (
                        f"the coordinator speaks protocol {answer.protocol}, this agent {PROTOCOL}"
                    )
                    return None
                if answer.incarnation < self.incarnation:
                    raise ChannelClosed(
                        f"it is coordinator {answer.incarnation}, which {self.incarnation} replaced"
                    )
                self.incarnation = answer.incarnation
                self.lease_s = answer.lease_s
                self.heard_at = said_at
                self._reached = host, port
                connection = CoordinatorConnection(channel, answer, channel.near)
                channel = None
                return connection
            if isinstance(answer, Refuse):
                self.problem = answer.reason
                return None
            raise ChannelClosed(channel.problem or "it hung up without an answer")
        finally:
            if channel is not None:
                channel.close()

    def _addresses(self) -> list[tuple[str, int]]:
        """Where a coordinator may be now, the newest first."""
        found = list(self._launch.coordinators)
        if self._moved_to is not None:
            found.insert(0, self._moved_to)
        file = self._launch.coordinator_file
        if file is not None:
            try:
                now = _read_address(Path(file).read_bytes())
                # One that has dialled may not have written it down yet.
                found.insert(now.incarnation < self.incarnation, (now.host, now.port))
            except (OSError, msgspec.DecodeError) as error:
                self.problem = f"its address can't be read from {file}: {error}"
        return found


class CallbackListener:
    """The port a new coordinator dials, from `listen` to `close`."""

    def __init__(
        self, launch: AgentLaunch, watchdog: Watchdog, moved: Callable[[Moved], None]
    ) -> None:
        """``moved`` is called with what a coordinator of this job says."""
        self._launch = launch
        self._watchdog = watchdog
        self._moved = moved
        self._server: Listener | None = None
        self._reservation: ports.Reservation | None = None
        self.address: tuple[str, int] | None = None
        """Where to dial; None while nothing listens."""

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
                log.warning("no new coordinator can dial %s: %s", host, error)
                return
            except asyncio.CancelledError:
                self._give_back()
                raise
            self._watchdog.add("port", port)
            self.address = host, port
            return

    def close(self) -> None:
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
                self._watchdog.drop("port", port)

    async def _serve(self, host: str, port: int) -> Listener:
        launch = self._launch
        context = server_context_from(launch.ca, launch.certificate, launch.key)

        async def at(address: str | None) -> Listener:
            return await serve(
                self._dialled,
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

    async def _dialled(self, channel: Channel[Moved]) -> None:
        if not channel.peer.is_of(self._launch.job_id):
            log.warning("a coordinator of another job dialled")
            return
        message = await channel.receive()
        if message is not None:
            self._moved(message)


# -- the address ---------------------------------------------------------------------------------

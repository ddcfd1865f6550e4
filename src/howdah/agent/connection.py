"""The agent's connection to whichever coordinator there is now.

It is made again whenever it breaks, with growing, random pauses, so that a thousand agents do not
all knock at once at a new coordinator. Without any for the length of the lease the agent has to
take itself for orphaned.

Coordinators are counted (`incarnation`): an agent that has heard of one never goes back to an
earlier one, which has been replaced and only does not know it yet.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from howdah.agent.address import AddressError, NoInterface, advertised
from howdah.agent.launch import AgentLaunch
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.channel import Channel, ChannelClosed, connect
from howdah.wire.frames import decoder
from howdah.wire.messages import PROTOCOL, AgentHello, Moved, Refuse, ToAgent, Welcome
from howdah.wire.tls import client_context_from

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_ANSWER_S = 10.0

# Made here, not at the first connection: agents are forked by a parent that has imported this.
_read_address = msgspec.json.Decoder(CoordinatorAddress).decode
decoder(ToAgent)


class End(enum.Enum):
    """Why the agent has no coordinator any more, for good."""

    REFUSED = "refused"
    LEASE = "lease"


class Link(msgspec.Struct, frozen=True):
    """A connection that has been welcomed."""

    channel: Channel
    welcome: Welcome


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
        self._called: tuple[str, int] | None = None
        """Where a coordinator said it is."""
        self.incarnation = 0
        """Of the newest coordinator heard of."""
        self._context: ssl.SSLContext = client_context_from(
            launch.ca, launch.certificate, launch.key
        )
        self._loop = asyncio.get_running_loop()
        self._chance = random.Random()
        self.lease_s = launch.lease_s
        self._lost_at = self._loop.time()
        self.host = ""
        """The address peers are told; chosen once, at the first connection."""
        self.problem = ""
        """Why there is no connection, or was none the last time."""

    def moved(self, news: Moved, *, connected: bool) -> bool:
        """A coordinator says where it is; whether to go there now."""
        if news.incarnation < self.incarnation or (
            connected and news.incarnation == self.incarnation
        ):
            log.info("coordinator %d called, after %d", news.incarnation, self.incarnation)
            return False
        self.incarnation = news.incarnation
        self._called = news.host, news.port
        return True

    def lost(self) -> None:
        """The connection has just broken: the lease runs from now."""
        self._lost_at = self._loop.time()

    def since_lost(self, doubt_s: float) -> float:
        """What was sent after this moment may not have arrived before the connection broke."""
        return self._lost_at - doubt_s

    async def connect(self) -> Link | End:
        """A welcomed connection, or why there will be none.

        Raises:
            NoInterface: the job names a network interface this host does not have.
        """
        pause = _FIRST_PAUSE_S
        while True:
            left = self._lease_left()
            if left <= 0:
                return End.LEASE
            for host, port in self._addresses():
                try:
                    async with asyncio.timeout(max(left, 0.1)):
                        link = await self._try(host, port)
                except NoInterface:
                    raise
                except (OSError, ChannelClosed, AddressError) as error:
                    # TimeoutError is an OSError; so is a certificate that is not believed.
                    self.problem = f"coordinator at {host}:{port}: {error or type(error).__name__}"
                    continue
                if link is not None:
                    self.problem = ""
                return link or End.REFUSED
            log.info("no coordinator yet: %s", self.problem)
            wait = self._chance.uniform(0.3, 1.0) * pause
            await asyncio.sleep(max(min(wait, self._lease_left()), 0.0))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _lease_left(self) -> float:
        return self._lost_at + self.lease_s - self._loop.time()

    async def _try(self, host: str, port: int) -> Link | None:
        """One attempt; None if the coordinator does not want us."""
        if not self.host:
            found = advertised(self._launch.host, self._launch.interface, (host, port))
            await self._addressed(found)
            self.host = found
        channel = await connect(
            host, port, self._context, job_id=self._launch.job_id, receives=ToAgent
        )
        try:
            channel.send(self._hello(self.host))
            answer = await channel.receive(timeout_s=_ANSWER_S)
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
                link = Link(channel, answer)
                channel = None
                return link
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
        if self._called is not None:
            found.insert(0, self._called)
        file = self._launch.coordinator_file
        if file is not None:
            try:
                now = _read_address(Path(file).read_bytes())
                # One that has called may not have written it down yet.
                found.insert(now.incarnation < self.incarnation, (now.host, now.port))
            except (OSError, msgspec.DecodeError) as error:
                self.problem = f"its address can't be read from {file}: {error}"
        return found

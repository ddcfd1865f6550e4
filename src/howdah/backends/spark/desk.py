"""Where holders register: the coordinator's connections to them, and what it knows of each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any, Protocol

import msgspec

from howdah.backends.spark.books import Launched
from howdah.backends.spark.homeward import Intake
from howdah.backends.spark.messages import (
    ON_DRIVER,
    Cut,
    FromHolder,
    Here,
    Known,
    Launch,
    Leave,
    Over,
    Part,
    Welcome,
)
from howdah.core.messages import ContainerEndKind
from howdah.storage.jobdir import JobDirectory
from howdah.wire import tls
from howdah.wire.channel import Channel, serve
from howdah.wire.sockets import Listener

log = logging.getLogger(__name__)

SPARE_S = 90.0
"""A holder without a container is kept so long for a restart: longer than the longest back-off."""
UNUSED_S = 20.0
"""The same for one that never had a container: nobody seems to want it."""


class Place:
    """One holder as the coordinator knows it."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.channel: Channel[Any] | None = None
        self.container_id = ""
        """What was granted in it."""
        self.launch: Launch | None = None
        """What was ordered for that container by this coordinator."""
        self.ended = ""
        """The last container in it whose end is known."""
        self.known_before = False
        """It was there before, and has come back."""
        self.leaving = False
        self.cut = ""
        """Why Spark has taken its task away."""
        self.timer: asyncio.TimerHandle | None = None

    def send(self, message: msgspec.Struct) -> None:
        """Nothing, while it is away: it is told everything when it comes back."""
        if self.channel is not None:
            self.channel.send(message)

    def wait(self, delay_s: float, call: Any) -> None:
        self.stop_waiting()
        self.timer = asyncio.get_running_loop().call_later(delay_s, call, self)

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Owner(Protocol):
    """Who is told of holders: `howdah.backends.spark.backend.SparkBackend`."""

    def arrived(self, place: Place) -> None: ...
    def over(self, over: Over) -> None: ...
    def lost(self, place: Place, reason: str, kind: ContainerEndKind) -> None: ...


class Desk:
    """All holders of one job."""

    def __init__(
        self, owner: Owner, directory: JobDirectory, address: bytes, lease_s: float
    ) -> None:
        self._owner = owner
        self._directory = directory
        self._intake = Intake(directory.path)
        self._address = address
        self._lease_s = lease_s
        self._places: dict[str, Place] = {}
        self._server: Listener | None = None
        self._changed = asyncio.Event()
        self._dismissing = False
        self.avoid: frozenset[str] = frozenset()
        """Hosts that are given last."""

    async def open(self, listener: socket.socket) -> None:
        """Answer at a socket that is bound already.

        Raises:
            OSError: it cannot be listened on.
        """
        context = tls.server_context(self._directory.secrets)
        self._server = await serve(
            self._serve, None, 0, context, receives={"agent": FromHolder}, sock=listener
        )

    def announce(self, address: bytes) -> None:
        """The coordinator is there now."""
        self._address = address
        for place in self._places.values():
            place.send(self._welcome())

    def expect(self, container_id: str, entry: Launched) -> None:
        """A holder that an earlier coordinator had, with a container."""
        here = Here(holder=entry.holder, ticket=entry.ticket, host=entry.host, base="")
        place = self._places[entry.holder] = Place(here)
        place.container_id = container_id
        place.wait(self._lease_s, self._gone)

    def of(self, container_id: str) -> Place | None:
        """Who holds that container."""
        return next((p for p in self._places.values() if p.container_id == container_id), None)

    def of_ticket(self, ticket: int) -> int:
        """How many of a Spark job's holders are there."""
        return sum(place.here.ticket == ticket for place in self._places.values())

    def free(self, *, on_driver: bool) -> Place | None:
        """A holder that is connected and has nothing."""
        found = [
            place
            for place in self._places.values()
            if place.channel is not None
            and not place.container_id
            and not place.leaving
            and not place.cut
            and (place.here.ticket == ON_DRIVER) == on_driver
        ]
        return min(found, key=lambda place: place.here.host in self.avoid, default=None)

    async def dismiss(self, within_s: float) -> None:
        """Send all home, and wait until they have gone."""
        self._dismissing = True
        for place in self._places.values():
            self._send_home(place)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while any(place.channel is not None for place in self._places.values()):
                    self._changed.clear()
                    await self._changed.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for place in self._places.values():
            place.stop_waiting()
            if place.channel is not None:
                place.channel.abort()

    # -- connections ---------------------------------------------------------------------------

    async def _serve(self, channel: Channel[Any]) -> None:
        here = await channel.receive()
        if not isinstance(here, Here):
            return
        place = self._admit(here, channel)
        try:
            await channel.dispatch(lambda message: self._handle(place, message))
        finally:
            if place.channel is channel:
                place.channel = None
                self._changed.set()
                self._left(place)

    def _admit(self, here: Here, channel: Channel[Any]) -> Place:
        place = self._places.get(here.holder)
        if place is None:
            place = self._places[here.holder] = Place(here)
        else:
            place.known_before = True
            if place.channel is not None:
                place.channel.abort("its holder has a newer connection")
        place.here = here
        place.channel = channel
        place.stop_waiting()
        channel.send(self._welcome())
        if self._dismissing:
            self._send_home(place)
            return place
        if here.over is not None:
            self._over(place, here.over)  # what is ordered next comes after the word of that
        elif here.container_id and here.container_id == place.ended:
            self._known(place, here.container_id)
        else:
            place.wait(UNUSED_S, self._unused)
        self._owner.arrived(place)
        return place

    def _handle(self, place: Place, message: Any) -> None:
        match message:
            case Part():
                try:
                    self._intake.take(message)
                except (OSError, ValueError) as error:
                    log.error("%s of %s is lost: %s", message.path, place.here.host, error)
            case Over():
                self._over(place, message)
            case Cut():
                place.cut = message.reason
                log.warning("a place on %s is gone: %s", place.here.host, message.reason)
            case _:
                pass

    def _over(self, place: Place, over: Over) -> None:
        self._known(place, over.container_id)
        if place.cut:
            over = msgspec.structs.replace(over, kind=ContainerEndKind.PREEMPTED, detail=place.cut)
        if place.container_id == over.container_id:
            place.container_id = ""
            place.launch = None
        self._owner.over(over)

    def _known(self, place: Place, container_id: str) -> None:
        place.ended = container_id
        place.send(Known(container_id=container_id))
        place.here = msgspec.structs.replace(place.here, container_id="", over=None)
        place.wait(SPARE_S, self._unused)

    def _left(self, place: Place) -> None:
        """Its connection has ended."""
        if place.leaving:
            self._places.pop(place.here.holder, None)
        elif place.cut:
            self._gone(place)
        elif not self._dismissing:
            place.wait(self._lease_s, self._gone)

    def _gone(self, place: Place) -> None:
        self._places.pop(place.here.holder, None)
        if place.cut:
            self._owner.lost(place, place.cut, ContainerEndKind.PREEMPTED)
            return
        reason = f"{place.here.host} has not been heard of for {self._lease_s:g} s"
        self._owner.lost(place, reason, ContainerEndKind.NODE_LOST)

    def _unused(self, place: Place) -> None:
        if not place.container_id:
            self._send_home(place)

    def _send_home(self, place: Place) -> None:
        place.leaving = True
        place.send(Leave())

    def _welcome(self) -> Welcome:
        return Welcome(address=self._address, lease_s=self._lease_s)

"""Connections of a simulated world. What is sent arrives later, in order; when a connection breaks,
some of what is on its way is lost.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from greenlet import GreenletExit

from howdah.spark.feed import controller_connection as control
from howdah.spark.feed.connections import DataConnection
from howdah.spark.feed.controller_connection import PROGRESS_S
from howdah.spark.feed.messages import Endpoint
from howdah.spark.feed.tasks import feeder_client
from howdah.wire.tls import PeerRole
from tests.spark.feed.simulation.actors import Actor, Actors, Calls, Event, drive

if TYPE_CHECKING:
    from tests.spark.feed.simulation.world import World

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
world: World = None  # type: ignore[assignment]
"""The present one: the feed's classes are made by code that knows nothing of it."""


class Channel:
    """One end of a control connection, as `howdah.wire.channel.Channel`."""

    problem = ""

    def __init__(self, actors: Actors, role: PeerRole) -> None:
        self.peer = SimpleNamespace(role=role)
        self.closed = False
        self.inbox: deque[Any] = deque()
        self.ended = False
        """Nothing comes any more, but what is in the inbox."""
        self.reader: Actor | None = None
        self.other: Channel
        self._actors = actors

    def send(self, message: Any) -> None:
        if not self.closed and not self.other.ended:
            self.other.inbox.append(message)
            self._actors.wake(self.other.reader)

    def next(self, seconds: float | None = None) -> Any:
        """The next message; None at the end."""
        while not self.inbox:
            if self.ended:
                self.closed = True
                return None
            self.reader = self._actors.current
            if not self._actors.block(seconds):
                raise TimeoutError
        return self.inbox.popleft()

    async def receive(self) -> Any:
        return self.next()

    async def dispatch(self, handle: Callable[[Any], None]) -> None:
        while (message := self.next()) is not None:
            handle(message)

    def close(self) -> None:
        """What was sent arrives."""
        self.closed = True
        self.inbox.clear()
        for end in (self, self.other):
            end.ended = True
            self._actors.wake(end.reader)

    def cut(self, chance: random.Random) -> None:
        """Some of what is on its way is lost."""
        for end in (self, self.other):
            for _ in range(chance.randint(0, len(end.inbox))):
                end.inbox.pop()
            end.ended = True
            self._actors.wake(end.reader)


class ControlChannel(Channel):
    """A trainer's end of the one to the controller; its thread does what others ask it to, too."""

    control: Control

    async def dispatch(self, handle: Callable[[Any], None]) -> None:
        control, calls, actors = self.control, self.control.calls, self._actors
        look = actors.now + PROGRESS_S
        self.reader = calls.reader = actors.current
        while True:
            if self.ended and not self.inbox:
                self.closed = True
                return
            if calls and (not self.inbox or actors.chance.random() < 0.5):
                calls.one()
            elif self.inbox:
                handle(self.inbox.popleft())
            elif not actors.block(max(0.0, look - actors.now)):
                control.progress()
                look = actors.now + PROGRESS_S


def channels(actors: Actors, role: PeerRole) -> tuple[ControlChannel, Channel]:
    """Both ends: of who dials, in that role, and of who is dialled."""
    here, there = ControlChannel(actors, PeerRole.COORDINATOR), Channel(actors, role)
    here.other, there.other = there, here
    return here, there


class Control(control.Control):
    """A trainer's connection to the controller."""

    _ended = False

    @property
    def calls(self) -> Calls:
        return self._loop  # type: ignore[return-value]

    def progress(self) -> None:
        for state in self._states():
            state.progress()

    def close(self, last_message: Any = None) -> None:
        if self._closed:
            return
        self._closed = True
        self._call(self._say_last, last_message)
        end = world.actors.now + control.LAST_MESSAGE_S
        while last_message is not None and not self._heard._set and world.actors.now < end:  # type: ignore[attr-defined]
            world.actors.block(0.1)
        end = world.actors.now + control.LAST_MESSAGE_S
        self._call(self._part)
        while not self._ended and world.actors.now < end:
            world.actors.block(0.1)
        actor = self._thread.actor  # type: ignore[attr-defined]
        if actor is not None:
            world.actors.kill(actor)

    def _say_last(self, last_message: Any) -> None:
        self._last_message = last_message
        if last_message is not None and self._channel is not None:
            self._channel.send(last_message)

    def _part(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._ended = True
        raise GreenletExit

    def _main(self) -> None:
        drive(self._keep())


async def connect(*address: Any, **options: Any) -> Channel:
    """`howdah.wire.channel.connect`."""
    return world.reach()


async def sleep(seconds: float) -> None:
    """`asyncio.sleep`."""
    world.actors.block(seconds)


async def wait_for(event: Event, seconds: float) -> None:
    """`asyncio.wait_for`."""
    event.blocks(seconds)


# -- rows ------------------------------------------------------------------------------------------


class Rows(DataConnection):
    """A trainer's end of a data connection."""

    def __init__(self, actors: Actors, feeder: Feeder, room: int) -> None:
        self.closed = False
        self.feeder = feeder
        self.ended = False
        """Nothing comes any more, but what is on its way."""
        self.waiting = 0
        """Bytes on their way."""
        self.reader: Actor | None = None
        self._actors = actors
        self._room = room
        self._coming: deque[Any] = deque()

    @property
    def full(self) -> bool:
        return self.waiting >= self._room

    def put(self, data: Any) -> None:
        self._coming.append(data)
        if isinstance(data, memoryview):
            self.waiting += len(data)
        self._actors.wake(self.reader)

    # As `howdah.spark.feed.connections` has it.

    def read_into(self, view: memoryview) -> None:
        view = view.cast("B")
        while view:
            data = self._first()
            size = min(len(data), len(view))
            view[:size] = data[:size]
            view = view[size:]
            if size == len(data):
                self._coming.popleft()
            else:
                self._coming[0] = data[size:]
            self.waiting -= size
            self._actors.wake(self.feeder.owner)

    def receive(self, types: Any) -> Any:
        message = self._first()
        self._coming.popleft()
        return message

    def send(self, message: Any, then: Any = b"") -> None:
        if self.closed or self.feeder.gone:
            raise BrokenPipeError
        self.feeder.hear(message)

    def end(self) -> None:
        self.closed = self.ended = True
        self.feeder.lose()
        self._actors.wake(self.reader)

    def close(self) -> None:
        self.end()

    def cut(self, chance: random.Random) -> None:
        """Some of what is on its way is lost."""
        for _ in range(chance.randint(0, len(self._coming))):
            self._coming.pop()
        self.feeder.cut(chance)
        self.end()

    def _first(self) -> Any:
        while not self._coming:
            if self.ended:
                raise EOFError
            self.reader = self._actors.current
            self._actors.block()
        return self._coming[0]


class Feeder(feeder_client.TrainerConnection):
    """A feeder's end of a data connection."""

    def __init__(self, endpoint: Endpoint, access: feeder_client.FeederAccess, host: str) -> None:
        actors = world.actors
        self.rank = endpoint.rank
        self.answers = deque()
        self.taken = None
        self.load = None
        self.gone = False
        """Closed by this side."""
        self.owner = actors.current
        self._actors = actors
        self._said: deque[Any] = deque()
        self._lost_it = False
        self._rows = world.dial(self, endpoint)

    def hear(self, message: Any) -> None:
        self._said.append(message)
        self._actors.wake(self.owner)

    def lose(self) -> None:
        self._lost_it = True
        self._actors.wake(self.owner)

    def cut(self, chance: random.Random) -> None:
        for _ in range(chance.randint(0, len(self._said))):
            self._said.pop()

    # As `howdah.spark.feed.tasks.feeder_client` has it.

    def send(self, message: Any) -> None:
        self._put(message)

    def stream(self, schema: pa.Schema) -> Any:
        return Stream(self, schema)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        # In two pieces: it may end between them.
        for piece in (view[: len(view) // 2], view[len(view) // 2 :]):
            while self._rows.full and not self._lost_it:
                self._wait(0, None)
            self._put(piece)
        return len(view)

    def look(self) -> None:
        while self._said:
            self._handle(self._said.popleft())
        if self._lost_it:
            raise ConnectionError(f"rank {self.rank} has closed the connection")

    def close(self) -> None:
        self.gone = self._rows.ended = True
        self._actors.wake(self._rows.reader)

    def _put(self, data: Any) -> None:
        if self._lost_it:
            try:
                self.look()
            except ConnectionError:
                pass
            raise ConnectionError(f"the connection to rank {self.rank} broke")
        self._rows.put(data)

    def _wait(self, events: int, timeout_s: float | None) -> bool:
        woken = bool(self._said) or self._lost_it or self._actors.block(timeout_s)
        if self._said or self._lost_it:
            self.look()
        return woken


class Stream:
    """An Arrow IPC stream on its way."""

    def __init__(self, feeder: Feeder, schema: pa.Schema) -> None:
        self._feeder = feeder
        self._schema: pa.Schema | None = schema

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._begin()
        self._feeder.write(batch.serialize())

    def close(self) -> None:
        self._begin()
        self._feeder.write(END_OF_STREAM)

    def _begin(self) -> None:
        if self._schema is not None:
            schema, self._schema = self._schema, None
            self._feeder.write(schema.serialize())


# -- questions -------------------------------------------------------------------------------------


class Asking(feeder_client.ControllerConnection):
    """A feeder's connection to the controller."""

    @classmethod
    def of(cls, access: feeder_client.FeederAccess) -> Asking:
        return cls(access)

    def __init__(self, access: feeder_client.FeederAccess) -> None:
        self._channel: Channel | None = None
        self._actors = world.actors

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def _send(self, message: Any) -> None:
        if self._channel is None:
            self._channel = world.ask()
        if self._channel.ended and world.chance.random() < 0.5:
            raise ConnectionError("the connection broke")
        self._channel.send(message)

    def _answer(self) -> Any:
        assert self._channel is not None
        answer = self._channel.next(feeder_client.LOST_S)
        if answer is None:
            raise ConnectionError("the driver program has closed the connection")
        return answer


__all__ = ["Asking", "Channel", "Feeder", "Rows", "channels"]

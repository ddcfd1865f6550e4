"""What the master of a cluster's feeds hears from trainers and feeders, and what it answers.

Everything runs on the master's loop, under `ControlServer.changed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from howdah.spark.feed.messages import (
    Again,
    Broken,
    Close,
    Counted,
    Enough,
    EpochFed,
    Fed,
    FromControl,
    GoOn,
    HandedOut,
    Heard,
    Held,
    Hello,
    HowFar,
    Kept,
    Open,
    Permit,
    Place,
    Position,
    Purpose,
    Returned,
    Waits,
)
from howdah.spark.feed.plan import moved
from howdah.spark.feed.run_state import RunState
from howdah.wire.channel import Channel
from howdah.wire.sockets import Listener
from howdah.wire.tls import PeerRole

TAKERS = frozenset({"chief", "master", "worker"})
"""Roles whose ranks are fed."""
AGAIN_S = 0.1
"""Feeders ask again after so long while the gang forms anew."""
ANSWER_S = 10.0
"""So long a feeder's question stays open; then it asks again, or would take the driver for gone."""
SCORERS_ENDED = "the cluster that scores these rows has ended"
SUPERSEDED = "a later attempt of this task, or another query, has the partition"
UNORDERED = (
    "{} rows of partition {} had been taken when its task failed, and Spark does not give the rows of "
    "this plan in the same order again: to go on would lose some and repeat others. Materialise the "
    "rows first, df.write.parquet(path) and spark.read.parquet(path), or df.checkpoint()"
)


_Partition = tuple[int, int, int]
"""Run, epoch and partition."""


class Trainer:
    """A trainer process, as the master knows it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.channel: Channel[Any] | None = None
        self.positions: dict[str, Position] = {}
        self.checkpoint = False
        """There was a checkpoint when its program began."""
        self.asks: set[str] = set()
        self.readers: dict[str, list[int]] = {}
        """Of these feeds, only those ranks read rows, its program says."""
        self.waits: dict[str, int] = {}
        """By feed: it waits for a run after this one."""
        self.enough: set[str] = set()
        """Feeds its program has stopped: it takes nothing of any run of them."""
        self.returned = False
        """Its function has ended: it takes no more rows."""
        self.content = False
        """By returning, not by raising."""
        self.kept: dict[_Partition, int] = {}
        """How much it had of partitions when it returned."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A training function has raised."""

    rank: int
    error: str
    trace: str
    generation: int
    after_loss: bool = False
    """Another rank's process had been gone before: this one may only have noticed it."""


class ControlServer:
    """With trainers and feeders, on the master's loop. `howdah.spark.feed.master` has the rest."""

    def __init__(self, trainers: int, takers: frozenset[str] = TAKERS) -> None:
        self.expected = trainers
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self.generation: int = 0
        """The newest that a trainer has named."""
        self.trainers: dict[int, Trainer] = {}
        """Of that generation, by rank."""
        self.failures: list[Failure] = []
        self.runs: dict[int, RunState] = {}
        self.ended: set[str] = set()
        """Feeds that have been ended; "" for all."""
        self.moved: float = time.monotonic()
        """When anything last went on: what time-outs count from."""
        self.trouble: Callable[[], str | None] = str
        """Why nothing can be scored any more; empty while it can, None while that can't be told.
        Called with `changed` held."""
        self._takers = takers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._server: Listener | None = None
        self._channels: set[Channel[Any]] = set()
        self._kept: dict[_Partition, dict[int, int]] = {}
        self._asked: dict[_Partition, asyncio.Event] = {}

    def complete(self) -> bool:
        """Whether all trainers of the newest generation are there."""
        with self.changed:
            return len(self.trainers) >= self.expected

    def connected(self) -> bool:
        """Whether all of them are connected now, but for those whose function has returned."""
        with self.changed:
            return self.complete() and all(
                trainer.content or (trainer.channel is not None and not trainer.channel.closed)
                for trainer in self.trainers.values()
            )

    def talking(self) -> bool:
        """Whether any of them is still connected: what it said last may not have been heard yet."""
        with self.changed:
            channels = [trainer.channel for trainer in self.trainers.values()]
            return any(channel is not None and not channel.closed for channel in channels)

    # -- trainers and feeders ----------------------------------------------------------------------

    async def _talk(self, channel: Channel[Any]) -> None:
        self._channels.add(channel)
        try:
            if channel.peer.role is PeerRole.FEEDER:
                await self._hear_feeder(channel)
            else:
                await self._hear_trainer(channel)
        finally:
            self._channels.discard(channel)

    async def _hear_trainer(self, channel: Channel[Any]) -> None:
        trainer: Trainer | None = None

        def handle(message: FromControl) -> None:
            nonlocal trainer
            with self.changed:
                if isinstance(message, Hello):
                    trainer = self._greet(channel, message) or trainer
                elif trainer is not None and self._counts(trainer, channel, message):
                    self._note(trainer, message)
                self.changed.notify_all()
            if isinstance(message, Returned | Broken):
                channel.send(Heard())

        await channel.dispatch(handle)
        with self.changed:
            if trainer is not None and trainer.channel is channel:
                trainer.channel = None
            self.changed.notify_all()

    def _greet(self, channel: Channel[Any], hello: Hello) -> Trainer | None:
        place = hello.place
        if place.generation < self.generation:
            channel.close()  # of a gang that is over
            return None
        if place.generation > self.generation:
            self.generation = place.generation
            self.trainers = {}
        known = self.trainers.get(place.rank)
        new = known is None
        if known is None:
            known = Trainer(place)
            if place.role not in self._takers:
                return known
            self.trainers[place.rank] = known
        again = known.channel is not channel
        known.place, known.channel = place, channel
        known.positions.update(hello.positions)
        known.checkpoint |= hello.checkpoint
        known.asks.update(hello.asks)
        known.readers.update(hello.readers)
        for run in self.runs.values():
            if not run.closed and run.feed in known.asks and run.join(place.rank):
                again, new = True, False
        if again:
            self._tell_story(known, channel, new=new)
        self.moved = time.monotonic()
        return known

    def _counts(self, trainer: Trainer, channel: Channel[Any], message: FromControl) -> bool:
        """Whether it comes from a process of the present gang, or says why one has ended.

        What is still under way over a connection that was cut is older than what the next one has
        said already, and that says all of it anew.
        """
        if isinstance(message, Broken):
            return True
        return self.trainers.get(trainer.place.rank) is trainer and trainer.channel is channel

    def _tell_story(self, trainer: Trainer, channel: Channel[Any], *, new: bool) -> None:
        """What a trainer that has come (back) may have missed."""
        for feed in sorted(self.ended):
            channel.send(Close(feed=feed, end=True))
        for run in self.runs.values():
            first = (run.readers or {}).get(trainer.place.rank)
            if run.purpose is Purpose.SCORE:
                first = 0
            elif new or first is None or run.generation != self.generation:
                continue  # the cluster announces it once all are there that read it
            if run.closed:
                continue
            channel.send(self._opening(run))
            for book in run.epochs.values():
                at = {"feed": run.feed, "run": run.number, "epoch": book.number}
                if book.fed:
                    channel.send(EpochFed(**at))
                if book.number < first:
                    channel.send(Permit(**at, batches=0, final=True))
                elif book.allowed.batches or book.allowed.final:
                    channel.send(run.permission(book))

    def _note(self, trainer: Trainer, message: Any) -> None:
        rank = trainer.place.rank
        match message:
            case Held():
                if (run := self.runs.get(message.run)) is not None and not run.closed:
                    run.note_held(rank, message)
                    self._permit(run, message.epoch)
            case HandedOut():
                if (run := self.runs.get(message.run)) is not None:
                    run.note_handed(rank, message)
                    if message.done and not run.closed:
                        self._permit(run, message.epoch)
            case Counted():
                if (run := self.runs.get(message.run)) is not None:
                    run.counted.add(rank)
            case Enough():
                trainer.enough.add(message.feed)
                for run in self.runs.values():
                    if run.feed == message.feed:
                        run.stopped.add(rank)
            case Waits():
                trainer.waits[message.feed] = message.run
                return
            case Broken() if not trainer.returned:  # else it is said again
                trainer.returned = True
                self.failures.append(
                    Failure(
                        rank=rank,
                        error=message.error,
                        trace=message.trace,
                        generation=trainer.place.generation,
                        after_loss=self._lost(),
                    )
                )
            case Returned():
                trainer.returned = trainer.content = True
                for kept in message.kept:
                    trainer.kept[kept.run, kept.epoch, kept.partition] = kept.upto
                for run in self.runs.values():
                    run.returned.add(rank)
                    for epoch in () if run.closed else list(run.epochs):
                        self._permit(run, epoch)
            case Kept():
                key = (message.run, message.epoch, message.partition)
                if key in self._kept:
                    self._kept[key][rank] = message.upto
                    self._asked[key].set()
                return
        self.moved = time.monotonic()

    def _lost(self) -> bool:
        """Whether the process of a rank has gone without a word."""
        return any(each.channel is None and not each.returned for each in self.trainers.values())

    def _permit(self, run: RunState, epoch: int) -> None:
        permit = run.permit(epoch) if self.complete() else None
        if permit is not None:
            self._tell(dict.fromkeys(run.readers or (), permit))

    async def _hear_feeder(self, channel: Channel[Any]) -> None:
        while (message := await channel.receive()) is not None:
            if isinstance(message, Fed):
                with self.changed:
                    run = self.runs.get(message.run)
                    if run is not None and not run.superseded(message):
                        run.note_sent(message)
                        self.moved = time.monotonic()
                        self.changed.notify_all()
            else:
                channel.send(await self._answer(message))

    async def _answer(self, again: Again) -> GoOn:
        with self.changed:
            run = self.runs.get(again.run)
            if run is None or run.closed:
                if run is not None and run.purpose is Purpose.SCORE:
                    return GoOn(start=0, problem=SCORERS_ENDED)
                return GoOn(start=0, whole=True)
            if run.purpose is Purpose.SCORE and (trouble := self.trouble()) != "":
                # Nobody else looks: a scoring query is Spark's, not a call of the cluster's.
                wait_s = AGAIN_S if trouble is None else 0.0
                return GoOn(start=0, problem=trouble or "", wait_s=wait_s)
            if run.superseded(again):
                return GoOn(start=0, problem=SUPERSEDED)
            if not self._feeds(run):
                return GoOn(start=0, wait_s=AGAIN_S)
            run.epoch(again.epoch).enough.update(again.enough)
            if again.rank >= 0:
                run.note_sent(again)
                self.moved = time.monotonic()
                self.changed.notify_all()
            if not self.connected():
                return GoOn(start=0, wait_s=AGAIN_S)
            retried = run.retried(again)
            asked = again.rank < 0 and run.begin(again)
        start = 0
        if asked and run.purpose is Purpose.TRAIN:
            found = await self._how_far(run, again)
            if found is None:
                return GoOn(start=0, wait_s=AGAIN_S)
            start = found
            if start > 0 and retried and not run.ordered:
                return GoOn(start=0, problem=UNORDERED.format(start, again.partition))
        with self.changed:
            if run.superseded(again) or not self._feeds(run):
                return GoOn(start=0, wait_s=AGAIN_S)  # meanwhile
            if again.rank < 0 and run.moved(again, max(start, again.leaves_out)):
                return GoOn(start=0, problem=moved(again.feed, again.partition))
            if asked:
                run.epoch(again.epoch).send_again(again.part, max(start, again.offset))
            places = {
                rank: each.place
                for rank, each in self.trainers.items()
                if not each.returned and run.takes(rank, again.epoch)
            }
            if not places and self.complete():
                if run.purpose is Purpose.SCORE:
                    return GoOn(start=0, problem=SCORERS_ENDED)
                return GoOn(start=0, whole=True)
            chosen = run.choose(again, places)
            if not chosen:
                return GoOn(start=0, wait_s=AGAIN_S)
            known = run.layout.get((again.epoch, again.part))
            length = known.length if known is not None and known.leaves_out else -1
            return GoOn(start=start, places=chosen, trainers=len(places), length=length)

    def _feeds(self, run: RunState) -> bool:
        """Whether its rows go to the present gang: one that has formed anew begins with it when
        its tasks are others."""
        return run.purpose is Purpose.SCORE or run.generation == self.generation

    async def _how_far(self, run: RunState, again: Again) -> int | None:
        """Offset after the last row that any trainer has of the partition; None if one that must be
        asked says nothing yet, or it, or the run, is gone meanwhile."""
        deadline = time.monotonic() + ANSWER_S
        key = (again.run, again.epoch, again.partition)
        with self.changed:
            said = self._kept[key] = {}
            event = self._asked[key] = asyncio.Event()
            asked = {r: each for r, each in self.trainers.items() if each.channel is not None}
            gone = [each for rank, each in self.trainers.items() if rank not in asked]
            upto = max((each.kept.get(key, 0) for each in gone), default=0)
            self._tell_all(
                HowFar(
                    feed=again.feed,
                    run=again.run,
                    epoch=again.epoch,
                    partition=again.partition,
                    attempt=again.attempt,
                )
            )
        try:
            # One that does not say has it, for all we know: it may just be compiling something.
            while not set(asked) <= set(said):
                if run.closed or any(self.trainers.get(r) is not each for r, each in asked.items()):
                    return None
                if any(each.channel is None for r, each in asked.items() if r not in said):
                    return None
                if time.monotonic() > deadline:
                    return None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), AGAIN_S)
                event.clear()
        finally:
            if self._kept.get(key) is said:
                del self._kept[key], self._asked[key]
        return max(upto, *said.values()) if said else upto

    # -- inside ------------------------------------------------------------------------------------

    def _opening(self, run: RunState) -> Open:
        return Open(
            run=run.number,
            purpose=run.purpose,
            options=run.options,
            first_epoch=run.first_epoch,
            cached_epoch=run.cached_epoch,
            readers=len(run.readers or ()),
        )

    def _tell_all(self, message: msgspec.Struct) -> None:
        self._tell(dict.fromkeys(self.trainers, message))

    def _tell(self, messages: Mapping[int, msgspec.Struct]) -> None:
        pairs = [
            (self.trainers[rank], message)
            for rank, message in messages.items()
            if rank in self.trainers
        ]

        def send() -> None:
            for trainer, message in pairs:
                if trainer.channel is not None:
                    trainer.channel.send(message)

        self._soon(send)

    def _soon(self, call: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None:
            return
        if threading.current_thread() is self._thread:
            call()
        else:
            loop.call_soon_threadsafe(call)

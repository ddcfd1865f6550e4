"""What the controller of a cluster's feeds hears from trainers and feeders, and what it answers.

Everything runs on the controller's loop, under `ControlServer.changed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from howdah.spark.feed.control.plan import moved
from howdah.spark.feed.control.run_state import RunState
from howdah.spark.feed.messages import (
    AssignmentRequest,
    AssignmentResponse,
    Available,
    AwaitingRows,
    Broken,
    Close,
    Counted,
    Credit,
    Endpoint,
    Enough,
    EpochFed,
    Fed,
    FromControl,
    HandedOut,
    Heard,
    OffsetQuery,
    OffsetReply,
    OfRun,
    Open,
    Position,
    Purpose,
    Returned,
    TrainerHello,
)
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
    "this plan in the same order again: to go on would lose some and repeat others. Without "
    "materialise=False Spark keeps the rows first (over Connect from Spark 4 on); or write them, "
    "df.write.parquet(path) and spark.read.parquet(path)"
)


_Partition = tuple[str, int, int, int]
"""Feed, run, epoch and partition."""


class _Question:
    """How far a partition came, asked of all trainers at once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.said: dict[int, int] = {}
        """By rank."""
        self.changed = asyncio.Event()


def _partition(message: OffsetReply | AssignmentRequest) -> _Partition:
    return message.feed, message.run, message.epoch, message.partition


class TrainerState:
    """A trainer process, as the controller knows it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.channel: Channel[Any] | None = None
        self.connection = 0
        """`TrainerHello.connection` of the channel."""
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
        self.offsets: dict[_Partition, int] = {}
        """How much it had of partitions when it returned."""


class RunFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A training function has raised."""

    rank: int
    error: str
    trace: str
    generation: int
    sent: bytes = b""
    """See `howdah.spark.feed.messages.Broken`."""
    after_loss: bool = False
    """Another rank's process had been gone before: this one may only have noticed it."""


class ControlServer:
    """With trainers and feeders, on the controller's loop. `howdah.spark.feed.control.feed_controller` has the rest."""

    def __init__(self, trainers: int, takers: frozenset[str] = TAKERS) -> None:
        self.expected = trainers
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self.generation: int = 0
        """The newest that a trainer has named."""
        self.trainers: dict[int, TrainerState] = {}
        """Of that generation, by rank."""
        self.failures: list[RunFailure] = []
        self.runs: dict[tuple[str, int], RunState] = {}
        """By feed and number."""
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
        self._questions: dict[_Partition, _Question] = {}
        self._numbers = itertools.count(1)

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
        trainer: TrainerState | None = None

        def handle(message: FromControl) -> None:
            nonlocal trainer
            with self.changed:
                if isinstance(message, TrainerHello):
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

    def _greet(self, channel: Channel[Any], hello: TrainerHello) -> TrainerState | None:
        endpoint = hello.endpoint
        if endpoint.generation < self.generation:
            channel.close()  # of a gang that is over
            return None
        if endpoint.generation > self.generation:
            self.generation = endpoint.generation
            self.trainers = {}
        known = self.trainers.get(endpoint.rank)
        if known is not None and known.endpoint == endpoint and hello.connection < known.connection:
            channel.close()  # it was cut, and the process has dialled again since
            return None
        new = known is None
        if known is None:
            known = TrainerState(endpoint)
            if endpoint.role not in self._takers:
                return known
            self.trainers[endpoint.rank] = known
        again = known.channel is not channel
        known.endpoint, known.channel = endpoint, channel
        known.connection = hello.connection
        known.positions.update(hello.positions)
        known.checkpoint |= hello.checkpoint
        known.asks.update(hello.asks)
        known.readers.update(hello.readers)
        for run in self.runs.values():
            if not run.closed and run.feed in known.asks and run.join(endpoint.rank):
                again, new = True, False
        if again:
            self._tell_story(known, channel, new=new)
        self.moved = time.monotonic()
        return known

    def _counts(self, trainer: TrainerState, channel: Channel[Any], message: FromControl) -> bool:
        """Whether it comes from a process of the present gang, or says why one has ended.

        What is still under way over a connection that was cut is older than what the next one has
        said already, and that says all of it again.
        """
        if isinstance(message, Broken):
            return True
        return self.trainers.get(trainer.endpoint.rank) is trainer and trainer.channel is channel

    def _tell_story(self, trainer: TrainerState, channel: Channel[Any], *, new: bool) -> None:
        """What a trainer that has come (back) may have missed."""
        for feed in sorted(self.ended):
            channel.send(Close(feed=feed, end=True))
        for run in self.runs.values():
            first = (run.readers or {}).get(trainer.endpoint.rank)
            if run.purpose is Purpose.SCORE:
                first = 0
            elif new or first is None or run.generation != self.generation:
                continue  # the cluster announces it once all are there that read it
            if run.closed:
                continue
            channel.send(self._opening(run))
            for epoch in run.epochs.values():
                at = {"feed": run.feed, "run": run.number, "epoch": epoch.number}
                if epoch.fed:
                    channel.send(EpochFed(**at))
                if epoch.number < first:
                    channel.send(Credit(**at, batches=0, final=True))
                elif epoch.allowed.batches or epoch.allowed.final:
                    channel.send(run.current_credit(epoch))

    def _note(self, trainer: TrainerState, message: Any) -> None:
        rank = trainer.endpoint.rank
        match message:
            case Available():
                if (run := self._run(message)) is not None and not run.closed:
                    run.note_available(rank, message)
                    self._send_credit(run, message.epoch)
            case HandedOut():
                if (run := self._run(message)) is not None:
                    run.note_handed(rank, message)
                    if message.done and not run.closed:
                        self._send_credit(run, message.epoch)
            case Counted():
                if (run := self._run(message)) is not None:
                    run.counted.add(rank)
            case Enough():
                trainer.enough.add(message.feed)
                for run in self.runs.values():
                    if run.feed == message.feed:
                        run.stopped.add(rank)
            case AwaitingRows():
                trainer.waits[message.feed] = message.run
                return
            case Broken() if not trainer.returned:  # else it is said again
                trainer.returned = True
                self.failures.append(
                    RunFailure(
                        rank=rank,
                        error=message.error,
                        trace=message.trace,
                        sent=message.sent,
                        generation=trainer.endpoint.generation,
                        after_loss=self._lost(),
                    )
                )
            case Returned():
                trainer.returned = trainer.content = True
                for reply in message.offsets:
                    trainer.offsets[_partition(reply)] = reply.upto
                for run in self.runs.values():
                    run.returned.add(rank)
                    for epoch in () if run.closed else list(run.epochs):
                        self._send_credit(run, epoch)
            case OffsetReply():
                question = self._questions.get(_partition(message))
                # An answer to one that was given up says only that the next is still to be heard: it
                # would end the connection of a feeder that had begun meanwhile.
                if question is not None and question.number == message.question:
                    question.said[rank] = message.upto
                    question.changed.set()
                return
        self.moved = time.monotonic()

    def _lost(self) -> bool:
        """Whether the process of a rank has gone without a word."""
        return any(each.channel is None and not each.returned for each in self.trainers.values())

    def _send_credit(self, run: RunState, epoch: int) -> None:
        credit = run.credit(epoch) if self.complete() else None
        if credit is not None:
            self._tell(dict.fromkeys(run.readers or (), credit))

    async def _hear_feeder(self, channel: Channel[Any]) -> None:
        while (message := await channel.receive()) is not None:
            if isinstance(message, Fed):
                with self.changed:
                    run = self._run(message)
                    if run is not None and run.superseded(message):
                        run.note_late(message)
                    elif run is not None:
                        run.note_sent(message)
                        self.moved = time.monotonic()
                        self.changed.notify_all()
            else:
                channel.send(await self._answer(message))

    async def _answer(self, request: AssignmentRequest) -> AssignmentResponse:
        with self.changed:
            run = self._run(request)
            if run is None or run.closed:
                if run is not None and run.purpose is Purpose.SCORE:
                    return AssignmentResponse(start=0, problem=SCORERS_ENDED)
                return AssignmentResponse(start=0, whole=True)
            if run.purpose is Purpose.SCORE and (trouble := self.trouble()) != "":
                # Nobody else looks: a scoring query is Spark's, not a call of the cluster's.
                wait_s = AGAIN_S if trouble is None else 0.0
                return AssignmentResponse(start=0, problem=trouble or "", wait_s=wait_s)
            if run.superseded(request):
                return AssignmentResponse(start=0, problem=SUPERSEDED)
            if not self._feeds(run):
                return AssignmentResponse(start=0, wait_s=AGAIN_S)
            run.epoch(request.epoch).enough.update(request.enough)
            if request.rank >= 0:
                run.note_sent(request)
                self.moved = time.monotonic()
                self.changed.notify_all()
            if not self.connected():
                return AssignmentResponse(start=0, wait_s=AGAIN_S)
            retried = run.retried(request)
            asked = request.rank < 0 and run.begin(request)
        start = 0
        if asked and run.purpose is Purpose.TRAIN:
            found = await self._last_offset(run, request)
            if found is None:
                return AssignmentResponse(start=0, wait_s=AGAIN_S)
            start = found
            if start > 0 and retried and not run.ordered:
                return AssignmentResponse(
                    start=0, problem=UNORDERED.format(start, request.partition)
                )
        with self.changed:
            if run.superseded(request) or not self._feeds(run):
                return AssignmentResponse(start=0, wait_s=AGAIN_S)  # meanwhile
            if request.rank < 0 and run.moved(request, max(start, request.leaves_out)):
                return AssignmentResponse(start=0, problem=moved(request.feed, request.partition))
            if asked:
                run.epoch(request.epoch).send_again(request.part, max(start, request.offset))
            endpoints = {
                rank: each.endpoint
                for rank, each in self.trainers.items()
                if not each.returned and run.takes(rank, request.epoch)
            }
            if not endpoints and self.complete():
                if run.purpose is Purpose.SCORE:
                    return AssignmentResponse(start=0, problem=SCORERS_ENDED)
                return AssignmentResponse(start=0, whole=True)
            chosen = run.choose(request, endpoints)
            if not chosen:
                return AssignmentResponse(start=0, wait_s=AGAIN_S)
            known = run.layout.get((request.epoch, request.part))
            length = known.length if known is not None and known.leaves_out else -1
            return AssignmentResponse(
                start=start,
                endpoints=chosen,
                trainers=len(endpoints),
                asked=asked,
                length=length,
            )

    def _feeds(self, run: RunState) -> bool:
        """Whether its rows go to the present gang: one that has restarted begins with it when
        its tasks are others."""
        return run.purpose is Purpose.SCORE or run.generation == self.generation

    async def _last_offset(self, run: RunState, request: AssignmentRequest) -> int | None:
        """Offset after the last row that any trainer has of the partition; None if one that must be
        asked says nothing yet, or it, or the run, is gone meanwhile."""
        deadline = time.monotonic() + ANSWER_S
        key = _partition(request)
        with self.changed:
            question = self._questions[key] = _Question(next(self._numbers))
            said = question.said
            asked = {r: each for r, each in self.trainers.items() if each.channel is not None}
            gone = [each for rank, each in self.trainers.items() if rank not in asked]
            upto = max((each.offsets.get(key, 0) for each in gone), default=0)
            self._tell_all(
                OffsetQuery(
                    feed=request.feed,
                    run=request.run,
                    epoch=request.epoch,
                    partition=request.partition,
                    attempt=request.attempt,
                    question=question.number,
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
                    await asyncio.wait_for(question.changed.wait(), AGAIN_S)
                question.changed.clear()
        finally:
            if self._questions.get(key) is question:
                del self._questions[key]
        return max(upto, *said.values()) if said else upto

    def _run(self, message: OfRun) -> RunState | None:
        return self.runs.get((message.feed, message.run))

    def _opening(self, run: RunState) -> Open:
        return Open(
            run=run.number,
            purpose=run.purpose,
            options=run.options,
            first_epoch=run.first_epoch,
            cached_epoch=run.cached_epoch,
            readers=len(run.readers or ()),
            materialised=run.materialised,
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

"""The driver's side of all feeds of one cluster: a thread with an event loop.

Trainers dial it and say what they hold; feeders ask it where to go. It decides by
`howdah.spark.feed.books` and `howdah.spark.feed.plan`, and tells `howdah.spark.cluster`, which waits
in the user's threads, by one condition variable.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from howdah.spark.feed.books import RunBook
from howdah.spark.feed.messages import (
    Abort,
    Again,
    Broken,
    Close,
    Enough,
    EpochFed,
    Fed,
    FromControl,
    FromFeederControl,
    GoOn,
    HandedOut,
    Held,
    Hello,
    HowFar,
    Kept,
    Open,
    Options,
    Place,
    Position,
    Purpose,
    Returned,
)
from howdah.wire.channel import Channel, serve
from howdah.wire.tls import PeerRole, server_context

TAKERS = frozenset({"chief", "master", "worker"})
"""Roles whose ranks are fed."""
HOW_FAR_S = 15.0
"""A trainer that does not say for so long what it has of a partition has it not."""
AGAIN_S = 0.1
"""Feeders ask again after so long while the gang forms anew."""


class Trainer:
    """A trainer process, as the master knows it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.channel: Channel[Any] | None = None
        self.positions: dict[str, Position] = {}
        self.asks: set[str] = set()
        self.returned = False
        """Its function has ended: it takes no more rows."""
        self.content = False
        """By returning, not by raising."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A training function has raised."""

    rank: int
    error: str
    trace: str
    generation: int
    after_loss: bool = False
    """Another rank's process had been gone before: this one may only have noticed it."""


class Master:
    """See the module. Everything without an underscore may be called from any thread.

    `changed` guards all that is read from outside; it is notified at every change.
    """

    def __init__(self, trainers: int, takers: frozenset[str] = TAKERS) -> None:
        self.expected = trainers
        self.changed = threading.Condition(threading.RLock())
        self.generation = 0
        """The newest that a trainer has named."""
        self.trainers: dict[int, Trainer] = {}
        """Of that generation, by rank."""
        self.failures: list[Failure] = []
        self.runs: dict[int, RunBook] = {}
        self.ended: set[str] = set()
        """Feeds that have been ended; "" for all."""
        self.moved = time.monotonic()
        """When anything last went on: what time-outs count from."""
        self.trouble: Callable[[], str] = str
        """Why nothing can be scored any more; empty while it can. Called with `changed` held."""
        self._takers = takers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._channels: set[Channel[Any]] = set()
        self._kept: dict[tuple[int, int, int], dict[int, int]] = {}
        self._asked: dict[tuple[int, int, int], asyncio.Event] = {}

    # -- life ------------------------------------------------------------------------------------

    def bind(self, address: str) -> int:
        """Take a port, before there are certificates to listen with; trainers redial until then.

        Raises:
            OSError: the address is not this machine's.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        return self._socket.getsockname()[1]

    def start(self, secrets: Path) -> None:
        """Listen, in a thread of its own.

        Raises:
            OSError: the certificates cannot be read, or the port is gone.
        """
        ready = threading.Event()
        problem: list[BaseException] = []

        def main() -> None:
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._listen(secrets))
            except BaseException as error:
                problem.append(error)
                loop.close()
                ready.set()
                return
            self._loop = loop
            ready.set()
            loop.run_forever()
            loop.run_until_complete(_cancelled(loop))
            loop.close()

        self._thread = threading.Thread(target=main, name="howdah-feed-master", daemon=True)
        self._thread.start()
        ready.wait()
        if problem:
            raise problem[0]

    async def _listen(self, secrets: Path) -> None:
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        self._server = await serve(
            self._talk,
            host,
            port,
            server_context(secrets),
            receives={PeerRole.AGENT: FromControl, PeerRole.CLIENT: FromFeederControl},
        )
        # The port was held by a socket that never listened; now the server's own holds it.
        self._socket.close()
        self._socket = None

    def close(self) -> None:
        """End everything. May be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        loop, self._loop = self._loop, None
        if loop is None:
            return

        def end() -> None:
            if self._server is not None:
                self._server.close()
            for channel in list(self._channels):
                channel.close()
            # Closing connections say goodbye before the loop ends.
            loop.call_later(0.02, loop.stop)

        loop.call_soon_threadsafe(end)
        assert self._thread is not None
        self._thread.join(5)

    # -- for the cluster ---------------------------------------------------------------------------

    @property
    def places(self) -> list[Place]:
        """Of the trainers that are there now, by rank."""
        with self.changed:
            return [trainer.place for _, trainer in sorted(self.trainers.items())]

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

    def takers(self, run: RunBook) -> list[int]:
        """Ranks that take part in a run."""
        with self.changed:
            return [rank for rank, each in sorted(self.trainers.items()) if not each.returned]

    def open(self, purpose: Purpose, options: Options) -> RunBook:
        """A new run; trainers hear of it by `announce`."""
        with self.changed:
            run = RunBook(max(self.runs, default=0) + 1, purpose, options)
            self.runs[run.number] = run
            self.moved = time.monotonic()
            return run

    def announce(self, run: RunBook) -> None:
        """Tell the trainers that the run begins (or goes on, in a new generation)."""
        with self.changed:
            self._tell_all(self._opening(run))

    def fed(self, run: RunBook, epoch: int, rows: int, *, last: bool) -> None:
        """All rows of the epoch have been brought to the trainers."""
        with self.changed:
            run.epoch(epoch).fed = True
            self.moved = time.monotonic()
            self._tell_all(
                EpochFed(feed=run.feed, run=run.number, epoch=epoch, rows=rows, last=last)
            )

    def close_run(self, run: RunBook) -> None:
        """The run is over, however it went."""
        with self.changed:
            if not run.closed:
                run.closed = True
                self._tell_all(Close(feed=run.feed, run=run.number))

    def abort(self, run: RunBook, error: str) -> None:
        """The run has failed on Spark's side."""
        with self.changed:
            run.closed = True
            self._tell_all(Abort(feed=run.feed, run=run.number, error=error))

    def end(self, feed: str = "") -> None:
        """No run of this feed follows; of no feed at all, if it has no name."""
        with self.changed:
            self.ended.add(feed)
            self._tell_all(Close(feed=feed, end=True))

    def positions(self, feed: str) -> list[Position]:
        """What the checkpoints of the trainers had seen of that feed."""
        with self.changed:
            found = [trainer.positions.get(feed) for trainer in self.trainers.values()]
            return [position for position in found if position is not None]

    def asking(self, feed: str) -> bool:
        """Whether all programs have asked for rows of that feed: no position comes any more."""
        with self.changed:
            return all(
                feed in trainer.asks or trainer.returned for trainer in self.trainers.values()
            )

    @contextmanager
    def watching(self) -> Iterator[threading.Condition]:
        """To look at several things at once and wait for a change of them."""
        with self.changed:
            yield self.changed

    # -- trainers and feeders ----------------------------------------------------------------------

    async def _talk(self, channel: Channel[Any]) -> None:
        self._channels.add(channel)
        try:
            if channel.peer.role is PeerRole.CLIENT:
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
                elif trainer is not None and self._counts(trainer, message):
                    self._note(trainer, message)
                self.changed.notify_all()

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
        known.asks.update(hello.asks)
        if again:
            self._tell_story(channel, new=new)
        self.moved = time.monotonic()
        return known

    def _counts(self, trainer: Trainer, message: FromControl) -> bool:
        """Whether it comes from a process of the present gang, or says why one has ended."""
        return self.trainers.get(trainer.place.rank) is trainer or isinstance(message, Broken)

    def _tell_story(self, channel: Channel[Any], *, new: bool) -> None:
        """What a trainer that has come (back) may have missed."""
        for feed in sorted(self.ended):
            channel.send(Close(feed=feed, end=True))
        for run in self.runs.values():
            if run.closed or (new and run.purpose is Purpose.TRAIN):
                continue  # the cluster announces it once all are there
            channel.send(self._opening(run))
            for book in run.epochs.values():
                if book.fed:
                    last = book.number + 1 >= run.options.epochs
                    rows = sum(book.rows.values())
                    channel.send(
                        EpochFed(
                            feed=run.feed, run=run.number, epoch=book.number, rows=rows, last=last
                        )
                    )
                if book.allowed.batches or book.allowed.final:
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
            case Enough():
                for run in self.runs.values():
                    if run.feed == message.feed:
                        run.stopped.add(rank)
            case Broken():
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
                for run in self.runs.values():
                    if not run.closed:
                        run.stopped.add(rank)
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

    def _permit(self, run: RunBook, epoch: int) -> None:
        # A rank that has returned takes no part; the cluster ends the run when that matters.
        permit = run.permit(epoch, sorted(self.trainers) if self.complete() else [])
        if permit is not None:
            self._tell_all(permit)

    async def _hear_feeder(self, channel: Channel[Any]) -> None:
        while (message := await channel.receive()) is not None:
            if isinstance(message, Fed):
                with self.changed:
                    if (run := self.runs.get(message.run)) is not None:
                        run.note_sent(message)
                        self.moved = time.monotonic()
                        self.changed.notify_all()
            else:
                channel.send(await self._answer(message))

    async def _answer(self, again: Again) -> GoOn:
        with self.changed:
            run = self.runs.get(again.run)
            if run is None or run.closed or run.stopped >= set(self.trainers) != set():
                if run is not None and run.purpose is Purpose.SCORE:
                    return GoOn(start=0, problem="the cluster that scores these rows has ended")
                return GoOn(start=0, whole=True)
            if run.purpose is Purpose.SCORE and (trouble := self.trouble()):
                # Nobody else looks: a scoring query is Spark's, not a call of the cluster's.
                return GoOn(start=0, problem=trouble)
            if not self._can_take(run):
                return GoOn(start=0, wait_s=AGAIN_S)
            if again.rank >= 0:
                run.note_sent(again)
                self.moved = time.monotonic()
                self.changed.notify_all()
                asked, problem = False, ""
            else:
                asked, problem = run.begin(again)
            if problem:
                return GoOn(start=0, problem=problem)
        start = 0
        if asked and run.purpose is Purpose.TRAIN:
            start = await self._how_far(run, again)
        with self.changed:
            places = {rank: each.place for rank, each in self.trainers.items() if not each.returned}
            chosen = run.choose(again, places)
            if not chosen:
                return GoOn(start=0, wait_s=AGAIN_S)
            return GoOn(start=start, places=chosen, trainers=len(places))

    def _can_take(self, run: RunBook) -> bool:
        return self.connected()

    async def _how_far(self, run: RunBook, again: Again) -> int:
        """Offset after the last row that any trainer has of the partition."""
        key = (again.run, again.epoch, again.partition)
        deadline = time.monotonic() + HOW_FAR_S
        with self.changed:
            said = self._kept[key] = {}
            event = self._asked[key] = asyncio.Event()
            wanted = set(self.trainers)
            self._tell_all(
                HowFar(
                    feed=again.feed,
                    run=again.run,
                    epoch=again.epoch,
                    partition=again.partition,
                )
            )
        while not wanted <= set(said) and (left := deadline - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(event.wait(), left)
            except TimeoutError:
                break
            event.clear()
        if self._kept.get(key) is said:
            del self._kept[key], self._asked[key]
        return max(0, *said.values()) if said else 0

    # -- inside ------------------------------------------------------------------------------------

    def _opening(self, run: RunBook) -> Open:
        return Open(
            run=run.number,
            purpose=run.purpose,
            options=run.options,
            first_epoch=run.first_epoch,
            cached_epoch=run.cached_epoch,
        )

    def _tell_all(self, message: msgspec.Struct) -> None:
        self._tell(dict.fromkeys(self.trainers, message))

    def _tell(self, messages: Mapping[int, msgspec.Struct]) -> None:
        pairs = [(self.trainers[rank], message) for rank, message in messages.items()]

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


async def _cancelled(loop: asyncio.AbstractEventLoop) -> None:
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""The driver's side of all feeds of one cluster: a thread with an event loop.

Trainers dial it and say what they hold; feeders ask it where to go. It decides by
`howdah.spark.feed.control.run_state` and `howdah.spark.feed.control.plan`, and tells `howdah.spark.cluster`, which waits
in the user's threads, by one condition variable.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path

from howdah.spark.feed.control.control_server import ControlServer
from howdah.spark.feed.control.run_state import RunState
from howdah.spark.feed.messages import (
    Abort,
    Close,
    Endpoint,
    EpochFed,
    FromControl,
    FromFeederControl,
    Options,
    Position,
    Purpose,
)
from howdah.wire.addresses import bind_within
from howdah.wire.channel import serve
from howdah.wire.tls import PeerRole, server_context


class FeedController(ControlServer):
    """See the module. Everything without an underscore may be called from any thread.

    `changed` guards all that is read from outside; it is notified at every change.
    """

    # -- life ------------------------------------------------------------------------------------

    def bind(self, address: str, ports: tuple[int, int] | None = None) -> int:
        """Take a port of that range (any, if None), before there are certificates to listen with;
        trainers redial until then.

        Raises:
            OSError: the address is not this machine's, or none of the ports is free.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        bind_within(self._socket, address, ports)
        return self._socket.getsockname()[1]

    def start(self, secrets: Path) -> None:
        """Listen, in a thread of its own.

        Raises:
            OSError: the certificates cannot be read.
        """
        started: Future[None] = Future()

        def main() -> None:
            with asyncio.Runner() as runner:
                try:
                    runner.run(self._listen(secrets))
                except BaseException as error:
                    started.set_exception(error)
                    return
                self._loop = loop = runner.get_loop()
                started.set_result(None)
                loop.run_forever()

        self._thread = threading.Thread(target=main, name="howdah-feed-controller", daemon=True)
        self._thread.start()
        started.result()

    async def _listen(self, secrets: Path) -> None:
        assert self._socket is not None
        self._server = await serve(
            self._talk,
            None,
            0,
            server_context(secrets),
            receives={PeerRole.AGENT: FromControl, PeerRole.FEEDER: FromFeederControl},
            sock=self._socket,
        )
        self._socket = None  # the server's now

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
    def endpoints(self) -> list[Endpoint]:
        """Of the trainers that are there now, by rank."""
        with self.changed:
            return [trainer.endpoint for _, trainer in sorted(self.trainers.items())]

    def open(self, purpose: Purpose, options: Options) -> RunState:
        """A new run; trainers hear of it by `announce`. Each feed counts its own from 1: a position
        names its run, and means the same one in another job, where other feeds may begin earlier."""
        with self.changed:
            feed = options.feed
            number = 1 + max((number for name, number in self.runs if name == feed), default=0)
            run = self.runs[feed, number] = RunState(number, purpose, options)
            self.moved: float = time.monotonic()
            return run

    def announce(self, run: RunState, readers: Iterable[int] | None = None) -> None:
        """Tell the trainers that the run begins (or goes on, in a new generation).

        Args:
            readers: the ranks that read it; None: all.
        """
        with self.changed:
            ranks = self.trainers if readers is None else readers
            run.readers = dict.fromkeys(ranks, run.first_epoch)
            run.generation = self.generation
            run.stopped |= self.stopped(run.feed)
            run.returned |= {rank for rank, each in self.trainers.items() if each.returned}
            self._tell(dict.fromkeys(run.readers, self._opening(run)))

    def fed(self, run: RunState, epoch: int, skip: Iterable[int] = ()) -> int | None:
        """All rows of the epoch have been brought to the trainers, which hear it; unless a partition of
        which rows were left out (``skip``, or an earlier query) has vanished: that one is returned."""
        with self.changed:
            if (gone := run.vanished(epoch, skip)) is not None:
                return gone
            run.epoch(epoch).fed = True
            self.moved = time.monotonic()
            word = EpochFed(feed=run.feed, run=run.number, epoch=epoch)
            self._tell(dict.fromkeys(run.readers or (), word))
        return None

    def close_run(self, run: RunState) -> None:
        """The run is over, however it went."""
        with self.changed:
            if not run.closed:
                run.closed = True
                self._tell_all(Close(feed=run.feed, run=run.number))

    def abort(self, run: RunState, error: str) -> None:
        """The run has failed on Spark's side."""
        with self.changed:
            run.closed = True
            self._tell_all(Abort(feed=run.feed, run=run.number, error=error))

    def end(self, feed: str = "") -> None:
        """No run of this feed follows; of no feed at all, if it has no name."""
        with self.changed:
            self.ended.add(feed)
            self._tell_all(Close(feed=feed, end=True))

    def positions(self, feed: str) -> dict[int, Position]:
        """What the checkpoints of the trainers had seen of that feed, by rank."""
        with self.changed:
            return {
                rank: trainer.positions[feed]
                for rank, trainer in self.trainers.items()
                if feed in trainer.positions
            }

    def resumed(self) -> bool | None:
        """Whether any program of the present gang had something to go on from when it began: a
        checkpoint, or a position it has restored. None while it may still restore one."""
        with self.changed:
            trainers = self.trainers.values()
            if any(each.checkpoint or each.positions for each in trainers):
                return True
            spoken = all(each.asks or each.enough or each.returned for each in trainers)
            return False if self.complete() and spoken else None

    def forgotten(self, feed: str, generation: int) -> int:
        """Rows of runs that are over which no program of this generation knows: handed out after
        the positions it goes on from. Counted once."""
        with self.changed:
            positions = self.positions(feed)
            return sum(
                run.forget(positions, run.options.epochs)
                for run in self.runs.values()
                if run.feed == feed and run.closed and 0 < run.generation < generation
            )

    def readers(self, feed: str, main: RunState | None = None) -> set[int] | None:
        """Ranks that have asked for rows of that feed: no position comes of them any more. None while
        others may still ask.

        Args:
            main: the run of another feed. Who has come further in it than to where programs ask
                for rows of this one is not waited for, once somebody has asked.
        """
        with self.changed:
            asking = {rank for rank, each in self.trainers.items() if feed in each.asks}
            named = self._named(feed)
            for rank, trainer in self.trainers.items():
                if rank in asking or trainer.returned or feed in trainer.enough:
                    continue
                if named and rank not in named:
                    continue
                if not (asking and main is not None and self._past(rank, main)):
                    return None
            return {rank for rank in asking if not self.trainers[rank].returned}

    def waiting(self) -> str:
        """Which ranks wait for rows that are not fed because other ranks have not asked for them."""
        with self.changed:
            for feed in sorted({feed for each in self.trainers.values() for feed in each.asks}):
                announced = any(
                    run.feed == feed and run.readers is not None for run in self.runs.values()
                )
                asking = [rank for rank, each in self.trainers.items() if feed in each.asks]
                others = set(self.trainers) - set(asking)
                if others and not announced and not self._named(feed):
                    return (
                        f"rank {_listed(asking)} waits for rows of {feed!r}, which rank "
                        f"{_listed(others)} has not asked for: if only some ranks read it, name "
                        f"them, ctx.feed({feed!r}, ranks={sorted(asking)})"
                    )
            return ""

    def stopped(self, feed: str) -> set[int]:
        """Ranks whose programs have stopped that feed, in whichever run of it or between two."""
        with self.changed:
            return {rank for rank, trainer in self.trainers.items() if feed in trainer.enough}

    def running(self) -> set[int]:
        """Ranks whose functions have not returned."""
        with self.changed:
            return {rank for rank, trainer in self.trainers.items() if not trainer.returned}

    def left(self, run: RunState) -> bool:
        """Whether all programs wait for a run of the same feed after this one, or want none."""
        with self.changed:
            return all(
                rank in run.stopped
                or rank in run.returned
                or trainer.waits.get(run.feed, -1) >= run.number
                for rank, trainer in self.trainers.items()
            )

    def _named(self, feed: str) -> set[int]:
        return {rank for each in self.trainers.values() for rank in each.readers.get(feed, ())}

    def _past(self, rank: int, run: RunState) -> bool:
        """Whether the rank has left the first epoch of that run, or the run."""
        if self.trainers[rank].waits.get(run.feed, -1) >= run.number:
            return True
        later = [epoch for number, epoch in run.epochs.items() if number > run.first_epoch]
        return any(rank in epoch.handed and epoch.handed[rank].batches for epoch in later)


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))

"""One call of `Cluster.train`: Spark's queries, the trainers' progress, restarts, all in one place.

The user's thread waits here, for whichever comes first: Spark has fed an epoch, the programs have
used it, one has raised or wants no more, the gang has restarted, nothing moves, Ctrl-C.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from howdah.spark.errors import FeedError
from howdah.spark.feed.control.plan import Resumption, enough, moved, resumption
from howdah.spark.feed.control.run_state import RunState
from howdah.spark.feed.intervals import count
from howdah.spark.feed.messages import Options, Purpose
from howdah.spark.feed.tasks.feeding import FeedTask
from howdah.spark.reports import RankReport, TrainReport
from howdah.spark.rows import RowSource
from howdah.spark.session import Query
from howdah.spec.problems import listed

if TYPE_CHECKING:
    from howdah.spark.live import Live

LOOK_S = 1.0
"""Between two looks at what nobody tells (the clock)."""
ECHO_S = 0.4
"""A program that raises because another one was killed is heard before the kill, sometimes."""
QUERY_END_S = 10.0
RETRIES = 3
"""So often a query is run again whose Python worker or executor has died, where Spark itself does not
try again (``local[N]``) or has tried often enough. What trainers have is not sent again."""
COUNTS_S = 5.0
"""A trainer that does not tell its last counts for so long after a run is not waited for."""
_DIED = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "Could not recover from a failed barrier",
    "Connection reset",
)
_LOST = "Checkpoint block"
"""How Spark's error begins where rows that were materialised are gone."""
STOPPING_S = 0.3
"""After `feed.stop` feeders are told by their trainers; what still runs then is cancelled."""


class _Turn(enum.Enum):
    """How one generation's part of a run has ended."""

    DONE = enum.auto()
    STOPPED = enum.auto()
    """The programs want no more."""
    FORMED_ANEW = enum.auto()
    """The gang of processes is another one."""


class Training:
    """See the module."""

    def __init__(
        self,
        live: Live,
        source: RowSource,
        options: Options,
        *,
        timeout_s: float | None,
        main: Training | None = None,
        materialise: bool = True,
    ) -> None:
        """
        Args:
            main: what programs train on meanwhile, while they read this now and then.
            materialise: rows whose order Spark does not promise are kept by its executors first.
        """
        self._live = live
        self._controller = live.controller
        self._changed = live.controller.changed
        self._plan = source
        self._source = source
        """What is fed: the plan's rows, or those of it that are materialised."""
        self._materialise = materialise
        self._options = options
        self._timeout_s = timeout_s
        self._main = main
        self._fed = False
        self._run: RunState = self._controller.open(Purpose.TRAIN, options)
        self._run.ordered = source.ordered()
        self._queries: list[Query] = []
        self._left = False
        self._retries = RETRIES
        self._work: tuple[int, float] = (0, time.monotonic())

    def run(self) -> TrainReport:
        """Feed everything; what became of it.

        Raises:
            FeedError: it could not be, with the reason of whichever side had one.
        """
        began = time.monotonic()
        stopped = False
        try:
            while True:
                gang = self._gang()
                turn = _Turn.STOPPED if gang is None else self._turn(*gang)
                if turn is not _Turn.FORMED_ANEW:
                    stopped = turn is _Turn.STOPPED
                    break
        except FeedError as error:
            # Feeders that ask again hear of it and end; Spark itself takes seconds to end a task.
            self._controller.abort(self._run, str(error))
            self._end_queries(wait_s=0)
            raise
        finally:
            self._controller.close_run(self._run)
            self._live.note_trained(self._run)
            self._end_queries()
            self._release()
        self._await_counts()
        return self._report(stopped, time.monotonic() - began)

    def wait_left(self, other: threading.Thread) -> None:
        """After `run`: wait until the programs ask for more of this feed than there is, have had
        enough or returned; or ``other`` has ended, or nothing moves for the time that is given.

        Raises:
            FeedError: nothing moves because ranks wait for others to ask for rows.
        """
        with self._changed:
            while other.is_alive() and not self._controller.left(self._run):
                idle = time.monotonic() - max(self._controller.moved, self._live.moved)
                if self._timeout_s is not None and idle > self._timeout_s:
                    if waiting := self._controller.waiting():
                        raise FeedError(f"nothing has moved for {idle:.0f} s: {waiting}")
                    return
                self._changed.wait(LOOK_S)

    def leave(self) -> None:
        """Let `run` end soon, as if the programs had had enough."""
        with self._changed:
            self._left = True
            self._changed.notify_all()

    # -- generations -------------------------------------------------------------------------------

    def _gang(self) -> tuple[int, set[int]] | None:
        """Wait until all trainers are there, and all that read rows ask for them: the generation,
        and who they are. None: the programs have stopped the feed, or `leave` was called."""
        feed, align = self._options.feed, self._options.align
        with self._changed:
            while True:
                enough = self._live.enough(feed, align)
                self._live.check(enough=enough)
                if self._left or (enough and self._live.over()):
                    return None
                if self._controller.connected() and not self._live.wants_slots():
                    if enough:
                        return None
                    main = self._main and self._main._run
                    readers = self._controller.readers(feed, main)
                    if readers is not None:
                        return self._controller.generation, readers
                self._check_time("the programs do not ask for rows of the feed")
                self._changed.wait(LOOK_S)

    def _turn(self, generation: int, readers: set[int]) -> _Turn:
        run, options = self._run, self._options
        positions = self._controller.positions(options.feed)
        found = resumption(run.number, options.align, positions.values())
        # It may be the same gang: an old status document said that it waits for slots, just when one of its
        # processes dialled the controller again. It has all it was given, and is fed the rest.
        same = generation == run.generation
        # Who begins an epoch anew takes its rows in any order: what an executor has lost does not matter.
        keep = self._materialise and not (found.skip or self._plan.ordered())
        with self._changed:
            self._fed = False
            if same:
                run.query += 1  # tasks of the query before are heard no more
                keep = keep and self._source is self._plan
            else:
                run.begin_again(generation, found, positions)
                run.forgotten += self._controller.forgotten(options.feed, generation)
                # An epoch that goes on in its middle cannot be kept whole: Spark feeds the next again.
                run.cached_epoch = found.epoch + bool(found.skip) if options.cache else None
                run.materialised += keep
                self._controller.announce(run, readers)
        of_other_rows = any(
            each.materialised != run.materialised
            for each in positions.values()
            if (each.run, each.epoch) == (run.number, found.epoch) and each.rows
        )
        if found.skip and (of_other_rows or not run.ordered):
            raise FeedError(
                f"the programs go on in the middle of epoch {found.epoch} of {options.feed!r}, and "
                "Spark does not give the rows of this plan in the same order again: which of them they "
                "have had can't be told. Materialise the rows first, df.write.parquet(path) and "
                "spark.read.parquet(path), or df.checkpoint(); or restore positions at the beginnings "
                "of epochs only"
            )
        if keep:
            turn = self._keep_order(generation)
            if turn is not _Turn.DONE:
                return turn
        for epoch in range(found.epoch, options.epochs):
            if run.cached_epoch is not None and epoch > run.cached_epoch:
                break
            if (known := run.epochs.get(epoch)) is not None and known.fed:
                continue
            skip = found if epoch == found.epoch else Resumption()
            turn = self._feed(generation, epoch, skip)
            if turn is not _Turn.DONE:
                return turn
        self._fed = True
        # `_look` sees when all of it has been used.
        return self._wait(generation, lambda: False)

    def _keep_order(self, generation: int) -> _Turn:
        """Have Spark compute the rows and keep them: so a task that fails goes on behind the last row
        that arrived."""
        found: list[RowSource | None] = []
        self._release()
        turn = self._query(generation, lambda: lambda: found.append(self._plan.materialised()))
        kept = found[-1] if turn is _Turn.DONE else None
        self._source = kept or self._plan
        with self._changed:
            self._run.ordered = kept is not None
        return turn

    def _release(self) -> None:
        """Of what is materialised nothing is fed any more."""
        if self._source is not self._plan:
            with contextlib.suppress(Exception):  # the session may have ended
                self._source.release()
            self._source = self._plan

    def _feed(self, generation: int, epoch: int, skip: Resumption) -> _Turn:
        """Have Spark bring an epoch to the trainers."""

        def feed() -> Callable[[], Any]:
            sent = self._task(epoch, skip)
            return lambda: self._source.feed(lambda: sent)

        turn = self._query(generation, feed)
        if turn is not _Turn.DONE:
            return turn
        gone = self._controller.fed(self._run, epoch, skip.skip)
        if gone is not None:
            raise FeedError(moved(self._options.feed, gone))
        return _Turn.DONE

    def _query(self, generation: int, action: Callable[[], Callable[[], Any]]) -> _Turn:
        """Have Spark do what ``action`` gives, which is asked for each time that it is tried."""
        while True:
            query = self._live.query(action())
            self._queries.append(query)
            turn = self._wait(generation, lambda query=query: query.over)
            if turn is not _Turn.DONE:
                if turn is _Turn.STOPPED:
                    query.wait(STOPPING_S)
                query.cancel()
                return turn
            if query.error is None:
                self._queries.remove(query)
                return _Turn.DONE
            turn = self._after_failure(generation, query)
            if turn is not None:
                return turn

    def _task(self, epoch: int, skip: Resumption) -> bytes:
        """What the tasks of one more query are told; those of earlier ones are heard no more."""
        with self._changed:
            self._run.query += 1
            task = FeedTask(
                access=self._live.access,
                feed=self._options.feed,
                run=self._run.number,
                epoch=epoch,
                query=self._run.query,
                skip=skip.skip,
            )
        return msgspec.msgpack.encode(task)

    def _after_failure(self, generation: int, query: Query) -> _Turn | None:
        """Spark's query has failed: whose fault was it? None: it is worth another try."""
        deadline = time.monotonic() + ECHO_S
        with self._changed:
            while (left := deadline - time.monotonic()) > 0:
                turn = self._look(generation)
                if turn is not None:
                    return turn
                self._changed.wait(left)
            if not self._controller.connected():
                # A program was killed, and Spark's task with it or after it.
                return self._wait(generation, lambda: False)
        if _LOST in query.problem:
            raise FeedError(
                f"an executor has ended, and with it rows of {self._options.feed!r} that it kept because "
                "Spark does not give the rows of this plan in the same order again. To outlive "
                "executors, write the rows first, df.write.parquet(path) and spark.read.parquet(path), "
                f"or use df.checkpoint(): {query.problem}"
            ) from query.error
        if self._retries and any(words in query.problem for words in _DIED):
            self._retries -= 1
            return None
        if query.cancelled:
            raise FeedError(
                f"the Spark job that feeds {self._options.feed!r} was cancelled"
            ) from query.error
        raise FeedError(
            f"Spark could not bring the rows of {self._options.feed!r}: {query.problem}"
        ) from query.error

    # -- waiting -----------------------------------------------------------------------------------

    def _wait(self, generation: int, there: Callable[[], bool]) -> _Turn:
        with self._changed:
            while True:
                turn = self._look(generation)
                if turn is not None:
                    return turn
                if there():
                    return _Turn.DONE
                self._check_time("nothing has moved")
                self._changed.wait(LOOK_S)

    def _look(self, generation: int) -> _Turn | None:
        """Whether something has happened that ends this generation's part."""
        run, last = self._run, self._options.epochs - 1
        readers = set(run.readers or ())
        used = run.done(last, readers)
        if used and self._fed and any(each.done for each in run.epoch(last).handed.values()):
            return _Turn.DONE
        if self._controller.generation != generation:
            return _Turn.FORMED_ANEW
        if self._live.wants_slots() and not self._controller.connected():
            # The feeders wait for programs, and these for the slots that the feeders are in. Where all
            # programs are there the status document is an old one.
            return _Turn.FORMED_ANEW
        running = self._controller.running() & readers
        over = used or self._left or enough(self._options.align, run.stopped, running)
        self._live.check(enough=over)
        if over:
            return _Turn.STOPPED
        return None

    def _check_time(self, what: str) -> None:
        if self._timeout_s is None:
            return
        moved = max(self._controller.moved, self._live.moved, self._work[1])
        idle = time.monotonic() - moved
        if idle > self._timeout_s and not self._spark_works():
            raise FeedError(
                f"{what} for {idle:.0f} s (timeout_s={self._timeout_s:g}): {self._state()}. Ranks "
                "that are computing must ask for the next batch within that time: raise timeout_s "
                "for long steps; `howdah stack` shows where a rank is"
            )

    def _spark_works(self) -> bool:
        """Whether Spark has ended tasks since this was asked last: a query may sort for an hour
        before its first row."""
        ended = self._live.session.tasks_ended()
        if ended <= self._work[0]:
            return False
        self._work = (ended, time.monotonic())
        return True

    def _state(self) -> str:
        """What each rank does, for the text of a time-out."""
        feed = self._options.feed
        parts: list[str] = []
        for rank, trainer in sorted(self._controller.trainers.items()):
            if feed not in trainer.asks:
                others = f", but of {listed(trainer.asks)}" if trainer.asks else ""
                parts.append(f"rank {rank} has not asked for rows of {feed!r}{others}")
            elif trainer.channel is None:
                parts.append(f"rank {rank} is not connected")
            else:
                handed = sum(
                    epoch.handed[rank].batches
                    for epoch in self._run.epochs.values()
                    if rank in epoch.handed
                )
                parts.append(f"rank {rank} was given {handed} batches")
        if waiting := self._controller.waiting():
            parts.append(waiting)
        missing = self._controller.expected - len(self._controller.trainers)
        if missing > 0:
            parts.append(f"{missing} of {self._controller.expected} ranks are not there")
        return "; ".join(parts)

    # -- counts ------------------------------------------------------------------------------------

    def _await_counts(self) -> None:
        """Until the trainers have told what they were given and did not use."""
        deadline = time.monotonic() + COUNTS_S
        with self._changed:
            while (left := deadline - time.monotonic()) > 0:
                trainers = self._controller.trainers
                readers = (self._run.readers or {}).keys()
                there = {rank for rank in readers & trainers.keys() if trainers[rank].channel}
                if there <= self._run.counted:
                    return
                self._changed.wait(left)

    def _report(self, stopped: bool, seconds: float) -> TrainReport:
        counts: dict[int, list[int]] = {}
        epochs = 0
        cached = self._run.cached_epoch
        for epoch in self._run.epochs.values():
            epochs += any(each.done for each in epoch.handed.values())
            for rank, handed in epoch.handed.items():
                total = counts.setdefault(rank, [0, 0, 0])
                total[0] += handed.rows
                total[1] += handed.batches
                total[2] += handed.dropped
            # What was not kept of the cached epoch is missing in each that comes from the cache.
            times = self._options.epochs - epoch.number if epoch.number == cached else 1
            for (rank, _), dropped in epoch.dropped.items():
                counts.setdefault(rank, [0, 0, 0])[2] += count(dropped) * times
        ranks = tuple(
            RankReport(rank=rank, rows=rows, batches=batches, dropped=dropped)
            for rank, (rows, batches, dropped) in sorted(counts.items())
        )
        rows = sum(each.rows for each in ranks)
        dropped = sum(each.dropped for each in ranks)
        if stopped and not rows:
            self._warn_unread()
        if dropped and not rows and not stopped:
            warnings.warn(
                f"all {dropped} rows of the feed {self._options.feed!r} were dropped: with "
                "align='drop' all ranks end with the poorest, and one has not a single batch. Give "
                "at least as many partitions as ranks, or smaller batches",
                stacklevel=4,
            )
        return TrainReport(
            feed=self._options.feed,
            rows=rows,
            batches=sum(each.batches for each in ranks),
            dropped=dropped,
            ranks=ranks,
            epochs=epochs,
            stopped=stopped,
            seconds=seconds,
            restarts=self._run.restarts,
            repeated=self._run.repeated,
            forgotten=self._run.forgotten,
            ordered=self._run.ordered,
            materialised=self._run.ordered and self._run.materialised > 0,
        )

    def _warn_unread(self) -> None:
        """Say that the programs have come to their end and never looked at the rows."""
        feed, trainers = self._options.feed, self._controller.trainers.values()
        if self._left or any(feed in each.asks | each.enough for each in trainers):
            return
        if feed == "validation":
            return  # a function may do without
        others = sorted({name for each in trainers for name in each.asks})
        warnings.warn(
            f"no row was trained: the functions returned without asking for rows of the feed {feed!r}"
            + (f", but of {listed(others)}" if others else "")
            + f". Read them by ctx.feed({feed!r})",
            stacklevel=5,
        )

    def _end_queries(self, wait_s: float = QUERY_END_S) -> None:
        for query in self._queries:
            if not query.over:
                query.cancel(wait_s)
        self._queries.clear()


class ValidationRun:
    """Another feed of the same call, in a thread of its own: while the block runs, and until the
    programs have come back from what they do after the last epoch of ``main``."""

    def __init__(
        self,
        live: Live,
        source: RowSource,
        options: Options,
        *,
        main: Training,
        materialise: bool = True,
    ) -> None:
        # Whether anything moves is the main feed's to judge.
        self._training = Training(
            live, source, options, timeout_s=None, main=main, materialise=materialise
        )
        self._main = main
        self._error: BaseException | None = None
        self.report: TrainReport | None = None
        self._thread = live.session.thread(self._run)

    def __enter__(self) -> ValidationRun:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._main.wait_left(self._thread)
        finally:
            self._training.leave()
            self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.report = self._training.run()
        except BaseException as error:
            self._error = error

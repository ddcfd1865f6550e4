"""One run at the controller: what each rank has and has handed out, and which trainer takes which partition.

No I/O, no locks: `howdah.spark.feed.control.feed_controller` has those.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import msgspec

from howdah.spark.feed.control.plan import Allowance, Load, Resumption, allowance, preference
from howdah.spark.feed.intervals import count, merged, without
from howdah.spark.feed.messages import (
    Align,
    AssignmentRequest,
    Available,
    Credit,
    Endpoint,
    Fed,
    HandedOut,
    Intervals,
    Options,
    Part,
    Position,
    Purpose,
)


class EpochState:
    """One epoch, in one generation of the gang."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.available: dict[int, Available] = {}
        self.handed: dict[int, HandedOut] = {}
        self.allowed: Allowance = Allowance()
        self.fed = False
        self.enough: set[int] = set()
        """Ranks that take no more of it, as feeders have heard from them."""
        self.rows: dict[int, int] = {}
        """Sent, by rank, as feeders say."""
        self.dropped: dict[tuple[int, Part], Intervals] = {}
        """Sent and thrown away, by rank and partition, as feeders say."""
        self.begun: dict[Part, _Assignment] = {}
        """Who has a partition, and what of it."""
        self.active: dict[Part, _Assignment] = {}
        """Those of them that a task is at work with."""
        self.finished: dict[Part, int] = {}
        """Rows of partitions that were brought to their end."""
        self._finished_rows = 0

    def begin(self, part: Part, attempt: int, rows: int = 0) -> _Assignment:
        """A task begins with a partition, of which so many rows were sent before."""
        self.begun[part] = self.active[part] = _Assignment(attempt, rows)
        return self.begun[part]

    def of(self, word: AssignmentRequest | Fed) -> _Assignment:
        """What is known of a task's partition."""
        known = self.begun.get(word.part)
        return self.begin(word.part, word.attempt) if known is None else known

    def finish(self, part: Part) -> None:
        """The partition was brought to its end; also where one is brought there again."""
        rows = self.begun[part].rows
        self._finished_rows += rows - self.finished.get(part, 0)
        self.finished[part] = rows
        self.active.pop(part, None)

    def send_again(self, part: Part, start: int) -> None:
        """A task goes on with the partition at that offset, as trainers have the rows before it."""
        self.sent(part, start)
        self.begun[part].next = start

    def sent(self, part: Part, upto: int | None) -> None:
        """It has sent the rows up to that offset (None: all): what was thrown away of them before is
        not lost. A task that Spark gives up may not have come so far."""
        assignment = self.begun[part]
        end = sys.maxsize if upto is None else upto
        if end <= assignment.next:
            return
        for (rank, known), ranges in self.dropped.items():
            if known == part:
                self.dropped[rank, known] = without(ranges, [(assignment.next, end)])
        assignment.next = end

    def expected_rows(self) -> float:
        """Rows a partition has, as far as can be told."""
        if self.finished:
            return max(1.0, self._finished_rows / len(self.finished))
        # As large as the one that is known best, or larger.
        return max(1.0, *(each.rows for each in self.active.values())) if self.active else 1.0


class _Assignment(msgspec.Struct, eq=False):
    attempt: int
    rows: int
    again: bool = False
    """Another attempt had the partition before: trainers may have rows that nobody told of."""
    rank: int = -1
    next: int = 0
    """Offset of the row that its task sends next."""


class Layout(msgspec.Struct):
    """A partition, as the last query had it."""

    first: int
    """A hash of its first row."""
    query: int
    leaves_out: int
    """Offset after the last row that was left out of it."""
    length: int = -1
    """Its rows; -1 until that is told."""


class RunState:
    """One call of `Cluster.train`, or one inference."""

    def __init__(self, number: int, purpose: Purpose, options: Options) -> None:
        self.number = number
        self.purpose = purpose
        self.options = options
        self.generation: int = 0
        """In which it went on last."""
        self.ordered = True
        """Whether Spark gives a partition's rows in the same order when it computes them again."""
        self.materialised = 0
        """So often executors had to compute and keep the rows, as the plan promises no order."""
        self.query: int = 0
        """Number of Spark's query that feeds it now."""
        self.first_epoch: int = 0
        self.restarts: int = 0
        self.repeated: int = 0
        """Rows that programs were handed before a restart and were given again."""
        self.forgotten: int = 0
        """Rows that they were handed before a restart, after what they went on from, and not again."""
        self._skipped = 0
        self._forgotten: dict[tuple[int, int], int] = {}
        """The same of this run alone, by epoch and rank."""
        self.cached_epoch: int | None = None
        self.epochs: dict[int, EpochState] = {}
        self.readers: dict[int, int] | None = None
        """Ranks that read it, with the first epoch they do; None until it is announced."""
        self.stopped: set[int] = set()
        """Ranks whose programs have stopped this feed."""
        self.returned: set[int] = set()
        """Ranks whose functions have returned."""
        self.counted: set[int] = set()
        """Ranks that have told all of their rows."""
        self.closed = False
        self.layout: dict[tuple[int, Part], Layout] = {}
        """What is known of each epoch's partitions, where that may change from query to query."""
        self.attempts: dict[tuple[int, Part], int] = {}
        """The latest of each epoch and partition, in whichever generation: tasks that fed the gang
        before may still be at work."""

    @property
    def feed(self) -> str:
        return self.options.feed

    def epoch(self, number: int) -> EpochState:
        """The state of that epoch, begun if need be."""
        found = self.epochs.get(number)
        if found is None:
            found = self.epochs[number] = EpochState(number)
        return found

    def begin_again(
        self, generation: int, found: Resumption, positions: Mapping[int, Position]
    ) -> None:
        """A gang begins with it, or restarts: what its processes held is gone with them.

        Args:
            found: where it goes on.
            positions: by rank: what it goes on from.
        """
        first_epoch = found.epoch
        skipped = sum(count(ranges) for ranges in found.skip.values())
        if self.generation:
            self.restarts += 1
            again = sum(
                handed.rows
                for number, epoch in self.epochs.items()
                if number >= first_epoch
                for handed in epoch.handed.values()
            )
            before = self._skipped if first_epoch == self.first_epoch else 0
            self.repeated += max(0, before + again - skipped)
            self.forgotten += self.forget(positions, first_epoch)
        self.generation, self._skipped = generation, skipped
        self.query += 1  # what fed the gang before is heard no more
        self.first_epoch = first_epoch
        self.epochs = {n: epoch for n, epoch in self.epochs.items() if n < first_epoch}
        self.readers = None
        self.stopped, self.returned, self.counted = set(), set(), set()

    def forget(self, positions: Mapping[int, Position], first: int) -> int:
        """Rows that ranks were handed after these positions, before epoch ``first``; counted once."""
        before = sum(self._forgotten.values())
        for rank, position in positions.items():
            at = position.run, position.epoch
            trained = sum(count(ranges) for ranges in position.rows.values())
            for number, epoch in self.epochs.items():
                handed = epoch.handed.get(rank)
                if handed is None or number >= first or (self.number, number) < at:
                    continue
                rows = handed.rows - trained if (self.number, number) == at else handed.rows
                known = self._forgotten.get((number, rank), 0)
                self._forgotten[number, rank] = max(known, rows)
        return sum(self._forgotten.values()) - before

    # -- trainers --------------------------------------------------------------------------------

    def note_available(self, rank: int, word: Available) -> None:
        """A trainer holds more than before."""
        self.epoch(word.epoch).available[rank] = word

    def note_handed(self, rank: int, handed: HandedOut) -> None:
        """A program has been given more than before."""
        self.epoch(handed.epoch).handed[rank] = handed

    def takes(self, rank: int, number: int) -> bool:
        """Whether the rank takes rows of that epoch, now or later."""
        if rank in self.stopped or rank in self.returned:
            return False
        if self.purpose is Purpose.SCORE:
            return True
        if self.readers is not None and self.readers.get(rank, number + 1) > number:
            return False
        epoch = self.epochs.get(number)
        if epoch is None:
            return True
        return rank not in epoch.enough and not (rank in epoch.handed and epoch.handed[rank].done)

    def join(self, rank: int) -> bool:
        """A rank has come to read that was not waited for; whether it is new.

        Where ranks are held together it cannot catch up with what the others had: it begins with
        the next epoch.
        """
        if self.readers is None or rank in self.readers:
            return False
        alone = self.options.align is Align.NONE
        self.readers[rank] = self.first_epoch if alone else max(self.epochs, default=-1) + 1
        return True

    def credit(self, number: int) -> Credit | None:
        """What to tell the trainers that they have not been told."""
        if self.options.align is Align.NONE or self.purpose is Purpose.SCORE:
            return None
        epoch = self.epoch(number)
        # Who leaves an epoch before its end, or has returned, holds the others up no longer.
        ranks = [rank for rank in sorted(self.readers or ()) if self.takes(rank, number)]
        if epoch.allowed.final or not ranks:
            return None
        now = allowance(ranks, epoch.available)
        if now == epoch.allowed:
            return None
        epoch.allowed = now
        return self.current_credit(epoch)

    def current_credit(self, epoch: EpochState) -> Credit:
        """What ranks may hand out of that epoch now."""
        return Credit(
            feed=self.feed,
            run=self.number,
            epoch=epoch.number,
            batches=epoch.allowed.batches,
            final=epoch.allowed.final,
        )

    def done(self, number: int, ranks: Iterable[int]) -> bool:
        """Whether none of them takes rows of that epoch any more."""
        return not any(self.takes(rank, number) for rank in ranks)

    # -- feeders ---------------------------------------------------------------------------------

    def superseded(self, word: AssignmentRequest | Fed) -> bool:
        """Whether a later attempt has the partition, or another query feeds the run."""
        if word.query != self.query:
            return True
        return self.attempts.get((word.epoch, word.part), word.attempt) > word.attempt

    def retried(self, request: AssignmentRequest) -> bool:
        """Whether another attempt had the partition before."""
        known = self.epoch(request.epoch).begun.get(request.part)
        return known is not None and known.attempt != request.attempt

    def begin(self, request: AssignmentRequest) -> bool:
        """A task begins with a partition, or has lost its trainer: whether rows of it may have been
        taken."""
        epoch = self.epoch(request.epoch)
        known = epoch.begun.get(request.part)
        former = self.attempts.get((request.epoch, request.part))
        self.attempts[request.epoch, request.part] = request.attempt
        if known is not None and known.attempt == request.attempt:
            return known.again or known.rows > 0 or request.lost
        begun = epoch.begin(request.part, request.attempt, known.rows if known is not None else 0)
        begun.next = known.next if known is not None else 0
        begun.again = former is not None
        return begun.again

    def moved(self, request: AssignmentRequest, leaves_out: int) -> bool:
        """A task begins with a partition: whether it is another one than that of which rows are to be
        left out, up to that offset."""
        if request.first is None:
            return False
        key = request.epoch, request.part
        known = self.layout.get(key)
        if leaves_out and known is not None and known.first != request.first:
            return True
        now = Layout(request.first, request.query, leaves_out)
        if known is not None and known.first == request.first:
            now.length = known.length
        self.layout[key] = now
        return False

    def vanished(self, number: int, skip: Iterable[int]) -> int | None:
        """A partition of that epoch of which an earlier query brought rows, or of which rows are left
        out (``skip``), and which the last query had not. None if there is no such, or nothing was left
        out."""
        for partition in skip:
            if (0, partition) not in self.epoch(number).begun:
                return partition
        parts = {part: each for (epoch, part), each in self.layout.items() if epoch == number}
        if any(each.leaves_out for each in parts.values() if each.query == self.query):
            return next((p for (_, p), each in parts.items() if each.query != self.query), None)
        return None

    def note_late(self, word: Fed) -> None:
        """A task tells its end when the query of a later epoch has begun."""
        epoch = self.epochs.get(word.epoch)
        known = None if epoch is None else epoch.begun.get(word.part)
        if epoch is not None and known is not None and known.attempt == word.attempt:
            epoch.sent(word.part, None)

    def note_sent(self, word: AssignmentRequest | Fed) -> None:
        """Rows have gone to a trainer."""
        epoch = self.epoch(word.epoch)
        assignment = epoch.of(word)
        if word.rank >= 0:
            epoch.rows[word.rank] = epoch.rows.get(word.rank, 0) + word.rows
        assignment.rows += word.rows
        assignment.rank = word.rank
        epoch.sent(word.part, None if isinstance(word, Fed) else word.offset)
        if isinstance(word, Fed):
            epoch.finish(word.part)
            if word.length >= 0 and (known := self.layout.get((word.epoch, word.part))):
                known.length = word.length
        elif word.dropped:
            # As a set: a question whose answer was lost is asked twice.
            known = epoch.dropped.get((word.rank, word.part), [])
            epoch.dropped[word.rank, word.part] = merged([*known, *word.dropped])

    def choose(
        self, request: AssignmentRequest, endpoints: Mapping[int, Endpoint]
    ) -> list[Endpoint]:
        """Trainers in the order the feeder should try them, and its partition is booked to the
        first."""
        epoch = self.epoch(request.epoch)
        assignment = epoch.of(request)
        usual = epoch.expected_rows()
        coming: dict[int, float] = {}
        for each in epoch.active.values():
            if each is not assignment:
                # What it has sent is among the rank's rows already.
                rest = max(usual - each.rows, 1.0)
                coming[each.rank] = coming.get(each.rank, 0.0) + rest
        loads = [
            Load(endpoint=endpoint, rows=epoch.rows.get(rank, 0), coming=coming.get(rank, 0.0))
            for rank, endpoint in sorted(endpoints.items())
        ]
        order = preference(
            loads,
            host=request.host,
            folder=request.folder,
            rest=max(usual - assignment.rows, 0.0),
            avoid=request.unreachable,
            current=request.rank,
            turn=request.partition + request.epoch if self.options.exchange else None,
        )
        if order:
            assignment.rank = order[0]
        return [endpoints[rank] for rank in order[:MOST_ENDPOINTS]]


MOST_ENDPOINTS = 8
"""Trainers a feeder is told of at a time."""

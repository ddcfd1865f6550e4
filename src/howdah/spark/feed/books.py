"""The master's books of one run: what each rank holds and has handed out, who takes which partition.

No I/O, no locks: `howdah.spark.feed.master` has those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from howdah.spark.feed.messages import (
    Again,
    Align,
    Fed,
    HandedOut,
    Held,
    Options,
    Permit,
    Place,
    Purpose,
)
from howdah.spark.feed.plan import Allowance, Load, allowance, preference


class EpochBook:
    """One epoch, in one generation of the gang."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.held: dict[int, Held] = {}
        self.handed: dict[int, HandedOut] = {}
        self.allowed = Allowance()
        self.fed = False
        self.rows: dict[int, int] = {}
        """Sent, by rank, as feeders say."""
        self.begun: dict[int, _Stretch] = {}
        """By partition: who has it, and what of it."""
        self.active: dict[int, _Stretch] = {}
        """Those of them that a task is at work with."""
        self.finished: dict[int, int] = {}
        """Rows of partitions that were brought to their end."""
        self._finished_rows = 0

    def begin(self, partition: int, attempt: int, rows: int = 0) -> _Stretch:
        """A task begins with a partition, of which so many rows were sent before."""
        self.begun[partition] = self.active[partition] = _Stretch(attempt, rows)
        return self.begun[partition]

    def of(self, word: Again | Fed) -> _Stretch:
        """What is known of a task's partition."""
        known = self.begun.get(word.partition)
        return self.begin(word.partition, word.attempt) if known is None else known

    def finish(self, partition: int) -> None:
        """The partition was brought to its end; also where one is brought there again."""
        rows = self.begun[partition].rows
        self._finished_rows += rows - self.finished.get(partition, 0)
        self.finished[partition] = rows
        self.active.pop(partition, None)

    def stretch(self) -> float:
        """Rows a partition has, as far as can be told."""
        if self.finished:
            return max(1.0, self._finished_rows / len(self.finished))
        # As large as the one that is known best, or larger.
        return max(1.0, *(each.rows for each in self.active.values())) if self.active else 1.0


class _Stretch:
    def __init__(self, attempt: int, rows: int) -> None:
        self.attempt = attempt
        self.rank = -1
        self.rows = rows


class RunBook:
    """One call of `Cluster.train`, or one inference."""

    def __init__(self, number: int, purpose: Purpose, options: Options) -> None:
        self.number = number
        self.purpose = purpose
        self.options = options
        self.first_epoch = 0
        self.cached_epoch: int | None = None
        self.epochs: dict[int, EpochBook] = {}
        self.stopped: set[int] = set()
        """Ranks whose program has had enough of this feed."""
        self.closed = False

    @property
    def feed(self) -> str:
        return self.options.feed

    def epoch(self, number: int) -> EpochBook:
        """The book of that epoch."""
        return self.epochs.setdefault(number, EpochBook(number))

    def begin_again(self, first_epoch: int) -> None:
        """The gang has formed anew: what its processes held is gone with them."""
        self.first_epoch = first_epoch
        self.epochs = {n: book for n, book in self.epochs.items() if n < first_epoch}
        self.stopped = set()

    # -- trainers --------------------------------------------------------------------------------

    def note_held(self, rank: int, held: Held) -> None:
        """A trainer holds more than before."""
        self.epoch(held.epoch).held[rank] = held

    def note_handed(self, rank: int, handed: HandedOut) -> None:
        """A program has been given more than before."""
        self.epoch(handed.epoch).handed[rank] = handed

    def permit(self, number: int, ranks: Sequence[int]) -> Permit | None:
        """What to tell the trainers that they have not been told."""
        if self.options.align is Align.NONE or self.purpose is Purpose.SCORE:
            return None
        book = self.epoch(number)
        now = allowance(self.options.align, ranks, book.held)
        if now == book.allowed:
            return None
        book.allowed = now
        return self.permission(book)

    def permission(self, book: EpochBook) -> Permit:
        """What ranks may hand out of that epoch now."""
        return Permit(
            feed=self.feed,
            run=self.number,
            epoch=book.number,
            batches=book.allowed.batches,
            final=book.allowed.final,
        )

    def done(self, number: int, ranks: Iterable[int]) -> bool:
        """Whether all have handed out that epoch to its end."""
        handed = self.epoch(number).handed
        return all(rank in handed and handed[rank].done for rank in ranks)

    # -- feeders ---------------------------------------------------------------------------------

    def begin(self, again: Again) -> tuple[bool, str]:
        """A task begins with a partition: whether an earlier attempt may have brought rows of it,
        and why it may not go on, if so."""
        book = self.epoch(again.epoch)
        known = book.begun.get(again.partition)
        if known is not None and known.attempt > again.attempt:
            return False, "a later attempt of this task has the partition"
        if known is None:
            book.begin(again.partition, again.attempt)
            return False, ""
        if known.attempt == again.attempt:
            return known.rows > 0, ""
        book.begin(again.partition, again.attempt, known.rows)
        return True, ""

    def note_sent(self, word: Again | Fed) -> None:
        """Rows have gone to a trainer."""
        book = self.epoch(word.epoch)
        stretch = book.of(word)
        if word.rank >= 0:
            book.rows[word.rank] = book.rows.get(word.rank, 0) + word.rows
        stretch.rows += word.rows
        stretch.rank = word.rank
        if isinstance(word, Fed):
            book.finish(word.partition)

    def choose(self, again: Again, places: Mapping[int, Place]) -> list[Place]:
        """Trainers in the order the feeder should try them, and its partition is booked to the
        first."""
        book = self.epoch(again.epoch)
        stretch = book.of(again)
        usual = book.stretch()
        coming: dict[int, float] = {}
        for each in book.active.values():
            if each is not stretch:
                # What it has sent is among the rank's rows already.
                rest = max(usual - each.rows, 1.0)
                coming[each.rank] = coming.get(each.rank, 0.0) + rest
        loads = [
            Load(place=place, rows=book.rows.get(rank, 0), coming=coming.get(rank, 0.0))
            for rank, place in sorted(places.items())
            if rank not in self.stopped
        ]
        order = preference(
            loads,
            host=again.host,
            folder=again.folder,
            rest=max(usual - stretch.rows, 0.0),
            avoid=again.unreachable,
            current=again.rank,
        )
        if order:
            stretch.rank = order[0]
        return [places[rank] for rank in order[:MOST_PLACES]]


MOST_PLACES = 8
"""Trainers a feeder is told of at a time."""

"""The driver: events in, durable, commands out. The only place that feeds the machine.

One round takes every event that has come (and every timer that is due) through the machine, puts
events and records into the journal, waits for one commit, and only then has the commands carried
out. So nothing is done that a new coordinator would not know of. While a commit runs, further
events gather for the next round: under load a commit serves many events. Each is handled at the time
at which it came, and timers come after those that came before them: a slow commit makes nothing late.
After a very slow one, or when this process stood still, what waits for agents has so much longer.

What a crash can leave behind is a durable event whose commands were not carried out. The machine
repairs that on `CoordinatorStarted` and on what agents say they hold.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

import msgspec

from howdah.coordinator.event_log import EventLog, Signal
from howdah.core.machine import Machine
from howdah.core.messages import AnyCommand, AnyEvent, CoordinatorStarted, Event, Record, TimePassed
from howdah.storage.journal import EventEntry, Journal, RecordEntry, event_cause
from howdah.wire.messages import RecordUpdate

ROUND = 500
"""Events taken in one round: bounds how long one commit makes the first of them wait."""
LATE_S = 2.0
"""A round that took longer, or a timer that is so late, is time in which agents were not told what the
machine had decided, or not heard."""
READ_S = 5.0
"""For what agents have sent to a process that stood still."""
MOST_GIVEN_S = 600.0
"""Until a round is in time again: where all are late, deadlines come nevertheless."""


class JobOver(Exception):
    """The event came too late: the job has finished, or this coordinator ends."""


class Clock:
    """The job's clock: seconds since the epoch that never go backwards.

    It shows the first coordinator's wall time at its start, and from there on what the monotonic
    clock adds. Durations of the machine are differences of these values, so a step of the host's wall
    clock (NTP, a suspended laptop) must not fire or stall what is due.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._base = wall() - monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._base + self._monotonic()

    def go_on_from(self, now: float) -> None:
        """Show that time now: a former coordinator's host may have another clock."""
        self._base = now - self._monotonic()

    def not_before(self, floor: float) -> None:
        """Never show less than ``floor``: the newest time of a replayed journal."""
        self._base = max(self._base, floor - self._monotonic())


class _Item(msgspec.Struct):
    """An event or record that waits for its round."""

    what: AnyEvent | Record
    came: float
    durable: asyncio.Future[None] | None = None


class EventDriver:
    """Feeds one machine from many sources; see the module's text."""

    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        clock: Clock,
        events: EventLog,
        carry_out: Callable[[Sequence[AnyCommand]], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._events = events
        self._carry_out = carry_out
        self._inbox: deque[_Item] = deque()
        self._taken: list[_Item] = []
        """Those of the present round."""
        self._latest = -math.inf
        """The time of what was taken last."""
        self._late_s = 0.0
        """How long nothing was done for agents, which the machine is to be told."""
        self._given_s = 0.0
        """Of that, what it has been told since a round was in time."""
        self._wake = asyncio.Event()
        self._stopped = False
        self.advanced: Signal = Signal()
        """Sent after each round, when what happened is durable."""

    @property
    def kept(self) -> bool:
        """Whether all that was handed in is in the journal."""
        return not (self._inbox or self._taken)

    def emit(self, event: Event) -> None:
        """Hand in an event; it is handled soon, in the order of handing in."""
        self._put(cast(AnyEvent, event))

    def note(self, record: Record) -> None:
        """Add a record that no event caused."""
        self._put(record)

    def first(self, what: Sequence[AnyEvent | Record]) -> None:
        """Put this before all that has been handed in: how a coordinator's life begins."""
        now = self._clock.now()
        self._inbox.extendleft(_Item(each, now) for each in reversed(what))
        self._wake.set()

    async def durably(self, event: AnyEvent | Record) -> None:
        """Hand in an event, or a record that no event caused, and return once it is in the journal.

        Raises:
            JobOver: it will never be.
        """
        if self._stopped:
            raise JobOver
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(event, durable)
        await durable

    def stop(self) -> None:
        """End `run` after the present round; called while commands are carried out."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Drive until `stop`. Whatever the machine or journal raises ends it."""
        try:
            while not self._stopped:
                await self._sleep()
                await self._round()
        finally:
            self._stopped = True
            for item in (*self._taken, *self._inbox):
                if item.durable is not None and not item.durable.done():
                    item.durable.set_exception(JobOver())

    async def finish(self) -> None:
        """Write down the records that have come since `run` returned."""
        records: list[RecordUpdate] = []
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item.what, Record) and item.durable is None:
                self._record(item.what, self._clock.now(), records)
        await self._journal.commit()
        self._events.record(records)

    def _put(self, what: AnyEvent | Record, durable: asyncio.Future[None] | None = None) -> None:
        self._inbox.append(_Item(what, self._clock.now(), durable))
        self._wake.set()

    async def _sleep(self) -> None:
        """Until something was handed in or the next timer is due."""
        if self._inbox or self._stopped:
            return
        self._wake.clear()
        due = self._machine.next_due()
        if due is None:
            await self._wake.wait()
            return
        delay = due - self._clock.now()
        if delay <= 0:
            return
        # A plain timer handle instead of wait_for: this runs once a round.
        handle = asyncio.get_running_loop().call_later(delay, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            handle.cancel()

    async def _round(self) -> None:
        commands: list[AnyCommand] = []
        records: list[RecordUpdate] = []
        taken = self._taken = []
        due, now = self._machine.next_due(), self._clock.now()
        if due is not None and now - due > LATE_S and math.isfinite(self._latest):
            # This process stood still: what came meanwhile is still to be read.
            self._late_s = max(self._late_s, now - due + READ_S)
        late_s = min(self._late_s, MOST_GIVEN_S - self._given_s)
        if late_s > 0:
            for item in self._inbox:
                item.came = now
            self._take(TimePassed(late_s=late_s), now, commands, records)
            self._given_s += late_s
        self._late_s = 0.0
        while self._inbox and len(taken) < ROUND:
            item = self._inbox.popleft()
            taken.append(item)
            self._take(item.what, item.came, commands, records)
        due = self._machine.next_due()
        now = self._inbox[0].came if self._inbox else self._clock.now()
        if due is not None and due <= now:
            self._take(TimePassed(), now, commands, records)
            if self._machine.next_due() == due:
                raise RuntimeError(f"the machine has not moved what was due at {due}")
        if not (commands or records or taken):
            return
        await self._journal.commit()
        self._taken = []
        for item in taken:
            if item.durable is not None and not item.durable.done():
                item.durable.set_result(None)
        self._events.record(records)
        await self._carry_out(commands)
        if (late_s := self._clock.now() - self._latest) > LATE_S:
            self._late_s = late_s
        else:
            self._given_s = 0.0
        self.advanced.send()

    def _take(
        self,
        what: AnyEvent | Record,
        came: float,
        commands: list[AnyCommand],
        records: list[RecordUpdate],
    ) -> None:
        now = self._latest = max(self._latest, came)
        if isinstance(what, Record):
            self._record(what, now, records)
            return
        # Handled before it is appended: an event the machine cannot take is a defect, and must not
        # be in the journal to be a defect again in every coordinator that follows.
        cause = event_cause(what, self._journal.next_seq)
        caused = self._machine.handle(what, now, cause)
        self._journal.append_event(now, what)
        for command in caused:
            if isinstance(command, Record):
                self._record(command, now, records)
            else:
                commands.append(command)

    def _record(self, record: Record, now: float, records: list[RecordUpdate]) -> None:
        seq = self._journal.append_record(now, record)
        records.append(RecordUpdate(seq=seq, time=now, record=record))


class Past(msgspec.Struct, kw_only=True):
    """What a journal holds."""

    last_seq: int = 0
    last_time: float = 0.0
    incarnations: int = 0
    """Coordinators before this one."""
    records: list[RecordUpdate] = []
    missing: list[Record] = []
    """Records of the last event that the former coordinator did not get to write."""


def replay(machine: Machine, entries: Iterable[EventEntry | RecordEntry]) -> Past:
    """Feed the journal's events to a new machine, at the times they happened.

    Commands are dropped: they were carried out, or are given again when the machine hears of the
    new coordinator. Records come from the journal itself, so that every reader's ``seq`` stays
    right; only those the last event caused may be missing.
    """
    past = Past()
    for entry in entries:
        past.last_seq = entry.seq
        past.last_time = max(past.last_time, entry.now)
        if isinstance(entry, RecordEntry):
            past.records.append(RecordUpdate(seq=entry.seq, time=entry.now, record=entry.record))
            if past.missing and _same(past.missing[0], entry.record):
                past.missing.pop(0)
            continue
        commands = machine.handle(entry.event, entry.now, event_cause(entry.event, entry.seq))
        past.missing = [command for command in commands if isinstance(command, Record)]
        past.incarnations += isinstance(entry.event, CoordinatorStarted)
    return past


def _same(record: Record, written: Record) -> bool:
    """Whether one is the other as the journal has it (where tuples in ``data`` became lists)."""
    return (record.kind, record.text, record.task) == (written.kind, written.text, written.task)

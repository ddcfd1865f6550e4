"""The driver: facts in, durable, commands out. The only place that feeds the machine.

One round takes every event that has come (and every timer that is due) through the machine, puts
events and records into the journal, waits for one commit, and only then has the commands carried
out. So nobody ever acts on something that a new coordinator would not know. While a commit runs,
further events gather for the next round: under load a commit serves many events.

What a crash can leave behind is a durable event whose commands were not carried out. The machine
repairs that on `CoordinatorStarted` and on what agents say they hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

import msgspec

from howdah.coordinator.clock import Clock
from howdah.coordinator.pulse import Pulse
from howdah.coordinator.story import Story
from howdah.core.messages import AnyCommand, AnyEvent, Event, Record, TimePassed
from howdah.core.state import JobState
from howdah.storage.journal import event_cause
from howdah.wire.messages import RecordUpdate

ROUND = 500
"""Events taken in one round: bounds how long one commit makes the first of them wait."""


_OVER = "the job is over, or its coordinator ends; ask again if it does not say so"


class PureMachine(Protocol):
    """What the driver needs of `howdah.core.machine.Machine`."""

    state: JobState

    def handle(self, event: AnyEvent, now: float, cause: str = "") -> list[AnyCommand]:
        """Take a fact in; what is to be done about it comes out."""
        ...

    def next_due(self) -> float | None:
        """When it wants to be told that time has passed."""
        ...


class OpenJournal(Protocol):
    """What the driver needs of `howdah.storage.journal.Journal`."""

    @property
    def next_seq(self) -> int:
        """Number of the next entry."""
        ...

    def append_event(self, now: float, event: AnyEvent) -> int:
        """Put a fact behind all entries, not durable yet; returns its number."""
        ...

    def append_record(self, now: float, record: Record) -> int:
        """The same with a line of the story."""
        ...

    async def commit(self) -> None:
        """Make everything appended so far durable."""
        ...


class _Item(msgspec.Struct):
    """Something that waits for its round."""

    what: AnyEvent | Record
    durable: asyncio.Future[None] | None = None


class Driver:
    """Feeds one machine from many sources; see the module's text."""

    def __init__(
        self,
        machine: PureMachine,
        journal: OpenJournal,
        clock: Clock,
        story: Story,
        carry_out: Callable[[Sequence[AnyCommand]], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._story = story
        self._carry_out = carry_out
        self._inbox: deque[_Item] = deque()
        self._wake = asyncio.Event()
        self._stopped = False
        self.advanced = Pulse()
        """Fired after each round, when what happened is durable."""

    def emit(self, event: Event) -> None:
        """Hand in a fact; it is handled soon, in the order of handing in."""
        self._put(_Item(cast(AnyEvent, event)))

    def note(self, record: Record) -> None:
        """Add a line to the story that no event caused."""
        self._put(_Item(record))

    def first(self, what: Sequence[AnyEvent | Record]) -> None:
        """Put this before all that has been handed in: how a coordinator's life begins."""
        self._inbox.extendleft(_Item(each) for each in reversed(what))
        self._wake.set()

    async def durably(self, event: AnyEvent) -> None:
        """Hand in a fact and return once it is in the journal.

        Raises:
            RuntimeError: the job is over.
        """
        if self._stopped:
            raise RuntimeError(_OVER)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(_Item(event, durable))
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
            for item in self._inbox:
                if item.durable is not None and not item.durable.done():
                    item.durable.set_exception(RuntimeError(_OVER))

    def _put(self, item: _Item) -> None:
        self._inbox.append(item)
        self._wake.set()

    async def _sleep(self) -> None:
        """Until something was handed in or the next timer is due."""
        if self._inbox or self._stopped:
            return
        self._wake.clear()
        delay: float | None = None
        if (due := self._machine.next_due()) is not None:
            delay = due - self._clock.now()
            if delay <= 0:
                return
        if delay is None:
            await self._wake.wait()
            return
        # A plain timer handle instead of wait_for: this runs once a round.
        handle = asyncio.get_running_loop().call_later(delay, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            handle.cancel()

    async def _round(self) -> None:
        commands: list[AnyCommand] = []
        told: list[RecordUpdate] = []
        taken: list[_Item] = []
        if (due := self._machine.next_due()) is not None and due <= self._clock.now():
            self._take(TimePassed(), commands, told)
            if self._machine.next_due() == due:
                raise RuntimeError(f"the machine has not moved what was due at {due}")
        while self._inbox and len(taken) < ROUND:
            item = self._inbox.popleft()
            taken.append(item)
            self._take(item.what, commands, told)
        if not (commands or told or taken):
            return
        await self._journal.commit()
        for item in taken:
            if item.durable is not None and not item.durable.done():
                item.durable.set_result(None)
        self._story.tell(told)
        await self._carry_out(commands)
        self.advanced.fire()

    def _take(
        self, what: AnyEvent | Record, commands: list[AnyCommand], told: list[RecordUpdate]
    ) -> None:
        now = self._clock.now()
        if isinstance(what, Record):
            self._tell(what, now, told)
            return
        # Handled before it is appended: an event the machine cannot take is a defect, and must not
        # be in the journal to be a defect again in every coordinator that follows.
        cause = event_cause(what, self._journal.next_seq)
        caused = self._machine.handle(what, now, cause)
        self._journal.append_event(now, what)
        for command in caused:
            if isinstance(command, Record):
                self._tell(command, now, told)
            else:
                commands.append(command)

    def _tell(self, record: Record, now: float, told: list[RecordUpdate]) -> None:
        seq = self._journal.append_record(now, record)
        told.append(RecordUpdate(seq=seq, time=now, record=record))

"""Taking over: the machine's state and the story, from the journal."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from howdah.coordinator.driver import PureMachine
from howdah.core.messages import CoordinatorStarted, Record
from howdah.storage.journal import EventEntry, RecordEntry, event_cause
from howdah.wire.messages import RecordUpdate


class Past(msgspec.Struct, kw_only=True):
    """What a journal told."""

    last_seq: int = 0
    last_time: float = 0.0
    incarnations: int = 0
    """Coordinators before this one."""
    records: list[RecordUpdate] = []
    untold: list[Record] = []
    """Records of the last event that the former coordinator did not get to write."""


def replay(machine: PureMachine, entries: Iterable[EventEntry | RecordEntry]) -> Past:
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
            if past.untold and _same(past.untold[0], entry.record):
                past.untold.pop(0)
            continue
        commands = machine.handle(entry.event, entry.now, event_cause(entry.event, entry.seq))
        past.untold = [command for command in commands if isinstance(command, Record)]
        past.incarnations += isinstance(entry.event, CoordinatorStarted)
    return past


def _same(record: Record, written: Record) -> bool:
    """Whether one is the other as the journal has it (where tuples in ``data`` became lists)."""
    return (record.kind, record.text, record.task) == (written.kind, written.text, written.task)

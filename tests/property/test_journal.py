"""A damaged journal gives the entries before the damage, or an error: never anything else."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from howdah.core.messages import ContainerGranted, Level, Record, StopRequested, Task, TaskStarted
from howdah.storage.journal import Entry, EventEntry, Journal, JournalError, RecordEntry, read

texts = st.text(max_size=40)
events = st.one_of(
    st.builds(StopRequested, by=texts, reason=texts, firm=st.booleans()),
    st.builds(ContainerGranted, request_id=st.integers(0, 99), container_id=texts, node=texts),
    st.builds(
        TaskStarted,
        task=st.builds(Task, texts, st.integers(0, 9)),
        attempt=st.integers(1, 9),
        pids=st.lists(st.integers(1, 99999), max_size=3).map(tuple),
    ),
)
records = st.builds(Record, kind=texts, text=texts, level=st.sampled_from(Level))
facts = st.lists(events | records, min_size=1, max_size=25)

SEGMENT_BYTES = 600


def write(folder: Path, facts: list[StopRequested | Record], group: int) -> list[Entry]:
    """Write them, some at a time; what must be read again."""

    async def body() -> None:
        journal = Journal.open(folder, segment_bytes=SEGMENT_BYTES)
        for number, fact in enumerate(facts):
            if isinstance(fact, Record):
                journal.append_record(float(number), fact)
            else:
                journal.append_event(float(number), fact)
            if number % group == 0:
                await journal.commit()
        await journal.close()

    start = len(list(read(folder))) if any(folder.iterdir()) else 0
    asyncio.run(body())
    return [
        RecordEntry(seq=start + n + 1, now=float(n), record=fact)
        if isinstance(fact, Record)
        else EventEntry(seq=start + n + 1, now=float(n), event=fact)
        for n, fact in enumerate(facts)
    ]


def read_until_error(folder: Path) -> tuple[list[Entry], JournalError | None]:
    found: list[Entry] = []
    try:
        found.extend(read(folder))
    except JournalError as error:
        return found, error
    return found, None


@given(facts, st.integers(0, 10**6), facts)
@settings(max_examples=40)
def test_a_journal_cut_anywhere_goes_on_from_its_last_whole_entry(
    facts: list[StopRequested | Record], cut: int, more: list[StopRequested | Record]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write(folder, facts, 3)
        last = max(folder.glob("events-*.jsonl"))
        with last.open("r+b") as file:
            file.truncate(cut % (last.stat().st_size + 1))
        found, error = read_until_error(folder)
        assert error is None
        assert found == written[: len(found)]
        added = write(folder, more, 2)
        assert list(read(folder)) == found + added


@given(
    facts,
    st.sampled_from(["flip", "zero", "remove", "repeat", "insert"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 80),
    st.integers(1, 255),
)
@settings(max_examples=60)
def test_damage_anywhere_gives_the_entries_before_it_or_an_error(
    facts: list[StopRequested | Record], how: str, which: int, place: int, length: int, change: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write(folder, facts, 3)
        segments = sorted(folder.glob("events-*.jsonl"))
        path = segments[which % len(segments)]
        data = path.read_bytes()
        place %= len(data)
        part = data[place : place + length]
        new = {
            "flip": bytes([part[0] ^ change]) + part[1:],
            "zero": bytes(len(part)),
            "remove": b"",
            "repeat": part + part,
            "insert": bytes([change]) * length + part,
        }[how]
        path.write_bytes(data[:place] + new + data[place + length :])

        found, error = read_until_error(folder)
        assert found == written[: len(found)]
        if error is not None:
            assert str(folder) in str(error)
            assert "line" in str(error)

        async def reopen() -> None:
            try:
                journal = Journal.open(folder, segment_bytes=SEGMENT_BYTES)
            except JournalError:
                return
            journal.append_event(99.0, StopRequested(by="after"))
            await journal.close()

        asyncio.run(reopen())
        again, error = read_until_error(folder)
        after = [e for e in again if e.now == 99.0]
        kept = [e for e in again if e.now != 99.0]
        assert kept == written[: len(kept)]
        assert len(kept) >= len(found)
        if after:
            assert again[-1] == after[0]
            assert error is None

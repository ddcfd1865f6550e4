from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from howdah.core.messages import AnyEvent, Exit, Level, Record, StopRequested, Task, TaskExited
from howdah.storage import journal as journal_module
from howdah.storage.journal import (
    EventEntry,
    Journal,
    JournalError,
    RecordEntry,
    read,
)

EVENTS: list[AnyEvent] = [
    StopRequested(by="ann", reason="tea \u2615\nand a line"),
    TaskExited(task=Task("worker", 1), attempt=2, exit=Exit(code=42, tail=("a", "b"))),
]
RECORD = Record(kind="task-exited", text="worker:1 exited", level=Level.ERROR, data={"code": 42})


def run(body: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(20):
            return await body

    return asyncio.run(main())


async def add(folder: Path, count: int, **options: Any) -> None:
    journal = Journal.open(folder, **options)
    for number in range(count):
        journal.append_event(float(number), StopRequested(by=f"user {number}"))
    await journal.close()


async def test_entries_come_back_as_they_were_with_numbers_from_one(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    assert journal.append_event(1.25, EVENTS[0]) == 1
    assert journal.append_record(1.25, RECORD) == 2
    journal.append(EventEntry(seq=3, now=2.0, event=EVENTS[1]))
    await journal.close()
    assert list(read(tmp_path)) == [
        EventEntry(seq=1, now=1.25, event=EVENTS[0]),
        RecordEntry(seq=2, now=1.25, record=RECORD),
        EventEntry(seq=3, now=2.0, event=EVENTS[1]),
    ]


async def test_the_next_writer_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    await add(tmp_path, 3)

    journal = Journal.open(tmp_path)
    assert journal.next_seq == 4
    with pytest.raises(ValueError, match="has number 4, not 7"):
        journal.append(EventEntry(seq=7, now=0.0, event=EVENTS[0]))
    journal.append_event(9.0, EVENTS[0])
    await journal.close()
    assert [entry.seq for entry in read(tmp_path)] == [1, 2, 3, 4]


def test_an_empty_journal_has_no_entries(tmp_path: Path) -> None:
    assert list(read(tmp_path)) == []
    run(add(tmp_path, 0))
    assert list(read(tmp_path)) == []


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run(add(tmp_path, 3, segment_bytes=10))
    finally:
        os.umask(before)
    segments = list(tmp_path.glob("events-*"))
    assert len(segments) == 3
    for path in segments:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


# -- durability ----------------------------------------------------------------------------------


async def test_what_is_committed_is_in_the_file_and_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[int] = []
    sync_data = journal_module._sync_data

    def noting(descriptor: int) -> None:
        sync_data(descriptor)
        synchronised.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(journal_module, "_sync_data", noting)

    journal = Journal.open(tmp_path)
    for number in range(3):
        journal.append_event(0.0, EVENTS[0])
        await journal.commit()
        assert len(list(read(tmp_path))) == number + 1
        assert synchronised[-1] == (tmp_path / "events-0001.jsonl").stat().st_size
    await journal.commit()  # nothing new: nothing to synchronise
    assert len(synchronised) == 3
    await journal.close()


async def test_commits_at_the_same_time_share_a_synchronisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    sync_data = journal_module._sync_data

    def counting(descriptor: int) -> None:
        nonlocal count
        count += 1
        sync_data(descriptor)

    monkeypatch.setattr(journal_module, "_sync_data", counting)

    journal = Journal.open(tmp_path)

    async def one(number: int) -> None:
        seq = journal.append_event(float(number), EVENTS[0])
        await journal.commit()
        assert len(list(read(tmp_path))) >= seq

    await asyncio.gather(*(one(number) for number in range(200)))
    await journal.close()
    assert count <= 4
    assert len(list(read(tmp_path))) == 200


async def test_entries_appended_while_others_are_written_wait_for_the_next_round(
    tmp_path: Path,
) -> None:
    journal = Journal.open(tmp_path)
    journal.append_event(0.0, EVENTS[0])
    first = asyncio.create_task(journal.commit())
    await asyncio.sleep(0)
    journal.append_event(1.0, EVENTS[0])
    second = asyncio.create_task(journal.commit())
    await first
    await second
    assert len(list(read(tmp_path))) == 2
    await journal.close()


async def test_a_cancelled_commit_takes_nothing_back(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.append_event(0.0, EVENTS[0])
    waiting = asyncio.create_task(journal.commit())
    await asyncio.sleep(0)
    waiting.cancel()
    journal.append_event(1.0, EVENTS[0])
    await journal.commit()
    assert len(list(read(tmp_path))) == 2
    await journal.close()


async def test_after_a_failed_write_nothing_is_taken_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal.open(tmp_path)
    journal.append_event(0.0, EVENTS[0])
    await journal.commit()
    monkeypatch.setattr(journal_module, "_sync_data", full)
    journal.append_event(1.0, EVENTS[0])
    results = await asyncio.gather(journal.commit(), journal.commit(), return_exceptions=True)
    assert all(isinstance(result, JournalError) for result in results)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="No space left on device"):
        journal.append_event(2.0, EVENTS[0])
    with pytest.raises(JournalError, match="No space left on device"):
        await journal.commit()
    await journal.close()
    await add(tmp_path, 1)  # the lock is free again


# -- one writer ----------------------------------------------------------------------------------


async def test_a_second_writer_is_refused_in_this_process_and_in_another(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from howdah.storage.journal import *\n"
        "try: Journal.open(Path(sys.argv[1]))\n"
        "except JournalError as error: print(error)\n"
        "else: print('opened')"
    )

    def other() -> str:
        command = [sys.executable, "-c", script, str(tmp_path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    journal = Journal.open(tmp_path)
    with pytest.raises(JournalError, match="one coordinator at a time"):
        Journal.open(tmp_path)
    assert "Another process writes the journal" in other()
    journal.append_event(0.0, EVENTS[0])
    await journal.close()
    assert other() == "opened\n"


def test_a_killed_writer_leaves_the_journal_to_the_next(tmp_path: Path) -> None:
    script = (
        "import sys, os, asyncio, signal; from pathlib import Path\n"
        "from howdah.storage.journal import *; from howdah.core.messages import StopRequested\n"
        "async def main():\n"
        "    journal = Journal.open(Path(sys.argv[1]))\n"
        "    for n in range(5):\n"
        "        journal.append_event(float(n), StopRequested(by='x')); await journal.commit()\n"
        "    journal.append_event(5.0, StopRequested(by='never durable'))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert [entry.now for entry in read(tmp_path)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    run(add(tmp_path, 1))
    assert len(list(read(tmp_path))) == 6


# -- damage --------------------------------------------------------------------------------------


def test_a_line_torn_by_a_crash_is_not_read_and_cut_off(tmp_path: Path) -> None:
    run(add(tmp_path, 3))
    path = tmp_path / "events-0001.jsonl"
    whole = path.read_bytes()
    for torn in (b"{", b'{"crc":"00', whole.splitlines()[0], b"\0" * 5000, b'{"crc\0\0\0'):
        path.write_bytes(whole + torn)
        assert len(list(read(tmp_path))) == 3
        run(add(tmp_path, 0))
        assert path.read_bytes() == whole


def test_damage_before_the_end_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    run(add(tmp_path, 5))
    path = tmp_path / "events-0001.jsonl"
    path.write_bytes(path.read_bytes().replace(b"user 2", b"user X"))
    for use in (lambda: list(read(tmp_path)), lambda: Journal.open(tmp_path)):
        with pytest.raises(
            JournalError, match=r"events-0001\.jsonl, line 3: its checksum does not fit"
        ):
            use()


def test_a_missing_line_is_an_error(tmp_path: Path) -> None:
    run(add(tmp_path, 5))
    path = tmp_path / "events-0001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(JournalError, match="line 3: entry 4 follows entry 2"):
        list(read(tmp_path))
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(JournalError, match="line 1: entry 2 follows entry 0"):
        list(read(tmp_path))


def test_an_entry_of_a_newer_version_is_an_error_not_skipped(tmp_path: Path) -> None:
    run(add(tmp_path, 1))
    body = b'{"is":"event","seq":2,"now":1.0,"event":{"type":"MoonRisen"}}'
    import zlib

    with (tmp_path / "events-0001.jsonl").open("ab") as file:
        file.write(b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body[1:]))
    with pytest.raises(JournalError, match="line 2: not an entry this version knows.*MoonRisen"):
        list(read(tmp_path))


# -- segments ------------------------------------------------------------------------------------


def test_segments_rotate_by_size_and_read_as_one(tmp_path: Path) -> None:
    run(add(tmp_path, 20, segment_bytes=400))
    run(add(tmp_path, 20, segment_bytes=400))
    segments = sorted(tmp_path.glob("events-*.jsonl"))
    assert len(segments) > 5
    assert all(path.stat().st_size <= 400 for path in segments)
    assert [entry.seq for entry in read(tmp_path)] == list(range(1, 41))


def test_more_than_9999_segments_keep_their_order() -> None:
    names = [journal_module.segment_name(number) for number in (10000, 1, 9999)]
    in_order = ["events-0001.jsonl", "events-9999.jsonl", "events-10000.jsonl"]
    assert sorted(names, key=journal_module.segment_number) == in_order


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    run(add(tmp_path, 10, segment_bytes=200))
    (tmp_path / "events-0002.jsonl").unlink()
    for use in (lambda: list(read(tmp_path)), lambda: Journal.open(tmp_path)):
        with pytest.raises(JournalError, match=r"events-0002\.jsonl is missing"):
            use()


def test_a_crash_right_after_a_rotation_is_recovered_from(tmp_path: Path) -> None:
    run(add(tmp_path, 3))
    for torn in (b"", b'{"crc":"12'):
        (tmp_path / "events-0002.jsonl").write_bytes(torn)
        assert [entry.seq for entry in read(tmp_path)] == [1, 2, 3]
        run(add(tmp_path, 0))
    run(add(tmp_path, 1))
    assert [entry.seq for entry in read(tmp_path)] == [1, 2, 3, 4]


def test_a_torn_line_in_an_earlier_segment_is_damage(tmp_path: Path) -> None:
    run(add(tmp_path, 3, segment_bytes=1))
    path = tmp_path / "events-0002.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(JournalError, match=r"events-0002\.jsonl, line 1"):
        list(read(tmp_path))


async def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=2000)
    seen = 0
    for number in range(200):
        journal.append_event(float(number), EVENTS[0])
        if number % 7 == 0:
            await journal.commit()
            entries = await asyncio.to_thread(lambda: list(read(tmp_path)))
            assert len(entries) > seen or number == 0
            seen = len(entries)
    await journal.close()

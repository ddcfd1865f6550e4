"""The journal on HDFS: durable, one writer at a time, whole for every reader."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from howdah.core.messages import Record, StopRequested
from howdah.storage import journal
from howdah.storage.copies import replica
from howdah.storage.copies.mirror import Mirror
from howdah.storage.copies.replica import HdfsJournal
from howdah.storage.hdfs.errors import NotFound
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.journal import Fenced, Journal, JournalError


def opened(url: str, folder: Path) -> Journal:
    folder.mkdir(exist_ok=True)
    return Journal.open(folder, replica=HdfsJournal(url))


async def write(writer: Journal, count: int) -> None:
    for number in range(count):
        writer.append_event(float(number), StopRequested(by=f"timer-{writer.next_seq}"))
        await writer.commit()


def brought(url: str, folder: Path, *, nobody_writes: bool = False) -> list[journal.Entry]:
    folder.mkdir(exist_ok=True)
    replica.bring_journal(url, folder, nobody_writes=nobody_writes)
    return list(journal.read(folder))


def test_what_is_committed_is_read_elsewhere_as_it_was_written(url: str, tmp_path: Path) -> None:
    async def run() -> None:
        writer = opened(url, tmp_path / "master")
        await write(writer, 20)
        writer.append_record(21.0, Record(kind="note", text="a line"))
        await writer.close()

    asyncio.run(run())
    there = brought(url, tmp_path / "reader")
    assert there == list(journal.read(tmp_path / "master"))
    assert len(there) == 21


def test_a_new_master_has_all_that_the_dead_one_committed(url: str, tmp_path: Path) -> None:
    """The first dies as by kill -9, its segment open."""
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from tests.hdfs.test_replica import opened, write\n"
        "async def run():\n"
        "    await write(opened(sys.argv[1], Path(sys.argv[2])), 30)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(run())\n"
    )
    died = subprocess.run([sys.executable, "-c", program, url, str(tmp_path / "one")])
    assert died.returncode == -9

    async def take_over() -> list[journal.Entry]:
        writer = opened(url, tmp_path / "two")
        taken = list(journal.read(tmp_path / "two"))
        assert writer.next_seq == 31
        # The dead one's clock began at 0: nobody's wall time has a part in it.
        assert writer.time_now is not None and 0 <= writer.time_now < 1_000_000
        await write(writer, 5)
        await writer.close()
        return taken

    taken = asyncio.run(take_over())
    assert [entry.seq for entry in taken] == list(range(1, 31))
    assert taken == list(journal.read(tmp_path / "one"))
    assert [entry.seq for entry in brought(url, tmp_path / "three")] == list(range(1, 36))


def test_a_master_that_was_taken_over_can_write_no_more(url: str, tmp_path: Path) -> None:
    async def run() -> None:
        old = opened(url, tmp_path / "old")
        await write(old, 3)
        new = opened(url, tmp_path / "new")
        await write(new, 2)
        old.append_event(9.0, StopRequested(by="too late"))
        with pytest.raises(JournalError, match="Another master has taken over") as told:
            await old.commit()
        assert "this one ends, the job goes on" in str(told.value)
        await old.close()
        await write(new, 2)
        await new.close()

    asyncio.run(run())
    entries = brought(url, tmp_path / "reader")
    assert [entry.seq for entry in entries] == list(range(1, 8))
    assert entries == list(journal.read(tmp_path / "new"))


def test_two_masters_at_once_end_with_one(url: str, tmp_path: Path) -> None:
    async def run() -> tuple[int, list[int]]:
        writers = await asyncio.gather(
            *(asyncio.to_thread(opened, url, tmp_path / f"m{n}") for n in range(3)),
        )
        alive: list[int] = []
        for number, writer in enumerate(writers):
            try:
                await write(writer, 3)
            except Fenced:
                pass
            except JournalError as error:
                assert "Another master" in str(error)
            else:
                alive.append(number)
        for writer in writers:
            await writer.close()
        return len(writers), alive

    _, alive = asyncio.run(run())
    assert len(alive) == 1
    entries = brought(url, tmp_path / "reader", nobody_writes=True)
    assert entries == list(journal.read(tmp_path / f"m{alive[0]}"))
    assert len(entries) == 3


def test_a_lease_taken_by_mistake_only_interrupts(url: str, hdfs: Hdfs, tmp_path: Path) -> None:
    async def run() -> None:
        writer = opened(url, tmp_path / "master")
        await write(writer, 3)
        seen = await asyncio.to_thread(brought, url, tmp_path / "reader", nobody_writes=True)
        assert len(seen) == 3
        await write(writer, 3)
        await writer.close()

    asyncio.run(run())
    assert [entry.seq for entry in brought(url, tmp_path / "after")] == list(range(1, 7))
    assert replica.segment_numbers(hdfs, url) == [1, 2]


def test_segments_end_at_their_size(url: str, hdfs: Hdfs, tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "master").mkdir()
        writer = Journal.open(tmp_path / "master", replica=HdfsJournal(url, segment_bytes=500))
        await write(writer, 20)
        await writer.close()

    asyncio.run(run())
    assert len(replica.segment_numbers(hdfs, url)) > 2
    assert [entry.seq for entry in brought(url, tmp_path / "reader")] == list(range(1, 21))


def test_a_job_directory_that_is_gone_ends_the_journal_in_words(
    url: str, hdfs: Hdfs, tmp_path: Path
) -> None:
    async def run() -> None:
        writer = opened(url, tmp_path / "master")
        await write(writer, 1)
        hdfs.remove(url, recursive=True)
        writer.append_event(2.0, StopRequested(by="x"))
        with pytest.raises(JournalError, match="can't be written.*no such file or folder"):
            await writer.commit()
        await writer.close()

    asyncio.run(run())
    # Nor is it made again by what that master has to say of its end.
    (tmp_path / "final.json").write_text("{}")
    with pytest.raises(NotFound):
        Mirror(url, tmp_path).push(["final.json"])
    assert not hdfs.exists(url)


def test_torn_ends_and_repeated_entries_are_left_out(tmp_path: Path) -> None:
    entries = [
        journal._encode(journal.EventEntry(seq=n, now=0.0, event=StopRequested(by="x")))
        for n in range(1, 6)
    ]
    one, two, three, four, five = entries
    found = replica.sound([one + two + three[:-9], two + three + four[:5], b"", four + five])
    assert found == [one + two, three, b"", four + five]


def test_damage_inside_is_kept_to_be_complained_about(tmp_path: Path) -> None:
    one = journal._encode(journal.EventEntry(seq=1, now=0.0, event=StopRequested(by="x")))
    (tmp_path / "events-0001.jsonl").write_bytes(replica.sound([b"x" + one + one])[0])
    with pytest.raises(JournalError, match="line 1"):
        list(journal.read(tmp_path))

"""Following goes on through a coordinator's death, and nothing comes twice or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from howdah.backends.base import Running
from howdah.backends.local import site
from howdah.backends.local.site import LocalSite
from howdah.client.errors import Refused, Unreachable
from howdah.client.following import remote
from howdah.client.following.items import JobEvent, LogLine
from howdah.client.following.log_lines import FollowerPosition, LogId
from howdah.client.following.remote import Link, Remote, Update
from howdah.client.handle import AsyncJobHandle, Callbacks
from howdah.core.messages import Record
from howdah.storage.jobdir import JobDirectory
from howdah.storage.journal import Journal
from howdah.storage.layout import CoordinatorAddress
from howdah.storage.logs import LogWriter
from howdah.wire.messages import (
    Answer,
    AskStatus,
    AskStop,
    LogUpdate,
    RecordUpdate,
    Refuse,
    StacksReply,
    Watch,
)
from howdah.wire.status import JobView
from howdah.wire.tickets import TicketStore
from tests.unit.client.coordinators import (
    FINAL,
    VIEW,
    WORKER,
    Client,
    coordinator,
    job_directory,
    log,
    record,
    status,
)


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return job_directory(tmp_path)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


def write_log(directory: JobDirectory, data: bytes) -> None:
    writer = LogWriter(directory.log_path(WORKER, 1))
    writer.write(data)
    writer.close()


async def write_journal(directory: JobDirectory, texts: list[str]) -> None:
    journal = Journal.open(directory.path)
    for text in texts:
        journal.append_record(0.0, Record(kind="test", text=text))
    await journal.commit()
    await journal.close()


def seen(updates: list[Update]) -> tuple[list[int], bytes, list[str]]:
    """Record numbers, log bytes and phases, each in their order."""
    return (
        [u.seq for u in updates if isinstance(u, RecordUpdate)],
        b"".join(u.data for u in updates if isinstance(u, LogUpdate)),
        [u.phase for u in updates if isinstance(u, JobView)],
    )


async def test_a_job_is_followed_to_its_end(directory: JobDirectory) -> None:
    async def serve(client: Client) -> None:
        watch = await client.receive()
        assert isinstance(watch, Watch) and watch.logs and watch.after_seq == 0
        await client.say(status(), record(1), log(0, b"one\n"), record(2), log(4, b"two\n"))
        await write_journal(directory, ["1", "2"])
        write_log(directory, b"one\ntwo\n")
        directory.write_final(FINAL)
        await client.say(status(FINAL))

    async with coordinator(directory, serve):
        updates = [u async for u in Remote(directory).follow(FollowerPosition())]
    assert seen(updates) == ([1, 2], b"one\ntwo\n", ["running", "finished"])
    assert updates[-1] == FINAL


async def test_a_successor_is_told_what_is_known_and_nothing_is_repeated(
    directory: JobDirectory,
) -> None:
    lives: list[Watch] = []

    async def first(client: Client) -> None:
        lives.append(await client.receive())
        await client.say(record(1), record(2), log(0, b"abc"))

    async def second(client: Client) -> None:
        lives.append(await client.receive())
        # An older coordinator might not honour the offsets: it sends all of it again.
        await client.say(record(2), record(3), log(0, b"abcdef"))
        await write_journal(directory, ["1", "2", "3", "4"])
        write_log(directory, b"abcdefghi")
        directory.write_final(FINAL)

    updates: list[Update] = []

    async def follow() -> None:
        async for update in Remote(directory).follow(FollowerPosition()):
            updates.append(update)

    following = asyncio.create_task(follow())
    async with coordinator(directory, first):
        while len(updates) < 3:
            await asyncio.sleep(0.001)
    async with coordinator(directory, second, incarnation=2):
        await following
    numbers, data, _ = seen(updates)
    assert numbers == [1, 2, 3, 4]
    assert data == b"abcdefghi"
    assert lives[0].offsets == ()
    assert lives[1].after_seq == 2
    assert lives[1].offsets == ((WORKER, 1, 3),)


async def test_whoever_follows_hears_that_the_coordinator_is_away_and_back(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE_S", 0.01)

    async def serve(client: Client) -> None:
        await client.receive()
        await client.say(record(1))

    async def last(client: Client) -> None:
        await client.receive()
        directory.write_final(FINAL)

    updates: list[Update] = []

    async def follow() -> None:
        async for update in Remote(directory).follow(FollowerPosition()):
            updates.append(update)

    following = asyncio.create_task(follow())
    async with coordinator(directory, serve):
        while not any(isinstance(u, RecordUpdate) for u in updates):
            await asyncio.sleep(0.001)
    while updates[-1] != Link(None):
        await asyncio.sleep(0.001)
    async with coordinator(directory, last, incarnation=2):
        await following
    assert Link(2) in updates


async def test_a_job_that_ended_is_read_from_its_directory(directory: JobDirectory) -> None:
    await write_journal(directory, ["a", "b", "c"])
    write_log(directory, b"0123456789")
    directory.write_final(FINAL)
    position = FollowerPosition(after_seq=1)
    position.offsets[LogId(WORKER, 1)] = 4
    updates = [u async for u in Remote(directory).follow(position)]
    assert seen(updates) == ([2, 3], b"456789", ["finished"])


def abandon(directory: JobDirectory) -> None:
    """Leave the address of a coordinator that is no more."""
    child = subprocess.Popen(["true"])
    child.wait()
    directory.write_coordinator(
        CoordinatorAddress(incarnation=1, host="127.0.0.1", port=9, http_port=0, pid=child.pid)
    )


async def test_a_job_that_nobody_runs_is_given_up_in_words(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ABANDONED_S", 0.05)
    abandon(directory)

    handle = AsyncJobHandle(directory)
    with pytest.raises(Unreachable, match=r"attach --revive .*howdah rerun [^ ]*\. "):
        await handle.wait()
    with pytest.raises(Unreachable, match="nobody runs"):
        await handle.stop()
    assert (await handle.status()).lost


async def test_a_full_disk_is_named_when_a_job_was_given_up(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ABANDONED_S", 0.05)
    monkeypatch.setattr(site, "FULL", 1 << 60)
    abandon(directory)

    with pytest.raises(Unreachable, match=r"the disk is full: \d+ KiB are free"):
        await AsyncJobHandle(directory).wait()


async def test_a_job_that_is_just_being_submitted_is_not_lost(directory: JobDirectory) -> None:
    view = await AsyncJobHandle(directory).status()
    assert (view.phase, view.lost) == ("submitted", False)


@pytest.mark.parametrize("ahead_s", [-1200.0, 1200.0])
async def test_a_link_to_the_page_is_good_where_the_clocks_are_apart(
    directory: JobDirectory, ahead_s: float
) -> None:
    async def asked(client: Client) -> None:
        assert isinstance(await client.receive(), AskStatus)
        await client.say(status())
        await client.until_gone()

    async with coordinator(directory, asked, http_port=1, ahead_s=ahead_s):
        handle = AsyncJobHandle(directory)
        await handle.status()
        link = handle.page()
    assert link is not None
    ticket = link.partition("ticket=")[2]
    there = time.time() + ahead_s
    # A successor takes none that was made before it began.
    assert TicketStore(directory.token(), opened=there - 60).take(ticket, there)


async def test_a_refusal_is_passed_on(directory: JobDirectory) -> None:
    async def refuse(client: Client) -> None:
        await client.say(Refuse(reason="the client is too old"))

    async with coordinator(directory, refuse, greet=False):
        with pytest.raises(Refused, match="the client is too old"):
            await AsyncJobHandle(directory).stop()


async def test_a_question_is_asked_again_in_a_successor(directory: JobDirectory) -> None:
    asked: list[AskStop] = []

    async def dies(client: Client) -> None:
        asked.append(await client.receive())

    async def answers(client: Client) -> None:
        asked.append(await client.receive())
        await client.say(Answer())

    stopping = asyncio.create_task(AsyncJobHandle(directory).stop("enough", firm=True))
    async with coordinator(directory, dies):
        while not asked:
            await asyncio.sleep(0.001)
    async with coordinator(directory, answers, incarnation=2):
        await stopping
    assert asked[-1] == AskStop(firm=True, reason="enough")


class BetweenTwo(LocalSite):
    """A job elsewhere whose coordinator has just died; only its next one can end it."""

    at_hand = False

    def running(self) -> Running:
        return Running.NOT_YET

    def end(self, why: str) -> None:
        raise AssertionError(f"ended without its coordinator: {why}")


async def test_a_job_between_two_coordinators_is_stopped_by_the_next_one(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AskStop] = []

    async def answers(client: Client) -> None:
        asked.append(await client.receive())
        await client.say(Answer())

    job = AsyncJobHandle(directory)
    monkeypatch.setattr(job._remote, "site", BetweenTwo(directory))
    async with coordinator(directory, answers):
        await job.stop("enough")
    assert asked == [AskStop(reason="enough")]


async def test_a_silent_coordinator_is_not_waited_for_for_ever(directory: JobDirectory) -> None:
    async def silent(client: Client) -> None:
        await client.until_gone()

    async with coordinator(directory, silent):
        with pytest.raises(Unreachable, match="did not answer .* kill it"):
            await Remote(directory).ask(AskStop(), Answer, within_s=0.1)


def test_stopping_a_job_that_has_ended_changes_nothing(directory: JobDirectory) -> None:
    directory.write_final(FINAL)
    run(AsyncJobHandle(directory).stop)


async def test_stacks_of_a_task_come_back_or_the_reason_why_not(directory: JobDirectory) -> None:
    replies = [
        StacksReply(task=WORKER, text="train.py:7"),
        StacksReply(task=WORKER, problem="it has just ended"),
    ]

    async def answers(client: Client) -> None:
        await client.receive()
        await client.say(replies.pop(0))

    handle = AsyncJobHandle(directory)
    async with coordinator(directory, answers):
        assert await handle.stacks("worker:0") == "train.py:7"
        with pytest.raises(Refused, match="it has just ended"):
            await handle.stacks("worker:0")


async def test_callbacks_get_everything_once_and_lines_whole(directory: JobDirectory) -> None:
    async def serve(client: Client) -> None:
        await client.receive()
        await client.say(status(), record(1), log(0, b"one\ntw"), status(), record(2))
        await write_journal(directory, ["1", "2"])
        write_log(directory, b"one\ntwo\nthree")
        directory.write_final(FINAL)

    lines: list[LogLine] = []
    events: list[JobEvent] = []
    states: list[JobView] = []

    async def on_event(event: JobEvent) -> None:
        events.append(event)

    callbacks = Callbacks(on_event=on_event, on_state=states.append, on_log=lines.append)
    handle = AsyncJobHandle(directory, callbacks)
    async with coordinator(directory, serve):
        view = await handle.wait()
    assert view == FINAL
    assert [(line.offset, line.text) for line in lines] == [
        (0, "one"),
        (4, "two"),
        (8, "three"),
    ]
    assert [event.seq for event in events] == [1, 2]
    assert states == [VIEW, FINAL]


async def test_what_a_callback_raises_wait_raises(directory: JobDirectory) -> None:
    def broken(_event: JobEvent) -> None:
        raise ZeroDivisionError("in the callback")

    await write_journal(directory, ["1"])
    directory.write_final(FINAL)
    handle = AsyncJobHandle(directory, Callbacks(on_event=broken))
    with pytest.raises(ZeroDivisionError, match="in the callback"):
        await handle.wait()


async def test_waiting_has_a_time_out_and_the_job_goes_on(directory: JobDirectory) -> None:
    async def silent(client: Client) -> None:
        await client.until_gone()

    async with coordinator(directory, silent):
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s; it goes on"):
            await AsyncJobHandle(directory).wait(0.05)

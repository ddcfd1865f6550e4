"""The writer keeps order, keeps a status line below, and never blocks whoever writes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Iterator

import pytest

from howdah.cli.display.attached import Tie, View, _Session
from howdah.cli.display.writer import HIGH, Writer


class Pipe:
    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def close_reader(self) -> None:
        os.close(self.read_end)
        self.read_end = -1

    def read_all(self) -> bytes:
        os.close(self.write_end)
        self.write_end = -1
        with open(self.read_end, "rb") as file:
            self.read_end = -1
            return file.read()


@pytest.fixture
def pipes() -> Iterator[tuple[Pipe, Pipe]]:
    made = Pipe(), Pipe()
    yield made
    for pipe in made:
        for end in (pipe.read_end, pipe.write_end):
            with contextlib.suppress(OSError):
                os.close(end)


class SlowReader:
    """In the place of a writer's thread: while that is waited for, a reader takes a little, or nothing."""

    def __init__(self, writer: Writer, pipe: Pipe, total: int, most: int) -> None:
        self.taken = b""
        self._writer, self._pipe, self._total, self._most = writer, pipe, total, most
        self.thread, writer._thread = writer._thread, self  # type: ignore[assignment]

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def join(self, timeout_s: float) -> None:
        before = self._writer.taken
        if before == self._total:
            self.thread.join(20)
        most = min(self._most, len(self.taken) + 100_000)  # a pipe holds less
        while self.is_alive() and self._writer.taken == before and len(self.taken) < most:
            self.taken += os.read(self._pipe.read_end, 4096)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(bounded())


async def test_everything_is_written_in_order(pipes: tuple[Pipe, Pipe]) -> None:
    out, err = pipes

    writer = Writer(asyncio.get_running_loop(), print, out=out.write_end, err=err.write_end)
    for number in range(1000):
        writer.out(b"%d\n" % number)
    writer.err(b"said\n")
    await asyncio.to_thread(writer.close)
    assert out.read_all() == b"".join(b"%d\n" % n for n in range(1000))
    assert err.read_all() == b"said\n"


async def test_the_status_line_is_erased_before_and_shown_after_what_is_printed() -> None:
    terminal = Pipe()

    fd = terminal.write_end
    # As on a terminal: both outputs are the same.
    writer = Writer(asyncio.get_running_loop(), print, out=fd, err=os.dup(fd))
    writer.status(b"[1/2]")
    while not os.read(terminal.read_end, 100).endswith(b"[1/2]"):
        pass
    writer.out(b"line\n")
    shown = b""
    while not shown.endswith(b"[1/2]"):
        shown += os.read(terminal.read_end, 100)
    assert shown == b"\r\x1b[2Kline\n[1/2]"
    await asyncio.to_thread(writer.close)
    os.close(writer._err)
    assert terminal.read_all() == b"\r\x1b[2K"


async def test_a_reader_that_takes_nothing_slows_the_source_not_the_loop(
    pipes: tuple[Pipe, Pipe],
) -> None:
    out, err = pipes

    writer = Writer(asyncio.get_running_loop(), print, out=out.write_end, err=err.write_end)
    writer.out(b"x" * (2 * HIGH))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await writer.room()
    reading = asyncio.create_task(asyncio.to_thread(_read, out.read_end, 2 * HIGH))
    await writer.room()
    await reading
    await asyncio.to_thread(writer.close)


def _read(descriptor: int, count: int) -> None:
    while count > 0:
        count -= len(os.read(descriptor, 65536))


async def test_a_reader_that_has_gone_is_told_once_and_the_rest_is_dropped(
    pipes: tuple[Pipe, Pipe],
) -> None:
    out, err = pipes
    out.close_reader()

    told: list[int | None] = []
    closed = asyncio.Event()

    def on_closed(error: OSError) -> None:
        told.append(error.errno)
        closed.set()

    writer = Writer(asyncio.get_running_loop(), on_closed, out=out.write_end, err=err.write_end)
    writer.out(b"x" * (2 * HIGH))
    await closed.wait()
    writer.out(b"more")
    await writer.room()
    await asyncio.to_thread(writer.close)
    assert told == [errno.EPIPE]


async def test_standard_error_that_cannot_be_written_ends_nothing(pipes: tuple[Pipe, Pipe]) -> None:
    out, err = pipes
    err.close_reader()

    told: list[OSError] = []
    writer = Writer(asyncio.get_running_loop(), told.append, out=out.write_end, err=err.write_end)
    writer.err(b"said\n")
    writer.out(b"line\n")
    await asyncio.to_thread(writer.close)
    assert out.read_all() == b"line\n"
    assert told == []


async def test_a_terminal_somebody_made_non_blocking_is_written_whole(
    pipes: tuple[Pipe, Pipe],
) -> None:
    out, err = pipes
    os.set_blocking(out.write_end, False)

    writer = Writer(asyncio.get_running_loop(), print, out=out.write_end, err=err.write_end)
    reading = asyncio.create_task(asyncio.to_thread(_read, out.read_end, 500_000))
    writer.out(b"x" * 500_000)
    await asyncio.to_thread(writer.close)
    await reading


def attached(writer: Writer) -> None:
    session = _Session(Tie.VIEW, View(), lambda: None, ())
    asyncio.run(session._close_patiently(writer))


def test_a_slow_reader_is_given_all_of_the_output(
    pipes: tuple[Pipe, Pipe], capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = pipes
    whole = os.urandom(500_000)
    loop = asyncio.new_event_loop()
    writer = Writer(loop, print, out=out.write_end, err=err.write_end)
    writer.out(whole)
    reader = SlowReader(writer, out, len(whole), len(whole))
    attached(writer)
    loop.close()
    assert reader.taken + out.read_all() == whole
    assert capfd.readouterr().err == ""


def test_a_reader_that_takes_no_more_is_not_waited_for_and_that_is_said(
    pipes: tuple[Pipe, Pipe], capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = pipes
    loop = asyncio.new_event_loop()
    writer = Writer(loop, print, out=out.write_end, err=err.write_end)
    writer.out(bytes(500_000))
    reader = SlowReader(writer, out, 500_000, 100_000)
    attached(writer)
    assert 100_000 <= len(reader.taken) < 500_000
    assert "the output is cut off" in capfd.readouterr().err
    out.close_reader()
    reader.thread.join(20)
    loop.close()

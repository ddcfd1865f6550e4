"""``howdah exec``: a command, or a shell, beside a task's program."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from howdah.cli.arguments import (
    JobCommand,
    command_of,
    handle_of,
    store_option,
    task_argument,
)
from howdah.cli.display.terminal import echo, is_terminal

if TYPE_CHECKING:
    import asyncio

    from howdah.client.handle import AsyncJobHandle
    from howdah.wire.channel import Channel
    from howdah.wire.messages import ExecEnded, OpenExec

T = TypeVar("T", bytes, int)
A = TypeVar("A", bytes, int)

LEAVE_AFTER = 3
"""Ctrl-C so often without a terminal leaves, whether the command has ended or not."""


@click.command("exec", cls=JobCommand)
@task_argument
@click.option(
    "-t",
    "--terminal",
    is_flag=True,
    help="Give the command a terminal of its own, like a shell's, for `top`, editors and "
    "debuggers.",
)
@store_option
@click.pass_context
def command(
    ctx: click.Context,
    job_id: str | None,
    task: str,
    words: tuple[str, ...],
    terminal: bool,
    store: str | None,
) -> int:
    """Run a command beside a task's program, or a shell.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. TASK is a
    running task, such as worker:1. The command has the program's environment variables and working
    folder. Its standard streams are those of this command. If you give no command and standard
    input is a terminal, you get a shell with a terminal on that machine. `~.` at the beginning of a
    line leaves it, even if the connection is dead.

    The command ends with the task, and when you leave it. Only the job's owner can run a command.
    The event log shows its start and its end. A site may forbid such commands.

    Exits with the command's own code. If a signal ended the command, the code is 128 plus the
    signal's number; if it could not be started, 126 or 127. If Howdah could not run it, the exit
    code says what went wrong.
    """
    import asyncio

    from howdah.wire.messages import OpenExec

    argv = command_of(ctx)
    if words:
        raise click.UsageError(
            f"{words[0]!r} is one argument too many. A command goes behind two dashes: "
            f"howdah exec {' '.join(filter(None, (job_id, task)))} -- {' '.join(words)}"
        )
    at_terminal = is_terminal(0)
    if terminal and not at_terminal:
        raise click.UsageError("--terminal needs standard input to be a terminal")
    handle = handle_of(job_id, store)
    columns, rows = os.get_terminal_size(0) if at_terminal else (80, 24)
    wanted = OpenExec(
        task=handle.task(task),
        command=tuple(map(os.fsencode, argv)),
        terminal=terminal or (at_terminal and not argv),
        rows=rows,
        columns=columns,
        term=os.environ.get("TERM", ""),
    )
    return asyncio.run(_run(handle, wanted))


async def _run(handle: AsyncJobHandle, wanted: OpenExec) -> int:
    from howdah.client.errors import Unreachable
    from howdah.client.following.execs import open_exec

    channel = await open_exec(handle.job_directory, wanted)
    session = _Session(channel, wanted.terminal)
    try:
        ended = await session.run()
    finally:
        channel.abort()
    if isinstance(ended, int):
        return ended
    if ended.code is None:
        raise Unreachable(ended.problem)
    if ended.problem:
        echo(f"{click.style('howdah:', fg='red', bold=True)} {ended.problem}", err=True)
    return ended.code


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Standard input as a terminal that takes no notice of what it is sent."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


class Escape:
    """Finds `~.` at the beginning of a line in what is typed, as ssh does; `~~` is a tilde."""

    def __init__(self) -> None:
        self._line_begins = True
        self._tilde = False

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """What of it is for the command, and whether to leave."""
        found = bytearray()
        for byte in data:
            if self._tilde:
                self._tilde = False
                if byte == ord("."):
                    return bytes(found), True
                found += b"" if byte == ord("~") else b"~"
            elif byte == ord("~") and self._line_begins:
                self._tilde = True
                continue
            found.append(byte)
            self._line_begins = byte in b"\r\n"
        return bytes(found), False


class _Session:
    """Carries this process's standard streams to and from the command.

    Terminals, pipes and files can block whoever reads and writes them, so that threads do it, which are
    not waited for at the end.
    """

    def __init__(self, channel: Channel[Any], terminal: bool) -> None:
        import asyncio

        from howdah.wire.messages import EXEC_WINDOW

        self._channel = channel
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self._left: asyncio.Future[int] = self._loop.create_future()
        """Done once this side leaves: the exit code."""
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._window = asyncio.Semaphore(EXEC_WINDOW)
        self._may_read = threading.Semaphore(EXEC_WINDOW)
        self._output: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._flushed: asyncio.Future[None] = self._loop.create_future()
        self._interrupts = 0

    async def run(self) -> ExecEnded | int:
        """To the command's end, or to that of this side: the exit code."""
        import asyncio

        signals = {signal.SIGTERM: self._leave_by, signal.SIGHUP: self._leave_by}
        signals |= (
            {signal.SIGWINCH: self._resize} if self._terminal else {signal.SIGINT: self._interrupt}
        )
        # One that is ignored stays so: nohup does that to SIGHUP.
        signals = {
            number: handle
            for number, handle in signals.items()
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        for number, handle in signals.items():
            self._loop.add_signal_handler(number, handle, number)
        receiving = self._loop.create_task(self._receive())
        sending = self._loop.create_task(self._send())
        try:
            with _raw() if self._terminal else contextlib.nullcontext():
                for work in (self._read, self._write):
                    threading.Thread(target=work, daemon=True).start()
                await asyncio.wait({receiving, self._left}, return_when=asyncio.FIRST_COMPLETED)
            return self._left.result() if self._left.done() else receiving.result()
        finally:
            for number in signals:
                self._loop.remove_signal_handler(number)
            receiving.cancel()
            sending.cancel()
            await asyncio.gather(receiving, sending, return_exceptions=True)

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)

    def _fail(self, error: Exception) -> None:
        if not self._left.done():
            self._left.set_exception(error)

    def _leave_by(self, number: int) -> None:
        self._leave(128 + number)

    def _interrupt(self, number: int) -> None:
        from howdah.wire.messages import ExecSignal

        self._interrupts += 1
        if self._interrupts >= LEAVE_AFTER:
            self._leave_by(number)
        self._channel.send(ExecSignal(number=number))

    def _resize(self, _number: int) -> None:
        from howdah.wire.messages import ExecResize

        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(0)
            self._channel.send(ExecResize(rows=rows, columns=columns))

    async def _receive(self) -> ExecEnded:
        from howdah.wire.messages import ExecData, ExecEnded, ExecTaken

        while True:
            message = await self._channel.receive()
            match message:
                case ExecData():
                    self._output.put((message.stream, message.data))
                case ExecTaken():
                    self._window.release()
                    self._may_read.release()
                case ExecEnded():
                    self._output.put((0, b""))
                    await self._flushed
                    return message
                case _:
                    problem = "the connection to the coordinator broke, and the command was ended"
                    return ExecEnded(code=None, problem=problem)

    # -- input -----------------------------------------------------------------------------------

    def _read(self) -> None:
        """In a thread: what there is to read, as fast as the command takes it. A terminal is always
        read: there somebody wants to leave when nothing is taken any more."""
        from howdah.wire.messages import EXEC_CHUNK

        escape = Escape()
        data = b"begins"
        while data:
            if not self._terminal:
                self._may_read.acquire()
            try:
                data = _once_ready(os.read, 0, EXEC_CHUNK)
            except OSError:
                data = b""
            sent, leave = escape.take(data) if self._terminal else (data, False)
            if leave:
                self._call(self._leave, 128 + signal.SIGHUP)
            elif sent or not data:
                self._call(self._input.put_nowait, sent)

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    async def _send(self) -> None:
        from howdah.wire.messages import ExecData

        while True:
            data = await self._input.get()
            await self._window.acquire()
            self._channel.send(ExecData(data=data))

    # -- output ----------------------------------------------------------------------------------

    def _write(self) -> None:
        """In a thread: what comes, as fast as it can be written."""
        from howdah.client.errors import HowdahError

        while (stream_data := self._output.get())[0]:
            stream, left = stream_data
            try:
                while left:
                    left = left[_once_ready(os.write, 2 if stream == 2 else 1, left) :]
            except BrokenPipeError:
                self._call(self._leave, 128 + signal.SIGPIPE)
                return
            except OSError as error:
                text = f"the command's output can't be written here: {error.strerror}"
                self._call(self._fail, HowdahError(text))
                return
            self._call(self._written)
        self._call(self._flushed.set_result, None)

    def _written(self) -> None:
        from howdah.wire.messages import ExecTaken

        self._channel.send(ExecTaken())


def _once_ready(call: Callable[[int, A], T], descriptor: int, argument: A) -> T:
    """Read or write; other programs may have made a terminal or pipe that they share non-blocking."""
    while True:
        try:
            return call(descriptor, argument)
        except BlockingIOError:
            to_read, to_write = ([descriptor], []) if call is os.read else ([], [descriptor])
            select.select(to_read, to_write, [])

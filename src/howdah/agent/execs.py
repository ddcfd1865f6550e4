"""Commands that the job's owner runs beside a task's programs (`howdah exec`).

Each has a connection of its own to the coordinator, and ends with it. It has the programs' environment
and working folder, and is no part of the attempt: what it uses is not measured, what it prints is no
progress, its failure is nobody's. It ends before the attempt does, with all that it left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import signal
import struct
import termios
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from howdah.agent.children import Child, Children
from howdah.agent.host.processes import (
    Stat,
    descendants,
    marked,
    prefer_as_oom_victim,
    send_signal,
    stat,
)
from howdah.agent.outcome import not_started
from howdah.agent.watchdog import Watchdog
from howdah.wire.channel import Channel, ChannelClosed
from howdah.wire.decoders import message_decoder
from howdah.wire.messages import (
    EXEC_CHUNK,
    EXEC_WINDOW,
    ExecData,
    ExecEnded,
    ExecResize,
    ExecSignal,
    ExecTaken,
    OpenExec,
    ToExec,
)

EXEC = "HOWDAH_EXEC"
"""Environment variable that all processes of a command carry, with its id."""

FIRST_S = 30.0
"""For the coordinator to say what to run, once it has written down that it will."""
_GRACE_S = 2.0
"""Between SIGHUP and SIGKILL for a command whose client has gone."""
_LEFT_S = 1.0
"""For what a command has left running to write the last of its output."""
_AGAIN_S = 0.02
_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_SHELLS = ("/bin/bash", "/bin/sh")

log = logging.getLogger(__name__)
message_decoder(ToExec)  # made before agents are forked


class ContainerExecs:
    """The commands of one container."""

    def __init__(self, children: Children, watchdog: Watchdog, folder: Callable[[], Path]) -> None:
        """``folder`` gives the programs' working folder."""
        self._children = children
        self._watchdog = watchdog
        self._folder = folder
        self._running: set[_Command] = set()

    @property
    def any(self) -> bool:
        """Whether something of a command may be left."""
        return bool(self._running)

    @property
    def pids(self) -> Collection[int]:
        """The first process of each: all below them is no part of the attempt."""
        return {command.pid for command in self._running if command.runs}

    def processes(self, *, thorough: bool = False) -> dict[int, Stat]:
        """All processes of all of them; ``thorough`` finds those that left their parents too, and looks at
        every process of the host."""
        found: dict[int, Stat] = {}
        for command in self._running:
            found |= command.processes()
            if thorough:
                found |= marked(EXEC, command.name)
        return found

    def kill(self, why: str) -> None:
        """End all of them at once; their clients are told why."""
        for command in self._running:
            command.kill(why)

    async def serve(
        self, channel: Channel[Any], environment: Callable[[], Mapping[str, str] | str], name: str
    ) -> None:
        """Run the command that comes over that connection, to its end.

        ``environment`` gives the programs' own, or says why there is none; ``name`` is the command's id.
        """
        wanted = await channel.receive(FIRST_S)
        if not isinstance(wanted, OpenExec):
            return
        env = environment()
        if isinstance(env, str):
            ended = ExecEnded(code=None, problem=env)
        else:
            ended = await self._run(channel, wanted, {**env, EXEC: name})
        if ended is not None:
            channel.send(ended)
            with contextlib.suppress(ChannelClosed):
                await channel.drain()

    async def _run(
        self, channel: Channel[Any], wanted: OpenExec, env: dict[str, str]
    ) -> ExecEnded | None:
        folder = str(self._folder())
        shell = next(filter(os.path.exists, _SHELLS), _SHELLS[-1])
        argv = tuple(map(os.fsdecode, wanted.command)) or (shell,)
        if wanted.terminal and wanted.term:
            env["TERM"] = wanted.term
        try:
            command = _Command(self._children, channel, wanted, argv, env, folder)
        except (OSError, ValueError) as problem:
            missing = isinstance(problem, FileNotFoundError) and problem.filename != folder
            text = not_started(argv, folder, problem)
            if missing and os.sep not in argv[0]:
                text = f"there is no program {argv[0]!r} on the PATH of {wanted.task}'s program"
            return ExecEnded(code=127 if missing else 126, problem=text)
        self._running.add(command)
        self._watchdog.add("session", command.pid)
        try:
            return await command.run()
        finally:
            self._watchdog.drop("session", command.pid)
            self._running.discard(command)


class _Command:
    """One running command."""

    def __init__(
        self,
        children: Children,
        channel: Channel[Any],
        wanted: OpenExec,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        folder: str,
    ) -> None:
        """Start it.

        Raises:
            OSError, ValueError: it can't be started.
        """
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self.name: str = env[EXEC]
        self._killed = ""
        """Why it was ended, if it was."""
        self._input: deque[bytes] = deque()
        """What its standard input did not take yet, a window at most."""
        self._arrived = asyncio.Event()
        self._window = asyncio.Semaphore(EXEC_WINDOW)
        self._read = 0
        self._open: set[int] = set()
        self._terminal = -1
        ours, theirs = self._terminals(wanted) if wanted.terminal else self._pipes()
        try:
            self._child: Child = children.start(
                argv,
                env=env,
                cwd=folder,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                terminal=wanted.terminal,
                umask=children.umask,
            )
        except BaseException:
            self._close()
            raise
        finally:
            for descriptor in set(theirs):
                os.close(descriptor)
        self.pid: int = self._child.pid
        prefer_as_oom_victim(self.pid, first=True)
        self._stdin = ours[0]
        self._outputs = dict(enumerate(ours[1:], start=1))

    def _pipes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        (stdin_out, stdin), (out, out_in), (err, err_in) = (os.pipe() for _ in range(3))
        return self._keep(stdin, out, err), (stdin_out, out_in, err_in)

    def _terminals(self, wanted: OpenExec) -> tuple[tuple[int, ...], tuple[int, ...]]:
        master, slave = os.openpty()
        self._terminal = master
        self._resize(wanted.rows, wanted.columns)
        return self._keep(master, master), (slave, slave, slave)

    def _keep(self, *descriptors: int) -> tuple[int, ...]:
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)
            self._open.add(descriptor)
        return descriptors

    def _close(self, *only: int) -> None:
        for descriptor in only or tuple(self._open):
            if descriptor in self._open:
                self._open.discard(descriptor)
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                os.close(descriptor)

    # -- its processes ---------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        return self._child.status is None

    def processes(self) -> dict[int, Stat]:
        """Those below its first one."""
        first = stat(self.pid) if self.runs else None
        if first is None or first.zombie:
            return {}
        return {self.pid: first, **descendants(self.pid)}

    def kill(self, why: str) -> None:
        """End it at once, because of that; what has left its parents ends a moment later."""
        self._killed = self._killed or why
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        for process in self.processes().values():
            send_signal(process, number)
            send_signal(process, signal.SIGCONT)  # a stopped process can't end

    async def _kill_rest(self) -> None:
        """Also what has left its session, or was taken over by the agent when its parent ended."""
        deadline = self._loop.time() + _GRACE_S
        while (left := marked(EXEC, self.name)) and self._loop.time() < deadline:
            for process in left.values():
                send_signal(process, signal.SIGKILL)
            await asyncio.sleep(_AGAIN_S)

    # -- its life --------------------------------------------------------------------------------

    async def run(self) -> ExecEnded | None:
        """Carry its streams until it and what it started have ended; None if its client has gone."""
        hearing = self._loop.create_task(self._hear())
        writing = self._loop.create_task(self._write())
        reading = {
            self._loop.create_task(self._forward(stream, descriptor))
            for stream, descriptor in self._outputs.items()
        }
        ended = self._loop.create_task(self._child.wait())
        try:
            await asyncio.wait({hearing, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                self._send(signal.SIGHUP)
                await asyncio.wait({ended}, timeout=_GRACE_S)
                return None
            if not self._killed:
                await self._outputs_end(hearing, reading)
            await self._kill_rest()
            # Nothing holds its streams any more, but its client may be late to read. The end of the
            # attempt does not wait for it.
            while not await self._outputs_end(hearing, reading) and not self._killed:
                pass
            if hearing.done():
                return None
            status = ended.result()
            return ExecEnded(
                code=status if status >= 0 else 128 - status,
                problem=self._killed if status < 0 else "",
            )
        finally:
            self._send(signal.SIGKILL)
            tasks = (hearing, writing, ended, *reading)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._close()
            await self._kill_rest()

    async def _outputs_end(
        self, hearing: asyncio.Task[None], reading: set[asyncio.Task[None]]
    ) -> bool:
        """Wait for the end of its outputs, a moment; whether no more is to be waited for."""
        before = self._read
        deadline = self._loop.time() + _LEFT_S
        while not hearing.done() and (left := {task for task in reading if not task.done()}):
            pause_s = deadline - self._loop.time()
            if pause_s <= 0:
                return self._read == before and not self._window.locked()
            await asyncio.wait(
                {hearing, *left}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
        return True

    async def _hear(self) -> None:
        """Obey its client until that goes away."""
        while (message := await self._channel.receive()) is not None:
            match message:
                case ExecData():
                    self._input.append(message.data)
                    self._arrived.set()
                case ExecTaken():
                    self._window.release()
                case ExecResize():
                    self._resize(message.rows, message.columns)
                case ExecSignal():
                    if self.runs and message.number in _SIGNALS:
                        with contextlib.suppress(OSError):
                            os.killpg(self.pid, message.number)
                case _:
                    return

    def _resize(self, rows: int, columns: int) -> None:
        if self._terminal < 0:
            return
        size = (max(0, min(each, 0x7FFF)) for each in (rows, columns))
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    async def _write(self) -> None:
        """Its standard input, as it takes it. Once it takes none the rest is thrown away."""
        while True:
            while not self._input:
                self._arrived.clear()
                await self._arrived.wait()
            data = self._input.popleft()
            if not data and self._terminal < 0:
                self._close(self._stdin)
            while data and self._stdin in self._open:
                try:
                    data = data[os.write(self._stdin, data) :]
                except BlockingIOError:
                    await self._ready(self._stdin, self._loop.add_writer, self._loop.remove_writer)
                except OSError:
                    break
            self._channel.send(ExecTaken())

    async def _forward(self, stream: int, descriptor: int) -> None:
        """One of its outputs, as its client takes it."""
        while True:
            async with contextlib.AsyncExitStack() as held:
                await self._window.acquire()
                held.callback(self._window.release)
                data = self._take(descriptor)
                if data:
                    held.pop_all()  # its client gives it back
            if data == b"":
                return
            if data is None:
                await self._ready(descriptor, self._loop.add_reader, self._loop.remove_reader)
                continue
            self._read += len(data)
            self._channel.send(ExecData(stream=stream, data=data))
            await self._channel.drain()

    @staticmethod
    def _take(descriptor: int) -> bytes | None:
        """What is there; empty at the end; None if there is nothing at present."""
        try:
            return os.read(descriptor, EXEC_CHUNK)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that no process has open any more
                log.warning("a command's output can't be read: %s", error)
            return b""

    async def _ready(
        self, descriptor: int, add: Callable[..., None], remove: Callable[[int], bool]
    ) -> None:
        """Wait until it can be read or written."""
        ready: asyncio.Future[None] = self._loop.create_future()
        add(descriptor, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            if descriptor in self._open:
                remove(descriptor)

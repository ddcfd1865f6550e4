"""Short-lived helper processes: what the agent has others do, to stay small itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path

from howdah.agent.children import Child, Children
from howdah.agent.processes import MARKER
from howdah.agent.tail import Tail
from howdah.storage.errors import is_transient

_READ_BYTES = 64 * 1024
_OUTPUT_BYTES = 16 * 1024 * 1024


class HelperProblem(Exception):
    """A helper could not do its work; the text says why."""

    def __init__(self, text: str, *, transient: bool = False) -> None:
        """``transient``: see `howdah.storage.errors`."""
        super().__init__(text)
        self.transient = transient


class Helper:
    """A running helper whose output lines are messages."""

    def __init__(self, child: Child, name: str, output: int, error: int, stdin: int) -> None:
        self._child = child
        self._name = name
        self._output = output
        self._error = error
        self._stdin = stdin
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._said = Tail()
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for descriptor, take in ((output, self._take_output), (error, self._take_error)):
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, take)

    @property
    def pid(self) -> int:
        return self._child.pid

    async def line(self) -> bytes | None:
        """Its next line of output, without the newline; None when there will be no more."""
        while not self._lines:
            if self._output < 0:
                return None
            self._ready.clear()
            await self._ready.wait()
        return self._lines.popleft()

    async def wait(self) -> int:
        """Its exit code, or minus the signal's number."""
        return await self._child.wait()

    @property
    def problem(self) -> str:
        """The last line it wrote to standard error; empty if there was none."""
        self._take_error()
        lines = self._said.lines()
        return lines[-1] if lines else ""

    def tell(self, line: str) -> None:
        """Write a line to its standard input; lost if it has ended."""
        with contextlib.suppress(OSError):
            os.write(self._stdin, line.encode() + b"\n")

    def finish(self) -> None:
        """Close its standard input: it is to end by itself."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def send_signal(self, number: int) -> None:
        """Signal it, if it lives."""
        self._child.send_signal(number)

    def close(self) -> None:
        """Kill it if it lives, and let go of its pipes."""
        self._child.send_signal(signal.SIGKILL)
        self.finish()
        self._shut_output()
        self._shut_error()

    def _take_output(self) -> None:
        data = _read(self._output)
        if data:
            *whole, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(whole)
        elif data is not None:
            if self._rest:
                self._lines.append(self._rest)
                self._rest = b""
            self._shut_output()
        self._ready.set()

    def _take_error(self) -> None:
        while data := _read(self._error):
            self._said.put(data)
        if data is not None:
            self._shut_error()

    def _shut_output(self) -> None:
        if self._output >= 0:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = -1
        self._ready.set()

    def _shut_error(self) -> None:
        if self._error >= 0:
            self._loop.remove_reader(self._error)
            os.close(self._error)
            self._error = -1


def _read(descriptor: int) -> bytes | None:
    """What is there; empty at the end; None if there is nothing at present."""
    if descriptor < 0:
        return b""
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class Helpers:
    """Starts helpers. All carry the container's marker, so that none outlives a dead agent."""

    def __init__(self, children: Children, marker: str) -> None:
        self._children = children
        self._marker = marker
        self._running: set[int] = set()

    @property
    def pids(self) -> Collection[int]:
        """Those that live: no part of the attempt."""
        return self._running

    @contextlib.asynccontextmanager
    async def running(self, argv: Sequence[str]) -> AsyncIterator[Helper]:
        """Start one; it is killed at the end of the block if it still lives.

        Raises:
            HelperProblem: it could not be started.
        """
        helper = self._start(argv)
        try:
            yield helper
        finally:
            helper.close()
            # It dies at once. Who is cancelled meanwhile must not leave it unaccounted for.
            await asyncio.shield(self._gone(helper))

    async def output(self, argv: Sequence[str], timeout_s: float) -> bytes:
        """What a helper prints.

        Raises:
            HelperProblem: it failed, could not be started, or took longer than ``timeout_s``.
        """
        name = os.path.basename(argv[0])
        async with self.running(argv) as helper:
            data = bytearray()
            try:
                async with asyncio.timeout(timeout_s):
                    while (line := await helper.line()) is not None:
                        data += line + b"\n"
                        if len(data) > _OUTPUT_BYTES:
                            raise HelperProblem(f"{name} prints more than can be taken")
                    status = await helper.wait()
            except TimeoutError:
                text = f"{name} did not finish within {timeout_s:g} s"
                raise HelperProblem(text, transient=True) from None
            if status != 0:
                text = f"{name} failed: {helper.problem or f'status {status}'}"
                raise HelperProblem(text, transient=status < 0)
            return bytes(data)

    async def _gone(self, helper: Helper) -> None:
        await helper.wait()
        self._running.discard(helper.pid)

    def _start(self, argv: Sequence[str]) -> Helper:
        pipes = [os.pipe() for _ in range(3)]
        (output, output_in), (error, error_in), (stdin_out, stdin) = pipes
        try:
            child = self._children.start(
                argv, env=self._environment(), stdin=stdin_out, stdout=output_in, stderr=error_in
            )
        except (OSError, ValueError) as problem:
            for descriptor in (output, error, stdin):
                os.close(descriptor)
            name = os.path.basename(argv[0])
            text = f"{name} can't be started: {problem}"
            raise HelperProblem(text, transient=is_transient(problem)) from problem
        finally:
            for descriptor in (output_in, error_in, stdin_out):
                os.close(descriptor)
        self._running.add(child.pid)
        return Helper(child, os.path.basename(argv[0]), output, error, stdin)

    def _environment(self) -> Mapping[str, str]:
        env = dict(os.environ)
        env[MARKER] = self._marker
        env["PYTHONPATH"] = str(Path(__file__).parents[2])
        return env


def module(name: str, *arguments: str) -> list[str]:
    """Command line that runs one of Howdah's own modules in a helper."""
    return [sys.executable, "-m", name, *arguments]

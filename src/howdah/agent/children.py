"""Processes the agent starts: children on an asyncio loop, and short-lived helpers among them.

The agent is the subreaper of everything below it, so it also gets children it never started:
orphans of programs, to be reaped like its own. asyncio's own subprocesses would not stand that,
hence this. Helpers do what would make the agent large: they print lines, and read some.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path

from howdah.agent.forwarder import Tail
from howdah.agent.host.processes import MARKER, become_subreaper
from howdah.storage.errors import is_transient
from howdah.wire import descriptors

_READ_BYTES = 64 * 1024
_OUTPUT_BYTES = 16 * 1024 * 1024


class Child:
    """A process the agent started."""

    def __init__(self, process: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
        self._process = process
        self._ended = ended
        self.pid: int = process.pid

    @property
    def status(self) -> int | None:
        """Exit code, or minus the signal's number; None while it lives."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Wait for its end: exit code, or minus the signal's number."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended. Safe: its pid is ours until it is reaped."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, status: int) -> None:
        """It was reaped."""
        self._process.returncode = status
        if not self._ended.done():
            self._ended.set_result(status)


class Children:
    """All children of this process. Use it on the running loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._known: dict[int, Child] = {}
        self._watched: dict[int, Callable[[int], None]] = {}
        self._listeners: list[Callable[[], None]] = []
        self.subreaper: bool = become_subreaper()
        """Whether orphaned descendants come to us."""
        self.umask: int = -1
        """Of the user's programs; -1: that of this process."""
        loop.add_signal_handler(signal.SIGCHLD, self.reap)

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGCHLD)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.DEVNULL,
        stderr: int | None = subprocess.DEVNULL,
        terminal: bool = False,
        umask: int = -1,
    ) -> Child:
        """Start a program as the leader of a session and process group of its own.

        Only the three standard descriptors are passed on. ``terminal``: the first is one, and is to be
        the session's.

        Raises:
            OSError, ValueError: it could not be started.
        """
        with descriptors.limits_as_found():
            process = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_take_terminal if terminal else None,
                umask=umask,
            )
        child = Child(process, self._loop.create_future())
        self._known[child.pid] = child
        return child

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call ``ended(status)`` when that child, forked by other means, ends."""
        self._watched[pid] = ended

    @contextlib.contextmanager
    def noticing(self, listener: Callable[[], None]):
        """Call ``listener`` after any child, known or adopted, has ended."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @property
    def pids(self) -> Collection[int]:
        """Children that were started here and live."""
        return self._known.keys()

    def reap(self) -> None:
        ended = False
        for pid in (*self._known, *self._watched):
            ended |= self._take(pid)
        while self.subreaper:
            try:
                orphan = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if orphan is None or not self._take(orphan.si_pid):
                break
            ended = True
        if ended:
            for listener in tuple(self._listeners):
                listener()

    def _take(self, pid: int) -> bool:
        try:
            got, raw = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(raw) if got else None
        except ChildProcessError:
            status = -signal.SIGKILL  # reaped by other code of this process, a defect
        if status is None:
            return False
        if (child := self._known.pop(pid, None)) is not None:
            child.end(status)
        if (watcher := self._watched.pop(pid, None)) is not None:
            watcher(status)
        return True


def _take_terminal() -> None:
    """In the new process: job control and Ctrl-C are the controlling terminal's."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# -- helpers -------------------------------------------------------------------------------------


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
        self._unwritten = b""
        """The newest line that its full standard input did not take."""
        self._finishing = False
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._said = Tail()
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(stdin, False)
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
        """Write a line to its standard input; lost if it has ended.

        While it does not read and its standard input is full, only the newest line waits: it has to make
        good for those before it.
        """
        if self._stdin < 0 or self._finishing:
            return
        waiting = bool(self._unwritten)
        self._unwritten = line.encode() + b"\n"
        if not waiting:
            self._loop.add_writer(self._stdin, self._write)
            self._write()

    def finish(self) -> None:
        """Close its standard input once all is written: it is to end by itself."""
        self._finishing = True
        if not self._unwritten:
            self._shut_input()

    def close(self) -> None:
        """Kill it if it lives, and let go of its pipes."""
        self._child.send_signal(signal.SIGKILL)
        self._shut_input()
        self._shut_output()
        self._shut_error()

    def _write(self) -> None:
        # So short a line is written whole or not at all.
        with contextlib.suppress(OSError):
            try:
                os.write(self._stdin, self._unwritten)
            except BlockingIOError:
                return
        self._unwritten = b""
        self._loop.remove_writer(self._stdin)
        if self._finishing:
            self._shut_input()

    def _shut_input(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

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
            # It dies at once. A caller that is cancelled meanwhile must not leave it unaccounted for.
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


NOT_INSTALLED = 124
"""Exit status of a helper for which Howdah could still not be imported after `_PATIENCE_S`."""
_PATIENCE_S = 120.0
"""One release may just be replacing another."""
# In the agent's memory, as no file is sure to be where it was. Each try is an interpreter of its own, for
# what the last one has imported may be the old release's. `main` imports parts of Howdah as well.
_PROGRAM = f"""
import os, sys, time
until, name, *arguments = sys.argv[1:]
main = None
try:
    from importlib import import_module
    main = import_module(name).main
    status = main(arguments)
except Exception as error:
    missing = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "howdah"
    if main is not None and not missing:
        raise
    if time.monotonic() < float(until):
        time.sleep(1.0)
        os.execv(sys.executable, sys.orig_argv)
    print(f"Howdah cannot be imported: {{type(error).__name__}}: {{error}}", file=sys.stderr)
    status = {NOT_INSTALLED}
sys.exit(status)
"""


def module(name: str, *arguments: str) -> list[str]:
    """Command line that runs ``main`` of one of Howdah's own modules in a helper.

    Where Howdah cannot be imported, the helper tries again for two minutes, and exits with `NOT_INSTALLED`
    then: it may be missing while it is upgraded.
    """
    until = str(time.monotonic() + _PATIENCE_S)
    return [sys.executable, "-c", _PROGRAM, until, name, *arguments]

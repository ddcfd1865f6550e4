"""Child processes on an asyncio loop: started, reaped, awaited.

The agent is the subreaper of everything below it, so it also gets children it never started:
orphans of programs, to be reaped like its own. asyncio's own subprocesses would not stand that,
hence this. One instance per process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from howdah.agent.processes import become_subreaper


class Child:
    """A process the agent started."""

    def __init__(self, process: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
        self._process = process
        self._ended = ended
        self.pid = process.pid

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
        self.subreaper = become_subreaper()
        """Whether orphaned descendants come to us."""
        loop.add_signal_handler(signal.SIGCHLD, self.reap)

    def close(self) -> None:
        """Stop watching."""
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
    ) -> Child:
        """Start a program as the leader of a session and process group of its own.

        Only the three standard descriptors are passed on.

        Raises:
            OSError, ValueError: it could not be started.
        """
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
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
        """Take note of every child that has ended."""
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
            status = -signal.SIGKILL  # reaped by somebody else, which nobody should
        if status is None:
            return False
        if (child := self._known.pop(pid, None)) is not None:
            child.end(status)
        if (watcher := self._watched.pop(pid, None)) is not None:
            watcher(status)
        return True

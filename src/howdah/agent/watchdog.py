"""The watchdog: a small process that ends everything the agent started, should the agent die.

It holds the reading end of a pipe whose writing end only the agent has. End of file without a
word before means that the agent is gone, however it went; then the watchdog kills every process that
carries the container's marker or belongs to a session the agent named, and removes the files it
was told of. Told to stop, it just ends. It ignores the signals that end an agent.

What it cannot see: a program that was started with an emptied environment *and* left its session,
after the agent died. While the agent lives it finds those too (`howdah.agent.programs`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from howdah.agent import ports
from howdah.agent.host.processes import (
    HAS_PROC,
    MARKER,
    Stat,
    close_all_but,
    marked,
    name_process,
    send_signal,
    stat,
)

_LIMIT_S = 30.0
"""A process that cannot be killed for so long (waiting for a dead disk) is left to the backend."""
_PAUSE_S = 0.02

_IGNORED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGTSTP,
)


class Watchdog:
    """The agent's end of it. What it was told is told again to its successor, should it die."""

    def __init__(self, marker: str, keep: Collection[int] = ()) -> None:
        """Fork a watchdog for the processes with that marker.

        ``keep`` are descriptors it holds open until the end: locks on devices must not be free
        before the programs that use the devices are gone.
        """
        self._marker = marker
        self._keep = keep
        self._told: set[tuple[str, str]] = set()
        self._pipe = -1
        self.pid: int = 0
        self.begin()

    def begin(self) -> None:
        """Fork it, for the first time or because the last one is dead."""
        self._close()
        reading, self._pipe = os.pipe()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    _become_watchdog(reading, self._keep, blocked)
                    _watch(reading, self._marker)
                finally:
                    os._exit(0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(reading)
        for kind, what in self._told:
            self._write(f"+{kind} {what}")

    def add(self, kind: str, what: str | int) -> None:
        """What to do if the agent dies: remove a ``file``, tidy up a ``port``'s lock, kill the
        ``session`` of a program."""
        self._told.add((kind, str(what)))
        self._write(f"+{kind} {what}")

    def drop(self, kind: str, what: str | int) -> None:
        """That is done already."""
        self._told.discard((kind, str(what)))
        self._write(f"-{kind} {what}")

    def drop_empty_sessions(self, pids: Collection[int]) -> None:
        """Drop sessions of programs that have ended where nothing is left in them: their numbers are
        given away again."""
        told = {pid for pid in pids if ("session", str(pid)) in self._told}
        if told:
            left = _in_sessions(dict.fromkeys(told), ())
            for pid in told - {process.session for process in left.values()}:
                self.drop("session", pid)

    def stop(self) -> None:
        """The agent ends orderly and leaves nothing: the watchdog ends at once."""
        self._write("stop")
        self._close()

    def _write(self, line: str) -> None:
        # The pipe never fills: the watchdog does nothing but read it.
        with contextlib.suppress(OSError):
            os.write(self._pipe, f"{line}\n".encode(errors="surrogateescape"))

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _become_watchdog(reading: int, keep: Collection[int], mask: Collection[int]) -> None:
    gc.disable()  # nothing of the agent's may be finalised here
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # A session of its own: what kills the agent's group or session shall not kill the watchdog.
    with contextlib.suppress(OSError):
        os.setsid()
    name_process("howdah-watchdog")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    # Above all the agent's connection: the coordinator is to see it close when the agent dies.
    close_all_but({0, 1, 2, reading, *keep})


def _watch(reading: int, marker: str) -> None:
    files: set[str] = set()
    locked: set[int] = set()
    sessions: dict[int, Stat | None] = {}
    rest = b""
    while True:
        try:
            data = os.read(reading, 65536)
        except InterruptedError:
            continue
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            word, _, what = line.decode(errors="surrogateescape").partition(" ")
            match word:
                case "+file":
                    files.add(what)
                case "-file":
                    files.discard(what)
                case "+port":
                    locked.add(int(what))
                case "-port":
                    locked.discard(int(what))
                case "+session":
                    sessions[int(what)] = stat(int(what))
                case "-session":
                    sessions.pop(int(what), None)
                case _:  # stop
                    return
    _kill_all(marker, sessions)
    for path in files:
        with contextlib.suppress(OSError):
            Path(path).unlink()
    for port in locked:
        ports.tidy(port)


def _kill_all(marker: str, sessions: dict[int, Stat | None]) -> None:
    """Kill what carries the marker or is in one of the sessions, until nothing is left."""
    me = {os.getpid()}
    deadline = time.monotonic() + _LIMIT_S
    calm = 0
    # Two looks without a find: what forked during the first is seen in the second.
    while calm < 2 and time.monotonic() < deadline:
        found = marked(MARKER, marker, me)
        if sessions:
            found |= _in_sessions(sessions, me)
        calm = 0 if found else calm + 1
        for process in found.values():
            send_signal(process, signal.SIGKILL)
        if calm < 2:
            time.sleep(_PAUSE_S)


def _in_sessions(sessions: dict[int, Stat | None], skip: Collection[int]) -> dict[int, Stat]:
    if not HAS_PROC:
        return {}
    from howdah.agent.host.procfs import all_pids

    valid: set[int] = set()
    for pid, leader in sessions.items():
        now = stat(pid)
        # While the session has members its number is not given away; a leader that is not the one
        # we knew means that the session had ended.
        if now is None or (leader is not None and now.start == leader.start):
            valid.add(pid)
    found: dict[int, Stat] = {}
    for pid in all_pids():
        if pid in skip:
            continue
        process = stat(pid)
        if process is not None and not process.zombie and process.session in valid:
            found[pid] = process
    return found

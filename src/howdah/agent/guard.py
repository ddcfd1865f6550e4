"""The guard: a small process that ends everything the agent started, should the agent die.

It holds the reading end of a pipe whose writing end only the agent has. End of file without a
farewell means that the agent is gone, however it went; then the guard kills every process that
carries the container's marker or belongs to a session the agent named, and removes the files it
was told of. After a farewell it just ends. It ignores the signals that end an agent.

What it cannot see: a program that was started with an emptied environment *and* left its session,
after the agent died. While the agent lives it finds those too (`howdah.agent.ending`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

from howdah.agent import ports
from howdah.agent.processes import (
    HAS_PROC,
    MARKER,
    Stat,
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


class Guard:
    """The agent's end of it. What it was told is told again to its successor, should it die."""

    def __init__(self, marker: str, keep: Collection[int] = ()) -> None:
        """Fork a guard for the processes with that marker.

        ``keep`` are descriptors it holds open until the end: locks on devices must not be free
        before the programs that use the devices are gone.
        """
        self._marker = marker
        self._keep = keep
        self._told: set[tuple[str, str]] = set()
        self._pipe = -1
        self.pid = 0
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
                    _become_guard(reading, self._keep, blocked)
                    _watch(reading, self._marker)
                finally:
                    os._exit(0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(reading)
        for word, what in self._told:
            self._write(word, what)

    def remove_file(self, path: str) -> None:
        """If the agent dies, remove that file."""
        self._tell("file", path)

    def keep_file(self, path: str) -> None:
        """It is gone already."""
        self._untell("file", path)

    def free_port(self, port: int) -> None:
        """If the agent dies, tidy up that port's lock."""
        self._tell("port", str(port))

    def forget_port(self, port: int) -> None:
        """The lock was given back."""
        self._untell("port", str(port))

    def end_session(self, pid: int) -> None:
        """If the agent dies, kill that program's session too."""
        self._tell("session", str(pid))

    def forget_session(self, pid: int) -> None:
        """All of it has ended."""
        self._untell("session", str(pid))

    def dismiss(self) -> None:
        """The agent ends orderly and leaves nothing: the guard ends at once."""
        self._write("farewell", "")
        self._close()

    def _tell(self, word: str, what: str) -> None:
        self._told.add((word, what))
        self._write(word, what)

    def _untell(self, word: str, what: str) -> None:
        self._told.discard((word, what))
        self._write(f"un{word}", what)

    def _write(self, word: str, what: str) -> None:
        # The pipe never fills: the guard does nothing but read it.
        with contextlib.suppress(OSError):
            os.write(self._pipe, f"{word} {what}\n".encode(errors="surrogateescape"))

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _become_guard(reading: int, keep: Collection[int], mask: Collection[int]) -> None:
    gc.disable()  # nothing of the agent's may be finalised here
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # A session of its own: who kills the agent's group or session shall not kill the guard.
    with contextlib.suppress(OSError):
        os.setsid()
    name_process("howdah-guard")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    _close_all_but({0, 1, 2, reading, *keep})


def _close_all_but(kept: Collection[int]) -> None:
    """Above all the agent's connection: the coordinator is to see it close when the agent dies."""
    last = 0
    for number in sorted(kept):
        if last < number:  # an empty range would be taken for a boundless one
            os.closerange(last, number)
        last = number + 1
    # On Linux this is one system call, whatever the limit; elsewhere one for each number.
    os.closerange(last, 2**31 - 1 if sys.platform == "linux" else 65536)


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
                case "file":
                    files.add(what)
                case "unfile":
                    files.discard(what)
                case "port":
                    locked.add(int(what))
                case "unport":
                    locked.discard(int(what))
                case "session":
                    sessions[int(what)] = stat(int(what))
                case "unsession":
                    sessions.pop(int(what), None)
                case _:  # farewell
                    return
    kill_all(marker, sessions)
    for path in files:
        with contextlib.suppress(OSError):
            Path(path).unlink()
    for port in locked:
        ports.tidy(port)


def kill_all(marker: str, sessions: dict[int, Stat | None] | None = None) -> int:
    """Kill what carries the marker or is in one of the sessions, until nothing is left.

    Returns how many processes were signalled. Blocks; the caller is no part of an event loop.
    """
    me = {os.getpid()}
    killed: set[tuple[int, int]] = set()
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
            killed.add((process.pid, process.start))
        if calm < 2:
            time.sleep(_PAUSE_S)
    return len(killed)


def _in_sessions(sessions: dict[int, Stat | None], skip: Collection[int]) -> dict[int, Stat]:
    if not HAS_PROC:
        return {}
    from howdah.agent.procfs import all_pids

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

"""The node daemon's event loop: sockets, timers, signals and ended children. One thread.

Smaller than asyncio's and free of its state, so that the daemon can fork at any moment and the
child can run an asyncio loop of its own.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from howdah.backends.local import processes

POLL_S = 0.2
"""How often a process that is no child is looked at where there are no process descriptors."""


class Timer:
    """A call that is due later, unless cancelled."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due: float = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class EventLoop:
    """Calls its owner back until `stop`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._children: dict[int, Callable[[int], None]] = {}
        self._signals: dict[int, Callable[[], None]] = {}
        self._stopped = False
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self.watch(self._wakeup, self._woken)
        # From now on, so that no signal is lost between here and `run`.
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

    def watch(
        self, source: Any, readable: Callable[[], None], writable: Callable[[], None] | None = None
    ) -> None:
        """Call ``readable`` when the file has something, ``writable`` (if given) when it takes
        something. Watching it again replaces the calls."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
        if source in self._selector.get_map():
            self._selector.modify(source, events, (readable, writable))
        else:
            self._selector.register(source, events, (readable, writable))

    def unwatch(self, source: Any) -> None:
        """Before it is closed; harmless if it was not watched."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call it once in ``delay_s`` seconds."""
        timer = Timer(time.monotonic() + delay_s, call)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def on_child(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call with the wait status once the child has ended. To be said right after the fork."""
        self._children[pid] = ended

    def on_end(self, pid: int, start: int, ended: Callable[[], None]) -> None:
        """Call once that process, which is no child, has ended; at once if it has. With ``start`` the
        id names one process for ever (`howdah.backends.local.processes`)."""
        try:
            descriptor = processes.open_descriptor(pid)
        except ProcessLookupError:
            ended()
            return
        if not processes.alive(pid, start):
            if descriptor is not None:
                os.close(descriptor)
            ended()
        elif descriptor is not None:
            self.watch(descriptor, partial(self._closing, descriptor, ended))
        else:
            self.later(POLL_S, partial(self.on_end, pid, start, ended))

    def _closing(self, descriptor: int, ended: Callable[[], None]) -> None:
        self.unwatch(descriptor)
        os.close(descriptor)
        ended()

    def children(self) -> Container[int]:
        """Process ids of the children told of by `on_child` that have not ended."""
        return self._children.keys()

    def on_signal(self, number: signal.Signals, call: Callable[[], None]) -> None:
        """Call it, outside of the signal's handler, when the signal has come."""
        self._signals[number] = call
        signal.signal(number, _nothing)

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Until `stop`."""
        self._reap()  # children that ended before there was a loop
        while not self._stopped:
            for key, events in self._selector.select(self._patience()):
                readable, writable = key.data
                if events & selectors.EVENT_WRITE and writable is not None:
                    writable()
                if events & selectors.EVENT_READ:
                    readable()
            self._due()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._selector.close()
        self._wakeup.close()
        self._waker.close()

    def _patience(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if (call := timer.call) is not None:
                timer.call = None
                call()

    def _woken(self) -> None:
        try:
            numbers = set(self._wakeup.recv(4096))
        except BlockingIOError:
            return
        for number in numbers - {signal.SIGCHLD}:
            if number in self._signals:
                self._signals[number]()
        # Also when it was not among them: a full buffer drops bytes.
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            # One we don't know was an orphan's: reaping it is all there is to do.
            ended = self._children.pop(pid, None)
            if ended is not None:
                ended(status)


def _nothing(_number: int, _frame: Any) -> None:
    """The wake-up descriptor has told the loop."""

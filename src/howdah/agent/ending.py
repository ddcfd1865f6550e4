"""Ending an attempt: SIGTERM, grace, SIGKILL, until none of its processes is left.

All of them count: children of shells, data loaders, daemons that forked twice, programs that made
sessions of their own. They are found as descendants of the agent, to which orphans return, and by
the marker in their environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection

from howdah.agent.children import Children
from howdah.agent.processes import MARKER, Stat, descendants, marked, send_signal

_AGAIN_S = 0.02
"""Between two looks at processes that are being killed."""
_LOOK_S = 0.25
"""Between two looks during the grace, should no child's end wake us."""
_GIVE_UP_S = 20.0
"""A process that survives SIGKILL for so long waits inside the kernel for a device."""


class Tree:
    """All living processes of an attempt."""

    def __init__(
        self, children: Children, marker: str, aside: Callable[[], Collection[int]]
    ) -> None:
        self._children = children
        self._marker = marker
        self._aside = aside
        """Processes of the agent's own, which are no part of the attempt."""

    def look(self, *, thorough: bool = False) -> dict[int, Stat]:
        """What is there, by pid. ``thorough`` looks at every process of the host."""
        aside = {os.getpid(), *self._aside()}
        found = descendants(os.getpid(), aside)
        if thorough or not self._children.subreaper:
            found |= marked(MARKER, self._marker, aside)
        return found


class Ending:
    """The end of one attempt's processes, once begun."""

    def __init__(self, tree: Tree, children: Children, running: Callable[[], bool]) -> None:
        """``running`` tells whether the end of a program is still to be noted."""
        self._tree = tree
        self._children = children
        self._running = running
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._deadline: float | None = None
        self.stubborn: tuple[int, ...] = ()
        """Processes that could not be killed."""

    @property
    def begun(self) -> bool:
        """Whether the processes were told to end."""
        return self._deadline is not None

    def begin(self, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace. Again: the earlier SIGKILL counts."""
        deadline = self._loop.time() + max(grace_s, 0.0)
        if self._deadline is None:
            if grace_s > 0:
                for process in self._tree.look().values():
                    send_signal(process, signal.SIGTERM)
                    send_signal(process, signal.SIGCONT)  # a stopped process can't end
            self._deadline = deadline
        else:
            self._deadline = min(self._deadline, deadline)
        self._wake.set()

    async def finished(self) -> None:
        """Wait until nothing is left; `begin` may come before or meanwhile."""
        with self._children.noticing(self._wake.set):
            give_up = None
            while True:
                self._wake.clear()
                self._children.reap()
                found = self._tree.look() or self._tree.look(thorough=True)
                if not found:
                    # What died just before the look was not seen, and can be reaped now.
                    self._children.reap()
                    if not self._running():
                        return
                now = self._loop.time()
                pause = _LOOK_S
                if self._deadline is not None:
                    if now >= self._deadline:
                        give_up = give_up or now + _GIVE_UP_S
                        if now > give_up:
                            self.stubborn = tuple(found)
                            return
                        for process in found.values():
                            send_signal(process, signal.SIGKILL)
                        pause = _AGAIN_S
                    else:
                        pause = min(pause, self._deadline - now)
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass

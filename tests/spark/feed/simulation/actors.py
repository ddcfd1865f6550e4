"""Threads of a simulated world: one runs at a time, a seed decides which, and time is virtual.

An actor is a greenlet. It goes on until it waits, or until it lets a lock go, where another thread
may come first: so blocking code runs as it is, and the same seed gives the same story.
"""

from __future__ import annotations

import bisect
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import greenlet

PREEMPT = 0.15
"""How often another thread runs when a lock has been let go."""
HURRY = 0.01
"""How often time passes though somebody could go on: they are slow, not stuck."""


class Actor:
    """One thread. ``shares`` is false for those of an event loop, which yield only where they wait."""

    __slots__ = (
        "blocked",
        "dead",
        "let",
        "name",
        "number",
        "process",
        "shares",
        "token",
        "woken",
    )

    def __init__(self, number: int, name: str, process: Any, shares: bool) -> None:
        self.process = process
        self.let: Any = None
        self.number = number
        self.name = name
        self.shares = shares
        self.blocked = False
        self.woken = False
        self.dead = False
        self.token = 0

    def __repr__(self) -> str:
        return self.name


class Stuck(AssertionError):
    """Nothing can happen any more, or nothing has come of it for too long."""


class Actors:
    """All of a world's, and its clock."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 1000.0
        self.steps = 0
        self.current: Actor | None = None
        self.defects: list[BaseException] = []
        self._hub = greenlet.getcurrent()
        self._actors: dict[int, Actor] = {}
        self._ready: list[int] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def spawn(
        self,
        name: str,
        action: Callable[..., Any],
        *args: Any,
        process: Any = None,
        shares: bool = True,
    ) -> Actor:
        """Let another thread begin, now or a little later, of the caller's process or another."""
        self._order += 1
        number = self._order
        if process is None and self.current is not None:
            process = self.current.process
        actor = Actor(number, name, process, shares)

        def main() -> None:
            try:
                action(*args)
            except greenlet.GreenletExit:
                pass
            except BaseException as error:
                error.add_note(f"in {name}")
                self.defects.append(error)
            finally:
                actor.dead = True
                self._actors.pop(number, None)

        actor.let = greenlet.greenlet(main, self._hub)
        self._actors[number] = actor
        bisect.insort(self._ready, number)
        return actor

    def block(self, seconds: float | None = None) -> bool:
        """Wait to be woken, for so long at most; whether that happened."""
        actor = self.current
        assert actor is not None
        if actor.dead:
            raise greenlet.GreenletExit  # it is being ended: it waits for nothing any more
        actor.blocked = True
        actor.token += 1
        if seconds is not None:
            token = actor.token

            def expire() -> None:
                if actor.blocked and actor.token == token:
                    actor.blocked = actor.woken = False
                    bisect.insort(self._ready, actor.number)

            self.later(seconds, expire)
        self._hub.switch()
        return actor.woken

    def wake(self, actor: Actor | None) -> None:
        """Let it go on, if it waits."""
        if actor is not None and actor.blocked:
            actor.blocked = False
            actor.woken = True
            bisect.insort(self._ready, actor.number)

    def pause(self) -> None:
        """Let others go first."""
        actor = self.current
        assert actor is not None
        if actor.dead:
            return
        bisect.insort(self._ready, actor.number)
        self._hub.switch()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something, in no thread, after so long."""
        self._order += 1
        heapq.heappush(self._timers, (self.now + seconds, self._order, action))

    def kill(self, actor: Actor) -> None:
        """End it where it is. Not by itself."""
        assert actor is not self.current
        if actor.dead:
            return
        with_caller, self.current = self.current, actor
        actor.blocked = False
        actor.dead = True
        at = bisect.bisect_left(self._ready, actor.number)
        if at < len(self._ready) and self._ready[at] == actor.number:
            del self._ready[at]
        # It ends in the caller's time: nothing in its clean-up may wait.
        hub, self._hub = self._hub, greenlet.getcurrent()
        actor.let.parent = self._hub
        try:
            actor.let.throw(greenlet.GreenletExit)
        finally:
            self._hub, self.current = hub, with_caller
        self._actors.pop(actor.number, None)

    def run(self, over: Callable[[], bool], limit_s: float, step: Callable[[], float]) -> None:
        """Until it is over.

        Args:
            step: called before the first step, and before each that it has returned the number of.

        Raises:
            Stuck: it never will be.
        """
        end = self.now + limit_s
        ready, timers, chance = self._ready, self._timers, self.chance.random
        due_step = 0.0
        while not over():
            self.steps += 1
            if self.steps >= due_step:
                due_step = step()
            if ready and not (timers and chance() < HURRY):
                actor = self._actors[ready.pop(int(chance() * len(ready)))]
                self.current = actor
                actor.let.switch()
                self.current = None
                if self.defects:
                    raise self.defects[0]
            elif timers:
                due, _, action = heapq.heappop(timers)
                self.now = max(self.now, due)
                if self.now > end:
                    raise Stuck(f"not over after {limit_s:g} s; waiting: {self.alive()}")
                action()
            else:
                raise Stuck(f"nothing can happen any more; waiting: {self.alive()}")

    def alive(self) -> list[Actor]:
        """Those that have not ended."""
        return list(self._actors.values())

    def clear(self) -> None:
        """End all that is left."""
        for actor in self.alive():
            self.kill(actor)


class Condition:
    """`threading.Condition` of such threads, with a lock that the same thread may take again."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._depth = 0
        self._waiting: deque[Actor] = deque()
        self.check: Callable[[], None] | None = None
        """Called whenever the lock is let go."""

    def __enter__(self) -> bool:
        self._depth += 1
        return True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        if self.check is not None:
            self.check()
        actor = self._actors.current
        if kind is None and actor is not None and actor.shares:
            if self._actors.chance.random() < PREEMPT:
                self._actors.pause()

    def wait(self, timeout: float | None = None) -> bool:
        actors = self._actors
        actor = actors.current
        assert actor is not None and self._depth
        if self.check is not None:
            self.check()
        depth, self._depth = self._depth, 0
        self._waiting.append(actor)
        try:
            return actors.block(timeout)
        finally:
            if actor in self._waiting:
                self._waiting.remove(actor)
            self._depth = depth

    def notify_all(self) -> None:
        while self._waiting:
            self._actors.wake(self._waiting.popleft())


class Event:
    """`asyncio.Event`."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._set = False
        self._waiting: list[Actor] = []

    def set(self) -> None:
        self._set = True
        for actor in self._waiting:
            self._actors.wake(actor)
        self._waiting.clear()

    def clear(self) -> None:
        self._set = False

    def wait(self) -> Event:
        return self

    def blocks(self, seconds: float) -> None:
        if self._set:
            return
        actor = self._actors.current
        assert actor is not None
        self._waiting.append(actor)
        woken = self._actors.block(seconds)
        if actor in self._waiting:
            self._waiting.remove(actor)
        if not woken:
            raise TimeoutError


class Thread:
    """`threading.Thread`."""

    def __init__(self, actors: Actors, target: Callable[[], None], name: str = "") -> None:
        self._actors = actors
        self._target = target
        self._name = name
        self._over = False
        self._waiting: list[Actor] = []
        self.actor: Actor | None = None

    def start(self) -> None:
        self.actor = self._actors.spawn(self._name, self._main)

    def is_alive(self) -> bool:
        return self.actor is not None and not self._over

    def join(self, seconds: float | None = None) -> None:
        end = None if seconds is None else self._actors.now + seconds
        while not self._over and (end is None or self._actors.now < end):
            assert self._actors.current is not None
            self._waiting.append(self._actors.current)
            self._actors.block(None if end is None else end - self._actors.now)

    def _main(self) -> None:
        try:
            self._target()
        finally:
            self._over = True
            for actor in self._waiting:
                self._actors.wake(actor)


class Calls:
    """What an event loop is asked to call by other threads, in order."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._queue: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self.reader: Actor | None = None

    def __bool__(self) -> bool:
        return bool(self._queue)

    def call_soon_threadsafe(self, call: Callable[..., Any], *args: Any) -> None:
        self._queue.append((call, args))
        self._actors.wake(self.reader)

    def one(self) -> None:
        """Call the next."""
        call, args = self._queue.popleft()
        call(*args)

    def run(self) -> None:
        """Call all, for ever."""
        self.reader = self._actors.current
        while True:
            while self._queue:
                self.one()
            self._actors.block()


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine whose waits are such a thread's."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something that is not of this world")

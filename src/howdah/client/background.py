"""An event loop in a thread of its own, so that plain programs can use what is asynchronous."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """The process's one background loop, started when it is first needed.

    A child made by `os.fork` gets its own.
    """

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None
    _pid = 0

    @classmethod
    def call(cls, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for its result. Ctrl-C cancels it."""
        future = cls.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @classmethod
    def start(cls, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there, now."""
        return asyncio.run_coroutine_threadsafe(work, cls.loop())

    @classmethod
    def iterate(cls, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, each fetched when it is wanted."""

        async def following() -> list[T]:
            async for item in items:
                return [item]
            return []

        try:
            while got := cls.call(following()):
                yield got[0]
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                cls.call(close())

    @classmethod
    def loop(cls) -> asyncio.AbstractEventLoop:
        """The loop; it runs in a daemon thread."""
        with cls._lock:
            if cls._loop is None or cls._pid != os.getpid():
                cls._loop = asyncio.new_event_loop()
                cls._pid = os.getpid()
                threading.Thread(
                    target=cls._loop.run_forever, name="howdah-client", daemon=True
                ).start()
            return cls._loop

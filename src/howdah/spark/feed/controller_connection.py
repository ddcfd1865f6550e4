"""A trainer's connection to the controller of all feeds: kept up by a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from howdah.spark.feed.ingest import answer_offset_query
from howdah.spark.feed.messages import (
    Abort,
    Close,
    Credit,
    EpochFed,
    Heard,
    OffsetQuery,
    Open,
    ToTrainer,
    TrainerHello,
)
from howdah.spark.feed.state import FeedState
from howdah.wire.channel import Channel, connect

LEASE_S = 10.0
"""A controller that has not been reached for so long is given up."""
FIRST_S = 60.0
"""The same before it was reached for the first time."""
PROGRESS_S = 0.25
"""How often the controller hears how far the program is."""
LAST_MESSAGE_S = 3.0
"""What is said last is given so long to be sent."""

_LOG = logging.getLogger(__name__)


class Control:
    """Runs from `start` to `close`. `tell` and `greet` may be called by any thread, and never wait."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        job_id: str,
        *,
        hello: Callable[[int], TrainerHello],
        state: Callable[[str], FeedState],
        states: Callable[[], list[FeedState]],
        end_all: Callable[[], None],
        lost: Callable[[str], None],
        lease_s: float = LEASE_S,
    ) -> None:
        self._address = (host, port)
        self._context = context
        self._job_id = job_id
        self._hello = hello
        self._state = state
        self._states = states
        self._end_all = end_all
        self._lost = lost
        self._lease_s = lease_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="howdah-control", daemon=True)
        self._channel: Channel[Any] | None = None
        self._connections = 0
        self._unsent: list[msgspec.Struct] = []
        """Said while there was no connection, and not said again by `TrainerHello`."""
        self._last_message: msgspec.Struct | None = None
        """Said last, and again over each new connection until it is heard."""
        self._heard = asyncio.Event()
        self._main_task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to dial."""
        self._thread.start()

    def tell(self, message: msgspec.Struct) -> None:
        """Send it, now or once there is a connection."""
        self._call(self._send, message)

    def greet(self) -> None:
        """Say `TrainerHello` again, for it says something new."""
        self._call(self._greet)

    def close(self, last_message: msgspec.Struct | None = None) -> None:
        """Send the last word, end the connection and the thread."""
        if self._closed:
            return
        self._closed = True
        if self._thread.is_alive():
            with contextlib.suppress(Exception):
                future = asyncio.run_coroutine_threadsafe(self._end(last_message), self._loop)
                future.result(2 * LAST_MESSAGE_S)
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LAST_MESSAGE_S)

    # -- in the thread ---------------------------------------------------------------------------

    def _main(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        self._main_task = loop.create_task(self._keep())
        ticker = loop.create_task(self._tick())
        try:
            loop.run_forever()
        finally:
            for task in (self._main_task, ticker):
                task.cancel()
            loop.run_until_complete(asyncio.gather(self._main_task, ticker, return_exceptions=True))
            loop.close()

    async def _keep(self) -> None:
        reached = time.monotonic()
        limit = FIRST_S
        pause = 0.05
        while True:
            try:
                channel = await connect(
                    *self._address,
                    self._context,
                    job_id=self._job_id,
                    receives=ToTrainer,
                    timeout_s=5.0,
                )
            except OSError as error:
                problem = str(error)
            else:
                limit, pause = self._lease_s, 0.05
                await self._talk(channel)
                reached = time.monotonic()
                problem = channel.problem or "it has closed the connection"
            if time.monotonic() - reached > limit:
                self._lost(
                    f"The driver program has not been reached for {limit:g} s at "
                    f"{self._address[0]}:{self._address[1]} ({problem}): it has ended, or the "
                    "network between it and Spark's executors is cut"
                )
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, 1.0)

    async def _talk(self, channel: Channel[Any]) -> None:
        self._channel = channel
        self._connections += 1
        try:
            channel.send(self._hello(self._connections))
            for message in self._unsent:
                channel.send(message)
            self._unsent.clear()
            self._lost("")
            for state in self._states():
                state.told_anew()
            if self._last_message is not None:
                channel.send(self._last_message)
            await channel.dispatch(self._handle)
        except Exception:
            _LOG.exception("A message of the feed's controller could not be handled")
        finally:
            self._channel = None
            channel.close()

    def _handle(self, message: Any) -> None:
        match message:
            case Close() if not message.feed:
                if message.end:
                    self._end_all()
                for state in self._states():
                    state.close(message)
            case Open():
                self._state(message.options.feed).open(message)
            case OffsetQuery():
                self._send(answer_offset_query(self._state(message.feed), message))
            case EpochFed():
                self._state(message.feed).epoch_fed(message)
            case Credit():
                self._state(message.feed).apply_credit(message)
            case Close():
                self._state(message.feed).close(message)
            case Abort():
                self._state(message.feed).abort(message)
            case Heard():
                self._heard.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            for state in self._states():
                state.progress()

    def _send(self, message: msgspec.Struct) -> None:
        if self._channel is None or self._channel.closed:
            if len(self._unsent) < 10_000:
                self._unsent.append(message)
            return
        self._channel.send(message)

    def _greet(self) -> None:
        if self._channel is not None and not self._channel.closed:
            self._channel.send(self._hello(self._connections))

    async def _end(self, last_message: msgspec.Struct | None) -> None:
        if last_message is not None:
            self._last_message = last_message
            if self._channel is not None:
                self._channel.send(last_message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_MESSAGE_S):
                    await self._heard.wait()
        channel = self._channel
        if channel is None:
            return
        if self._main_task is not None:
            self._main_task.cancel()
        channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_MESSAGE_S):
                await channel.wait_closed()

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the trainer has ended
            self._loop.call_soon_threadsafe(function, *args)

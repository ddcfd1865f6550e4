"""A partition's rows on their way in: what the thread of one data connection does."""

from __future__ import annotations

import contextlib
import queue
import threading

import msgspec

from howdah.spark.feed.connections import DataConnection
from howdah.spark.feed.epochs import ChunkQueue
from howdah.spark.feed.intervals import Offsets
from howdah.spark.feed.messages import Begin, FeedRefused, Purpose, RowsScored, Stop


class IngestStream(ChunkQueue):
    """One segment of a partition that is being received. For scoring it is a queue of its own, for
    batches never mix partitions."""

    def __init__(self, begin: Begin, connection: DataConnection) -> None:
        super().__init__()
        self.begin = begin
        self.connection = connection
        self.offsets: Offsets = Offsets(begin.start, begin.skip)
        self.rows = 0
        """That have been taken, or were here before."""
        self.reserved = 0
        """Bytes of the feed's buffer for the record batch that is being received."""
        self.ended = False
        """Its last row is here."""
        self.discard: bool = False
        """No more rows are wanted: what comes is thrown away."""
        self.came: float = 0.0
        """`time.monotonic` of the last rows."""
        self._words: queue.SimpleQueue[tuple[msgspec.Struct, bytes] | None] = queue.SimpleQueue()
        self._sender: threading.Thread | None = None

    def start(self) -> None:
        """Let what is said to a feeder that scores be sent, in the background."""
        if self.begin.purpose is Purpose.SCORE:
            self._sender = threading.Thread(target=self._send, name="howdah-answers", daemon=True)
            self._sender.start()

    def answer(self, stream: bytes) -> None:
        """Send an answer. Never waits."""
        self._say(RowsScored(size=len(stream)), stream)

    def stop(self) -> None:
        """Tell the feeder that no more rows are wanted. With the feed's lock; never waits."""
        self.discard = True
        self._say(Stop(rows=self.rows))

    def refuse(self, reason: str, *, again: bool) -> None:
        """Tell the feeder why its rows are not taken. Never waits."""
        self.discard = True
        self._say(FeedRefused(reason=reason, again=again))

    def end(self, wait_s: float | None = None) -> None:
        """Nothing more is said: wait until all was sent, or the connection has ended."""
        self._words.put(None)
        if self._sender is not None:
            self._sender.join(wait_s)

    def _say(self, message: msgspec.Struct, stream: bytes = b"") -> None:
        if self.begin.purpose is Purpose.SCORE:
            # Spark holds answers back as long as it likes: this may come under the feed's lock.
            self._words.put((message, stream))
            return
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def _send(self) -> None:
        while (word := self._words.get()) is not None:
            try:
                self.connection.send(*word)
            except OSError:
                return

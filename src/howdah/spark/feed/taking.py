"""A partition's rows on their way in: what the thread of one data connection does."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed import intake
from howdah.spark.feed.connections import Connection
from howdah.spark.feed.epochs import Line
from howdah.spark.feed.intervals import Offsets
from howdah.spark.feed.ipc import Kind, read_body, read_head, read_schema, record_batch
from howdah.spark.feed.messages import Begin, Purpose, Refused, Scored, Stop, Taken
from howdah.spark.feed.slabs import Slabs

if TYPE_CHECKING:
    from howdah.spark.feed.state import FeedState


class Taking(Line):
    """One stretch of a partition that is being received. For scoring it is a line of its own, for
    batches never mix partitions."""

    def __init__(self, begin: Begin, connection: Connection) -> None:
        super().__init__()
        self.begin = begin
        self.connection = connection
        self.offsets = Offsets(begin.start, begin.skip)
        self.rows = 0
        self.ended = False
        """Its last row is here."""
        self.discard = False
        """No more rows are wanted: what comes is thrown away."""
        self.came = 0.0
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
        self._say(Scored(size=len(stream)), stream)

    def stop(self) -> None:
        """Tell the feeder that no more rows are wanted. Never waits."""
        self.discard = True
        self._say(Stop())

    def refuse(self, reason: str, *, again: bool) -> None:
        """Tell the feeder why its rows are not taken. Never waits."""
        self.discard = True
        self._say(Refused(reason=reason, again=again))

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


def take(begin: Begin, connection: Connection, state: FeedState, slabs: Slabs) -> None:
    """Receive what the feeder has announced, to the end of the connection.

    Raises:
        EOFError, OSError, msgspec.DecodeError: the connection ended early, or makes no sense.
    """
    taking = Taking(begin, connection)
    refused = intake.begin(state, taking)
    if refused is not None:
        connection.send(refused)
        _drain(connection)
        return
    taking.start()
    try:
        _receive(taking, state, slabs)
    except FeedError as error:
        taking.refuse(str(error), again=False)
        state.fail(str(error))
        _drain(connection)
    except (EOFError, OSError, msgspec.DecodeError):
        connection.end()  # also for an answer that is being sent
        raise
    finally:
        intake.end(state, taking)
        taking.end()


def _receive(taking: Taking, state: FeedState, slabs: Slabs) -> None:
    connection = taking.connection
    read_into = connection.read_into
    schema: pa.Schema | None = None
    while (head := read_head(read_into)) is not None:
        if head.kind is Kind.SCHEMA:
            schema = read_schema(head, read_into)
            if problem := intake.check(state, schema):
                taking.refuse(problem, again=False)
        elif head.kind is Kind.DICTIONARY or schema is None:
            raise FeedError(
                "The feeder sent dictionary-encoded columns, which feeds do not take: decode them "
                "before (pyarrow: column.dictionary_decode())"
            )
        else:
            spill = intake.room(state, taking, head.body)
            message = read_body(head, read_into, slabs)
            if not taking.discard:
                intake.add(state, taking, message, record_batch(message, schema), spill=spill)
    if taking.discard:
        return
    taking.ended = True
    intake.arrived(state)
    if taking.begin.purpose is Purpose.SCORE:
        # Answers follow; the feeder ends the connection when it has them all.
        connection.read_into(memoryview(bytearray(1)))
    else:
        connection.send(Taken(rows=taking.rows))
        _drain(connection)


def _drain(connection: Connection) -> None:
    """Read to the end: a close with unread bytes would reset what was just sent."""
    scratch = memoryview(bytearray(1 << 20))
    with contextlib.suppress(EOFError, OSError, msgspec.DecodeError):
        while True:
            connection.read_into(scratch)

"""What data connections do to a feed: begin, add rows, wait for room, end; and `take`, which is what
the thread of one connection does."""

from __future__ import annotations

import contextlib
import time

import msgspec
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.buffer_pool import BufferPool
from howdah.spark.feed.cache import Entry, Shelf, spooled
from howdah.spark.feed.connections import Connection
from howdah.spark.feed.epochs import Chunk, TrainerEpoch, TrainerRun
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.intervals import joined, without
from howdah.spark.feed.ipc import Kind, read_body, read_head, read_schema, record_batch
from howdah.spark.feed.messages import (
    Align,
    Begin,
    HowFar,
    Kept,
    Part,
    Purpose,
    Refused,
    Taken,
)
from howdah.spark.feed.shared_state import STARVED_S
from howdah.spark.feed.slicing import chosen, columns
from howdah.spark.feed.state import FeedState, Key

OPEN_S = 10.0
"""Rows may come before the master has said that their run begins."""


def begin(state: FeedState, taking: IngestStream) -> Refused | None:
    """Whether these rows are taken; None: yes (also when they are just thrown away)."""
    begin = taking.begin
    deadline = time.monotonic() + OPEN_S
    with state.changed:
        # A later attempt may come while this one waits.
        while fence(state, key_of(begin), begin.attempt):
            if state.board.gone is not None and state.board.gone.reason:
                return state.board.gone
            run = state.runs.get(begin.run)
            if state.ended or state.board.gone is not None or begin.run in state.over:
                taking.stop()
                break
            if run is not None:
                fed = begin.epoch in run.epochs and run.epochs[begin.epoch].fed
                if not run.scoring and (begin.epoch < run.current or fed):
                    taking.stop()  # the program has left that epoch, or all its rows are here
                break
            left = deadline - time.monotonic()
            if left <= 0:
                reason = f"The master has not announced run {begin.run} of {state.name!r}"
                return Refused(reason=reason, again=True)
            state.changed.wait(left)
        else:
            return Refused(reason="A later attempt of the same task feeds this partition")
        state.takings.add(taking)
    return None


def check(state: FeedState, schema: pa.Schema) -> str:
    """Why these columns do not fit those that came before; empty if they do."""
    with state.changed:
        known = state.schema
        if known is None:
            state.schema = schema
            state.changed.notify_all()
            return ""
    if known.names == schema.names and known.types == schema.types:
        return ""
    return (
        f"The columns of the feed {state.name!r} have changed, from {columns(known)} to "
        f"{columns(schema)}. Select and cast the same columns for every run, or use another "
        "feed name"
    )


def room(state: FeedState, taking: IngestStream, size: int) -> bool:
    """Wait until so many bytes may be received, which are reserved; True: they must go to a file."""
    with state.changed:
        while not taking.discard:
            if not state.buffered or state.buffered + size <= _limit(state, taking):
                taking.reserved = size
                state.buffered += size
                return False
            if state.board.starved():
                return True
            state.changed.wait(STARVED_S if state.board.waits_since is not None else None)
    return False


def unreserve(state: FeedState, taking: IngestStream) -> None:
    """The record batch was not kept in memory."""
    if not taking.reserved:
        return
    with state.changed:
        state.buffered -= taking.reserved
        taking.reserved = 0
        state.changed.notify_all()


def add(
    state: FeedState,
    taking: IngestStream,
    message: pa.Buffer,
    batch: pa.RecordBatch,
    *,
    spill: bool,
) -> None:
    """Rows have come.

    Raises:
        FeedError: they could not be kept in a file.
    """
    begin = taking.begin
    rows = batch.num_rows
    if not rows:
        return
    with state.changed:
        run = state.runs.get(begin.run)
        if run is None:
            return
        book = run.epoch(begin.epoch)
        offsets = taking.offsets.take(rows)
        spool = book.file(state.board.space) if spill else None
        shelf = None if run.scoring else _shelf(state, run, book)
        taken = state.taken.setdefault((begin.run, begin.epoch), {})
        known = taken.get(begin.partition, [])
    fresh = offsets if run.scoring else without(offsets, known)
    if not fresh:
        with state.changed:
            taking.rows += 0 if taking.discard else rows
        return
    if fresh != offsets:
        batch = chosen(batch, offsets, fresh)
        message = batch.serialize()

    def load() -> pa.RecordBatch:
        return batch

    chunk = Chunk(load, batch.num_rows, begin.partition, fresh, counted=message.size)
    kept, written = (load, False) if shelf is None else shelf.keep(message, batch)
    if spool is not None:
        chunk.load = kept if written else spooled(spool, message, batch.schema)
        chunk.counted = 0
    with state.changed:
        if taking.discard or run.over or book.done:
            return
        taking.rows += rows
        if shelf is not None:
            shelf.entries.append(Entry(kept, batch.num_rows, begin.partition, fresh))
        state.buffered += chunk.counted - taking.reserved
        taking.reserved = 0
        if run.scoring:
            taking.push(chunk)
            taking.came = time.monotonic()
        else:
            taken[begin.partition] = joined(taken.get(begin.partition, []), fresh)
            book.received += chunk.rows
            book.push(chunk)
            state.news(book)
        state.changed.notify_all()


def arrived(state: FeedState) -> None:
    """The last row of a connection is here."""
    with state.changed:
        state.changed.notify_all()


def end(state: FeedState, taking: IngestStream) -> None:
    """Its connection has ended."""
    with state.changed:
        state.takings.discard(taking)
        state.buffered -= taking.clear() + taking.reserved
        taking.reserved = 0
        state.changed.notify_all()


def _limit(state: FeedState, taking: IngestStream) -> int:
    run = state.runs.get(taking.begin.run)
    return run.options.buffer if run is not None else 0


def _shelf(state: FeedState, run: TrainerRun, book: TrainerEpoch) -> Shelf | None:
    """Where the epoch's rows are kept, if they are needed again."""
    cached = run.cached_epoch == book.number and run.options.epochs > book.number + 1
    if book.shelf is None and (cached or book.align is Align.PAD):
        book.shelf = Shelf(run.options.cache_memory, book.file(state.board.space))
        if cached:
            run.shelf = book.shelf
    return book.shelf


def key_of(begin: Begin) -> tuple[Key, Part]:
    return (begin.run, begin.epoch), (begin.stage, begin.partition)


def fence(state: FeedState, key: tuple[Key, Part], attempt: int) -> bool:
    """From now on no row of an earlier attempt is taken, nor one that this attempt sends over a
    former connection. False: a later attempt has been here."""
    epoch, part = key
    with state.changed:
        known = state.attempts.setdefault(epoch, {})
        if known.get(part, attempt) > attempt:
            return False
        known[part] = attempt
        former = [taking for taking in state.takings if key_of(taking.begin) == key]
        for taking in former:
            # Ending alone is not enough: what the feeder has sent before can still be read.
            taking.discard = True
        state.changed.notify_all()
    for taking in former:
        taking.connection.end()
    return True


def how_far(state: FeedState, message: HowFar) -> Kept:
    """Ends the partition's connection."""
    epoch = (message.run, message.epoch)
    fence(state, (epoch, (0, message.partition)), message.attempt)
    with state.changed:
        ranges = state.taken.get(epoch, {}).get(message.partition)
        upto = ranges[-1][1] if ranges else -1
    return Kept(
        feed=state.name,
        run=message.run,
        epoch=message.epoch,
        partition=message.partition,
        upto=upto,
    )


def take(announced: Begin, connection: Connection, state: FeedState, slabs: BufferPool) -> None:
    """Receive what the feeder has announced, to the end of the connection.

    Raises:
        EOFError, OSError, msgspec.DecodeError: the connection ended early, or makes no sense.
    """
    taking = IngestStream(announced, connection)
    refused = begin(state, taking)
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
        end(state, taking)
        taking.end()


def _receive(taking: IngestStream, state: FeedState, slabs: BufferPool) -> None:
    connection = taking.connection
    read_into = connection.read_into
    schema: pa.Schema | None = None
    while (head := read_head(read_into)) is not None:
        if head.kind is Kind.SCHEMA:
            schema = read_schema(head, read_into)
            if problem := check(state, schema):
                taking.refuse(problem, again=False)
        elif head.kind is Kind.DICTIONARY or schema is None:
            raise FeedError(
                "The feeder sent dictionary-encoded columns, which feeds do not take: decode them "
                "before (pyarrow: column.dictionary_decode())"
            )
        else:
            spill = room(state, taking, len(head.metadata) + head.body)
            message = read_body(head, read_into, slabs)
            if not taking.discard:
                add(state, taking, message, record_batch(message, schema), spill=spill)
            unreserve(state, taking)
    if taking.discard:
        return
    taking.ended = True
    arrived(state)
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

"""What data connections do to a feed: begin, add rows, wait for room, end; and `take`, which is what
the thread of one connection does."""

from __future__ import annotations

import contextlib
import time

import msgspec
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.ipc import IpcKind, read_body, read_head, read_schema, record_batch
from howdah.spark.feed.cache import Entry, EpochCache, spilled
from howdah.spark.feed.connections import DataConnection
from howdah.spark.feed.epochs import Chunk, TrainerEpoch, TrainerRun
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.intervals import cut, joined, without
from howdah.spark.feed.messages import (
    Begin,
    FeedRefused,
    Intervals,
    OffsetQuery,
    OffsetReply,
    Part,
    Purpose,
    Taken,
)
from howdah.spark.feed.state import STARVED_S, FeedState, Key

_SCRATCH_BYTES = 64 << 10
OPEN_S = 10.0
"""Rows may come before the controller has said that their run begins."""


def begin(state: FeedState, stream: IngestStream) -> FeedRefused | None:
    """Whether these rows are taken; None: yes (also when they are just thrown away)."""
    begin = stream.begin
    deadline = time.monotonic() + OPEN_S
    with state.changed:
        # A later attempt may come while this one waits.
        while fence(state, key_of(begin), begin.attempt):
            if state.shared.gone is not None and state.shared.gone.reason:
                return state.shared.gone
            run = state.runs.get(begin.run)
            if state.ended or state.shared.gone is not None or begin.run in state.over:
                stream.stop()
                break
            if run is not None:
                fed = begin.epoch in run.epochs and run.epochs[begin.epoch].fed
                if not run.scoring and (begin.epoch < run.current or fed):
                    stream.stop()  # the program has left that epoch, or all its rows are here
                break
            left = deadline - time.monotonic()
            if left <= 0:
                reason = f"The controller has not announced run {begin.run} of {state.name!r}"
                return FeedRefused(reason=reason, again=True)
            state.changed.wait(left)
        else:
            return FeedRefused(reason="A later attempt of the same task feeds this partition")
        state.streams.add(stream)
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


def room(state: FeedState, stream: IngestStream, size: int) -> bool:
    """Wait until so many bytes may be received, which are reserved; True: they must go to a file."""
    with state.changed:
        while not stream.discard:
            if not state.buffered or state.buffered + size <= _limit(state, stream):
                stream.reserved = size
                state.buffered += size
                return False
            if state.shared.starved():
                return True
            state.changed.wait(STARVED_S if state.shared.waiting_since is not None else None)
    return False


def unreserve(state: FeedState, stream: IngestStream) -> None:
    """The record batch was not kept in memory."""
    if not stream.reserved:
        return
    with state.changed:
        state.buffered -= stream.reserved
        stream.reserved = 0
        state.changed.notify_all()


def add(
    state: FeedState,
    stream: IngestStream,
    message: pa.Buffer,
    batch: pa.RecordBatch,
    *,
    spill: bool,
) -> None:
    """Rows have come.

    Raises:
        FeedError: they could not be kept in a file.
    """
    begin = stream.begin
    rows = batch.num_rows
    if not rows:
        return
    with state.changed:
        run = state.runs.get(begin.run)
        if run is None:
            return
        epoch = run.epoch(begin.epoch)
        offsets = stream.offsets.take(rows)
        spill_file = epoch.file(state.shared.space) if spill else None
        cache = None if run.scoring else _epoch_cache(state, run, epoch)
        taken = state.taken.setdefault((begin.run, begin.epoch), {})
        known = taken.get(begin.partition, [])
    fresh = offsets if run.scoring else without(offsets, known)
    if not fresh:
        with state.changed:
            stream.rows += 0 if stream.discard else rows
        return
    if fresh != offsets:
        batch = chosen(batch, offsets, fresh)
        message = batch.serialize()

    def load() -> pa.RecordBatch:
        return batch

    chunk = Chunk(load, batch.num_rows, begin.partition, fresh, counted=message.size)
    kept, written = (load, False) if cache is None else cache.keep(message, batch)
    if spill_file is not None:
        chunk.load = kept if written else spilled(spill_file, message, batch.schema)
        chunk.counted = 0
    with state.changed:
        if stream.discard or run.over or epoch.done:
            return
        stream.rows += rows
        if cache is not None:
            cache.entries.append(Entry(kept, batch.num_rows, begin.partition, fresh))
        state.buffered += chunk.counted - stream.reserved
        stream.reserved = 0
        if run.scoring:
            stream.push(chunk)
            stream.came = time.monotonic()
        else:
            taken[begin.partition] = joined(taken.get(begin.partition, []), fresh)
            epoch.received += chunk.rows
            epoch.push(chunk)
            state.report_available(epoch)
        state.changed.notify_all()


def end(state: FeedState, stream: IngestStream) -> None:
    """Its connection has ended."""
    with state.changed:
        state.streams.discard(stream)
        state.buffered -= stream.clear() + stream.reserved
        stream.reserved = 0
        state.changed.notify_all()


def _limit(state: FeedState, stream: IngestStream) -> int:
    run = state.runs.get(stream.begin.run)
    return run.options.buffer if run is not None else 0


def _epoch_cache(state: FeedState, run: TrainerRun, epoch: TrainerEpoch) -> EpochCache | None:
    """Where the epoch's rows are kept, if they are needed again."""
    if run.cached_epoch != epoch.number or run.options.epochs <= epoch.number + 1:
        return None
    if run.cache is None:
        run.cache = EpochCache(run.options.cache_memory, epoch.file(state.shared.space))
    return run.cache


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
        former = [stream for stream in state.streams if key_of(stream.begin) == key]
        for stream in former:
            # Ending alone is not enough: what the feeder has sent before can still be read.
            stream.discard = True
        state.changed.notify_all()
    for stream in former:
        stream.connection.end()
    return True


def answer_offset_query(state: FeedState, message: OffsetQuery) -> OffsetReply:
    """Ends the partition's connection."""
    epoch = (message.run, message.epoch)
    fence(state, (epoch, (0, message.partition)), message.attempt)
    with state.changed:
        ranges = state.taken.get(epoch, {}).get(message.partition)
        upto = ranges[-1][1] if ranges else -1
    return OffsetReply(
        feed=state.name,
        run=message.run,
        epoch=message.epoch,
        partition=message.partition,
        upto=upto,
        question=message.question,
    )


def take(announced: Begin, connection: DataConnection, state: FeedState) -> None:
    """Receive what the feeder has announced, to the end of the connection.

    Raises:
        EOFError, OSError, msgspec.DecodeError: the connection ended early, or makes no sense.
    """
    stream = IngestStream(announced, connection)
    refused = begin(state, stream)
    if refused is not None:
        connection.send(refused)
        _drain(connection)
        return
    stream.start()
    try:
        _receive(stream, state)
    except FeedError as error:
        stream.refuse(str(error), again=False)
        state.fail(str(error))
        _drain(connection)
    except (EOFError, OSError, msgspec.DecodeError):
        connection.end()  # also for an answer that is being sent
        raise
    finally:
        end(state, stream)
        stream.end()


def _receive(stream: IngestStream, state: FeedState) -> None:
    connection = stream.connection
    read_into = connection.read_into
    schema: pa.Schema | None = None
    while (head := read_head(read_into)) is not None:
        if head.kind is IpcKind.SCHEMA:
            schema = read_schema(head, read_into)
            if problem := check(state, schema):
                stream.refuse(problem, again=False)
        elif head.kind is IpcKind.DICTIONARY or schema is None:
            raise FeedError(
                "The feeder sent dictionary-encoded columns, which feeds do not take: decode them "
                "before (pyarrow: column.dictionary_decode())"
            )
        else:
            spill = room(state, stream, len(head.metadata) + head.body)
            message = read_body(head, read_into)
            if not stream.discard:
                add(state, stream, message, record_batch(message, schema), spill=spill)
            unreserve(state, stream)
    if stream.discard:
        return
    stream.ended = True
    with state.changed:
        state.changed.notify_all()
    if stream.begin.purpose is Purpose.SCORE:
        # Answers follow; the feeder ends the connection when it has them all.
        connection.read_into(memoryview(bytearray(1)))
    else:
        connection.send(Taken(rows=stream.rows))
        _drain(connection)


def _drain(connection: DataConnection) -> None:
    """Read to the end: a close with unread bytes would reset what was just sent."""
    scratch = memoryview(bytearray(_SCRATCH_BYTES))
    with contextlib.suppress(EOFError, OSError, msgspec.DecodeError):
        while True:
            connection.read_into(scratch)


def columns(schema: pa.Schema) -> str:
    """The columns in words."""
    text = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return text if len(text) < 500 else f"{text[:500]}… ({len(schema)} columns)"


def chosen(batch: pa.RecordBatch, offsets: Intervals, fresh: Intervals) -> pa.RecordBatch:
    """The rows of ``fresh``, of a batch that has ``offsets``."""
    pieces: list[pa.RecordBatch] = []
    base = 0
    for start, stop in offsets:
        pieces += [batch.slice(base + a, b - a) for a, b in cut(start, stop, fresh)]
        base += stop - start
    if not pieces:
        return batch.slice(0, 0)
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]

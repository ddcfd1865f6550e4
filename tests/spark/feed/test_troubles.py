"""What goes wrong, and how both sides hear of it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from howdah.spark.errors import FeedError
from howdah.spark.feed import cache, ingest
from howdah.spark.feed.connections import DataConnection
from howdah.spark.feed.feed import Feed
from howdah.spark.feed.ingest_stream import IngestStream
from howdah.spark.feed.messages import (
    Abort,
    Begin,
    Broken,
    Close,
    Enough,
    FeedRefused,
    HandedOut,
    OffsetQuery,
    OffsetReply,
    Open,
    Options,
    Purpose,
    Returned,
    Stop,
    Taken,
    TrainerHello,
    TrainerLoad,
)
from howdah.spark.feed.state import FeedState, SharedState
from howdah.wire.authority import create
from howdah.wire.tls import PeerRole
from tests.processes import open_files
from tests.spark.feed.rig import DEADLINE_S, Feeder, Rig

ROWS = 4096
SCHEMA = pa.schema({"y": pa.int64()})


def numbers(start: int, rows: int = ROWS) -> pa.RecordBatch:
    return pa.record_batch({"y": np.arange(start, start + rows)})


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


class Endless:
    """A feeder that sends rows until it is stopped, and counts them."""

    def __init__(self, feeder: Feeder, batches: int = 1 << 30) -> None:
        self.feeder = feeder
        self.sent = 0
        self._batches = batches
        self._thread = in_background(self._send)

    def _send(self) -> None:
        try:
            with self.feeder.open(SCHEMA) as writer:
                for index in range(self._batches):
                    writer.write_batch(numbers(index * ROWS))
                    self.feeder.flush()
                    self.sent += 1
            self.feeder.flush()
        except OSError:
            pass

    def held_back(self) -> int:
        """Batches sent once no more can be."""
        while True:
            before = self.sent
            self._thread.join(0.3)
            if self.sent == before and before:
                return before

    def ended(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_many_feeders_at_once_keep_to_the_buffer(rig: Rig) -> None:
    trainer = rig.trainer()
    batch = numbers(0)
    rig.open(align="none", buffer=2 * batch.nbytes)
    feeders = [rig.feeder(partition=number) for number in range(8)]
    state = trainer.feed("train")._state
    most: list[int] = []
    all_there = threading.Barrier(len(feeders))
    read_body, add = ingest.read_body, ingest.add

    def read(*arguments: Any) -> Any:
        if len(most) < len(feeders):
            with contextlib.suppress(threading.BrokenBarrierError):
                all_there.wait(0.5)  # all that have been let in are received at once
        return read_body(*arguments)

    def added(*arguments: Any, spill: bool) -> None:
        add(*arguments, spill=spill)
        with state.changed:
            most.append(state.buffered)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "read_body", read)
        patch.setattr(ingest, "add", added)
        threads = [
            threading.Thread(target=feeder.send, args=([numbers(0)] * 3, SCHEMA))
            for feeder in feeders
        ]
        for thread in threads:
            thread.start()
        batches = trainer.feed("train").batches(ROWS)
        assert sum(len(next(batches)["y"]) for _ in range(24)) == 24 * ROWS
    for thread in threads:
        thread.join(DEADLINE_S)
    assert max(most) <= 2 * batch.nbytes + 4096


def test_what_waits_for_room_is_not_taken_once_the_master_knows_how_far_it_came(rig: Rig) -> None:
    """The next attempt brings it, to whichever rank: this one would have it a second time."""
    trainer = rig.trainer()
    feed = trainer.feed("train")
    rig.open(align="none", buffer=1)
    earlier = rig.feeder()
    with earlier.open(SCHEMA) as writer:
        writer.write_batch(numbers(0))
        writer.write_batch(numbers(ROWS))
    earlier.flush()

    def received() -> int:
        run = trainer._states["train"].runs.get(1)
        return 0 if run is None or 0 not in run.epochs else run.epochs[0].received

    until(lambda: received() == ROWS)
    rig.controller.say(OffsetQuery(feed="train", run=1, epoch=0, partition=0, attempt=5))
    assert rig.controller.wait(OffsetReply).upto == ROWS
    batches = next(iter(feed)).batches(ROWS)
    assert next(batches)["y"][0] == 0  # there is room again
    until(lambda: not trainer._states["train"].streams)
    rig.fed()
    assert next(batches, None) is None


def test_rows_of_an_attempt_that_was_superseded_are_not_kept_for_later_epochs(
    tmp_path: Path,
) -> None:
    state = FeedState("train", SharedState(lambda message: None, 0, tmp_path))
    options = Options(feed="train", epochs=2, cache=True)
    state.open(Open(run=1, purpose=Purpose.TRAIN, options=options))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = IngestStream(Begin(feed="train", run=1, partition=0), DataConnection(ours))
        assert ingest.begin(state, stream) is None
        assert ingest.fence(state, ingest.key_of(stream.begin), 1)
        ingest.add(state, stream, numbers(0).serialize(), numbers(0), spill=False)
    run = state.runs[1]
    assert run.epoch(0).received == 0
    assert run.cache is not None and run.cache.entries == []


def test_a_full_buffer_goes_on_in_a_file_while_others_keep_the_program_waiting(rig: Rig) -> None:
    """All feeders are held back by this rank, and the rank waits for one that gets no feeder."""
    trainer = rig.trainer()
    feed = trainer.feed("train")
    rig.open(buffer=4 * numbers(0).nbytes)
    endless = Endless(rig.feeder(), batches=2000)
    got: list[int] = []
    stream = in_background(lambda: [got.append(int(b["y"].sum())) for b in feed.batches(ROWS)])
    assert endless.feeder.hear() == Taken(rows=2000 * ROWS)
    assert trainer._states["train"].buffered <= 4 * numbers(0).nbytes
    assert got == []
    rig.fed()
    rig.credit(2000, final=True)
    rig.controller.wait(HandedOut, lambda message: message.done)
    rig.end()
    stream.join(DEADLINE_S)
    assert sum(got) == sum(range(2000 * ROWS))


def test_the_files_of_a_rank_have_a_limit_that_is_named_where_it_is_reached(rig: Rig) -> None:
    trainer = rig.trainer()
    feeds = [trainer.feed(name) for name in ("train", "other")]
    batch = numbers(0)
    limit = int(3.5 * batch.nbytes)
    for run, feed in enumerate(feeds, 1):
        rig.open(run=run, feed=feed.name, epochs=2, cache=True, cache_memory=0, spill=limit)
    rig.feeder().send([batch, numbers(ROWS)], SCHEMA).hear()
    refused = rig.feeder(feed="other", run=2).send([batch, numbers(ROWS)], SCHEMA).hear()
    assert isinstance(refused, FeedRefused) and not refused.again
    assert f"spill={limit}" in refused.reason and str(rig.folder) in refused.reason
    with pytest.raises(FeedError, match="Raise it, or train with cache=False"):
        next(feeds[1].batches(8))
    # What the files of a run had is free again once it is over.
    for run, feed in enumerate(feeds, 1):
        rig.controller.say(Close(feed=feed.name, run=run))
    until(lambda: trainer._shared.space.used == 0)
    rig.open(run=3, epochs=2, cache=True, cache_memory=0, spill=limit)
    assert rig.feeder(run=3).send([batch] * 3, SCHEMA).hear() == Taken(rows=3 * ROWS)


def test_files_without_a_limit_leave_room_on_the_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SPARE", 1)  # all of it
    feed = rig.trainer().feed("train")
    rig.open(epochs=2, cache=True, cache_memory=0)
    refused = rig.feeder().send([numbers(0)], SCHEMA).hear()
    assert isinstance(refused, FeedRefused) and not refused.again
    assert "bytes of its disk are free" in refused.reason
    with pytest.raises(FeedError, match="spill= of Cluster.train"):
        next(feed.batches(8))


@pytest.mark.parametrize(
    ("ask", "announced"),
    [
        (lambda feed: len(feed.sample()["y"][:8]), True),
        (lambda feed: 8 if next(iter(feed)) is not None else 0, False),
    ],
    ids=["a sample", "an epoch"],
)
def test_a_feed_nobody_reads_yet_does_not_keep_another_from_its_rows(
    rig: Rig, ask: Callable[[Feed], int], announced: bool
) -> None:
    """Its feeders hold the slots that those of the other need, or that its run waits for."""
    validation: dict[str, Any] = {"run": 2, "feed": "validation", "align": "none", "steps": 8}
    trainer = rig.trainer()
    rig.open(align="none", buffer=4 * numbers(0).nbytes)
    if announced:
        rig.open(**validation)
    first = Endless(rig.feeder(), batches=500)
    first.held_back()
    found: list[int] = []
    program = in_background(lambda: found.append(ask(trainer.feed("validation"))))
    assert first.feeder.hear() == Taken(rows=500 * ROWS)
    if not announced:
        rig.open(**validation)
    rig.feeder(feed="validation", run=2).send([numbers(0)], SCHEMA).hear()
    program.join(DEADLINE_S)
    assert found == [8]


def test_stopping_ends_feeders_at_once(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    endless = Endless(rig.feeder())
    next(feed.batches(8))
    feed.stop()
    assert isinstance(endless.feeder.hear(), Stop)
    rig.controller.wait(Enough)
    assert rig.controller.wait(HandedOut, lambda message: message.rows == 8)
    assert list(feed.batches(8)) == [] and list(feed) == []
    endless.feeder.close()
    endless.ended()
    late = rig.feeder(partition=5).send([numbers(0)], SCHEMA)
    assert late.hear() == Stop()


def test_a_waiting_program_hears_of_everything_that_ends_it(rig: Rig) -> None:
    trainer = rig.trainer()
    heard: list[BaseException | str] = []

    def iterate(name: str) -> None:
        try:
            heard.append(f"{name} ended {len(list(trainer.feed(name).batches(8)))}")
        except FeedError as error:
            heard.append(error)

    for number, name in enumerate(["a", "b", "c"], 1):
        rig.open(run=number, feed=name)
    threads = {name: in_background(lambda name=name: iterate(name)) for name in ("a", "b", "c")}
    rig.controller.wait(TrainerHello, lambda hello: len(hello.asks) == 3)
    rig.controller.say(Abort(feed="a", run=1, error="Job aborted: no column z"))
    threads["a"].join(DEADLINE_S)
    assert "no column z" in str(heard.pop())
    rig.controller.say(Close(feed="b", end=True))
    threads["b"].join(DEADLINE_S)
    assert heard.pop() == "b ended 0"
    rig.controller.say(Close(feed="", end=True))
    threads["c"].join(DEADLINE_S)
    assert heard.pop() == "c ended 0"
    assert list(trainer.feed("never opened").batches(1)) == []


def test_a_master_that_is_gone_ends_the_program_after_the_lease(rig: Rig) -> None:
    feed = rig.trainer(lease_s=0.5).feed("train")
    rig.open()
    rig.controller.wait(TrainerHello)
    rig.controller.vanish()
    with pytest.raises(FeedError, match=r"driver program has not been reached for 0.5 s"):
        next(feed.batches(8))


def test_changed_columns_are_refused_and_raised_with_both_schemas(rig: Rig) -> None:
    rig.trainer()
    rig.open(align="none", epochs=2)
    rig.feeder().send([numbers(0)], SCHEMA).hear()
    rig.fed()
    other = pa.schema({"y": pa.float64(), "z": pa.string()})
    feeder = rig.feeder(epoch=1).send([], other)
    refused = feeder.hear()
    assert isinstance(refused, FeedRefused) and not refused.again
    assert "from y: int64 to y: double, z: string" in refused.reason


def test_an_exception_is_told_with_its_traceback(rig: Rig) -> None:
    trainer = rig.trainer()
    rig.open(align="none")
    feeder = rig.feeder()
    Endless(feeder)
    feeds = trainer.feed("train")
    with pytest.raises(ZeroDivisionError), trainer:
        next(feeds.batches(8))
        _ = 1 // 0
    broken = rig.controller.wait(Broken)
    assert broken.error == "ZeroDivisionError: integer division or modulo by zero"
    assert "_ = 1 // 0" in broken.trace
    refused = feeder.hear()
    assert isinstance(refused, FeedRefused) and refused.again
    assert "ZeroDivisionError" in refused.reason


def test_the_end_of_the_function_is_told_again_if_its_connection_breaks_just_then(rig: Rig) -> None:
    rig.controller.cuts = 1
    with rig.trainer() as trainer:
        rig.endpoint()
        trainer.feed("train")
    rig.controller.wait(Returned)
    assert len(rig.controller.heard(TrainerHello)) > 1


def test_the_end_of_the_function_is_told_and_leaves_nothing(rig: Rig) -> None:
    before = set(threading.enumerate())
    with rig.trainer() as trainer:
        endpoint = rig.endpoint()
        assert Path(endpoint.socket).is_socket()
        Feeder(endpoint)
        trainer.feed("train")
    rig.controller.wait(Returned)
    assert not Path(endpoint.socket).exists()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", endpoint.port))
    until(lambda: set(threading.enumerate()) <= before)


def test_a_cache_file_is_gone_with_its_process(rig: Rig) -> None:
    """It has no name that a kill could leave."""
    feed = rig.trainer().feed("train")
    rig.open(align="none", cache=True, cache_memory=0, epochs=2)
    rig.feeder().send([numbers(0)], SCHEMA).hear()
    assert len(next(feed.batches(8))["y"]) == 8
    files = [file for file in open_files(os.getpid()) if "howdah-rows-" in file]
    assert files and all("deleted" in file for file in files)
    assert not [*rig.folder.glob("howdah-rows-*")]


@pytest.mark.parametrize("word", [b"\x00\x00\x00\x03abc", b"\xff\xff\xff\xff", b""])
def test_strangers_words_end_their_connection_and_nothing_else(rig: Rig, word: bytes) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    stranger = Feeder(rig.endpoint())
    stranger.socket.sendall(word)
    stranger.socket.shutdown(socket.SHUT_WR)
    assert stranger.gone()
    rig.feeder().send([numbers(0)], SCHEMA).hear()
    assert len(next(feed.batches(8))["y"]) == 8


def test_a_feeder_of_another_job_is_not_let_in(rig: Rig, tmp_path: Path) -> None:
    rig.trainer()
    create("feeding-1", tmp_path / "forged")
    with pytest.raises((OSError, AssertionError)):
        Feeder(rig.endpoint(), tmp_path / "forged")


@pytest.mark.parametrize("role", [PeerRole.CLIENT, PeerRole.AGENT])
def test_only_a_feeders_certificate_brings_rows(rig: Rig, role: PeerRole) -> None:
    rig.trainer()
    with pytest.raises((OSError, AssertionError)):
        Feeder(rig.endpoint(), rig.secrets, role)
    assert isinstance(Feeder(rig.endpoint(), rig.secrets).load, TrainerLoad)


def test_bytes_that_are_no_arrow_stream_are_raised_in_words(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    feeder = rig.feeder()
    feeder.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    refused = feeder.hear()
    assert isinstance(refused, FeedRefused) and "where an Arrow message begins" in refused.reason
    with pytest.raises(FeedError, match="same version of howdah"):
        next(feed.batches(8))

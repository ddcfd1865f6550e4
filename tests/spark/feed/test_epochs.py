"""Epochs, their ends, caches, and positions."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from collections.abc import Iterable
from itertools import chain
from queue import Queue
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from howdah.spark.errors import FeedError
from howdah.spark.feed.intervals import count
from howdah.spark.feed.messages import (
    Available,
    Close,
    HandedOut,
    OffsetQuery,
    OffsetReply,
    Position,
    Taken,
    TrainerHello,
)
from tests.processes import open_files
from tests.spark.feed.rig import DEADLINE_S, Rig

SCHEMA = pa.schema({"y": pa.int64()})


def numbers(*ranges: tuple[int, int]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"y": np.arange(start, stop)}) for start, stop in ranges]


def values(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [batch["y"].tolist() for batch in batches]


def give(rig: Rig, *ranges: tuple[int, int], **begin: Any) -> None:
    feeder = rig.feeder(**begin)
    feeder.send(numbers(*ranges), SCHEMA)
    assert feeder.hear() == Taken(rows=sum(stop - start for start, stop in ranges))
    feeder.close()


def flat(lists: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))


def test_batches_never_cross_an_epochs_end_and_go_on_in_the_next_run(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none", epochs=2)
    give(rig, (0, 5), (5, 7))
    rig.fed()
    give(rig, (7, 10), epoch=1)
    rig.fed(epoch=1)
    rig.open(run=2, align="none")
    give(rig, (10, 12), run=2)
    rig.fed(run=2)
    batches = feed.batches(3)
    got = [next(batches) for _ in range(5)]
    rig.end()
    assert list(batches) == []
    assert values(got) == [[0, 1, 2], [3, 4, 5], [6], [7, 8, 9], [10, 11]]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"align": "drop", "rows": 43}, (6, 5)),
        ({"align": "none", "rows": 40}, (5, 5)),
        ({"rows": 40, "steps": 7}, (7, 7)),
        ({}, (None, None)),
    ],
)
def test_a_program_is_told_how_many_batches_an_epoch_has_where_that_is_known(
    rig: Rig, options: dict[str, Any], steps: tuple[int | None, int | None]
) -> None:
    feed = rig.trainer().feed("train")
    rig.open(readers=2, **options)
    assert (feed.steps(4), feed.steps(4, drop_last=True)) == steps
    rig.end()
    with pytest.raises(ValueError, match="at least one row"):
        feed.steps(0)


@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["in memory", "in a file"])
def test_later_epochs_come_from_the_cache(rig: Rig, memory: int) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none", epochs=3, cache=True, cache_memory=memory)
    give(rig, (0, 5))
    give(rig, (5, 9), partition=1)
    rig.fed()
    found = iter(feed)
    first = values(next(found).batches(4))
    assert values(next(found).batches(4)) == first == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert values(next(found).batches(9)) == [list(range(9))]
    rig.end()
    assert next(found, None) is None
    assert list(rig.folder.glob("howdah-rows-*")) == []
    assert rig.controller.wait(Available, lambda held: held.epoch == 2).final


def test_the_file_of_a_cache_goes_with_its_run_and_its_folder_may_go_before(rig: Rig) -> None:
    rig.folder = rig.folder / "executor"
    rig.folder.mkdir()
    feed = rig.trainer().feed("train")
    rig.folder.rmdir()  # as an executor that was killed
    rig.open(align="none", epochs=2, cache=True, cache_memory=0)
    give(rig, (0, 5))
    rig.fed()
    found = iter(feed)
    assert values(next(found).batches(5)) == values(next(found).batches(5))

    rig.end()
    assert next(found, None) is None
    gc.collect()
    assert not any("howdah-rows-" in name for name in open_files(os.getpid()))


def test_cached_epochs_are_shuffled_by_seed_epoch_and_rank(rig: Rig) -> None:
    def orders(run: int, seed: int) -> list[list[int]]:
        rig.open(run=run, align="none", epochs=3, cache=True, shuffle=seed)
        for partition in (1, 0) if run == 2 else (0, 1):
            give(
                rig,
                *[(at, at + 10) for at in range(100 * partition, 100 * partition + 100, 10)],
                run=run,
                partition=partition,
            )
        rig.fed(run=run)
        return [flat(values(next(found).batches(7))) for _ in range(3)]

    feed = rig.trainer().feed("train")
    found = iter(feed)
    first, again, other = orders(1, 5), orders(2, 5), orders(3, 6)
    assert first[0] == list(range(200))
    assert all(sorted(order) == list(range(200)) for order in first + other)
    assert first[1] != first[2] != first[0]
    assert first[1:] == again[1:]  # although the partitions came in another order
    assert first[1] != other[1]


def test_iteration_that_was_left_goes_on_with_the_next_row(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    give(rig, (0, 10))
    rig.fed()
    for batch in feed.batches(3):
        assert batch["y"].tolist() == [0, 1, 2]
        break
    assert next(feed.batches(4))["y"].tolist() == [3, 4, 5, 6]


def test_rows_come_one_by_one_as_plain_values(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    give(rig, (0, 3))
    rig.fed()
    found = feed.rows()
    assert [next(found) for _ in range(3)] == [{"y": 0}, {"y": 1}, {"y": 2}]
    rig.end()
    assert list(found) == []


def test_the_position_knows_each_row_handed_out(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    assert feed.position() == Position(epoch=0)
    rig.open(align="none", epochs=2)
    give(rig, (0, 10), (10, 20), partition=3)
    give(rig, (20, 30), partition=1, start=50)
    batches = feed.batches(8)
    for _ in range(3):
        next(batches)
    assert feed.position() == Position(
        run=1, epoch=0, rows={3: [(0, 20)], 1: [(50, 54)]}, batches=3
    )
    rig.fed()
    assert next(batches)["y"].tolist() == [24, 25, 26, 27, 28, 29]
    assert feed.position() == Position(run=1, epoch=1)


@pytest.mark.parametrize("shuffle", [None, 1], ids=["as it came", "shuffled"])
def test_the_position_leaves_out_batches_that_are_not_trained_yet(
    rig: Rig, shuffle: int | None
) -> None:
    feed = rig.trainer().feed("train")
    rig.open(epochs=2, cache=True, shuffle=shuffle)
    give(rig, (0, 10), (10, 15))
    rig.fed()
    for epoch in range(2):
        rig.credit(4, epoch=epoch, final=True)
    batches = feed.batches(4)
    trained: list[Position] = []
    for index in range(7):
        trained.append(feed.position() if index else Position(run=1, epoch=0))
        next(batches)
        for back in range(1, index + 2):
            assert feed.position(batches=back) == trained[-back]
    assert [(at.epoch, at.batches) for at in trained] == [
        *((0, batches) for batches in range(4)),
        *((1, batches) for batches in range(3)),
    ]
    assert trained[4].rows == {} and trained[3].rows == {0: [(0, 12)]}
    assert feed.position(batches=99) == trained[0]


def test_any_thread_may_ask_for_the_position_while_another_draws(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    for number in range(20):
        give(rig, (50 * number, 50 * number + 50), start=50 * number)
    rig.fed()
    drawn = Queue[int](2)

    def draw() -> None:
        for batch in feed.batches(3):
            drawn.put(len(batch["y"]))

    thread = threading.Thread(target=draw)
    thread.start()
    trained = 0
    while trained < 1000:
        trained += drawn.get(timeout=DEADLINE_S)
        # Two wait for this thread, one for room there.
        known = sum(count(ranges) for ranges in feed.position(batches=3).rows.values())
        assert known <= trained, "no row is left out that was not trained"
    rig.end()
    thread.join()
    with pytest.raises(FeedError, match="remembers the rows of the last 256 batches"):
        feed.position(batches=257)


def test_a_restored_position_is_told_before_rows_are_asked_for(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.controller.wait(TrainerHello)
    position = Position(run=1, epoch=2, rows={0: [(0, 6)]}, batches=2)
    feed.restore(position)
    told = rig.controller.wait(TrainerHello, lambda hello: bool(hello.positions))
    assert told.positions == {"train": position} and told.asks == []
    assert feed.position() == position
    rig.open(align="none", epochs=3, first_epoch=2)
    feeder = rig.feeder(epoch=2, skip=[(0, 6), (8, 9)])
    feeder.send(numbers((6, 8), (9, 12)), SCHEMA).hear()
    rig.fed(epoch=2)
    batches = feed.batches(3)
    assert next(batches)["y"].tolist() == [6, 7, 9]
    assert rig.controller.wait(TrainerHello, lambda hello: hello.asks == ["train"])
    now = Position(run=1, epoch=2, rows={0: [(0, 8), (9, 10)]}, batches=3)
    assert feed.position() == now  # what the checkpoint before had seen included
    with pytest.raises(FeedError, match="before the first batch"):
        feed.restore(position)
    with pytest.raises(FeedError, match="no position"):
        rig.trainers[0].feed("other").restore(b"nonsense")


def test_an_epoch_without_rows_is_not_over_before_those_before_it_are(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none", epochs=2)
    give(rig, (0, 4))
    rig.fed()
    rig.fed(epoch=1)
    batches = feed.batches(2)
    next(batches)
    rig.controller.wait(HandedOut, lambda message: message.rows == 2)
    rig.controller.say(OffsetQuery(feed="train", run=1, epoch=0, partition=9, attempt=1))
    rig.controller.wait(OffsetReply)  # what was said with the progress has been heard, too
    assert [message.epoch for message in rig.controller.heard(HandedOut) if message.done] == []
    rig.controller.say(Close(feed="train", end=True))
    list(batches)


def test_stopping_counts_the_cached_epochs_to_come_without_laying_them_out(rig: Rig) -> None:
    rows, epochs = 20_000, 200
    feed = rig.trainer().feed("train")
    rig.open(align="none", epochs=epochs, cache=True, shuffle=1)
    give(rig, (0, rows))
    rig.fed()
    next(feed.batches(100))
    tracemalloc.start()
    try:
        feed.stop()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * rows * 8, "a permutation of all rows takes 8 bytes for each of them"
    rig.controller.wait(HandedOut, lambda message: message.epoch == epochs - 1)
    dropped = {each.epoch: each.dropped for each in rig.controller.heard(HandedOut)}
    assert dropped == {0: rows - 100, **dict.fromkeys(range(1, epochs), rows)}

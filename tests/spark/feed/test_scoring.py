"""Rows that are answered."""

from __future__ import annotations

import select
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.answers import record_batch
from howdah.spark.feed.messages import Broken, FeedRefused, Purpose, Stop
from tests.spark.feed.rig import DEADLINE_S, Feeder, Rig

SCHEMA = pa.schema({"y": pa.int64()})
LARGE = "x" * (32 << 20)


def numbers(*ranges: tuple[int, int]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"y": np.arange(start, stop)}) for start, stop in ranges]


@pytest.fixture
def scored(rig: Rig) -> Rig:
    rig.trainer()
    rig.open(purpose=Purpose.SCORE)
    return rig


def test_each_row_is_answered_once_and_in_order(scored: Rig) -> None:
    feed = scored.trainers[0].feed("train")
    feeder = scored.feeder(run=1).send(numbers((0, 5), (5, 6), (6, 14)), SCHEMA)
    # Batches of what has come may be smaller: no batch waits for more.
    with feed._state.changed:
        assert feed._state.changed.wait_for(
            lambda: any(stream.ended for stream in feed._state.streams), DEADLINE_S
        )
    batches = feed.batches(4)
    for sizes in (4, 4, 4, 2):
        batch = next(batches)
        assert len(batch["y"]) == sizes and feed.scoring
        feed.results(batch["y"] * 10)
    answers = [feeder.answer()["prediction"].to_pylist() for _ in range(3)]
    assert answers == [[0, 10, 20, 30, 40], [50], [60, 70, 80, 90, 100, 110, 120, 130]]


def test_batches_never_mix_partitions(scored: Rig) -> None:
    feed = scored.trainers[0].feed("train")
    feeders = [
        scored.feeder(partition=each).send(numbers((100 * each, 100 * each + 3)), SCHEMA)
        for each in range(3)
    ]
    batches = feed.batches(256)
    for _ in feeders:
        batch = next(batches)
        assert len({value // 100 for value in batch["y"].tolist()}) == 1
        feed.results(batch["y"].tolist())
    for each, feeder in enumerate(feeders):
        assert feeder.answer()["prediction"].to_pylist() == [100 * each + n for n in range(3)]


def test_a_feeder_that_waits_for_each_answer_is_answered(scored: Rig) -> None:
    """No batch waits for rows that will only come once it is answered."""
    feed = scored.trainers[0].feed("train")
    feeder = scored.feeder()
    got: list[Any] = []

    def step_by_step() -> None:
        with feeder.open(SCHEMA) as writer:
            for batch in numbers((0, 3), (3, 6)):
                writer.write_batch(batch)
                feeder.flush()
                got.append(feeder.answer())

    thread = threading.Thread(target=step_by_step)
    thread.start()
    batches = feed.batches(256)
    for _ in range(2):
        batch = next(batches)
        feed.results({"a": batch["y"], "b": [str(value) for value in batch["y"]]})
    thread.join(10)
    assert [table["b"].to_pylist() for table in got] == [["0", "1", "2"], ["3", "4", "5"]]


def test_results_that_do_not_fit_are_refused_in_words(scored: Rig) -> None:
    feed = scored.trainers[0].feed("train")
    feeder = scored.feeder().send(numbers((0, 5)), SCHEMA)
    with pytest.raises(FeedError, match="waits for no results"):
        feed.results([1])
    batches = feed.batches(3)
    next(batches)
    with pytest.raises(FeedError, match="given 2 values for a batch of 3 rows"):
        feed.results([1, 2])
    with pytest.raises(FeedError, match="a single value"):
        feed.results(np.float64(3))
    with pytest.raises(FeedError, match="has not been answered"):
        next(batches)
    feed.results([1, 2, 3])
    assert len(next(feed.batches(3))["y"]) == 2
    feeder.close()


def test_a_feeder_that_is_gone_takes_its_rows_with_it(scored: Rig) -> None:
    feed = scored.trainers[0].feed("train")
    gone: Feeder = scored.feeder(partition=1)
    gone.send(numbers((0, 5), (5, 10)), SCHEMA)
    batches = feed.batches(5)
    batch = next(batches)
    gone.close()
    feed.results(batch["y"])
    again = scored.feeder(partition=1, attempt=1).send(numbers((0, 5)), SCHEMA)
    while True:
        batch = next(batches)
        feed.results(batch["y"] + 1)
        if batch["y"][0] == 0:
            break
    assert again.answer()["prediction"].to_pylist() == [1, 2, 3, 4, 5]


def test_a_stopped_feed_tells_its_feeders(scored: Rig) -> None:
    feed = scored.trainers[0].feed("train")
    feeder = scored.feeder().send(numbers((0, 5)), SCHEMA)
    next(feed.batches(2))
    feed.stop()
    assert isinstance(feeder.hear(), Stop)
    assert list(feed.batches(2)) == []


@pytest.fixture
def paused(scored: Rig) -> Feeder:
    """A feeder whose answers are held back: nobody takes what it gives on."""
    feed = scored.trainers[0].feed("train")
    feeder = scored.feeder().send(numbers((0, 1), (1, 2), (2, 3)), SCHEMA)
    batches = feed.batches(1)
    for _ in range(2):
        next(batches)
        feed.results([LARGE])
    # An answer is more than sockets hold: once its beginning is here, its end waits.
    select.select([feeder.socket], [], [])
    return feeder


def test_a_feeder_that_holds_its_answers_back_holds_nothing_else(
    scored: Rig, paused: Feeder
) -> None:
    trainer = scored.trainers[0]
    stopping = threading.Thread(target=trainer.feed("train").stop, daemon=True)
    stopping.start()
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()
    scored.open(run=2, feed="other", align="none")
    scored.feeder(feed="other", run=2).send(numbers((5, 7)), SCHEMA).hear()
    assert next(trainer.feed("other").batches(2))["y"].tolist() == [5, 6]
    for _ in range(2):
        assert paused.answer()["prediction"].to_pylist() == [LARGE]
    assert isinstance(paused.hear(), Stop)


def test_a_program_ends_although_its_answers_are_held_back(scored: Rig, paused: Feeder) -> None:
    ending = threading.Thread(
        target=scored.trainers[0].close, args=(Broken(error="no", trace=""),), daemon=True
    )
    ending.start()
    ending.join(DEADLINE_S)
    assert not ending.is_alive()
    scored.controller.wait(Broken)


def test_why_a_program_has_ended_is_told_to_those_it_scores_for(scored: Rig) -> None:
    feed = scored.trainers[0].feed("train")
    feeder = scored.feeder().send(numbers((0, 5)), SCHEMA)
    next(feed.batches(2))
    scored.trainers[0].close(Broken(error="ValueError: no", trace=""))
    refused = feeder.hear()
    assert isinstance(refused, FeedRefused) and "ValueError: no" in refused.reason


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2], {"prediction": [1, 2]}),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), {"prediction": [[1.0, 2.0], [3.0, 4.0]]}),
        (np.zeros((2, 1, 2)), {"prediction": [[[0, 0]], [[0, 0]]]}),
        ([np.array([1]), np.array([2, 3])], {"prediction": [[1], [2, 3]]}),
        ([np.float32(1), np.float32(2)], {"prediction": [1, 2]}),
        (["a", None], {"prediction": ["a", None]}),
        ({"p": np.array([0.5, 0.25]), "n": [1, 2]}, {"p": [0.5, 0.25], "n": [1, 2]}),
        (pa.table({"z": pa.chunked_array([[1], [2]])}), {"z": [1, 2]}),
        (pa.record_batch({"z": [1, 2]}), {"z": [1, 2]}),
        (pa.chunked_array([[1], [2]]), {"prediction": [1, 2]}),
        (np.array([b"x", 3], object), None),
    ],
)
def test_answers_may_be_what_programs_have(given: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(FeedError, match="are no columns"):
            record_batch(given, 2, "train")
    else:
        assert record_batch(given, 2, "train").to_pydict() == expected


def test_answers_with_more_values_than_a_list_column_holds_are_refused_in_words() -> None:
    values = np.broadcast_to(np.int8(0), (2, 1 << 30))
    with pytest.raises(FeedError, match="2147483648 values in one batch.*smaller batches"):
        record_batch(values, 2, "train")

"""Rows from a feeder's socket to the program's arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from howdah.backends.local.runtime_paths import FOLDER_VARIABLE, runtime_folder
from howdah.spark.errors import FeedError
from howdah.spark.feed import server
from howdah.spark.feed.messages import Available, HandedOut, Taken
from tests.spark.feed.rig import Rig


def numbered(start: int, rows: int, width: int = 8) -> pa.RecordBatch:
    values = np.arange(start * width, (start + rows) * width, dtype=np.float32)
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * width), pa.array(values)
    )
    return pa.record_batch({"x": lists, "y": np.arange(start, start + rows)})


SCHEMA = numbered(0, 1).schema


def test_rows_come_though_another_jobs_last_process_removes_the_empty_folder_for_sockets(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the container's own folder has too long a path for a socket."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))

    def just_then(folder: Path, name: str) -> Path:
        path = runtime_folder() / name
        path.parent.rmdir()
        return path

    monkeypatch.setattr(server, "_socket_path", just_then)
    rig.trainer()
    rig.open(align="none")
    assert rig.feeder().send([numbered(0, 10)], SCHEMA).hear() == Taken(rows=10)


@pytest.mark.parametrize("far", [False, True], ids=["unix socket", "mutual tls"])
def test_every_byte_arrives_as_views_of_what_was_received(rig: Rig, far: bool) -> None:
    feed = rig.trainer().feed("train")
    rig.open(align="none")
    feeder = rig.feeder(far=far)
    feeder.send([numbered(at, 1000) for at in range(0, 10_000, 1000)], SCHEMA)
    assert feeder.hear() == Taken(rows=10_000)
    rig.fed()
    seen = []
    for batch in next(iter(feed)).batches(256):
        assert batch["x"].shape[1:] == (8,)
        seen.append((batch["x"].copy(), batch["y"].copy()))
    x = np.concatenate([pair[0] for pair in seen])
    y = np.concatenate([pair[1] for pair in seen])
    assert np.array_equal(x.ravel(), np.arange(80_000, dtype=np.float32))
    assert np.array_equal(y, np.arange(10_000))
    assert [len(pair[1]) for pair in seen] == [256] * 39 + [16]
    done = rig.controller.wait(HandedOut, lambda message: message.done)
    assert (done.rows, done.batches, done.dropped) == (10_000, 40, 0)


def test_batches_are_handed_out_as_far_as_every_rank_can_have_them(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open()
    rig.credit(2)
    rig.feeder().send([numbered(0, 100)], SCHEMA).hear()
    batches = feed.batches(10)
    assert [len(next(batches)["y"]) for _ in range(2)] == [10, 10]
    assert rig.controller.wait(Available).batches == 10
    rig.fed()
    assert rig.controller.wait(Available, lambda held: held.final).batches == 10
    rig.credit(7, final=True)
    assert [batch["y"][0] for _, batch in zip(range(5), batches)] == [20, 30, 40, 50, 60]
    rig.end()
    assert list(batches) == []
    done = rig.controller.wait(HandedOut, lambda message: message.done)
    assert (done.rows, done.batches, done.dropped) == (70, 7, 30)


def test_an_abort_is_raised_in_the_program(rig: Rig) -> None:
    from howdah.spark.feed.messages import Abort

    feed = rig.trainer().feed("train")
    rig.open()
    rig.controller.say(Abort(feed="train", run=1, error="Spark's query failed: no such column"))
    with pytest.raises(FeedError, match="no such column"):
        next(feed.batches(10))

"""Ranks that do not all read the same: four of them, on a Standalone master, of different speed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from howdah.client.errors import JobFailed
from howdah.spark import Cluster, FeedError
from howdah.spark.rows import FrameSource
from howdah.spark.session import Session
from tests.spark.backend_jobs import eventually

RANKS = 4
ROWS = 400
PATIENCE_S = 100.0
# In the default tier the simulation shows who gets which rows, and test_faults.py that four ranks get all.
pytestmark = pytest.mark.nightly


@pytest.fixture
def start(standalone_spark: Any, tmp_path: Path) -> Callable[..., Cluster]:
    """Start a function in four ranks; its first argument is a folder that all of them see."""

    def start(train: Callable[[Path, Any], Any], **options: Any) -> Cluster:
        return Cluster.start(
            standalone_spark, train, tmp_path, workers=RANKS, on_log=None, **options
        )

    return start


def rows(spark: Any, count: int = ROWS, partitions: int = 8) -> Any:
    return spark.range(0, count, 1, partitions)


def everything(values: dict[int, list[int]]) -> list[int]:
    return sorted(i for ids in values.values() for i in ids)


def leave_a_pid(folder: Path, rank: int) -> None:
    """For the others to see when this process has ended."""
    (folder / f"writing-{rank}").write_text(str(os.getpid()))
    (folder / f"writing-{rank}").rename(folder / f"pid-{rank}")


def await_ends(folder: Path, ranks: list[int]) -> None:
    """Wait until the processes of those ranks have ended."""
    deadline = time.monotonic() + PATIENCE_S
    for rank in ranks:
        path = folder / f"pid-{rank}"
        while not path.exists() or Path(f"/proc/{path.read_text()}").exists():
            assert time.monotonic() < deadline, f"rank {rank} goes on"
            time.sleep(0.02)


@pytest.mark.parametrize("align", ["drop", "none"])
def test_rank_0_alone_validates_while_the_others_go_on_or_return(
    start: Callable[..., Cluster], standalone_spark: Any, align: str
) -> None:
    def train(folder: Path, ctx: Any) -> list[int]:
        seen: list[int] = []
        validation = iter(ctx.feed("validation"))
        for epoch in ctx.feed("train"):
            for _ in epoch.batches(10):
                pass
            if ctx.rank == 0:
                seen.append(sum(len(batch["id"]) for batch in next(validation).batches(7)))
            if epoch.number == 1:
                break
        return seen

    with start(train) as cluster:
        report = cluster.train(
            rows(standalone_spark), epochs=2, validation=rows(standalone_spark, 100, 3), align=align
        )
        values = cluster.results()
    assert values == {0: [100, 100], 1: [], 2: [], 3: []}
    assert report.rows + report.dropped == 2 * ROWS


def test_a_feed_that_only_some_ranks_ask_for_is_named_when_nothing_moves(
    start: Callable[..., Cluster], standalone_spark: Any
) -> None:
    def train(folder: Path, ctx: Any) -> None:
        for epoch in ctx.feed("train"):
            for _ in epoch.batches(10):
                pass
            break
        if ctx.rank == 0:
            leave_a_pid(folder, 0)
            next(iter(ctx.feed("validation")), None)
        else:
            await_ends(folder, [0])  # it waits for them

    with start(train) as cluster:
        with pytest.raises(FeedError, match=r"name them, ctx\.feed\('validation', ranks=\[0\]\)"):
            cluster.train(
                rows(standalone_spark), validation=rows(standalone_spark, 100, 3), timeout_s=20
            )


def test_answers_may_be_used_twice_at_once(
    start: Callable[..., Cluster], standalone_spark: Any
) -> None:
    def train(folder: Path, ctx: Any) -> None:
        feed = ctx.feed("inference")
        for batch in feed.batches(30):
            feed.results({"twice": 2 * batch["id"]})

    with start(train) as cluster:
        answers = cluster.inference(rows(standalone_spark, 20_000), schema="twice long").select(
            "twice"
        )
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda _: answers.collect(), range(2)))
    assert [sorted(row["twice"] for row in each) for each in found] == [[*range(0, 40_000, 2)]] * 2


def train_and_answer(folder: Path, ctx: Any) -> int:
    """Learn from one epoch and say to whoever asks how many rows that were."""
    import json

    saved = ctx.checkpoint_dir / "learned.json"
    learned = json.loads(saved.read_text()) if saved.exists() else 0
    leave_a_pid(folder, ctx.rank)
    for epoch in ctx.feed("train"):
        learned += sum(len(batch["id"]) for batch in epoch.batches(10))
        if not (folder / "again").exists():
            break
        new = saved.with_suffix(".tmp")
        new.write_text(json.dumps(learned))
        new.rename(saved)
    feed = ctx.feed("inference")
    for batch in feed.batches(30):
        feed.results({"learned": [learned] * len(batch["id"])})
    return learned


def kill(folder: Path, rank: int) -> None:
    os.kill(int((folder / f"pid-{rank}").read_text()), signal.SIGKILL)


def await_generation(cluster: Cluster, number: int) -> None:
    eventually(
        lambda: [place.generation for place in cluster.places] == [number] * RANKS,
        f"generation {number}",
        PATIENCE_S,
    )


@pytest.mark.parametrize("then", ["train", "results", "inference"])
def test_a_restart_after_a_run_ends_the_job_where_nothing_was_saved(
    start: Callable[..., Cluster], standalone_spark: Any, tmp_path: Path, then: str
) -> None:
    with start(train_and_answer) as cluster:
        assert cluster.train(rows(standalone_spark), align="none").rows == ROWS
        kill(tmp_path, 1)
        lost = "learned in run 1 of the feed 'train' is lost.*checkpoint=True"
        if then == "train":
            with pytest.raises(FeedError, match=lost):
                cluster.train(rows(standalone_spark), align="none")
        elif then == "results":
            with pytest.raises(JobFailed, match=lost):
                cluster.results()
        else:
            await_generation(cluster, 2)
            with pytest.raises(Exception, match=lost):
                cluster.inference(rows(standalone_spark), schema="learned long").collect()
        cluster.stop()


def test_a_restart_after_a_run_goes_on_from_the_checkpoint(
    start: Callable[..., Cluster], standalone_spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "again").touch()
    with start(train_and_answer, checkpoint=True) as cluster:
        first = cluster.train(rows(standalone_spark)).ranks[0].rows
        eventually(lambda: cluster.status().checkpoint, "a checkpoint", PATIENCE_S)
        kill(tmp_path, 1)
        await_generation(cluster, 2)
        (tmp_path / "again").unlink()
        report = cluster.train(rows(standalone_spark))
        # The first rank's folder is the checkpoint of all.
        assert cluster.results() == {each.rank: first + each.rows for each in report.ranks}


class FailsAmid:
    """``mapInArrow`` function: the first attempt ends once rows of it are at a program."""

    def __init__(self, folder: Path) -> None:
        self._taken = str(folder / "taken")

    def __call__(self, batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            deadline = time.monotonic() + PATIENCE_S
            while not Path(self._taken).exists():
                assert time.monotonic() < deadline, "no program has got a row"
                time.sleep(0.02)
            raise OSError("the disk is gone")


class FailsWhenFed(FrameSource):
    """A DataFrame. The first attempt of each task that feeds it fails."""

    folder: Path

    def feed(self, task: Callable[[], bytes]) -> list[tuple[int, int, int]]:
        (self.folder / "taken").unlink(missing_ok=True)
        failing = self._frame.mapInArrow(FailsAmid(self.folder), self._frame.schema)
        return FrameSource(self._session, failing).feed(task)


def test_a_task_that_fails_amid_shuffled_rows_goes_on_or_ends_the_run_with_the_reason(
    start: Callable[..., Cluster], standalone_spark: Any, tmp_path: Path
) -> None:
    """Spark gives them in another order again: a retry behind the last row would lose some. Rows that
    executors keep stay in their order."""

    def train(folder: Path, ctx: Any) -> list[list[int]]:
        found: list[list[int]] = []
        for epoch in ctx.feed("train"):
            ids: list[int] = []
            try:
                for batch in epoch.batches(10):
                    ids += batch["id"].tolist()
                    (folder / "taken").touch()
            except FeedError:
                continue
            found.append(ids)
        return found

    def failing(plan: Any) -> Any:
        source = FailsWhenFed(Session(standalone_spark), plan)
        source.folder = tmp_path
        return source

    # Several record batches in the one partition: the last may still be in Spark when it fails.
    wide = rows(standalone_spark, 400, 2).selectExpr("id", "repeat('x', 50000) as wide")
    shuffled = wide.repartition(1)
    shuffled.write.parquet(str(tmp_path / "rows"))
    with start(train) as cluster:
        with pytest.raises(FeedError, match=r"same order again.*Without materialise=False"):
            cluster.train(failing(shuffled), align="none", materialise=False)
        plain = cluster.train(shuffled, align="none", materialise=False)
        kept = cluster.train(failing(shuffled), align="none", epochs=2)
        written = standalone_spark.read.parquet(str(tmp_path / "rows"))
        report = cluster.train(failing(written), align="none")
        values = cluster.results()
    assert [(each.ordered, each.materialised) for each in (plain, kept, report)] == [
        (False, False),
        (True, True),
        (True, False),
    ]
    for epoch in (-3, -2, -1):
        assert everything({rank: runs[epoch] for rank, runs in values.items()}) == [*range(400)]

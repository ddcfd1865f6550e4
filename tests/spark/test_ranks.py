"""Ranks that do not all read the same: four of them, on a Standalone master, of different speed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.client.errors import BadInput, JobFailed
from howdah.spark import Cluster, FeedError
from howdah.spark.feed.control import control_server
from howdah.spark.reports import TrainReport
from howdah.spark.rows import FrameSource
from howdah.spark.session import Session
from howdah.storage.jobdir import JobDirectory
from howdah.wire.channel import connect
from howdah.wire.messages import ClientHello, ToClient, Welcome
from howdah.wire.tls import PeerRole, client_context
from tests.spark import programs, sessions
from tests.spark.backend_jobs import eventually
from tests.spark.servers import Standalone, feeders

RANKS = 4
ROWS = 400
PATIENCE_S = 100.0
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def two_workers(spark_folder: Path) -> Iterator[Standalone]:
    """Of two cores each."""
    with Standalone(spark_folder / "four", cores=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def four_slots(two_workers: Standalone) -> Iterator[Any]:
    """A session on `two_workers`."""
    conf = {**two_workers.settings(), "spark.cores.max": str(RANKS)}
    with sessions.session(two_workers.folder, conf) as made:
        yield made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job directories of their own."""
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))


@pytest.fixture
def start(four_slots: Any, tmp_path: Path) -> Callable[..., Cluster]:
    """Start a function in four ranks; its first argument is a folder that all of them see."""

    def start(train: Callable[[Path, Any], Any], **options: Any) -> Cluster:
        return Cluster.start(four_slots, train, tmp_path, workers=RANKS, on_log=None, **options)

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
def test_ranks_that_are_done_and_return_take_nothing_from_a_slower_one(
    start: Callable[..., Cluster], four_slots: Any, align: str
) -> None:
    def train(folder: Path, ctx: Any) -> list[int]:
        ids: list[int] = []
        for number, epoch in enumerate(ctx.feed("train"), 1):
            for batch in epoch.batches(10):
                if ctx.rank == RANKS - 1 and number == 2 and not ids[ROWS:]:
                    await_ends(folder, list(range(RANKS - 1)))
                ids += batch["id"].tolist()
            if number == 2:
                break
        leave_a_pid(folder, ctx.rank)
        return ids

    with start(train) as cluster:
        report = cluster.train(rows(four_slots), epochs=2, align=align)
        values = cluster.results()
    assert report.rows == sum(len(ids) for ids in values.values())
    assert report.rows + report.dropped == 2 * ROWS
    assert (report.epochs, report.stopped) == (2, False)
    if align == "none":
        assert everything(values) == sorted([*range(ROWS)] * 2)
    else:
        assert len({each.batches for each in report.ranks}) == 1


def test_what_a_rank_that_returns_early_leaves_goes_to_the_others(
    start: Callable[..., Cluster], four_slots: Any
) -> None:
    def train(folder: Path, ctx: Any) -> list[int]:
        ids: list[int] = []
        if ctx.rank:
            leave_a_pid(folder, ctx.rank)
        for batch in ctx.feed("train").batches(10):
            ids += batch["id"].tolist()
            if ctx.rank:
                return ids  # without a word
            if len(ids) == 10:
                await_ends(folder, [1, 2, 3])
        return ids

    with start(train) as cluster:
        report = cluster.train(rows(four_slots, 100_000), align="none")
        values = cluster.results()
    assert [len(values[rank]) for rank in (1, 2, 3)] == [10, 10, 10]
    assert len(everything(values)) == len(set(everything(values))) == report.rows
    assert report.rows + report.dropped == 100_000
    assert not report.stopped


def test_who_stops_the_feed_leaves_the_rest_to_the_others_where_none_waits_for_it(
    start: Callable[..., Cluster], four_slots: Any
) -> None:
    def train(folder: Path, ctx: Any) -> list[int]:
        feed = ctx.feed("train")
        ids: list[int] = []
        for batch in feed.batches(10):
            ids += batch["id"].tolist()
            if ctx.rank == 0:
                feed.stop()
        return ids

    with start(train) as cluster:
        report = cluster.train(rows(four_slots, 4000), align="none", timeout_s=30)
        values = cluster.results()
    assert len(values[0]) == 10
    assert len(everything(values)) == len(set(everything(values))) == report.rows
    assert report.rows + report.dropped == 4000


@pytest.mark.parametrize("align", ["drop", "none"])
def test_rank_0_alone_validates_while_the_others_go_on_or_return(
    start: Callable[..., Cluster], four_slots: Any, align: str
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
            rows(four_slots), epochs=2, validation=rows(four_slots, 100, 3), align=align
        )
        values = cluster.results()
    assert values == {0: [100, 100], 1: [], 2: [], 3: []}
    assert report.rows + report.dropped == 2 * ROWS


def test_rank_0_validates_while_the_others_wait_for_its_word(
    start: Callable[..., Cluster], four_slots: Any
) -> None:
    def train(folder: Path, ctx: Any) -> int:
        for epoch in ctx.feed("train"):
            for _ in epoch.batches(10):
                pass
            break
        if ctx.rank == 0:
            seen = sum(
                len(batch["id"])
                for epoch in [next(iter(ctx.feed("validation", ranks=[0])))]
                for batch in epoch.batches(7)
            )
            (folder / "writing").write_text(str(seen))
            (folder / "writing").rename(folder / "validated")
        deadline = time.monotonic() + PATIENCE_S
        while not (folder / "validated").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return int((folder / "validated").read_text())

    with start(train) as cluster:
        cluster.train(rows(four_slots), validation=rows(four_slots, 100, 3))
        assert cluster.results() == dict.fromkeys(range(RANKS), 100)


def test_a_feed_that_only_some_ranks_ask_for_is_named_when_nothing_moves(
    start: Callable[..., Cluster], four_slots: Any
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
            cluster.train(rows(four_slots), validation=rows(four_slots, 100, 3), timeout_s=20)


def test_answers_may_be_used_twice_at_once(start: Callable[..., Cluster], four_slots: Any) -> None:
    def train(folder: Path, ctx: Any) -> None:
        feed = ctx.feed("inference")
        for batch in feed.batches(30):
            feed.results({"twice": 2 * batch["id"]})

    with start(train) as cluster:
        answers = cluster.inference(rows(four_slots, 20_000), schema="twice long").select("twice")
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda _: answers.collect(), range(2)))
    assert [sorted(row["twice"] for row in each) for each in found] == [[*range(0, 40_000, 2)]] * 2


def test_rows_that_fit_neither_memory_nor_the_files_of_a_rank_end_the_run_with_the_option(
    start: Callable[..., Cluster], four_slots: Any
) -> None:
    def train(folder: Path, ctx: Any) -> None:
        if ctx.rank:
            return
        for _ in ctx.feed("train", ranks=[0]).batches(10_000):
            pass  # one batch is more than a rank reads ahead

    wide = rows(four_slots, 1600).selectExpr("id", "repeat('x', 50000) as wide")
    with start(train) as cluster:
        with pytest.raises(BadInput, match="spill: 'much' is not an amount of memory"):
            cluster.train(wide, spill="much")
        assert cluster.train(wide, spill="1g").rows == 1600
        with pytest.raises(
            FeedError, match=r"in a file in /.*the limit, spill=0 of Cluster\.train"
        ):
            cluster.train(wide, spill=0)
        cluster.stop()


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
    start: Callable[..., Cluster], four_slots: Any, tmp_path: Path, then: str
) -> None:
    with start(train_and_answer) as cluster:
        assert cluster.train(rows(four_slots), align="none").rows == ROWS
        kill(tmp_path, 1)
        lost = "learned in run 1 of the feed 'train' is lost.*checkpoint=True"
        if then == "train":
            with pytest.raises(FeedError, match=lost):
                cluster.train(rows(four_slots), align="none")
        elif then == "results":
            with pytest.raises(JobFailed, match=lost):
                cluster.results()
        else:
            await_generation(cluster, 2)
            with pytest.raises(Exception, match=lost):
                cluster.inference(rows(four_slots), schema="learned long").collect()
        cluster.stop()


def test_a_restart_after_a_run_goes_on_from_the_checkpoint(
    start: Callable[..., Cluster], four_slots: Any, tmp_path: Path
) -> None:
    (tmp_path / "again").touch()
    with start(train_and_answer, checkpoint=True) as cluster:
        first = cluster.train(rows(four_slots)).ranks[0].rows
        eventually(lambda: cluster.status().checkpoint, "a checkpoint", PATIENCE_S)
        kill(tmp_path, 1)
        await_generation(cluster, 2)
        (tmp_path / "again").unlink()
        report = cluster.train(rows(four_slots))
        # The first rank's folder is the checkpoint of all.
        assert cluster.results() == {each.rank: first + each.rows for each in report.ranks}


def test_the_report_counts_restarts_and_the_rows_they_cost(
    start: Callable[..., Cluster], four_slots: Any, tmp_path: Path
) -> None:
    def train(folder: Path, ctx: Any) -> int:
        feed = ctx.feed("train")
        saved = folder / f"position-{ctx.rank}"
        if ctx.generation > 1:
            feed.restore(saved.read_bytes())
        leave_a_pid(folder, ctx.rank)
        seen = 0
        for number, batch in enumerate(feed.batches(10), 1):
            seen += len(batch["id"])
            if ctx.generation < 3 and number == 3:
                saved.write_bytes(feed.position_bytes())
            if ctx.generation == 2 and number == 6:
                threading.Event().wait()
        return seen

    def handed(cluster: Cluster, run: int) -> int:
        controller = cluster._live.controller
        with controller.changed:
            epoch = controller.runs["train", run].epochs.get(0)
            return sum(each.rows for each in epoch.handed.values()) if epoch is not None else 0

    with start(train) as cluster, ThreadPoolExecutor(1) as pool:
        first = cluster.train(rows(four_slots, 2000), align="none")
        assert (first.rows, first.restarts, first.repeated, first.forgotten) == (2000, 0, 0, 0)
        kill(tmp_path, 1)
        await_generation(cluster, 2)
        second = pool.submit(cluster.train, rows(four_slots, 4000), align="none")
        eventually(lambda: ("train", 2) in cluster._live.controller.runs, "the run", PATIENCE_S)
        eventually(lambda: handed(cluster, 2) == RANKS * 60, "six batches a rank", PATIENCE_S)
        kill(tmp_path, 2)
        report = second.result()
        assert sum(cluster.results().values()) == report.rows == 4000 - RANKS * 30
    # Of the first run only what came before its positions is in any program.
    assert (report.restarts, report.repeated) == (1, RANKS * 30)
    assert report.forgotten == 2000 - RANKS * 30


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
    start: Callable[..., Cluster], four_slots: Any, tmp_path: Path
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
        source = FailsWhenFed(Session(four_slots), plan)
        source.folder = tmp_path
        return source

    # Several record batches in the one partition: the last may still be in Spark when it fails.
    wide = rows(four_slots, 400, 2).selectExpr("id", "repeat('x', 50000) as wide")
    shuffled = wide.repartition(1)
    shuffled.write.parquet(str(tmp_path / "rows"))
    with start(train) as cluster:
        with pytest.raises(FeedError, match=r"same order again.*Without materialise=False"):
            cluster.train(failing(shuffled), align="none", materialise=False)
        plain = cluster.train(shuffled, align="none", materialise=False)
        kept = cluster.train(failing(shuffled), align="none", epochs=2)
        written = four_slots.read.parquet(str(tmp_path / "rows"))
        report = cluster.train(failing(written), align="none")
        values = cluster.results()
    assert [(each.ordered, each.materialised) for each in (plain, kept, report)] == [
        (False, False),
        (True, True),
        (True, False),
    ]
    for epoch in (-3, -2, -1):
        assert everything({rank: runs[epoch] for rank, runs in values.items()}) == [*range(400)]


MORE_THAN_FITS = 9600
"""Rows of `wide` that the buffers of all ranks together do not hold: feeders wait amid them."""


def wide(spark: Any, count: int = MORE_THAN_FITS, *, size: int = 50_000) -> Any:
    return rows(spark, count, RANKS).selectExpr("id", f"repeat('x', {size}) as wide")


def take_slowly(folder: Path, ctx: Any) -> list[int]:
    """Until there is a file ``go``."""
    ids: list[int] = []
    for batch in ctx.feed("train").batches(10, columns=["id"]):
        if not ids:
            leave_a_pid(folder, ctx.rank)
        ids += batch["id"].tolist()
        if not (folder / "go").exists():
            time.sleep(0.05)
    return ids


def begun(cluster: Cluster) -> dict[Any, int]:
    """By partition the latest attempt at it that has asked the driver for a rank."""
    controller = cluster._live.controller
    with controller.changed:
        run = controller.runs.get(("train", 1))
        return dict(run.attempts) if run is not None else {}


@contextlib.contextmanager
def fed_slowly(
    start: Callable[..., Cluster], frame: Any, folder: Path
) -> Iterator[tuple[Cluster, Future[TrainReport]]]:
    """Feeders wait for room in all ranks."""
    with start(take_slowly) as cluster, ThreadPoolExecutor(1) as pool:
        report = pool.submit(cluster.train, frame, align="none")

        def amid() -> bool:
            assert not report.done(), report.exception()
            pids = all((folder / f"pid-{rank}").exists() for rank in range(RANKS))
            return pids and len(begun(cluster)) == RANKS

        try:
            eventually(amid, "rows in all ranks", PATIENCE_S)
            yield cluster, report
        finally:
            (folder / "go").touch()


def check_exact(cluster: Cluster, report: TrainReport) -> None:
    assert everything(cluster.results()) == [*range(MORE_THAN_FITS)]
    assert (report.rows, report.dropped) == (MORE_THAN_FITS, 0)
    assert (report.restarts, report.repeated) == (0, 0)


def test_tasks_that_spark_has_lost_and_that_go_on_bring_no_row(
    start: Callable[..., Cluster], four_slots: Any, two_workers: Standalone, tmp_path: Path
) -> None:
    """As on a host that stood still for a while: Spark runs them again elsewhere meanwhile."""
    worker = two_workers.workers[0]
    with fed_slowly(start, wide(four_slots), tmp_path) as (cluster, report):
        lost = feeders(worker)
        forks = {each.ppid() for each in lost}
        executors = [each for each in two_workers.executors() if each in worker.processes()]
        before = begun(cluster)
        try:
            for each in lost:
                with contextlib.suppress(psutil.Error):  # Spark has ended it meanwhile
                    each.suspend()
            for each in [*map(psutil.Process, forks), *executors]:
                each.kill()
            eventually(
                lambda: sum(now > before[part] for part, now in begun(cluster).items()) >= 2,
                "both partitions are fed again",
                PATIENCE_S,
            )
        finally:
            for each in lost:
                with contextlib.suppress(
                    psutil.NoSuchProcess
                ):  # who stands still may not outlive its session
                    each.resume()
        assert not programs.wait_ended([each.pid for each in lost], PATIENCE_S)
        (tmp_path / "go").touch()
        check_exact(cluster, report.result())


def test_a_rank_that_says_nothing_while_tasks_are_run_again_costs_no_row_and_gets_none_twice(
    start: Callable[..., Cluster],
    four_slots: Any,
    two_workers: Standalone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that holds Python's lock in a compilation: only it knows which rows it has."""
    monkeypatch.setattr(control_server, "ANSWER_S", 0.1)
    with fed_slowly(start, wide(four_slots), tmp_path) as (cluster, report):
        controller = cluster._live.controller
        last_offset, unanswered = controller._last_offset, 0

        async def counted(*arguments: Any) -> int | None:
            nonlocal unanswered
            found = await last_offset(*arguments)
            unanswered += found is None
            return found

        monkeypatch.setattr(controller, "_last_offset", counted)
        silent = psutil.Process(int((tmp_path / "pid-1").read_text()))
        silent.suspend()
        try:
            for each in feeders(two_workers.workers[0]):
                with contextlib.suppress(psutil.Error):
                    each.kill()
            eventually(lambda: unanswered > 5, "tasks ask again", PATIENCE_S)
        finally:
            silent.resume()
        (tmp_path / "go").touch()
        check_exact(cluster, report.result())


def test_many_feeders_of_large_rows_keep_to_the_buffer_of_a_rank(
    start: Callable[..., Cluster], four_slots: Any
) -> None:
    size, each = 12_000_000, 8

    def train(folder: Path, ctx: Any) -> tuple[int, int]:
        if ctx.rank:
            return 0, 0
        feed = ctx.feed("train", ranks=[0])
        state = feed._state
        seen, most = 0, 0
        for batch in feed.batches(1):
            deadline = time.monotonic() + PATIENCE_S
            with state.changed:
                # All are there, and the next row would be one too many.
                while (
                    not seen
                    and not (len(state.streams) == RANKS and state.buffered + size > 64 << 20)
                    and time.monotonic() < deadline
                ):
                    state.changed.wait(1.0)
                most = max(most, state.buffered)
            seen += len(batch["id"])
        return seen, most

    with start(train) as cluster:
        report = cluster.train(wide(four_slots, RANKS * each, size=size), align="none")
        seen, most = cluster.results()[0]
    assert report.rows == seen == RANKS * each
    assert 4 * size < most <= 64 << 20


def test_ranks_that_draw_ahead_go_on_from_the_rows_they_have_trained(
    start: Callable[..., Cluster], four_slots: Any, tmp_path: Path
) -> None:
    """Each rank draws as many batches ahead as its number, and is killed long after it has saved."""

    def train(folder: Path, ctx: Any) -> dict[str, Any]:
        import json
        from collections import deque

        feed = ctx.feed("train")
        seen: list[int] = []
        saved, position = folder / f"seen-{ctx.rank}", folder / f"position-{ctx.rank}"
        if ctx.generation > 1:
            seen = json.loads(saved.read_text())
            feed.restore(position.read_bytes())
        before = len(seen)
        queue = deque[Any]()

        def trained(batch: Any) -> None:
            seen.extend(batch["id"].tolist())
            if ctx.generation == 1 and len(seen) == 80:
                position.write_bytes(feed.position_bytes(batches=len(queue)))
                saved.write_text(json.dumps(seen))
            if ctx.generation == 1 and len(seen) == 120:
                leave_a_pid(folder, ctx.rank)
                threading.Event().wait()

        for batch in feed.batches(10):
            queue.append(batch)
            if len(queue) > ctx.rank:
                trained(queue.popleft())
        while queue:
            trained(queue.popleft())
        return {"seen": seen, "before": before}

    with start(train, restarts=1) as cluster, ThreadPoolExecutor(1) as pool:
        report = pool.submit(cluster.train, rows(four_slots, 4000), align="none")
        eventually(
            lambda: report.done() or all((tmp_path / f"pid-{r}").exists() for r in range(RANKS)),
            "all ranks have saved and gone on",
            PATIENCE_S,
        )
        kill(tmp_path, 1)
        report.result()
        values = cluster.results()
    assert [value["before"] for value in values.values()] == [80] * RANKS
    assert everything({rank: value["seen"] for rank, value in values.items()}) == [*range(4000)]


def test_the_key_that_feeding_tasks_carry_brings_rows_and_opens_no_door_of_the_job(
    start: Callable[..., Cluster], four_slots: Any, tmp_path: Path
) -> None:
    """It is in clear where Spark's own connections are."""

    def train(folder: Path, ctx: Any) -> int:
        return sum(len(batch["id"]) for batch in ctx.feed("train").batches(10))

    async def greeted(directory: JobDirectory, secrets: Path, role: PeerRole) -> bool:
        """Whether the coordinator takes one with that key for a client."""
        address = directory.coordinator()
        assert address is not None
        channel = await connect(
            address.host,
            address.port,
            client_context(secrets, role),
            job_id=directory.job_id,
            receives=ToClient,
        )
        channel.send(ClientHello(job_id=directory.job_id, user="somebody"))
        try:
            return isinstance(await channel.receive(PATIENCE_S), Welcome)
        except OSError:
            return False
        finally:
            channel.abort()

    with start(train) as cluster:
        directory, access = cluster._live.directory, cluster._live.access
        files = {"ca.pem": access.ca, "feeder.pem": access.certificate, "feeder.key": access.key}
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        assert asyncio.run(greeted(directory, directory.secrets, PeerRole.CLIENT))
        assert not asyncio.run(greeted(directory, tmp_path, PeerRole.FEEDER))
        report = cluster.train(rows(four_slots), align="none")
        assert sum(cluster.results().values()) == report.rows == ROWS

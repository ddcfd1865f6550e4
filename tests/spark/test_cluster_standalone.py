"""On a Standalone master with two workers: tasks that Spark runs again, the network, and models on their way
to executors that share nothing with the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.ml import PipelineModel

from howdah.backends.findings import Health
from howdah.backends.spark.doctor import examine
from howdah.backends.spark.facts import read_when_there
from howdah.backends.spark.sessions import session_of
from howdah.spark import Cluster
from howdah.spark.feed.tasks.feeder_client import TrainerConnection, first_word
from howdah.spark.pipeline import Model
from howdah.spark.scoring import Make, score
from tests.spark.adding_model import make, saved


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job directories of their own."""
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))


def failing_once(partition: int, rows: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Fails the first attempt of a partition's task after so many rows."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        seen = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 50):
                if context.partitionId() == partition and context.attemptNumber() == 0:
                    if seen >= rows:
                        raise RuntimeError("the first attempt fails")
                part = batch.slice(start, 50)
                seen += part.num_rows
                yield part

    return task


def collect(args: Any, ctx: Any) -> list[int]:
    return [i for batch in ctx.feed("train").batches(10) for i in batch["id"].tolist()]


def test_rows_of_a_task_that_spark_runs_again_are_handed_out_once(standalone_spark: Any) -> None:
    frame = standalone_spark.range(0, 4000, 1, 4).mapInArrow(failing_once(2, 600), "id long")
    with Cluster.start(standalone_spark, collect, workers=2, on_log=None) as cluster:
        assert len({place.folder for place in cluster.places}) == 2
        report = cluster.train(frame, align="none")
        values = cluster.results()
    assert sorted(i for ids in values.values() for i in ids) == list(range(4000))
    assert report.rows == 4000


def test_one_large_partition_reaches_both_ranks_in_slots_that_are_said_to_be_shared(
    standalone_spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = standalone_spark.range(0, 300_000, 1, 1)
    with Cluster.start(standalone_spark, collect, workers=2) as cluster:
        said = capfd.readouterr().out.splitlines()
        assert 'slots="shared" is assumed: the cluster takes 2 of the application\'s 2' in said[0]
        assert "killing an executor does not end them" in said[0]
        report = cluster.train(frame, align="drop")
        values = cluster.results()
    ids = [i for ids in values.values() for i in ids]
    assert len(ids) == len(set(ids)) == report.rows
    assert report.rows + report.dropped == 300_000
    assert all(len(ids) > 50_000 for ids in values.values())


def test_answers_are_exact_when_spark_runs_a_task_again(standalone_spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        feed = ctx.feed("inference")
        for batch in feed.batches(30):
            feed.results({"twice": 2 * batch["id"]})

    frame = standalone_spark.range(0, 2000, 1, 4).mapInArrow(failing_once(1, 300), "id long")
    with Cluster.start(standalone_spark, train, workers=2, on_log=None) as cluster:
        rows = cluster.inference(frame, schema="twice long").collect()
        cluster.results()
    assert [(row["id"], row["twice"]) for row in rows] == [(i, 2 * i) for i in range(2000)]


def test_trainers_of_other_hosts_are_reached_over_tls_with_the_jobs_certificate(
    standalone_spark: Any,
) -> None:
    with Cluster.start(standalone_spark, collect, workers=2, on_log=None) as cluster:
        access = cluster._live.access
        for place in cluster.places:
            trainer = TrainerConnection(place, access, "another-host")
            assert first_word(trainer).rank == place.rank
            trainer.close()
        stranger = msgspec.structs.replace(access, job_id="another-job")
        with pytest.raises(OSError):
            TrainerConnection(cluster.places[0], stranger, "another-host")
        cluster.train(standalone_spark.range(100))
        cluster.results()


def test_more_workers_than_slots_are_refused_at_once(standalone_spark: Any) -> None:
    from howdah.backends.base import BackendError

    with pytest.raises(BackendError, match="3"):
        Cluster.start(standalone_spark, collect, workers=3, on_log=None, slots_timeout_s=0.5)


def test_the_doctor_looks_at_the_session_and_into_its_executors(standalone_spark: Any) -> None:
    read_when_there(session_of(standalone_spark), 2, 60)  # both executors
    found = {each.what: each for each in examine(standalone_spark)}
    assert {each.health for each in found.values()} == {Health.FINE}, found
    assert found["Spark"].text.endswith(standalone_spark.sparkContext.master)
    assert found["slots"].text.startswith("2 at the same time (spark.cores.max = 2")
    assert found["Howdah"].text.endswith("in executors too")
    assert found["ports"].text.startswith("executors reach the driver at 127.0.0.1")
    assert found["barrier stages"].text == "run: slots can be shared"
    assert not standalone_spark.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.timeout(300)
def test_executors_get_a_copy_of_the_drivers_files(standalone_spark: Any, tmp_path: Path) -> None:
    model = Make(saved(tmp_path / "model", 100), make=make)
    frame = score(standalone_spark.range(0, 6, 1, 2), model)
    rows = frame.collect()
    assert [row.y for row in rows] == [100, 101, 102, 103, 104, 105]
    assert all(not row.place.startswith(str(tmp_path)) for row in rows)
    (tmp_path / "model" / "bias.txt").write_text("7")
    changed = score(standalone_spark.range(0, 6, 1, 2), model)
    assert [row.y for row in changed.collect()] == [7, 8, 9, 10, 11, 12]
    assert [row.y for row in frame.collect()] == [100, 101, 102, 103, 104, 105]
    (tmp_path / "model" / "bias.txt").write_text("100")
    PipelineModel([Model(model)]).save(str(tmp_path / "saved"))
    loaded = PipelineModel.load(str(tmp_path / "saved"))
    again = loaded.transform(standalone_spark.range(0, 4, 1, 2)).collect()
    assert [row.y for row in again] == [100, 101, 102, 103]

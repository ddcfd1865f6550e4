"""A cluster in a session with two slots: fed, answered, stopped, and what goes wrong.

What ranks, restarts and epochs do to rows is shown without Spark, in tests/spark/feed.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

from howdah.backends.base import BackendError
from howdah.client.errors import BadInput, JobFailed
from howdah.spark import Cluster, FeedError, parallel, run
from howdah.spark.feed.messages import Position
from howdah.spark.rows import FrameSource
from howdah.spark.session import Session
from howdah.spec.model import Network, Role
from howdah.wire.addresses import NoInterface, address_of
from tests.docs.pages import blocks
from tests.spark.versions import Version, running

SOON_S = 90.0
"""What takes a fraction of a second, on a machine that does other things too."""


def start(spark: Any, train: Callable[..., Any], args: Any = None, **options: Any) -> Cluster:
    return Cluster.start(spark, train, args, **{"workers": 2, "on_log": None, **options})


def active_jobs(spark: Any) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def collect(args: Any, ctx: Any) -> dict[str, Any]:
    """All ids of each epoch."""
    epochs = [
        [i for batch in epoch.batches(100) for i in batch["id"].tolist()]
        for epoch in ctx.feed("train")
    ]
    return {"epochs": epochs}


def all_ids(values: dict[int, Any], epoch: int) -> list[int]:
    return sorted(i for value in values.values() for i in value["epochs"][epoch])


class Life(NamedTuple):
    """What a cluster of two ranks has done: trained twice, answered, returned."""

    report: Any
    values: dict[int, Any]
    answers: list[Any]
    alone: Any
    refusals: list[str]
    tasks: set[str]
    roles: set[str]
    url: str | None
    lines: list[str]
    logged: list[str]


def live(args: Any, ctx: Any) -> dict[str, Any]:
    print(f"this is {ctx.role} {ctx.index} of {ctx.num_workers}")
    steps = ctx.feed("train").steps(100)
    epochs, held_out = [], []
    validation = iter(ctx.feed("validation"))
    for epoch in ctx.feed("train"):
        epochs.append([i for batch in epoch.batches(100) for i in batch["id"].tolist()])
        held_out.append([i for batch in next(validation).batches(10) for i in batch["id"].tolist()])
    feed = ctx.feed("inference")
    for batch in feed.batches(64):
        feed.results({"twice": batch["id"] * 2, "text": [f"<{i}>" for i in batch["id"]]})
    return {"epochs": epochs, "held out": held_out, "steps": steps}


@pytest.fixture(scope="module")
def life(spark: Any) -> Life:
    """One cluster's, for all tests that only look."""
    lines: list[str] = []
    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "concat('n', id) as name")
    with Cluster.start(
        spark, live, chief=1, workers=1, on_log=lambda line: lines.append(line.text)
    ) as cluster:
        url = cluster.url
        tasks = {task.task for task in cluster.status().tasks}
        roles = {each.role for each in cluster.places}
        report = cluster.train(
            spark.range(0, 2050, 1, 5),
            epochs=2,
            align="none",
            validation=spark.range(0, 100, 1, 2),
        )
        cluster.end_feed("train")
        refusals: list[str] = []
        for schema in ("twice lnog", "twice", "long", 7):
            with pytest.raises(BadInput, match=f"schema is {schema!r}.*such as") as caught:
                cluster.inference(spark.range(3), schema=schema)
            refusals.append(str(caught.value))
        told = cluster.inference(frame, columns=["id"], schema="twice long, text string")
        alone = cluster.inference(frame, columns=["id"], keep=False, schema="twice double")
        answers, total = told.collect(), alone.groupBy().sum("twice").first()[0]
        values = cluster.results()
        logged = [line.text for line in cluster.logs()]
    return Life(
        report=report,
        values=values,
        answers=answers,
        alone=(alone.columns, total),
        refusals=refusals,
        tasks=tasks,
        roles=roles,
        url=url,
        lines=lines,
        logged=logged,
    )


def test_every_row_is_handed_out_once_an_epoch_and_ranks_return_values(life: Life) -> None:
    report, values = life.report, life.values
    assert sorted(values) == [0, 1]
    assert [all_ids(values, epoch) for epoch in (0, 1)] == [list(range(2050))] * 2
    assert [value["steps"] for value in values.values()] == [11, 11]
    assert report.rows == 4100 == sum(each.rows for each in report.ranks)
    assert (report.dropped, report.epochs, report.stopped) == (0, 2, False)


def test_a_validation_feed_goes_beside_the_training_feed_whole_in_each_epoch(life: Life) -> None:
    for epoch in (0, 1):
        seen = [i for value in life.values.values() for i in value["held out"][epoch]]
        assert sorted(seen) == list(range(100))


def test_inference_keeps_rows_order_and_columns(life: Life) -> None:
    assert [tuple(row) for row in life.answers] == [
        (i, f"n{i}", 2 * i, f"<{i}>") for i in range(1000)
    ]
    assert life.alone == (["twice"], float(2 * sum(range(1000))))


def test_a_schema_that_spark_cannot_read_is_refused_in_one_line(life: Life) -> None:
    assert len(life.refusals) == 4 and not [text for text in life.refusals if "\n" in text]


def test_logs_status_and_pages_are_at_hand(life: Life) -> None:
    assert life.url is not None
    assert life.tasks == {"chief:0", "worker:0"}
    assert life.roles == {"chief", "worker"}
    for lines in (life.lines, life.logged):
        assert {"this is chief 0 of 2", "this is worker 0 of 2"} <= {*lines}


@pytest.mark.nightly
def test_columns_are_fed_and_answered_whatever_their_names_are(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[Any]:
        found = [
            {name: values.tolist() for name, values in next(ctx.feed(each).batches(10)).items()}
            for each in ("train", "field")
        ]
        feed = ctx.feed("inference")
        for batch in feed.batches(10):
            feed.results({"p.q": batch["s.x"] + 1})
        return found

    struct = "named_struct('x', 7, 'y', 8) as s"
    frame = spark.range(0, 2, 1, 1).selectExpr("id as `s.x`", "-id as `t``k`", struct)
    with start(spark, train, workers=1) as cluster:
        cluster.train(frame, columns=["s.x", "t`k"])
        cluster.train(spark.range(0, 2, 1, 1).selectExpr(struct), feed="field", columns=["s.x"])
        answered = cluster.inference(frame, columns=["s.x"])
        assert answered.columns == ["s.x", "t`k", "s", "p.q"]
        assert [tuple(row) for row in answered.collect()] == [(0, 0, (7, 8), 1), (1, -1, (7, 8), 2)]
        values = cluster.results()
    assert values == {0: [{"s.x": [0, 1], "t`k": [0, -1]}, {"x": [7, 7]}]}


@pytest.mark.nightly
def test_partitions_are_the_same_in_all_queries_of_a_run(spark: Any) -> None:
    """Spark makes as many as it has cores at the time; rows are left out by their places in them."""
    name, parts = "spark.sql.leafNodeDefaultParallelism", []

    class Growing(FrameSource):
        def feed(self, task: Callable[[], bytes]) -> list[tuple[int, int, int]]:
            found = super().feed(task)
            parts.append(len(found))
            spark.conf.set(name, "3")
            return found

    table = spark.sql(
        "select bigint(id) as id from values (0), (1), (2), (3), (4), (5), (6), (7), (8) as t(id)"
    )
    frames = [spark.range(9), table, spark.range(9).join(table.hint("broadcast"), "id")]
    try:
        with start(spark, collect, workers=1) as cluster:
            for frame in frames:
                spark.conf.set(name, "2")
                source = Growing(Session(spark), frame)
                report = cluster.train(source, epochs=2, align="none")
                assert (report.rows, report.ordered) == (18, True)
            values = cluster.results()
    finally:
        spark.conf.unset(name)
    assert parts == [2, 2] * 3
    assert [all_ids(values, epoch) for epoch in range(6)] == [list(range(9))] * 6


@pytest.mark.both_sparks
def test_an_rdd_that_was_shuffled_has_no_order_wherever_it_is_in_a_plan(spark: Any) -> None:
    session, table = Session(spark), spark.range(9).hint("broadcast")
    rows = spark.sparkContext.parallelize([(number,) for number in range(9)], 3)
    for rdd, ordered in ((rows, True), (rows.repartition(2), False)):
        frame = spark.createDataFrame(rdd, "id long")
        joined = frame.join(table, "id")
        assert [session.ordered(each) for each in (frame, joined)] == [ordered] * 2
        cached = joined.cache()
        assert session.ordered(cached) is ordered
        assert session.ordered(cached.join(table, "id")) is ordered
        cached.unpersist()


@pytest.mark.both_sparks
def test_rows_are_known_where_spark_need_not_count_them(spark: Any) -> None:
    session, table = Session(spark), spark.sql("select * from values (1), (2), (3) as t(id)")
    cached = spark.range(7).where("id > 1").cache()
    assert session.known_rows(cached) is None
    assert cached.count() == 5
    frames = [table, spark.range(9).selectExpr("id + 1"), spark.range(9).limit(4), cached]
    counted = 5 if running() is Version.NEWEST else None  # Spark 3 counts some rows twice
    assert [session.known_rows(frame) for frame in frames] == [3, 9, 4, counted]
    unknown = [cached.limit(9), spark.range(9).where("id > 1"), table.join(table, "id")]
    assert [session.known_rows(frame) for frame in unknown] == [None] * 3
    cached.unpersist()


@pytest.mark.nightly
def test_cached_epochs_run_spark_once_and_shuffle(spark: Any) -> None:
    counter = spark.sparkContext.accumulator(0)

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    frame = spark.range(0, 1000, 1, 4).mapInArrow(counted, "id long")
    with start(spark, collect) as cluster:
        with pytest.raises(BadInput, match="shuffle=7 reorders cached epochs: add cache=True"):
            cluster.train(frame, epochs=3, align="none", shuffle=7)
        report = cluster.train(frame, epochs=3, align="none", cache=True, shuffle=7)
        values = cluster.results()
    assert counter.value == 1000
    assert report.rows == 3000
    assert [all_ids(values, epoch) for epoch in range(3)] == [list(range(1000))] * 3
    orders = [tuple(values[0]["epochs"][epoch]) for epoch in range(3)]
    assert len(set(orders)) == 3


@pytest.mark.nightly
def test_ranks_exchange_their_rows_between_epochs_when_asked(spark: Any) -> None:
    # As many partitions as ranks: nearness and load alone would give each rank the same ones.
    frame = spark.range(0, 1000, 1, 2)
    with start(spark, collect) as cluster:
        with pytest.raises(BadInput, match=r"exchange=True.*leave cache out; data\.cache\(\)"):
            cluster.train(frame, epochs=3, cache=True, exchange=True)
        report = cluster.train(frame, epochs=3, exchange=True, align="none")
        values = cluster.results()
    assert (report.rows, report.dropped) == (3000, 0)
    assert [all_ids(values, epoch) for epoch in range(3)] == [list(range(1000))] * 3
    # The ends of partitions go to whoever has fewer rows.
    assert [[0 in ids for ids in values[rank]["epochs"]] for rank in (0, 1)] == [
        [True, False, True],
        [False, True, False],
    ]


def test_an_exception_in_the_function_fails_training_with_its_traceback(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for number, _ in enumerate(ctx.feed("train").batches(100)):
            if number == 5:
                raise ValueError("no good batch")

    with pytest.raises(JobFailed, match="no good batch"):
        with start(spark, train, workers=1) as cluster:
            with pytest.raises(FeedError, match="rank 0.*ValueError: no good batch") as caught:
                cluster.train(spark.range(0, 10**9, 1, 4))
            assert "in train" in str(caught.value)
            cluster.results()
    eventually(lambda: active_jobs(spark) == [])


@pytest.mark.nightly
def test_a_position_names_the_same_run_whatever_other_feeds_there_were(spark: Any) -> None:
    """As in a fit that goes on from an earlier one's checkpoint: its validation rows may be first."""

    def train(position: Any, ctx: Any) -> list[tuple[int, int]]:
        feed = ctx.feed()
        feed.restore(position)
        for _ in ctx.feed("validation").batches(10):
            pass
        return [(epoch.run, epoch.number) for epoch in feed]

    with start(spark, train, Position(run=1, epoch=1), workers=1) as cluster:
        cluster.train(spark.range(20), feed="validation")
        cluster.end_feed("validation")
        cluster.train(spark.range(20), epochs=2)
        assert cluster.results() == {0: [(1, 1)]}


@pytest.mark.nightly
def test_only_the_columns_that_are_named_are_fed(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> list[Any]:
        found: list[Any] = []
        validation = iter(ctx.feed("validation"))
        for number, epoch in enumerate(ctx.feed("train"), 1):
            for batch in epoch.batches(100):
                found.append(("train", sorted(batch), sum(batch["id"].tolist())))
            for batch in next(validation).batches(100) if number == 3 else ():
                found.append(("validation", sorted(batch), sum(batch["id"].tolist())))
        return found

    rows = [{"id": 1, "label": 2, "text": "no"}, {"text": "no", "label": 4, "id": 3}]
    rdd = spark.sparkContext.parallelize(rows, 1)
    frame = spark.createDataFrame([(5, 6, "no")], "id long, label long, text string")
    with start(spark, train, workers=1) as cluster:
        with pytest.raises(BadInput, match="no column 'lable'.*did you mean 'label'"):
            cluster.train(rdd, columns=["id", "lable"])
        cluster.train(rdd, columns=["id"])
        cluster.train(frame, columns=["id"])
        cluster.train(rdd, validation=rdd, columns=["id"])
        found = cluster.results()[0]
    assert found == [
        ("train", ["id"], 4),
        ("train", ["id"], 5),
        ("train", ["id"], 4),
        ("validation", ["id"], 4),
    ]


@pytest.mark.nightly
def test_independent_instances_return_their_values(spark: Any) -> None:
    values = parallel(spark, lambda base, ctx: base + ctx.index, 2, [40], on_log=None)
    assert values == [40, 41]


@pytest.mark.nightly
def test_servers_on_the_driver_and_judges_end_with_the_workers(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> int:
        if ctx.role != "worker":
            threading.Event().wait()
        return sum(len(batch["id"]) for batch in ctx.feed("train").batches(10))

    options = {"workers": 1, "ps": 1, "driver_ps": True, "evaluator": True}
    with start(spark, train, **options) as cluster:
        assert [place.role for place in cluster.places] == ["worker"]
        cluster.train(spark.range(100))
        assert cluster.results() == {0: 100}


def test_a_cluster_that_cannot_be_fed_is_refused_before_anything_is_started(
    spark: Any, leaves_nothing: None
) -> None:
    with pytest.raises(BadInput, match="a fixed number of processes"):
        start(spark, collect, roles={"more": Role(instances="1..3")})


@pytest.mark.nightly
def test_a_feed_that_nobody_asks_for_times_out_in_words(spark: Any) -> None:
    def train(args: Any, ctx: Any) -> None:
        for _ in ctx.feed("train").batches(10):
            pass

    with start(spark, train) as cluster:
        with pytest.raises(FeedError, match="rank 0 has not asked for rows of 'other'"):
            cluster.train(spark.range(100), feed="other", timeout_s=0.5)
        cluster.train(spark.range(100))


def test_cancelling_the_cell_leaves_nothing_running(spark: Any, tmp_path: Path) -> None:
    def train(args: Any, ctx: Any) -> None:
        for _ in ctx.feed("train").batches(10):
            Path(args).touch()

    def interrupt() -> None:
        eventually((tmp_path / "fed").exists)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        with start(spark, train, str(tmp_path / "fed"), workers=1) as cluster:
            threading.Thread(target=interrupt).start()
            cluster.train(spark.range(0, 10**11, 1, 4))
    assert cluster.status().outcome == "stopped"
    eventually(lambda: active_jobs(spark) == [])


@pytest.mark.nightly
def test_one_line_runs_a_torch_program_whose_ranks_find_each_other(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")

    def train(first: int) -> tuple[str, float]:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.tensor([float(first + dist.get_rank())])
        dist.all_reduce(total)
        dist.destroy_process_group()
        return os.environ["RANK"], total.item()

    assert run(train, 10, workers=2) == [("0", 21.0), ("1", 21.0)]
    told = capfd.readouterr().out
    assert 'framework="pytorch" is assumed, as the function uses torch' in told


@pytest.mark.nightly
def test_a_function_that_raises_in_one_line_leaves_no_job_of_sparks(spark: Any) -> None:
    def train() -> None:
        raise ValueError("no such thing")

    with pytest.raises(JobFailed, match="ValueError: no such thing"):
        run(train, workers=2, spark=spark, restarts=0, on_log=None)
    eventually(lambda: not active_jobs(spark))


def test_a_framework_that_is_named_is_not_inferred(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def train() -> str | None:
        if "never" in os.environ:
            import torch  # noqa: F401
        return os.environ.get("RANK")

    assert run(train, workers=1, spark=spark, framework="command") == [None]
    assert "assumed" not in capfd.readouterr().out


def listening() -> set[int]:
    """The TCP ports that this process and those it started listen at, but for Spark's."""
    mine, ports = psutil.Process(), set[int]()
    for each in (mine, *mine.children()):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            found = each.net_connections("tcp") if "java" not in each.name() else []
            ports |= {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}
    return ports


@pytest.mark.nightly
def test_executors_reach_the_driver_at_the_jobs_interface_and_ports(spark: Any) -> None:
    name = next(
        (name for _, name in socket.if_nameindex() if name != "lo" and has_address(name)), "lo"
    )
    before = listening()
    network = Network(interface=name, ports="23000-23099")
    with start(spark, collect, network=network) as cluster:
        ports = listening() - before
        assert len(ports) >= 2  # for executors, and for feeds
        ports |= {place.port for place in cluster.places}
        assert len(ports) >= 4 and all(23000 <= port <= 23099 for port in ports), ports
        assert cluster._live.access.host == address_of(name)
        assert {place.address for place in cluster.places} == {address_of(name)}
        cluster.train(spark.range(0, 100, 1, 2))
    with pytest.raises(BackendError, match=r"network\.interface: .* no network interface 'nope0'"):
        start(spark, collect, network=Network(interface="nope0"))


def has_address(name: str) -> bool:
    try:
        return bool(address_of(name))
    except NoInterface:
        return False


def test_a_range_without_a_free_port_is_refused_before_anything_starts(spark: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(
            BackendError, match=rf"No port from {port} to {port} .`.network. ports`"
        ):
            start(spark, collect, network=Network(ports=f"{port}-{port}"))


def shown(page: str, words: str, kind: str = "python") -> str:
    """The program, or other block, with these words that a guide shows."""
    (text,) = [
        block.text for block in blocks(kind) if block.page.name == page and words in block.text
    ]
    return text


@pytest.mark.nightly
def test_the_programs_that_the_guides_show_run(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 600, 1, 4).selectExpr(
        "id as label", "array(float(id), float(7), float(3)) as image"
    )
    frame.write.parquet(f"{tmp_path}/arriving")
    names = {"__name__": "__main__", "spark": spark, "train_df": frame, "test_df": frame}

    exec(shown("spark.md", "rows += len"), names)
    report: Any = names["report"]
    assert (report.rows + report.dropped, sorted(names["values"])) == (1800, [0, 1])

    # Relative paths would be those of Spark's JVM.
    scored = f'"{tmp_path}/scored"'
    exec(with_changes(shown("spark.md", "def classify"), ('"scored"', scored)), names)
    assert spark.read.parquet(f"{tmp_path}/scored").where("prediction = 0").count() == 593

    stream = with_changes(
        shown("spark-streams.md", "train_stream"),
        ('"/', f'"{tmp_path}/'),
        ("    ...", "    eventually(lambda: stream.report.rows > 0)"),
        ("workers=2", "workers=1"),
    )
    exec(stream, {**names, "schema": frame.schema, "eventually": eventually})
    exec(shown("spark.md", "examine(spark)"), names)

    exec(shown("spark-feeds.md", "feed.restore"), names)
    each = {"source": "each"}
    with start(spark, names["train"], workers=1, checkpoint=each) as cluster:
        assert cluster.train(frame).rows == 600

    names["train"] = lambda rate: 2 * rate
    exec(shown("spark.md", "losses = run").replace("workers=4", "workers=2"), names)
    assert names["losses"] == [0.02, 0.02]


def with_changes(text: str, *changes: tuple[str, str]) -> str:
    """A program of a guide at other paths, or smaller."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.nightly
def test_the_programs_of_the_guide_to_pipelines_run(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.ml")
    columns = "id % 7 + 0.5 as age", "id % 3 + 1.5 as height", "id % 5 as label"
    frame = spark.range(0, 60, 1, 2).selectExpr(*columns).cache()
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "df": frame}
    fit = shown("spark-pipelines.md", "DistributedDataParallel")
    here = ("/models/weight.pt", str(tmp_path / "weight.pt"))
    exec(with_changes(fit, ("workers=2", "workers=1"), here), names)
    scored = names["model"].transform(frame)
    assert scored.select("prediction").distinct().count() > 1

    def constant(args: Any, ctx: Any) -> Any:
        for _ in ctx.feed("train").batches(100):
            pass
        return lambda batch: np.full(len(batch["x"]), float(args.hidden))

    # A light one: it is fitted three times.
    names["estimator"] = names["estimator"].copy({names["estimator"].epochs: 1})
    names["estimator"]._train = constant
    search = shown("spark-pipelines.md", "CrossValidator")
    exec(with_changes(search, (', {"hidden": 64}', ""), ("numFolds=3", "numFolds=2")), names)
    assert names["best"].transform(frame).select("prediction").distinct().collect() == [(32.0,)]


@pytest.mark.nightly
def test_the_programs_and_the_command_of_the_guide_to_scoring_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "digits_model.py").write_text(
        "import numpy as np\n\n"
        "def answer(batch):\n"
        "    (images,) = batch.values()\n"
        "    return {'probability': np.asarray(images, 'float32')}\n\n"
        "def make(path):\n"
        "    return answer\n"
    )
    frame = spark.range(0, 8, 1, 2).selectExpr("id", "array(0.0, 0.0, 0.0, id / 8) as pixels")
    frame.write.parquet(f"{tmp_path}/digits.parquet")
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "df": frame}
    exec("from digits_model import answer as model", names)
    at = '"hdfs:///models/digits"'

    exec(with_changes(shown("spark-scoring.md", "import score"), (at, "model")), names)
    assert names["scored"].where("p[3] > 0.5").count() == 3

    udf = shown("spark-scoring.md", "import predict_udf")
    more = ('"array<float>")', '"array<float>", inputs=["pixels"])')
    udf = with_changes(udf, (at, "model"), more, ("df.withColumn", "found = df.withColumn"))
    exec(udf, names)
    assert names["found"].count() == 3
    frame.createOrReplaceTempView("digits")
    assert spark.sql("select probability(pixels)[3] as p from digits where id = 4").first().p == 0.5

    (tmp_path / "export").mkdir()
    command = with_changes(
        shown("spark-scoring.md", "howdah score", kind=""),
        (" digits.parquet", f" {tmp_path}/digits.parquet"),
        (" scored", f" {tmp_path}/scored"),
    )
    words = [*shlex.split(command), "--predict", "digits_model:make"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        exec(shown("spark-scoring.md", "raise SystemExit"), names)
    assert ended.value.code == 0
    assert spark.read.json(f"{tmp_path}/scored").where("p[3] > 0.5").count() == 3


@pytest.mark.nightly
@pytest.mark.timeout(300)  # PyTorch is imported in five processes
def test_the_programs_of_the_guide_from_torchdistributor_and_horovod_run(spark: Any) -> None:
    guide = "from-torchdistributor.md"
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    exec(shown(guide, "def train"), names)
    theirs = with_changes(
        shown(guide, "import TorchDistributor"),
        (
            "TorchDistributor(num_processes=2, local_mode=False",
            "theirs = TorchDistributor(num_processes=1, local_mode=True",
        ),
    )
    exec(theirs, names)
    exec(with_changes(shown(guide, "from howdah.spark import run"), ("rs=2", "rs=1")), names)
    assert names["value"] == names["theirs"] == 0.0

    names["train"] = lambda rate: (rate, os.environ["HOROVOD_RANK"])
    exec(with_changes(shown(guide, "Cluster.start"), ("workers=2", "workers=1")), names)
    assert names["values"] == [(0.01, "0")]

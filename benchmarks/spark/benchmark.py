"""Howdah's feed beside TensorFlowOnSpark and the floor: same Spark, same rows, one run.

A Standalone master and two workers of one core. The floor and ours take turns in one driver;
TensorFlowOnSpark has a driver of its own. All of them sum up every byte they get, and the sums are
compared with Spark's own. Rows lie in Spark's memory when a clock starts; "later epochs" come from
the trainers' caches, and nothing else does.
"""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.results import Goal, Measure, Of, measure, progress
from benchmarks.spark import peers
from benchmarks.spark.programs import PARTITION_ROWS, Figure, Order
from benchmarks.spark.shapes import FACTS, Shape
from tests.spark.programs import Program
from tests.spark.servers import Standalone
from tests.spark.versions import Version, environment

_PEER = "TensorFlowOnSpark 2.2.5"
_ALL = tuple(shape.value for shape in Shape)
_AS_FAST = Goal(Of.RATIO, 0.92, at_least=True)
_TIMES = {Shape.NARROW: 350.0, Shape.PIXELS: 70.0, Shape.FLOATS: 40.0}
"""How often our first epoch should be as fast as the peer's."""


_TURNS = 2
"""Of rows between hosts, each with a cluster and a driver of its own."""


class Settings(msgspec.Struct, frozen=True):
    runs: int = 5
    spark: str = "3.5"
    """The peer knows no newer one; ``4`` measures ours and the floor."""
    shapes: tuple[str, ...] = _ALL
    partitions: tuple[int, ...] = (2, 200)
    peer: bool = True
    train: bool = True
    eight: bool = True
    """Eight ranks on one machine, too."""
    hosts: bool = True
    """Rows that go as they do between hosts, with TLS and without."""
    quick: bool = False
    rows: int = 0
    """For the floor and ours, instead of each shape's own."""
    limit_s: float = 1500.0
    """For each of the two drivers."""


QUICK = Settings(runs=3, quick=True, limit_s=400.0)


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    left_out: list[str] = []
    version = Version(settings.spark)
    with tempfile.TemporaryDirectory(prefix="hwb-") as place:
        folder = Path(place)
        env = environment(version)
        env["HOWDAH_BENCHMARK"] = secrets.token_hex(8)
        env["HOWDAH_HOME"] = str(folder / "home")
        env["TF_CPP_MIN_LOG_LEVEL"] = "3"
        figures: list[Figure] = []
        consumers = ["ours"]
        if settings.peer and version is Version.OLDER:
            progress("fetch TensorFlowOnSpark")
            try:
                env["PYTHONPATH"] += f"{os.pathsep}{peers.folder()}"
                consumers.append("peer")
            except (subprocess.SubprocessError, OSError) as error:
                left_out.append(f"{_PEER}: {error}")
        progress(f"start Spark {settings.spark}")
        with Standalone(folder / "standalone", version, env=env) as cluster:
            for consumer in consumers:
                progress(f"measure {consumer}")
                found, failed = _run(consumer, cluster, folder, env, settings)
                figures += found
                left_out += failed
        if settings.eight:
            progress("measure eight ranks on one machine")
            with Standalone(folder / "eight", version, workers=1, cores=16, env=env) as cluster:
                found, failed = _run("eight", cluster, folder, env, settings)
                figures += found
                left_out += failed
        if settings.hosts:
            found, failed = _between_hosts(version, folder, env, settings)
            figures += found
            left_out += failed
    return _measures(figures, settings), left_out


def _between_hosts(
    version: Version, folder: Path, env: dict[str, str], settings: Settings
) -> tuple[list[Figure], list[str]]:
    """With TLS and without, in turn."""
    figures: list[Figure] = []
    left_out: list[str] = []
    path = os.pathsep.join([str(Path(__file__).parent / "wire"), env["PYTHONPATH"]])
    for turn in range(_TURNS):
        for wire in ("tls", "plain"):
            progress(f"measure rows between hosts, {wire}, {turn + 1} of {_TURNS}")
            wired = {**env, "PYTHONPATH": path, "HOWDAH_BENCHMARK_WIRE": wire}
            place = folder / f"{wire}-{turn}"
            place.mkdir()
            with Standalone(place / "standalone", version, env=wired) as cluster:
                found, failed = _run("hosts", cluster, place, wired, settings)
                figures += found
                left_out += failed
    return figures, left_out


def _run(
    consumer: str, cluster: Standalone, folder: Path, env: dict[str, str], settings: Settings
) -> tuple[list[Figure], list[str]]:
    file, notes = folder / f"{consumer}.jsonl", folder / f"{consumer}-notes"
    notes.mkdir()
    file.touch()
    order = Order(
        shapes=settings.shapes,
        quick=settings.quick,
        runs=settings.runs,
        partitions=settings.partitions,
        figures=str(file),
        folder=str(notes),
        train=settings.train,
        rows=settings.rows,
    )
    conf = {
        **cluster.settings(),
        "spark.cores.max": str(cluster.cores),
        "spark.executor.memory": "1200m",
        # Tests save warm-up time here; a benchmark wants the optimising compiler.
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
    }
    command = [sys.executable, "-m", "benchmarks.spark.programs", consumer]
    command.append(msgspec.json.encode(order).decode())
    env = {**env, "SPARK_SETTINGS": msgspec.json.encode(conf).decode()}
    program = Program(command, folder, env)
    failed: list[str] = []
    try:
        done = program.wait(settings.limit_s)
        if done.code:
            failed.append(f"{consumer} ended with {done.code}: {done.out[-1500:]}")
    except AssertionError as error:
        failed.append(f"{consumer}: {str(error)[-1500:]}")
    finally:
        program.end()
    figures = [msgspec.json.decode(line, type=Figure) for line in file.read_bytes().splitlines()]
    failed += [f"{each.name}: {each.note}" for each in figures if each.name.startswith("failed: ")]
    return figures, failed


def _measures(figures: Sequence[Figure], settings: Settings) -> list[Measure]:
    found: dict[str, list[float]] = {}
    for figure in figures:
        found.setdefault(figure.name, []).append(figure.value)
    made: list[Measure] = []

    def add(name: str, unit: str, ours: str, peer: str, label: str, goal: Goal | None) -> None:
        if ours not in found:
            return
        mine, other = found[ours], found.get(peer, [])
        if other and len(other) != len(mine):
            other = [statistics.median(other)] * len(mine)
        made.append(
            measure(
                name,
                unit,
                mine,
                other,
                peer_name=label if other else "",
                goal=goal if other or (goal and goal.of is Of.OURS) else None,
            )
        )

    for shape in Shape:
        size = FACTS[shape].row_bytes
        for partitions in settings.partitions:
            what = f"{shape.value}, {partitions} partitions"
            first, floor = f"first epoch: {what}", f"floor: {what}"
            add(f"{first} ({size} B a row)", "rows/s", first, floor, "floor", _AS_FAST)
            times = Goal(Of.RATIO, _TIMES[shape], at_least=True) if shape in _TIMES else None
            peer = f"peer: {what}"
            if peer in found:
                add(first, "rows/s", first, peer, _PEER, times)
            later = f"later epochs: {what}"
            add(later, "rows/s", later, floor, "floor", Goal(Of.RATIO, 15, at_least=True))
            add(
                f"memory: {what}",
                "MB",
                f"memory: {what}",
                f"peer memory: {shape.value}",
                _PEER,
                None,
            )
    add(
        "inference: 784 floats",
        "rows/s",
        "inference",
        "inference floor",
        "floor",
        Goal(Of.RATIO, 0.75, at_least=True),
    )
    add("inference: 784 floats", "rows/s", "inference", "peer inference", _PEER, None)
    within = Goal(Of.OURS, 1.0)
    starts = found.pop("start", [])
    if starts:
        found["cold start"], found["start"] = starts[:1], starts[1:] or starts[:1]
    add("cold start", "s", "cold start", "", "", None)
    add("warm start", "s", "start", "peer start", _PEER, within)
    add("shutdown", "s", "shutdown", "peer shutdown", _PEER, within)
    add("error in the function known", "s", "error", "peer error", _PEER, within)
    for kind in ("keras", "torch"):
        held = f"{kind}: in memory"
        enough = Goal(Of.RATIO, 0.98, at_least=True)
        add(f"{kind} by feed, cached", "steps/s", f"{kind}: by feed", held, "numpy", enough)
        first = f"{kind}: by feed, first epoch"
        add(first, "steps/s", first, held, "numpy", None)
    step = Goal(Of.OURS, 0.05)
    add("tf_dataset, cached, without a model", "ms/step", "tf_dataset: by feed", "tf_dataset: in memory", "tf.data", step)  # fmt: skip
    small, large = (f"{rows} rows" for rows in PARTITION_ROWS.values())
    name = f"memory: {large} a partition, beside {small}"
    add(name, "MB", "large partitions", "small partitions", small, Goal(Of.RATIO, 1.1))
    eight = "eight ranks: first epoch"
    add("first epoch: 784 floats, eight ranks", "rows/s", eight, "eight ranks: floor", "floor", _AS_FAST)  # fmt: skip
    for shape in (Shape.FLOATS, Shape.WIDE):
        tls, plain = (f"between hosts: {shape.value}, {wire}" for wire in ("tls", "plain"))
        name = f"by TCP and TLS, first epoch: {shape.value}"
        enough = Goal(Of.RATIO, 0.6, at_least=True)
        add(name, "rows/s", tls, plain, "without TLS", enough)
    return made

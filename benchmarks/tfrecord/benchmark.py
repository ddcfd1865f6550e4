"""Rows a second, read and written: in Spark and, by processor time, without it.

The peers in Spark are TensorFlowOnSpark's dfutil and, for reading, what the JVM alone needs to find and
check the records' frames (`tensorflow-hadoop`, a count in the JVM, nothing parsed): no reader in the
JVM can be faster than that. Without Spark it is `tf.data` with `tf.io.parse_example`, and
`tf.io.TFRecordWriter` with messages made in Python. Ours and peers take turns in one driver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.results import Goal, Measure, Of, measure, progress
from benchmarks.spark import peers
from benchmarks.tfrecord.program import Figure, Order
from benchmarks.tfrecord.shapes import Shape
from tests.hadoop import artifacts
from tests.hadoop.errors import ClusterError
from tests.spark.programs import Program
from tests.spark.versions import Version, environment
from tests.spark.versions import settings as spark_settings

_HADOOP = "org.tensorflow:tensorflow-hadoop:1.15.0"
_CONNECTOR = "com.linkedin.sparktfrecord:spark-tfrecord_2.12:0.7.0"
_FETCH_S = 300
_DFUTIL = "TensorFlowOnSpark's dfutil"
_AT_LEAST = Goal(Of.RATIO, 1.0, at_least=True)
_TABLE = (
    ("read in Spark", "read ours", "read frames", "the JVM, frames only", None),
    ("read in Spark", "read ours", "read dfutil", _DFUTIL, _AT_LEAST),
    ("write in Spark", "write ours", "write dfutil", _DFUTIL, _AT_LEAST),
    ("read, processor time", "core read ours", "core read tf", "tf.data", _AT_LEAST),
    (
        "write, processor time",
        "core write ours",
        "core write tf",
        "tf.io.TFRecordWriter",
        _AT_LEAST,
    ),
)


class Settings(msgspec.Struct, frozen=True):
    runs: int = 5
    scale: float = 1.0
    """Of the rows: 200,000 narrow ones and 20,000 of 784 numbers."""
    spark: bool = True
    """Measure in Spark too."""
    dfutil: bool = True
    limit_s: float = 900.0


QUICK = Settings(runs=1, scale=0.02, dfutil=False, limit_s=100.0)


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    left_out = [_connector()]
    version = Version.OLDER if settings.dfutil else Version.NEWEST
    with tempfile.TemporaryDirectory(prefix="hwb-") as place:
        folder = Path(place)
        env = environment(version)
        env |= {"HOWDAH_HOME": str(folder / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        conf = {
            **spark_settings(folder),
            "spark.master": "local[2]",
            "spark.driver.memory": "1500m",
        }
        del conf["spark.driver.extraJavaOptions"]
        dfutil = False
        try:
            if settings.spark:
                conf["spark.jars"] = str(_jar(_HADOOP))
            if settings.spark and settings.dfutil:
                progress("fetch TensorFlowOnSpark")
                env["PYTHONPATH"] += f"{os.pathsep}{peers.folder()}"
                dfutil = True
        except (ClusterError, subprocess.SubprocessError, OSError) as error:
            left_out.append(f"the JVM's reader, TensorFlowOnSpark's dfutil: {error}")
        figures = folder / "figures"
        figures.touch()
        order = Order(
            runs=settings.runs,
            scale=settings.scale,
            folder=str(folder),
            figures=str(figures),
            jvm="spark.jars" in conf,
            dfutil=dfutil,
            spark=settings.spark,
        )
        env["SPARK_SETTINGS"] = msgspec.json.encode(conf).decode()
        left_out += _run(order, folder, env, settings.limit_s)
        lines = figures.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Figure) for line in lines]
    return _measures(found), left_out


def _connector() -> str:
    """What is known of the JVM's own data source, which should be a peer."""
    try:
        _jar(_CONNECTOR)
    except ClusterError:
        return (
            f"the JVM connector: {_CONNECTOR} cannot be fetched, and on Maven Central"
            " org.tensorflow:spark-tensorflow-connector is for Scala 2.11 only, which no Spark from"
            " 3.0 on runs"
        )
    return f"the JVM connector: {_CONNECTOR} can be fetched here, but is not measured yet"


def _jar(coordinate: str) -> Path:
    """One jar from Maven, without what it needs. Raises ClusterError."""

    def copy(place: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise ClusterError("there is no mvn on PATH")
        command = [maven, "-q", "-B", "-ntp", "dependency:copy", f"-Dartifact={coordinate}"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={place}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
        )
        if done.returncode:
            raise ClusterError(f"Maven could not fetch {coordinate}: {done.stdout[:300]}")

    name = coordinate.partition(":")[2].replace(":", "-")
    return next(artifacts.once(f"jar-{name}", copy).glob("*.jar"))


def _run(order: Order, folder: Path, env: dict[str, str], limit_s: float) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.tfrecord.program"]
    program = Program([*command, msgspec.json.encode(order).decode()], folder, env)
    try:
        done = program.wait(limit_s)
        return [f"ended with {done.code}: {done.out[-1500:]}"] if done.code else []
    except AssertionError as error:
        return [str(error)[:300]]
    finally:
        program.end()


def _measures(figures: list[Figure]) -> list[Measure]:
    made: list[Measure] = []
    for shape in Shape:
        values: dict[str, list[float]] = {}
        for each in figures:
            if each.shape == shape.value:
                values.setdefault(each.name, []).append(each.rows_s)
        seen: set[str] = set()
        for name, ours, peer, label, goal in _TABLE:
            mine, other = values.get(ours, []), values.get(peer, [])
            if not mine or (not other and name in seen):
                continue
            seen.add(name)
            made.append(
                measure(
                    f"{name}, {shape.value}",
                    "rows/s",
                    mine,
                    other if len(other) == len(mine) else (),
                    peer_name=label if other else "",
                    goal=goal if other else None,
                )
            )
    return made

"""A class-data archive of Spark: a JVM that maps its classes instead of parsing them starts with about
half the processor time.

Before its tests a run makes it (`tests/tools/run`), once for each Spark that is installed
here, by a short session which uses what most tests do: `python -m tests.spark.versions`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.hadoop import artifacts

_LIMIT_S = 400
_KEPT = 4
"""Archives, of 180 MB each."""
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

folder, options = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.local.dir": f"{folder}/local",
    "spark.sql.warehouse.dir": f"{folder}/warehouse",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for name in ("master.Master", "worker.Worker"):
    spark._jvm.java.lang.Class.forName(f"org.apache.spark.deploy.{name}")
spark._jvm.java.lang.Class.forName("org.apache.spark.executor.CoarseGrainedExecutorBackend")
frame = spark.createDataFrame([(1, "a"), (2, "b")], "x long, y string")
frame.write.parquet(f"{folder}/frame")
read = spark.read.parquet(f"{folder}/frame").repartition(2)
read.mapInArrow(lambda batches: batches, frame.schema).groupBy("y").count().collect()
spark.sparkContext.parallelize(range(10), 2).map(str).collect()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()  # it writes the archive at its end
"""


def flags(home: Path) -> str:
    """JVM flags that use the archive of the Spark in ``home``; none while there is no archive."""
    archive = _archive(home)
    if not archive.exists():
        return ""
    return (
        f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    )


def make(home: Path, java_options: str, env: Mapping[str, str]) -> None:
    """Make the archive of the Spark in ``home``, unless there is one.

    ``java_options`` choose the garbage collector, which has to be the same as in those who use it;
    ``env`` is that of a driver on that Spark.
    """
    archive = _archive(home)
    with artifacts.locked(archive.with_suffix(".lock")):
        if not archive.exists():
            _make(archive, java_options, env)


def _make(archive: Path, java_options: str, env: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".making-") as folder:
        draft = Path(folder) / archive.name
        options = (
            f"{java_options} -XX:ArchiveClassesAtExit={draft} -Xlog:cds=off -Xlog:cds+dynamic=off"
        )
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, folder, options],
            env={**os.environ, **env},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        draft.rename(archive)
    # Of Sparks in checkouts that are gone, most likely.
    for old in sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
        old.unlink()


@functools.cache
def _archive(home: Path) -> Path:
    """Named after what a JVM compares: its own version, and each jar's path, size and time."""
    jars = sorted((home / "jars").glob("*.jar"))
    parts = [artifacts.java_version()]
    parts += [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return artifacts.cache() / "spark-classes" / f"{digest}.jsa"

"""The Sparks that tests run on, and the environment of a process that uses one."""

from __future__ import annotations

import enum
import os
import sys
from importlib import util
from pathlib import Path

from tests.spark import class_archive

ROOT = Path(__file__).resolve().parents[2]
_OLDER = ROOT / ".spark35"


class Version(enum.Enum):
    """The value is how test ids name it."""

    NEWEST = "4"
    OLDER = "3.5"
    """In `.spark35`, put there by ``tools/setup older-spark``."""

    @property
    def home(self) -> Path:
        """SPARK_HOME: the pyspark package, which brings Spark's jars and scripts."""
        if self is Version.OLDER:
            home = _OLDER / "pyspark"
            assert home.is_dir(), f"no Spark 3.5 in {home}; run: tools/setup older-spark"
            return home
        for place in map(Path, sys.path):
            # Not by importing it: in a run on the older Spark that one comes first.
            if place.name == "site-packages" and (place / "pyspark").is_dir():
                return place / "pyspark"
        raise AssertionError("pyspark is not installed; run: tools/setup spark")


def running() -> Version:
    """The one this process imports."""
    spec = util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is not installed"
    return Version.OLDER if Path(spec.origin).is_relative_to(_OLDER) else Version.NEWEST


def environment(version: Version | None = None) -> dict[str, str]:
    """Variables of a driver, master or worker of that Spark (of this process's, if not given).

    Executors get their `PYTHONPATH` from the driver or the worker: with it they find the tests.
    """
    version = version or running()
    kept = [ROOT, *([_OLDER] if version is Version.OLDER else [])]
    return {
        "SPARK_HOME": str(version.home),
        "PYTHONPATH": os.pathsep.join(map(str, reversed(kept))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "160m",
        "SPARK_DAEMON_JAVA_OPTS": _java(version),
        # Of drivers whose program says nothing of their JVM, and of the one that makes a JVM's command line.
        "SPARK_SUBMIT_OPTS": _java(version),
        "SPARK_LAUNCHER_OPTS": _JAVA,
        "PYTHONWARNINGS": "ignore",
    }


_JAVA = "-XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1 -Xss512k"


def _java(version: Version) -> str:
    return f"{_JAVA} {class_archive.flags(version.home)}"


def settings(folder: Path, version: Version | None = None) -> dict[str, str]:
    """Spark's settings for small and quiet sessions that write into that folder only."""
    java = _java(version or running())
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


if __name__ == "__main__":
    for each in (Version.NEWEST, *([Version.OLDER] if _OLDER.is_dir() else [])):
        class_archive.make(each.home, _JAVA, environment(each))

"""TensorFlowOnSpark 2.2.5 on the same rows. Functions for its nodes are as its examples write them."""

from __future__ import annotations

import json
import os
import re
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.spark.shapes import FACTS, MASK, Shape, words


def columns(shape: Shape, rows: list[Any]) -> dict[str, Any]:
    """A batch as its users make one: numpy arrays of the rows' values."""
    if shape is Shape.NARROW:
        return {"f": np.asarray(rows, np.float32)}
    if shape is Shape.PIXELS:
        return {
            "pixels": np.frombuffer(b"".join(row[0] for row in rows), np.uint8),
            "label": np.asarray([row[1] for row in rows], np.int64),
        }
    if shape is Shape.FLOATS:
        return {"features": np.asarray([row[0] for row in rows], np.float32)}
    return {"payload": np.frombuffer(b"".join(row[0] for row in rows), np.uint8)}


def checksum(shape: Shape, rows: list[Any]) -> int:
    """As `words`: of narrow rows the words have 4 bytes."""
    made = columns(shape, rows)
    if shape is Shape.NARROW:
        return words({str(i): made["f"][:, i] for i in range(10)})
    return words(made)


def consume(args: Any, ctx: Any) -> None:
    """Node function: sum up all that is fed, write the sum into a file."""
    shape, folder = Shape(args["shape"]), Path(args["folder"])
    feed = ctx.get_data_feed(train_mode=True)
    total = rows = 0
    while not feed.should_stop():
        batch = feed.next_batch(FACTS[shape].batch)
        if batch:
            total += checksum(shape, batch)
            rows += len(batch)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    note = json.dumps({"words": str(total & MASK), "rows": rows, "peak_mb": peak_mb})
    draft = folder / f".{ctx.executor_id}"
    draft.write_text(note)
    draft.rename(folder / f"{ctx.executor_id}.json")


def answer(args: Any, ctx: Any) -> None:
    """Node function: one number for each row."""
    shape = Shape(args["shape"])
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(FACTS[shape].batch)
        if batch:
            feed.batch_results([float(x) for x in columns(shape, batch)["features"].sum(axis=1)])


def fail(args: Any, ctx: Any) -> None:
    """Node function: raise at the first batch."""
    ctx.get_data_feed().next_batch(10)
    raise RuntimeError(f"raised at {time.time()}")


class Peer:
    """Clusters of it on one SparkContext."""

    def __init__(self, sc: Any) -> None:
        self._sc = sc

    def start(self, function: Any, args: dict[str, str]) -> tuple[Any, float]:
        """A cluster, and the seconds until it was there."""
        from tensorflowonspark import TFCluster

        begin = time.perf_counter()
        cluster = TFCluster.run(
            self._sc, function, args, 2, 0, input_mode=TFCluster.InputMode.SPARK
        )
        return cluster, time.perf_counter() - begin

    @staticmethod
    def stop(cluster: Any) -> float:
        """Seconds of a normal end."""
        begin = time.perf_counter()
        cluster.shutdown()
        return time.perf_counter() - begin

    def error_known_s(self, rdd: Any, folder: Path) -> float:
        """Seconds from the exception in the function to the one in the driver."""
        cluster, _ = self.start(fail, {"shape": Shape.FLOATS.value, "folder": str(folder)})
        try:
            cluster.train(rdd, 1)
        except Exception as error:
            found = re.search(r"raised at ([\d.]+)", str(error))
            if found is None:
                raise
            return time.time() - float(found[1])
        raise AssertionError("it did not notice the error")


def collected(folder: Path, nodes: int = 2, timeout_s: float = 60.0) -> list[dict[str, Any]]:
    """What `consume` has written; its nodes write when the cluster is shut down already."""
    deadline = time.monotonic() + timeout_s
    while len(files := [*folder.glob("*.json")]) < nodes:
        assert time.monotonic() < deadline, f"{len(files)} of {nodes} nodes wrote in {folder}"
        time.sleep(0.05)
    notes = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return notes


def managers_mb() -> float:
    """Memory of the largest process that its nodes have for their queues."""
    import psutil

    largest = 0.0
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOWDAH_BENCHMARK") == os.environ["HOWDAH_BENCHMARK"]:
                if "pyspark.daemon" in " ".join(process.cmdline()):
                    largest = max(largest, process.memory_info().rss / 2**20)
        except (psutil.Error, OSError):
            continue
    return largest

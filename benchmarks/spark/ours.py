"""Howdah's feed on the same rows."""

from __future__ import annotations

import re
import resource
import time
from typing import Any

import msgspec

from benchmarks.spark.shapes import FACTS, MASK, Shape, words


class Pass(msgspec.Struct, frozen=True):
    """One epoch as one trainer saw it."""

    run: int
    epoch: int
    rows: int
    words: int
    seconds: float
    peak_mb: float
    """Most memory of the trainer until then."""


def consume(args: Any, ctx: Any) -> list[dict[str, Any]]:
    """Training function: sum up all that is fed."""
    shape = Shape(args["shape"])
    passes: list[dict[str, Any]] = []
    for epoch in ctx.feed("train"):
        begin = time.perf_counter()
        total = rows = 0
        for batch in epoch.batches(FACTS[shape].batch):
            total += words(batch)
            rows += len(next(iter(batch.values())))
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seen = Pass(
            epoch.run, epoch.number, rows, total & MASK, time.perf_counter() - begin, peak_mb
        )
        passes.append(msgspec.structs.asdict(seen))
    return passes


def answer(args: Any, ctx: Any) -> None:
    """Training function: one number for each row."""
    shape = Shape(args["shape"])
    feed = ctx.feed("inference")
    for batch in feed.batches(FACTS[shape].batch):
        feed.results(batch["features"].sum(axis=1))


def fail(args: Any, ctx: Any) -> None:
    """Training function: raise at the first batch."""
    for _ in ctx.feed("train").batches(16):
        raise RuntimeError(f"raised at {time.time()}")


def start(spark: Any, function: Any, args: dict[str, str], workers: int = 2) -> tuple[Any, float]:
    """A cluster, and the seconds until it was there."""
    from howdah.spark import Cluster

    begin = time.perf_counter()
    cluster = Cluster.start(spark, function, args, workers=workers, on_log=None)
    return cluster, time.perf_counter() - begin


def end(cluster: Any) -> tuple[dict[int, Any], float]:
    """What the functions returned, and the seconds of a normal end."""
    begin = time.perf_counter()
    values = cluster.results(timeout_s=60)
    cluster.stop()
    return values, time.perf_counter() - begin


def error_known_s(spark: Any, frame: Any) -> float:
    """Seconds from the exception in the function to the one in the driver."""
    cluster, _ = start(spark, fail, {})
    try:
        cluster.train(frame)
    except Exception as error:
        known = time.time()
        found = re.search(r"raised at ([\d.]+)", str(error))
        if found is None:
            raise
        return known - float(found[1])
    finally:
        cluster.stop()
    raise AssertionError("it did not notice the error")


def passes(values: dict[int, Any]) -> dict[tuple[int, int], list[Pass]]:
    """Of all ranks, by run and epoch."""
    found: dict[tuple[int, int], list[Pass]] = {}
    for rank in sorted(values):
        for one in msgspec.convert(values[rank], list[Pass]):
            found.setdefault((one.run, one.epoch), []).append(one)
    return found

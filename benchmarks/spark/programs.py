"""What runs in a driver of its own: ``python -m benchmarks.spark.programs CONSUMER ORDER``.

The order is JSON (`Order`); each figure is a line of JSON (`Figure`) in the file it names, as soon as
it is known: what comes after an error or a time-out does not take along what came before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.spark import floor, ours, peer, training
from benchmarks.spark.session import session
from benchmarks.spark.shapes import FACTS, MASK, Shape, expected, frame

_WARM_UPS = 2
"""Not counted: Python workers import what they need, JVMs compile."""
_EPOCHS = 4
"""With a cache: the first one and later ones."""
PARTITION_ROWS = {"small": 30_000, "large": 240_000}
"""Rows of pixels in one partition, for what memory depends on."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    shapes: tuple[str, ...]
    quick: bool
    runs: int
    partitions: tuple[int, ...]
    figures: str
    """The file for them."""
    folder: str
    """For notes of the nodes."""
    train: bool = True
    rows: int = 0


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number."""

    name: str
    value: float
    note: str = ""
    """Of a failure: what went wrong."""


class Notes:
    """Figures on their way out."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, value: float, note: str = "") -> None:
        """One more."""
        line = msgspec.json.encode(Figure(name=name, value=value, note=note))
        with self._path.open("ab") as out:
            out.write(line + b"\n")

    @contextlib.contextmanager
    def attempt(self, what: str) -> Any:
        """A failure is a figure too: the others are still measured."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.add(f"failed: {what}", 1, text[:600])


def main() -> None:
    """Run one consumer."""
    order = msgspec.json.decode(sys.argv[2], type=Order)
    notes = Notes(Path(order.figures))
    spark = session()
    try:
        _CONSUMERS[sys.argv[1]](spark, order, notes)
    finally:
        spark.stop()


# -- floor and ours, in turn ------------------------------------------------------------------------


def _ours(spark: Any, order: Order, notes: Notes) -> None:
    for name in order.shapes:
        shape = Shape(name)
        rows = order.rows or (FACTS[shape].quick_rows if order.quick else FACTS[shape].rows)
        for partitions in order.partitions:
            first = partitions == order.partitions[0]
            if order.quick and not first and shape is not Shape.NARROW:
                continue  # small tasks cost the same whatever their rows are
            made = frame(spark, shape, rows, partitions)
            total = expected(made, shape)
            for _ in range(_WARM_UPS if first else 0):
                floor.run(made)
            with notes.attempt(f"{name}, {partitions} partitions"):
                _feed(spark, made, shape, rows, total, order, notes, partitions, cached=first)
            if shape is Shape.FLOATS and first:
                with notes.attempt("inference"):
                    _inference(spark, made, rows, notes, order.runs)
                with notes.attempt("error"):
                    notes.add("error", ours.error_known_s(spark, made))
            made.unpersist(blocking=True)
    if Shape.PIXELS.value in order.shapes:
        with notes.attempt("memory over partition size"):
            _partition_sizes(spark, notes)
    if order.train:
        for kind in ("keras", "torch"):
            with notes.attempt(f"training with {kind}"):
                _training(spark, kind, notes, quick=order.quick)
        with notes.attempt("tf.data without a model"):
            for one in _trained(spark, training.steps, quick=order.quick):
                notes.add("tf_dataset: in memory", one["memory"])
                notes.add("tf_dataset: by feed", one["feed"])


def _eight(spark: Any, order: Order, notes: Notes) -> None:
    """Eight ranks on one machine, fed by eight slots of the same executor."""
    shape, partitions, ranks = Shape.FLOATS, 8, 8
    rows = FACTS[shape].quick_rows if order.quick else FACTS[shape].rows
    made = frame(spark, shape, rows, partitions)
    total = expected(made, shape)
    for _ in range(_WARM_UPS):
        floor.run(made)
    cluster, _ = ours.start(spark, ours.consume, {"shape": shape.value}, ranks)
    try:
        for number in range(order.runs + 1):
            seconds, words = floor.run(made)
            assert words == total, f"the floor summed {words}, Spark {total}"
            begin = time.perf_counter()
            report = cluster.train(made, align="none")
            spent = time.perf_counter() - begin
            assert report.rows == rows, f"{report.rows} of {rows} rows"
            if number:  # the first one warms up
                notes.add("eight ranks: floor", rows / seconds)
                notes.add("eight ranks: first epoch", rows / spent)
    finally:
        ours.end(cluster)


def _hosts(spark: Any, order: Order, notes: Notes) -> None:
    """Rows that go as they do between hosts; by TLS, or without it (`benchmarks.spark.wire`)."""
    wire = os.environ["HOWDAH_BENCHMARK_WIRE"]
    for shape in (Shape.FLOATS, Shape.WIDE):
        rows = FACTS[shape].quick_rows if order.quick else FACTS[shape].rows
        made = frame(spark, shape, rows, 2)
        total = expected(made, shape)
        cluster, _ = ours.start(spark, ours.consume, {"shape": shape.value})
        try:
            for number in range(_WARM_UPS + order.runs):
                begin = time.perf_counter()
                report = cluster.train(made, align="none")
                spent = time.perf_counter() - begin
                assert report.rows == rows, f"{report.rows} of {rows} rows"
                if number >= _WARM_UPS:
                    notes.add(f"between hosts: {shape.value}, {wire}", rows / spent)
        finally:
            values, _ = ours.end(cluster)
        for which, ranks in ours.passes(values).items():
            words = sum(one.words for one in ranks) & MASK
            assert words == total, f"run {which[0]}: the feed summed {words}, Spark {total}"
        made.unpersist(blocking=True)


def _feed(
    spark: Any,
    made: Any,
    shape: Shape,
    rows: int,
    total: int,
    order: Order,
    notes: Notes,
    partitions: int,
    *,
    cached: bool,
) -> None:
    cluster, seconds = ours.start(spark, ours.consume, {"shape": shape.value})
    notes.add("start", seconds)
    suffix = f"{shape.value}, {partitions} partitions"
    try:
        for _ in range(_WARM_UPS if cached else 0):
            cluster.train(made, align="none")
        for _ in range(order.runs if cached or not order.quick else 1):
            seconds, words = floor.run(made)
            assert words == total, f"the floor summed {words}, Spark {total}"
            notes.add(f"floor: {suffix}", rows / seconds)
            begin = time.perf_counter()
            report = cluster.train(made, align="none")
            notes.add(f"first epoch: {suffix}", rows / (time.perf_counter() - begin))
            assert report.rows == rows, f"{report.rows} of {rows} rows"
        if cached:
            report = cluster.train(made, align="none", epochs=_EPOCHS, cache=True)
            assert report.rows == rows * _EPOCHS, report
    finally:
        values, seconds = ours.end(cluster)
    notes.add("shutdown", seconds)
    seen = ours.passes(values)
    for which, ranks in seen.items():
        words = sum(one.words for one in ranks) & MASK
        assert words == total, f"run and epoch {which}: the feed summed {words}, Spark {total}"
        if which[1] > 0:
            notes.add(f"later epochs: {suffix}", rows / max(one.seconds for one in ranks))
    # The most of one trainer, its cache of the rows included.
    peak = max(one.peak_mb for ranks in seen.values() for one in ranks)
    notes.add(f"memory: {suffix}", peak)


def _partition_sizes(spark: Any, notes: Notes) -> None:
    """The most memory of a trainer, with nothing cached, by what a partition has."""
    for name, rows in PARTITION_ROWS.items():
        made = frame(spark, Shape.PIXELS, rows * 2, 2)
        cluster, _ = ours.start(spark, ours.consume, {"shape": Shape.PIXELS.value})
        try:
            cluster.train(made, align="none")
        finally:
            values, _ = ours.end(cluster)
        made.unpersist(blocking=True)
        seen = [one for ranks in ours.passes(values).values() for one in ranks]
        assert sum(one.rows for one in seen) == rows * 2
        notes.add(f"{name} partitions", max(one.peak_mb for one in seen))


def _inference(spark: Any, made: Any, rows: int, notes: Notes, runs: int) -> None:
    cluster, _ = ours.start(spark, ours.answer, {"shape": Shape.FLOATS.value})
    try:
        for number in range(runs + 1):
            seconds, _ = floor.run(made)
            begin = time.perf_counter()
            scored = cluster.inference(made, schema="prediction float", keep=False)
            count = scored.groupBy().agg({"prediction": "count"}).collect()[0][0]
            spent = time.perf_counter() - begin
            assert count == rows, f"{count} answers to {rows} rows"
            if number:
                notes.add("inference floor", rows / seconds)
                notes.add("inference", rows / spent)
    finally:
        cluster.stop()


def _training(spark: Any, kind: str, notes: Notes, *, quick: bool) -> None:
    for one in _trained(spark, training.FUNCTIONS[kind], quick=quick):
        notes.add(f"{kind}: in memory", one["memory"])
        # Later epochs come from the cache; the first has Spark's work in it.
        notes.add(f"{kind}: by feed", one["feed"])
        notes.add(f"{kind}: by feed, first epoch", one["first"])


def _trained(spark: Any, function: Any, *, quick: bool) -> list[dict[str, float]]:
    """What the function found in each rank."""
    made = training.rows(spark, 8_000 if quick else 40_000)
    cluster, _ = ours.start(spark, function, {"rows": made.count()})
    try:
        cluster.train(made, epochs=training.EPOCHS, cache=True)
    finally:
        values, _ = ours.end(cluster)
    made.unpersist(blocking=True)
    return [*values.values()]


# -- TensorFlowOnSpark ------------------------------------------------------------------------------


def _peer(spark: Any, order: Order, notes: Notes) -> None:
    clusters = peer.Peer(spark.sparkContext)
    folder = Path(order.folder)
    partitions = order.partitions[0]
    for name in order.shapes:
        shape = Shape(name)
        rows = FACTS[shape].peer_quick_rows if order.quick else FACTS[shape].peer_rows
        made = frame(spark, shape, rows, partitions)
        _peer_feed(clusters, made, shape, rows, partitions, folder, notes)
        if shape is Shape.FLOATS:
            cluster, _ = clusters.start(peer.answer, {"shape": name, "folder": str(folder)})
            begin = time.perf_counter()
            count = cluster.inference(made.rdd).count()
            notes.add("peer inference", rows / (time.perf_counter() - begin))
            assert count == rows
            clusters.stop(cluster)
        made.unpersist(blocking=True)
    if len(order.partitions) > 1:
        # Each partition costs it a second: fewer than ours show it.
        many, rows = (8, 2_000) if order.quick else (order.partitions[-1], 20_000)
        made = frame(spark, Shape.NARROW, rows, many)
        _peer_feed(clusters, made, Shape.NARROW, rows, many, folder, notes)
    made = frame(spark, Shape.FLOATS, 2_000, partitions)
    limit_s = 15.0 if order.quick else 90.0
    notes.add("peer error", _at_most(lambda: clusters.error_known_s(made.rdd, folder), limit_s))


def _peer_feed(
    clusters: Any,
    made: Any,
    shape: Shape,
    rows: int,
    partitions: int,
    folder: Path,
    notes: Notes,
) -> None:
    total = expected(made, shape)
    cluster, seconds = clusters.start(peer.consume, {"shape": shape.value, "folder": str(folder)})
    notes.add("peer start", seconds)
    begin = time.perf_counter()
    cluster.train(made.rdd, 1)
    notes.add(f"peer: {shape.value}, {partitions} partitions", rows / (time.perf_counter() - begin))
    notes.add(f"peer memory: {shape.value}", peer.managers_mb())
    notes.add("peer shutdown", clusters.stop(cluster))
    words = sum(int(one["words"]) for one in peer.collected(folder)) & MASK
    assert words == total, f"TensorFlowOnSpark summed {words}, Spark {total}"


def _at_most(action: Callable[[], float], limit_s: float) -> float:
    """Its figure, or the limit: its feed may wait for ten minutes after an error."""
    import threading

    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(action()), daemon=True)
    thread.start()
    thread.join(limit_s)
    return found[0] if found else limit_s


_CONSUMERS = {"ours": _ours, "eight": _eight, "hosts": _hosts, "peer": _peer}

if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # a thread of the peer's may still wait

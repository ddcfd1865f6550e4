"""A Keras and a torch model, on rows from the feed and on the same rows in memory.

Both in the same process, one after the other, while the other rank does the same.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

EPOCHS = 4
_BATCH = 64
_COLUMNS = ("features", "label")


def rows(spark: Any, count: int) -> Any:
    """784 floats and a label, cached."""
    from pyspark.sql import functions

    from benchmarks.spark.shapes import Shape, frame

    plain = frame(spark, Shape.FLOATS, count, 2)
    made = plain.withColumn("label", (functions.monotonically_increasing_id() % 10)).persist()
    made.count()
    plain.unpersist(blocking=True)
    return made


def _memory(count: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(3)
    return chance.random((count, 784), np.float32), np.arange(count, dtype=np.int64) % 10


def _rates(seconds: list[tuple[int, float]]) -> list[float]:
    return [steps / spent for steps, spent in seconds]


def keras(args: Any, ctx: Any) -> dict[str, float]:
    """Training function: steps per second by feed (first epoch; later ones) and in memory."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    class Clock(tf.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.spent: list[tuple[int, float]] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._begin, self._steps = time.perf_counter(), 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._steps += 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.spent.append((self._steps, time.perf_counter() - self._begin))

    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((784,)),
            layers.Dense(512, "relu"),
            layers.Dense(256, "relu"),
            layers.Dense(10),
        ]
    )
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = _memory(args["rows"] // 2)
    model.fit(x[: _BATCH * 4], y[: _BATCH * 4], batch_size=_BATCH, verbose=0)
    fed, held = Clock(), Clock()
    data = ctx.feed("train").tf_dataset(_BATCH, columns="features", label="label", drop_last=True)
    model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[fed])
    model.fit(x, y, batch_size=_BATCH, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[held])
    return _found(fed.spent, held.spent)


def torch(args: Any, ctx: Any) -> dict[str, float]:
    """As `keras`."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.01)

    def epoch(batches: Any) -> tuple[int, float]:
        begin, steps = time.perf_counter(), 0
        for x, y in batches:
            optimizer.zero_grad()
            loss(model(x), y.long()).backward()
            optimizer.step()
            steps += 1
        return steps, time.perf_counter() - begin

    x, y = map(torch.from_numpy, _memory(args["rows"] // 2))

    def held() -> Any:
        for begin in range(0, len(x) - _BATCH + 1, _BATCH):
            yield x[begin : begin + _BATCH], y[begin : begin + _BATCH]

    epoch([(x[:_BATCH], y[:_BATCH])] * 4)
    loader = ctx.feed("train").torch_loader(
        _BATCH, columns="features", label="label", drop_last=True
    )
    by_feed = [epoch(loader) for _ in range(EPOCHS)]
    return _found(by_feed, [epoch(held()) for _ in range(EPOCHS)])


def steps(args: Any, ctx: Any) -> dict[str, float]:
    """Training function: milliseconds a step of a dataset takes when nothing is trained, by feed and in memory."""
    import tensorflow as tf

    def epoch(data: Any) -> float:
        begin = time.perf_counter()
        count = sum(1 for _ in data)
        return 1e3 * (time.perf_counter() - begin) / count

    fed = ctx.feed("train").tf_dataset(_BATCH, columns="features", label="label", drop_last=True)
    by_feed = [epoch(fed) for _ in range(EPOCHS)]
    held = tf.data.Dataset.from_tensor_slices(_memory(args["rows"] // 2)).batch(_BATCH)
    in_memory = [epoch(held) for _ in range(EPOCHS)]
    return {"feed": float(np.median(by_feed[1:])), "memory": float(np.median(in_memory[1:]))}


def _found(fed: list[tuple[int, float]], held: list[tuple[int, float]]) -> dict[str, float]:
    assert fed[0][0] > 0, "no batches came"
    return {
        "first": _rates(fed[:1])[0],
        "feed": float(np.median(_rates(fed[1:]))),
        "memory": float(np.median(_rates(held[1:]))),
    }


FUNCTIONS = {"keras": keras, "torch": torch}

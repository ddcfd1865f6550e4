"""Keras, fed by Spark: two workers train one model with MultiWorkerMirroredStrategy.

    python examples/spark/keras_feed.py

`fit` of Keras 3 fails under this strategy, so the workers use tf_keras (TF_USE_LEGACY_KERAS=1).
"""

import argparse

import digits_frames

from howdah.spark import Cluster


def train(args, ctx):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rows = ctx.feed("train").tf_dataset(
        args["batch"], columns="image", label="label", shapes={"image": (64,)}, drop_last=True
    )
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((64,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(0.005),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    history = model.fit(rows, epochs=args["epochs"], verbose=0)
    for epoch, loss in enumerate(history.history["loss"], 1):
        ctx.report(step=epoch, loss=loss)
    return [value.tolist() for value in model.get_weights()] if ctx.is_chief else None


def accuracy(weights, images, labels):
    import numpy as np

    first, bias, second, last = map(np.array, weights)
    guesses = (np.maximum(images @ first + bias, 0) @ second + last).argmax(1)
    return float((guesses == labels).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    spark = digits_frames.session("keras-feed")
    rows, _ = digits_frames.frames(spark)
    with Cluster.start(
        spark,
        train,
        {"epochs": options.epochs, "batch": 30},
        workers=options.workers,
        framework="tensorflow",
        env={"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
    ) as cluster:
        report = cluster.train(rows, epochs=options.epochs, cache=True, shuffle=1)
        print(f"fed {report.rows} rows, dropped {report.dropped}")
        weights = cluster.results()[0]
    _, (images, labels) = digits_frames.arrays()
    print(f"final accuracy {accuracy(weights, images, labels):.4f}")
    spark.stop()


if __name__ == "__main__":
    main()

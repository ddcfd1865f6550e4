# ruff: noqa: SIM115
"""Keras that reads its own data: InputMode.TENSORFLOW over CSV files, one chief and a worker."""

import argparse

from pyspark import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import tensorflow as tf
    from tensorflowonspark import compat

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()

    def parse(line):
        values = tf.io.decode_csv(line, [[0.0]] * 65)
        return tf.stack(values[1:]), tf.cast(values[0], tf.int64)

    files = tf.data.Dataset.list_files(ctx.absolute_path(args.images_labels) + "/part-*")
    ds = tf.data.TextLineDataset(files).map(parse)
    ds = ds.shard(ctx.num_workers, ctx.task_index if ctx.job_name == "worker" else 1)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    ds = ds.shuffle(1000, seed=1).repeat(args.epochs).batch(args.batch_size).with_options(options)

    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),  # pyright: ignore[reportCallIssue]
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(
            loss="sparse_categorical_crossentropy", optimizer=tf.keras.optimizers.Adam(0.01)
        )
    model.fit(ds, epochs=args.epochs, steps_per_epoch=1440 // args.batch_size // 2, verbose=0)

    def read(folder):
        found = tf.data.TextLineDataset(tf.data.Dataset.list_files(folder + "/part-*"))
        return next(iter(found.map(parse).batch(1000)))

    images, labels = read(ctx.absolute_path(args.test))
    guesses = model(images).numpy().argmax(1)
    if ctx.job_name == "chief":
        with open(args.output, "w") as file:
            file.write(f"{float((guesses == labels.numpy()).mean()):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images_labels")
    parser.add_argument("--test")
    parser.add_argument("--output")
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()
    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        input_mode=TFCluster.InputMode.TENSORFLOW,
        master_node="chief",
    )
    cluster.shutdown()
    print("accuracy " + open(args.output).read())

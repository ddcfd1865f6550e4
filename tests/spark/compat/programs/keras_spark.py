"""Keras fed by Spark: InputMode.SPARK with MultiWorkerMirroredStrategy, and export of the model."""

import argparse

from pyspark import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf
    from tensorflowonspark import TFNode, compat

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    tf_feed = TFNode.DataFeed(ctx.mgr)

    def rdd_generator():
        while not tf_feed.should_stop():
            batch = tf_feed.next_batch(1)
            if len(batch) > 0:
                example = batch[0]
                image = np.array(example[0]).astype(np.float32)
                label = np.array(example[1]).astype(np.int64).reshape((1,))
                yield (image, label)
            else:
                return

    ds = tf.data.Dataset.from_generator(
        rdd_generator, (tf.float32, tf.int64), (tf.TensorShape([64]), tf.TensorShape([1]))
    )
    ds = ds.batch(args.batch_size)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    ds = ds.with_options(options)

    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),  # pyright: ignore[reportCallIssue]
                tf.keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(
            loss=tf.keras.losses.sparse_categorical_crossentropy,
            optimizer=tf.keras.optimizers.Adam(0.01),
            metrics=["accuracy"],
        )

    # Partitions may be uneven: stop at 90 % of the steps.
    steps_per_epoch = 1440 / args.batch_size
    max_steps = steps_per_epoch / ctx.num_workers * 0.9
    model.fit(x=ds, epochs=args.epochs, steps_per_epoch=int(max_steps), verbose=0)
    tf_feed.terminate()

    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images_labels", help="folder of CSV")
    parser.add_argument("--export_dir")
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()

    def parse(ln):
        vec = [float(x) for x in ln.split(",")]
        return (vec[1:], int(vec[0]))

    images_labels = sc.textFile(args.images_labels).map(parse)
    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        tensorboard=False,
        input_mode=TFCluster.InputMode.SPARK,
        master_node="chief",
    )
    cluster.train(images_labels, args.epochs)
    cluster.shutdown(grace_secs=1)
    print("nodes " + ",".join(node["job_name"] for node in cluster.cluster_info))

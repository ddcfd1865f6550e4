# ruff: noqa: PTH207, SIM115
"""TFRecords that Spark wrote, read by tf.data in InputMode.TENSORFLOW; each worker alone."""

import argparse
import glob

from pyspark import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import tensorflow as tf

    feature_def = {
        "label": tf.io.FixedLenFeature([], tf.int64),
        "image": tf.io.FixedLenFeature([64], tf.float32),
    }

    def parse(serialized):
        example = tf.io.parse_single_example(serialized, feature_def)
        return example["image"], example["label"]

    files = sorted(args.files)[ctx.task_index :: ctx.num_workers]
    ds = tf.data.TFRecordDataset(files).map(parse).batch(32)
    sums = tf.zeros([10, 64])
    counts = tf.zeros([10])
    for images, labels in ds:
        one_hot = tf.one_hot(labels, 10)
        sums += tf.matmul(one_hot, images, transpose_a=True)
        counts += tf.reduce_sum(one_hot, 0)
    with open(f"{args.output}-{ctx.task_index}", "w") as file:
        file.write(str(int(tf.reduce_sum(counts))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--images_labels", help="folder of TFRecords")
    parser.add_argument("--output")
    args = parser.parse_args()
    args.files = glob.glob(args.images_labels + "/part-*")

    sc = SparkContext.getOrCreate()
    cluster = TFCluster.run(
        sc, main_fun, args, args.cluster_size, 0, input_mode=TFCluster.InputMode.TENSORFLOW
    )
    cluster.shutdown()
    rows = [int(open(f"{args.output}-{worker}").read()) for worker in range(args.cluster_size)]
    print(f"read {sum(rows)} rows by {len(rows)} workers")

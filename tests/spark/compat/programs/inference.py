"""Scoring an RDD with the cluster: one result a row, in order."""

import argparse

from pyspark import SparkContext
from tensorflowonspark import TFCluster, TFNode


def map_fun(args, ctx):
    import numpy as np

    weights = np.load(args.weights)
    tf_feed = TFNode.DataFeed(ctx.mgr, False)
    while not tf_feed.should_stop():
        batch = tf_feed.next_batch(args.batch_size)
        if len(batch) > 0:
            images = np.array([image for image, _ in batch])
            distances = ((images[:, None] - weights[None]) ** 2).sum(2)
            labels = [label for _, label in batch]
            tf_feed.batch_results(list(zip(labels, distances.argmin(1).tolist())))


if __name__ == "__main__":
    import numpy as np
    from sklearn.datasets import load_digits

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--weights")
    parser.add_argument("--output")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(labels))
    images, labels = images[mixed], labels[mixed]
    np.save(args.weights, np.array([images[:1440][labels[:1440] == n].mean(0) for n in range(10)]))

    sc = SparkContext.getOrCreate()
    rows = sc.parallelize([(i.tolist(), int(n)) for i, n in zip(images[1440:], labels[1440:])], 3)
    cluster = TFCluster.run(
        sc, map_fun, args, args.cluster_size, 0, input_mode=TFCluster.InputMode.SPARK
    )
    results = cluster.inference(rows)
    results.map(lambda pair: f"{pair[0]} {pair[1]}").saveAsTextFile(args.output)
    cluster.shutdown()

    pairs = [line.split() for line in sc.textFile(args.output).collect()]
    right = sum(label == guess for label, guess in pairs)
    print(f"scored {len(pairs)} accuracy {right / len(pairs):.4f}")

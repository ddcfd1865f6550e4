"""Scoring with a live cluster, and independent instances with their values.

    python examples/spark/inference.py

Answers come back as a DataFrame: all rows, in order, with their columns, each answered once however
often Spark runs a task again.
"""

import digits_frames

from howdah.spark import Cluster, parallel


def classify(args, ctx):
    """Answers each image with its class, by the nearest mean image."""
    import numpy as np

    means = np.array(args["means"], np.float32)
    feed = ctx.feed("inference")
    for batch in feed.batches(256):
        distances = ((batch["image"][:, None, :] - means[None]) ** 2).sum(2)
        feed.results({"prediction": distances.argmin(1).astype("int64")})


def count(args, ctx):
    """One of several independent instances: how many digits of its class there are."""
    from sklearn.datasets import load_digits

    return int((load_digits().target == ctx.index).sum())


def main():
    spark = digits_frames.session("inference")
    (images, labels), _ = digits_frames.arrays()
    means = [images[labels == digit].mean(0).tolist() for digit in range(10)]
    _, test = digits_frames.frames(spark)
    with Cluster.start(spark, classify, {"means": means}, workers=2) as cluster:
        scored = cluster.inference(test, schema="prediction bigint")
        right = scored.where("prediction = label").count()
        print(f"final accuracy {right / test.count():.4f} columns {','.join(scored.columns)}")
    print(f"zeros and ones: {parallel(spark, count, 2, args=[None])}")
    spark.stop()


if __name__ == "__main__":
    main()

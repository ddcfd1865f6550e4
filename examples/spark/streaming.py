"""Structured Streaming feeds a cluster that stays: each batch of the stream is trained on as it comes.

    python examples/spark/streaming.py

The stream here is a folder of Parquet files; Kafka or a table works the same way.
"""

import tempfile
from pathlib import Path

import digits_frames

from howdah.spark import Cluster


def train(args, ctx):
    """Softmax regression, one step a batch, for as long as rows come."""
    import numpy as np

    weights = np.zeros((65, 10), np.float32)
    seen = 0
    for batch in ctx.feed("train").batches(args["batch"]):
        x = np.hstack([batch["image"], np.ones((len(batch["label"]), 1), np.float32)])
        scores = np.exp((logits := x @ weights) - logits.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(len(x)), batch["label"]] -= 1.0
        weights -= 0.5 * (x.T @ scores) / len(x)
        seen += len(x)
    ctx.report(step=seen)
    return seen, weights


def main():
    import numpy as np

    spark = digits_frames.session("streaming")
    rows, _ = digits_frames.frames(spark)
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder) / "arriving")
        for part in rows.randomSplit([1.0, 1.0, 1.0], seed=1):
            part.coalesce(1).write.mode("append").parquet(source)
        stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
        with Cluster.start(spark, train, {"batch": 8}, workers=1) as cluster:
            # All that is there now, in several micro-batches; without it: until stream.stop().
            fed = cluster.train_stream(stream.parquet(source), trigger={"availableNow": True})
            print(f"{fed.wait().micro_batches} micro-batches")
            seen, weights = cluster.results()[0]
    _, (images, labels) = digits_frames.arrays()
    guesses = (np.hstack([images, np.ones((len(images), 1))]) @ weights).argmax(1)
    print(f"trained on {seen} rows of the stream")
    print(f"final accuracy {float((guesses == labels).mean()):.4f}")
    spark.stop()


if __name__ == "__main__":
    main()

# ruff: noqa: SIM115
"""A training function that has had enough ends the stream that feeds it."""

import argparse

from pyspark import SparkContext
from pyspark.streaming import StreamingContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    feed = ctx.get_data_feed()
    rows = 0
    while not feed.should_stop() and rows < args.rows:
        rows += len(feed.next_batch(10))
    feed.terminate()
    with open(args.output, "w") as file:
        file.write(f"rows {rows}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--output")
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()
    ssc = StreamingContext(sc, 1)
    stream = ssc.queueStream([sc.parallelize(range(100), 2) for _ in range(100)])
    cluster = TFCluster.run(sc, main_fun, args, 1, 0, input_mode=TFCluster.InputMode.SPARK)
    cluster.train(stream)
    ssc.start()
    cluster.shutdown(ssc)
    print(open(args.output).read())

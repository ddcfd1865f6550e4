# ruff: noqa: SIM115
"""DStreams feed a cluster with a parameter server until the stream is stopped."""

import argparse
import threading

from pyspark import SparkContext
from pyspark.streaming import StreamingContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import time

    if ctx.job_name == "ps":
        while True:
            time.sleep(0.1)

    feed = ctx.get_data_feed()
    total = rows = 0
    while not feed.should_stop():
        batch = feed.next_batch(10)
        rows += len(batch)
        total += sum(batch)
    with open(args.output, "w") as file:
        file.write(f"rows {rows} total {total}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--output")
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()
    ssc = StreamingContext(sc, 1)
    stream = ssc.queueStream([sc.parallelize(range(i * 100, i * 100 + 100), 2) for i in range(3)])
    cluster = TFCluster.run(
        sc, main_fun, args, args.cluster_size, 1, input_mode=TFCluster.InputMode.SPARK
    )
    cluster.train(stream)
    left = [3]

    def count_down(rdd):
        left[0] -= 1
        if left[0] == 0:
            threading.Thread(target=lambda: ssc.stop(False, True)).start()

    stream.foreachRDD(count_down)
    ssc.start()
    cluster.shutdown(ssc)
    print(open(args.output).read())

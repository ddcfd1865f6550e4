"""Writes the digits as CSV and as TFRecords, as the programs beside this one read them."""

import argparse

from pyspark import SparkContext
from pyspark.sql import Row, SparkSession
from tensorflowonspark import dfutil


def to_csv(row):
    return ",".join([str(row.label), *[str(pixel) for pixel in row.image]])


if __name__ == "__main__":
    import numpy as np
    from sklearn.datasets import load_digits

    parser = argparse.ArgumentParser()
    parser.add_argument("--output", help="folder to write into")
    parser.add_argument("--num_partitions", type=int, default=4)
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()
    spark = SparkSession(sc)
    images, labels = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(labels))
    images, labels = images[mixed], labels[mixed]
    rows = [Row(image=i.tolist(), label=int(n)) for i, n in zip(images / 16.0, labels)]
    train = spark.createDataFrame(sc.parallelize(rows[:1440], args.num_partitions))
    test = spark.createDataFrame(sc.parallelize(rows[1440:], args.num_partitions))

    train.rdd.map(to_csv).saveAsTextFile(args.output + "/csv/train")
    test.rdd.map(to_csv).saveAsTextFile(args.output + "/csv/test")
    dfutil.saveAsTFRecords(train, args.output + "/tfr/train")
    dfutil.saveAsTFRecords(test, args.output + "/tfr/test")

    loaded = dfutil.loadTFRecords(sc, args.output + "/tfr/test")
    print(f"loaded {loaded.count()} of {test.count()} known {dfutil.isLoadedDF(loaded)}")

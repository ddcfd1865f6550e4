"""scikit-learn's digits as DataFrames: 8x8 images of ten classes, 1440 rows to train with, 357 to test.

Only the driver program imports this; training functions need nothing of it.
"""

import numpy as np


def arrays():
    """(images, labels) to train with, (images, labels) to test with."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(y))
    x, y = (x[mixed] / 16.0).astype("float32"), y[mixed].astype("int64")
    return (x[357:], y[357:]), (x[:357], y[:357])


def frames(spark, partitions=4):
    """DataFrames of ``image array<float>, label bigint`` to train with and to test with."""
    return tuple(_frame(spark, x, y, partitions) for x, y in arrays())


def _frame(spark, x, y, partitions):
    rows = [(image.tolist(), int(label)) for image, label in zip(x, y)]
    made = spark.createDataFrame(rows, "image array<float>, label bigint")
    return made.repartition(partitions)


def session(name):
    """A session; spark-submit and SPARK_REMOTE say where, two local cores if nobody does."""
    import json
    import os

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    settings = json.loads(os.environ.get("SPARK_SETTINGS", "{}"))
    if not settings and "SPARK_REMOTE" not in os.environ:
        builder = builder.config("spark.master", os.environ.get("MASTER", "local[2]"))
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

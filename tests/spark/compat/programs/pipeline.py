"""A Spark ML pipeline: TFEstimator trains, TFModel scores."""

import argparse

from pyspark import SparkContext
from pyspark.sql import SparkSession
from tensorflowonspark import dfutil
from tensorflowonspark.pipeline import TFEstimator


def train_fun(args, ctx):
    import tensorflow as tf
    from tensorflowonspark import compat

    feed = ctx.get_data_feed(input_mapping=args.input_mapping)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),  # pyright: ignore[reportCallIssue]
            tf.keras.layers.Dense(10, activation="softmax", name="prob"),
        ]
    )
    model.compile(loss="sparse_categorical_crossentropy", optimizer=tf.keras.optimizers.Adam(0.01))
    while not feed.should_stop():
        batch = feed.next_batch(args.batch_size)
        if batch["image"]:
            model.train_on_batch(tf.constant(batch["image"]), tf.constant(batch["label"]))
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images_labels", help="folder of TFRecords")
    parser.add_argument("--test")
    parser.add_argument("--export_dir")
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()
    spark = SparkSession(sc)
    df = dfutil.loadTFRecords(sc, args.images_labels)
    estimator = (
        TFEstimator(train_fun, args)
        .setInputMapping({"image": "image", "label": "label"})
        .setExportDir(args.export_dir)
        .setClusterSize(1)
        .setMasterNode("chief")
        .setEpochs(4)
        .setBatchSize(32)
        .setGraceSecs(5)
    )
    model = estimator.fit(df)

    test = dfutil.loadTFRecords(sc, args.test)
    signature = "serving_default"
    (input_name, output_name) = ("dense_input", "prob")
    model.setTagSet("serve")
    model.setSignatureDefKey(signature)
    model.setInputMapping({"image": input_name})
    model.setOutputMapping({output_name: "prob"})
    model.setKeepColumns(True)
    rows = model.transform(test).collect()
    right = sum(max(range(10), key=row.prob.__getitem__) == row.label for row in rows)
    print(f"accuracy {right / len(rows):.4f}")

"""Each Spark task scores its own share of the files with the exported model: TFParallel."""

import argparse

from pyspark import SparkContext
from tensorflowonspark import TFParallel


def inference(args, ctx):
    import tensorflow as tf

    files = sorted(tf.io.gfile.glob(args.images_labels + "/part-*"))
    ds = tf.data.TextLineDataset(files).shard(ctx.num_workers, ctx.worker_num)
    ds = ds.map(lambda line: tf.stack(tf.io.decode_csv(line, [[0.0]] * 65))).batch(100)

    saved_model = tf.saved_model.load(args.export_dir)
    predict = saved_model.signatures["serving_default"]
    (output,) = predict.structured_outputs
    (name,) = predict.structured_input_signature[1]

    tf.io.gfile.makedirs(args.output)
    with tf.io.gfile.GFile(f"{args.output}/part-{ctx.worker_num:05d}", "w") as file:
        for values in ds:
            guesses = predict(**{name: values[:, 1:]})[output].numpy().argmax(1)
            for label, guess in zip(values[:, 0].numpy(), guesses):
                file.write(f"{int(label)} {int(guess)}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--images_labels")
    parser.add_argument("--export_dir")
    parser.add_argument("--output")
    args = parser.parse_args()

    sc = SparkContext.getOrCreate()
    TFParallel.run(sc, inference, args, args.cluster_size)
    pairs = [line.split() for line in sc.textFile(args.output).collect()]
    right = sum(label == guess for label, guess in pairs)
    print(f"scored {len(pairs)} accuracy {right / len(pairs):.4f}")

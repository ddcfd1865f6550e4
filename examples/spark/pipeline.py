"""Training as a stage of a Spark ML pipeline; the model is saved and loaded with it.

python examples/spark/pipeline.py
"""

import tempfile

import digits_frames

from howdah.spark.pipeline import Estimator


def train(args, ctx):
    """Softmax regression; the ranks share their gradients by torch.distributed."""
    import numpy as np
    import torch

    torch.distributed.init_process_group("gloo")
    weights = np.zeros((64, 10), np.float32)
    for batch in ctx.feed("train").batches(args.batch_size, drop_last=True):
        images, labels = batch["image"], batch["label"]
        scores = np.exp((logits := images @ weights) - logits.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(len(labels)), labels] -= 1.0
        gradient = torch.from_numpy(images.T @ scores / len(labels))
        torch.distributed.all_reduce(gradient)
        weights -= gradient.numpy() / ctx.world_size
    torch.distributed.destroy_process_group()
    return weights


def model_of(weights):
    """What scores: a function of a batch."""
    return lambda batch: {"class": (batch["image"] @ weights).argmax(1)}


def main():
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.sql import functions as F

    spark = digits_frames.session("pipeline")
    rows, test = digits_frames.frames(spark)
    estimator = Estimator(
        train,
        to_model=model_of,
        framework="pytorch",
        workers=2,
        epochs=10,
        batch_size=20,
        cache=True,
        input_mapping={"image": "image"},
        label_mapping={"label": "label"},
        output_mapping={"class": "prediction"},
        output_schema="prediction double",
    )
    fitted = Pipeline(stages=[estimator]).fit(rows)
    with tempfile.TemporaryDirectory() as folder:
        fitted.write().overwrite().save(folder)
        scored = PipelineModel.load(folder).transform(test)
        evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
        accuracy = evaluator.evaluate(scored.withColumn("label", F.col("label").cast("double")))
    print(f"final accuracy {accuracy:.4f} columns {','.join(scored.columns)}")
    spark.stop()


if __name__ == "__main__":
    main()

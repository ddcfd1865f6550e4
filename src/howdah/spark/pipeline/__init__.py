"""Training functions and saved models as stages of Spark ML pipelines.

    from howdah.spark.pipeline import Estimator

    estimator = Estimator(train, workers=2, epochs=3, input_mapping={"features": "x"},
                          label_mapping={"label": "y"}, output_mapping={"y": "prediction"})
    model = Pipeline(stages=[assembler, estimator]).fit(train_df)

`Estimator` runs a cluster (`howdah.spark.Cluster`) in `fit`; `Model` scores without one
(`howdah.spark.scoring`). Both are saved and loaded by Spark ML's own readers and writers.
"""

from __future__ import annotations

from howdah.spark.pipeline.estimator import Estimator as Estimator
from howdah.spark.pipeline.loops import keras_training as keras_training
from howdah.spark.pipeline.loops import torch_training as torch_training
from howdah.spark.pipeline.model import Model as Model
from howdah.spark.pipeline.model import Summary as Summary

__all__ = ["Estimator", "Model", "Summary", "keras_training", "torch_training"]

"""Scoring DataFrames with saved models and plain functions; no cluster is needed.

`predictors` says what can predict, `frames` puts it on a DataFrame, `udf` on
columns, `worker` is what runs in Spark's
Python workers, `command` reads, scores and writes files.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.spark.errors import ScoringError as ScoringError
    from howdah.spark.scoring.frames import score as score
    from howdah.spark.scoring.predictors import Function as Function
    from howdah.spark.scoring.predictors import Keras as Keras
    from howdah.spark.scoring.predictors import Make as Make
    from howdah.spark.scoring.predictors import Predictor as Predictor
    from howdah.spark.scoring.predictors import SavedModel as SavedModel
    from howdah.spark.scoring.predictors import Torch as Torch
    from howdah.spark.scoring.predictors import predictor as predictor
    from howdah.spark.scoring.udf import predict_udf as predict_udf

_PREDICTORS = ("Function", "Keras", "Make", "Predictor", "SavedModel", "Torch", "predictor")
_HOMES = {
    **dict.fromkeys(_PREDICTORS, "howdah.spark.scoring.predictors"),
    "ScoringError": "howdah.spark.errors",
    "predict_udf": "howdah.spark.scoring.udf",
    "score": "howdah.spark.scoring.frames",
}

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

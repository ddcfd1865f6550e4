"""Scoring DataFrames with saved models and plain functions; no cluster is needed.

`predictors` says what can predict, `frames` puts it on a DataFrame, `udf` on
columns, `worker` is what runs in Spark's
Python workers, `command` reads, scores and writes files.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.spark.errors import ScoringError
    from howdah.spark.scoring.frames import score
    from howdah.spark.scoring.predictors import (
        Function,
        Keras,
        Make,
        Predictor,
        SavedModel,
        Torch,
        predictor,
    )
    from howdah.spark.scoring.udf import predict_udf

_HOMES = {
    "howdah.spark.errors": ("ScoringError",),
    "howdah.spark.scoring.predictors": (
        "Function",
        "Keras",
        "Make",
        "Predictor",
        "SavedModel",
        "Torch",
        "predictor",
    ),
    "howdah.spark.scoring.frames": ("score",),
    "howdah.spark.scoring.udf": ("predict_udf",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Function",
    "Keras",
    "Make",
    "Predictor",
    "SavedModel",
    "ScoringError",
    "Torch",
    "predict_udf",
    "predictor",
    "score",
]


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""TensorFlowOnSpark's ``compat``: what differs between versions of TensorFlow."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
"""With 1 in it TensorFlow's Keras is tf_keras (Keras 2), with 0 or without it Keras 3."""


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Save a Keras model as a SavedModel, called by all processes of a strategy together.

    All have to take part (saving synchronised variables is collective), but only the chief's is
    kept: the others write to a folder that is removed at once. Models of Keras 3 and of tf_keras.
    """
    if is_chief:
        _save(model, export_dir)
        return
    with tempfile.TemporaryDirectory(prefix="worker_model-") as thrown_away:
        _save(model, str(Path(thrown_away) / "model"))


def _save(model: Any, folder: str) -> None:
    if hasattr(model, "export") and not _is_legacy(model):
        model.export(folder)  # Keras 3: ``save`` writes .keras files only
    else:
        model.save(folder, save_format="tf")


def _is_legacy(model: Any) -> bool:
    return any(kind.__module__.startswith("tf_keras") for kind in type(model).__mro__)


def disable_auto_shard(options: Any) -> None:
    """Let each process keep all rows of its tf.data pipeline: they are its own share already."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    """Whether TensorFlow sees a GPU."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU")) > 0


def legacy_keras() -> dict[str, str]:
    """The variable by which training processes take the Keras that this process has said, or else
    tf_keras where it is installed, for programs written for Keras 2: ``fit`` of Keras 3 fails under
    MultiWorkerMirroredStrategy."""
    if LEGACY_KERAS in os.environ:
        return {LEGACY_KERAS: os.environ[LEGACY_KERAS]}
    return {LEGACY_KERAS: "1"} if importlib.util.find_spec("tf_keras") is not None else {}

"""TensorFlowOnSpark's ``compat``: what differs between versions of TensorFlow."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any


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


def legacy_keras(env: dict[str, str] | os._Environ[str] = os.environ) -> dict[str, str]:
    """Variables that make programs written for Keras 2 run: tf_keras, where it is installed.

    Keras 3's ``fit`` fails under MultiWorkerMirroredStrategy. A value that is set already stays.
    """
    import importlib.util

    if "TF_USE_LEGACY_KERAS" in env or importlib.util.find_spec("tf_keras") is None:
        return {}
    return {"TF_USE_LEGACY_KERAS": "1"}

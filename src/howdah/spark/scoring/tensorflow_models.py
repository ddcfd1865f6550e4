"""TensorFlow and Keras models in memory. Imported in workers, where a model is loaded."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np

from howdah.spark.errors import ScoringError
from howdah.spark.scoring.columns import Batch, Tensor


class LoadedSavedModel:
    """One signature of a SavedModel."""

    def __init__(self, path: str, signature: str, tags: tuple[str, ...]) -> None:
        tf = _tensorflow()
        try:
            self._model = tf.saved_model.load(path, tags=list(tags))
        except (OSError, RuntimeError) as error:
            raise ScoringError(
                f"{path} with the tags {', '.join(tags)} cannot be loaded as a SavedModel: {error}"
            ) from error
        if signature not in self._model.signatures:
            raise ScoringError(
                f"{path} has no signature {signature!r}; it has "
                f"{', '.join(map(repr, sorted(self._model.signatures))) or 'none'}"
            )
        self._call = self._model.signatures[signature]
        self._constant = tf.constant
        taken = self._call.structured_input_signature[1]
        self.inputs: tuple[Tensor, ...] = tuple(_tensor(name, spec) for name, spec in taken.items())
        given = self._call.structured_outputs
        self.outputs: tuple[Tensor, ...] = tuple(
            _tensor(name, spec) for name, spec in given.items()
        )

    def __call__(self, batch: Batch, /) -> Any:
        return self._call(**{name: self._constant(value) for name, value in batch.items()})


class LoadedKeras:
    """A Keras model; called without ``predict``'s own batching and progress bar."""

    def __init__(self, path: str, *, legacy: bool, safe: bool) -> None:
        _tensorflow()
        if legacy:
            import tf_keras as keras

            options = {}
        else:
            import keras

            options = {"safe_mode": safe}
        self._model: Any = keras.models.load_model(path, compile=False, **options)
        self.inputs: tuple[Tensor, ...] = tuple(
            Tensor(_short(tensor.name), _name(tensor.dtype), tuple(tensor.shape[1:]))
            for tensor in self._model.inputs or ()
        )
        # Keras 3's Sequential does not tell its output's name, which is its last layer's.
        names: list[str] = getattr(self._model, "output_names", None) or [
            self._model.layers[-1].name
        ]
        self.outputs: tuple[Tensor, ...] = tuple(
            Tensor(name, _name(tensor.dtype), tuple(tensor.shape[1:]))
            for name, tensor in zip(names, self._model.outputs or ())
        )

    def __call__(self, batch: Batch, /) -> Any:
        if len(batch) == 1:
            return self._model.predict_on_batch(next(iter(batch.values())))
        return self._model.predict_on_batch([batch[tensor.name] for tensor in self.inputs])


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    for device in tf.config.list_physical_devices("GPU"):
        # Several workers share a GPU: the first must not take all of its memory.
        with contextlib.suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(device, True)
    return tf


def _tensor(name: str, spec: Any) -> Tensor:
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list()[1:])
    return Tensor(name, _name(spec.dtype), shape)


def _name(dtype: Any) -> str:
    name = dtype if isinstance(dtype, str) else dtype.name
    if name in ("string", "bfloat16"):
        return ""
    return np.dtype(name).name


def _short(name: str) -> str:
    """``features`` of ``features:0`` or ``dense/Softmax``."""
    return name.partition(":")[0].rpartition("/")[2]

"""What can predict: saved models of TensorFlow, Keras and PyTorch, and plain functions.

These are descriptions, small and quick to make: nothing of a framework is imported before `load`,
which is called once in each of Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Protocol

import msgspec

from howdah.spark.errors import ScoringError
from howdah.spark.feed.arrow.answers import by_name
from howdah.spark.scoring.columns import Batch, Tensor


class Loaded(Protocol):
    """A model in memory."""

    @property
    def inputs(self) -> tuple[Tensor, ...] | None:
        """What it takes; None: whatever it is given."""
        ...

    @property
    def outputs(self) -> tuple[Tensor, ...] | None:
        """What it answers; None: only a call shows."""
        ...

    def __call__(self, batch: Batch, /) -> Any:
        """One array, several, or arrays by name; each has a row for each row of the batch."""
        ...


class Predictor(msgspec.Struct, frozen=True):
    """Base of all. ``path`` is empty where there are no files."""

    path: str = ""

    def load(self, path: str) -> Loaded:
        """The model, from its files at a local path."""
        raise NotImplementedError


class SavedModel(Predictor, frozen=True):
    """A folder written by ``tf.saved_model.save`` or ``model.export``."""

    signature: str = "serving_default"
    tags: tuple[str, ...] = ("serve",)

    def load(self, path: str) -> Loaded:
        from howdah.spark.scoring.tensorflow_models import LoadedSavedModel

        return LoadedSavedModel(path, self.signature, self.tags)


class Keras(Predictor, frozen=True):
    """A file written by ``model.save``: ``.keras``, or the older ``.h5``."""

    legacy: bool = False
    """Load it by ``tf_keras`` (Keras 2), not by ``keras``."""
    safe: bool = True
    """Refuse files with pickled functions (``Lambda`` layers): loading those runs code of theirs."""

    def load(self, path: str) -> Loaded:
        from howdah.spark.scoring.tensorflow_models import LoadedKeras

        return LoadedKeras(path, legacy=self.legacy, safe=self.safe)


class Torch(Predictor, frozen=True):
    """A file of PyTorch: TorchScript, ``torch.export.save`` (``.pt2``), or the state dict of the
    module that ``factory()`` makes. Never a pickled module: loading one runs code of its."""

    factory: Callable[[], Any] | None = None
    device: str = "auto"
    """``auto`` is a GPU where there is one."""

    def load(self, path: str) -> Loaded:
        from howdah.spark.scoring.torch_models import LoadedTorch

        return LoadedTorch(path, self.factory, self.device)


class Function(Predictor, frozen=True):
    """A function of a batch. It is pickled by cloudpickle, with what it refers to."""

    function: Callable[[Batch], Any] | None = None

    def load(self, path: str) -> Loaded:
        assert self.function is not None
        return LoadedFunction(self.function)


class Make(Predictor, frozen=True):
    """A function that makes the function, once in each Python worker: ``make()``, or ``make(path)``
    with the local copy of the files where a path is given."""

    make: Callable[..., Callable[[Batch], Any]] | None = None

    def load(self, path: str) -> Loaded:
        assert self.make is not None
        return LoadedFunction(self.make(path) if self.path else self.make())


class LoadedFunction:
    """A plain function as a model."""

    inputs = None
    outputs = None

    def __init__(self, function: Callable[[Batch], Any]) -> None:
        self._function = function

    def __call__(self, batch: Batch, /) -> Any:
        return self._function(batch)


def predictor(model: Any, *, signature: str = "", tags: tuple[str, ...] = ()) -> Predictor:
    """What scores by ``model``: a predictor as it is, a function, or the path of saved files.

    Raises:
        ScoringError: it is none of these.
    """
    if isinstance(model, Predictor):
        return model
    if isinstance(model, (str, PurePosixPath)):
        return _of_path(str(model), signature, tags)
    if callable(model):
        return Function(function=model)
    raise ScoringError(
        f"{type(model).__name__} is no model: give the path of a saved one, a function "
        "predict(batch), or one of SavedModel, Keras, Torch, Function, Make"
    )


def _of_path(path: str, signature: str, tags: tuple[str, ...]) -> Predictor:
    suffix = PurePosixPath(path.rstrip("/")).suffix.lower()
    if suffix in (".keras", ".h5", ".hdf5"):
        return Keras(path)
    if suffix in (".pt", ".pt2", ".pth", ".ts", ".torchscript"):
        return Torch(path)
    return SavedModel(path, signature or "serving_default", tags or ("serve",))


def named(answer: Any, outputs: tuple[Tensor, ...] | None) -> dict[str, Any]:
    """A model's answer by name: a single array is called as the model's output, else
    ``prediction``; several without names are ``output_0`` and so on."""
    if (several := by_name(answer)) is not None:
        return several
    names = [output.name for output in outputs or ()]
    if isinstance(answer, (tuple, list)) and not _is_plain(answer):
        if len(names) != len(answer):
            names = [f"output_{at}" for at in range(len(answer))]
        return dict(zip(names, answer))
    return {names[0] if len(names) == 1 else "prediction": answer}


def _is_plain(answer: Any) -> bool:
    """Whether it is the values of one column, not several arrays."""
    return not answer or not hasattr(answer[0], "shape") or answer[0].shape == ()

"""PyTorch models in memory. Imported in workers, where a model is loaded."""

from __future__ import annotations

import inspect
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from howdah.spark.errors import ScoringError
from howdah.spark.scoring.columns import Batch, Tensor, as_type, plain


class LoadedTorch:
    """A module in evaluation mode."""

    inputs = None
    outputs: tuple[Tensor, ...] | None = None

    def __init__(self, path: str, factory: Callable[[], Any] | None, device: str) -> None:
        _keep_out_of_tensorflows_way()
        import torch

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._torch: Any = torch
        self._device = device
        module, names = _open(torch, path, factory, device)
        self._module: Any = module
        self._names: list[str] = names
        floats = [value.dtype for value in module.parameters() if value.is_floating_point()]
        self._dtype: Any = floats[0] if floats else None

    def __call__(self, batch: Batch, /) -> Any:
        named = self._names and set(batch) <= set(self._names)
        order = [name for name in self._names if name in batch] if named else list(batch)
        with self._torch.inference_mode():
            return self._module(*[self._tensor(batch[name], name) for name in order])

    def _tensor(self, values: Any, name: str) -> Any:
        values = plain(values, name)
        if np.ma.isMaskedArray(values):
            values = as_type(values, np.dtype(np.float64), name)
        if values.dtype.kind in "OSUMm":
            raise ScoringError(f"{name!r} is {values.dtype}; PyTorch's tensors hold numbers only")
        # Arrow's memory is not ours to write to, and a module may work in place.
        tensor = self._torch.from_numpy(np.require(values, requirements=["C", "W"]))
        if tensor.is_floating_point() and self._dtype is not None:
            return tensor.to(self._device, self._dtype)
        return tensor.to(self._device)


def _keep_out_of_tensorflows_way() -> None:
    """In a worker that has scored with TensorFlow, loading Triton aborts the process: both bring an
    LLVM ("Option … registered more than once"). PyTorch runs models without Triton. The other way
    round nothing happens."""
    if "tensorflow" in sys.modules and "triton" not in sys.modules:
        sys.modules["triton"] = None  # type: ignore[assignment]  # importing it is an ImportError


def _open(torch: Any, path: str, factory: Any, device: str) -> tuple[Any, list[str]]:
    """The module, and the names of what its ``forward`` takes."""
    if factory is not None:
        module = factory()
        state = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(state.get("state_dict", state))
        module = module.to(device).eval()
        return module, list(inspect.signature(module.forward).parameters)
    members = _members(path)
    if any(name.endswith("constants.pkl") for name in members) and not _exported(members):
        module = torch.jit.load(path, map_location=device).eval()
        return module, [argument.name for argument in module.forward.schema.arguments[1:]]
    if _exported(members):
        program = torch.export.load(path)
        module = program.module().to(device)
        return module, list(program.graph_signature.user_inputs)
    raise ScoringError(
        f"{path} is neither TorchScript nor an exported program; for a state dict say what makes the "
        "module: Torch(path, factory=…)"
    )


def _exported(members: list[str]) -> bool:
    return any(
        name.endswith(("serialized_exported_program.json", "archive_format"))
        or "/models/" in f"/{name}"
        for name in members
    )


def _members(path: str) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except zipfile.BadZipFile:
        return []

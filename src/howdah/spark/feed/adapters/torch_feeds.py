"""Feeds as PyTorch takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from howdah.spark.feed.adapters.batching import Batches


class FeedDataset(Batches, IterableDataset[Any]):
    """Ready batches of tensors: for a loader without batch size and workers."""

    def __init__(
        self,
        *arguments: Any,
        collate: Callable[[Any], Any] | None = None,
        pin: bool = False,
        device: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self._collate = collate
        self._pin = pin
        self._device = None if device is None else torch.device(device)
        if pin and self._device is not None and self._device.type != "cuda":
            raise ValueError(f"pin=True is for batches on their way to a GPU, not to {device!r}")

    def ready(self, batch: dict[str, Any]) -> Any:
        found = super().ready(batch)
        if self._collate is not None:
            found = self._collate(found)
        return found if self._device is None else _moved(found, self._device, self._pin)

    def array(self, values: np.ndarray, name: str) -> Any:
        if values.dtype.kind not in "biuf":
            return values
        # A copy: PyTorch writes where it likes, the received memory may be handed out again.
        return torch.from_numpy(np.array(values, order="C"))


def loader(*arguments: Any, pin: bool, device: Any, **more: Any) -> DataLoader[Any]:
    """See `howdah.spark.feed.adapters.loaders.Loaders.torch_loader`."""
    dataset = FeedDataset(*arguments, pin=pin, device=device, **more)
    # Rows come over a connection of this process: workers would share it.
    return DataLoader(dataset, batch_size=None, num_workers=0, pin_memory=pin and device is None)


def _moved(value: Any, device: torch.device, pin: bool) -> Any:
    """All tensors of it on that device; with ``pin`` the copy goes on while the program does."""
    if isinstance(value, torch.Tensor):
        return (value.pin_memory() if pin else value).to(device, non_blocking=pin)
    if isinstance(value, dict):
        return {key: _moved(each, device, pin) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        moved = [_moved(each, device, pin) for each in value]
        if hasattr(value, "_fields"):
            return type(value)(*moved)
        return type(value)(moved)
    return value.to(device) if callable(getattr(value, "to", None)) else value

"""TensorFlowOnSpark's ``gpu_info``: are there GPUs, and which are free."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from howdah.backends import gpus

MAX_RETRIES = 3
"""How often `get_gpus` looks again for devices that are in use."""
RETRY_S = 10.0
"""Seconds before it looks again."""
AS_STRING = "string"
AS_LIST = "list"


def is_gpu_available() -> bool:
    """Whether this machine has a GPU that can be asked about."""
    try:
        return bool(_devices())
    except gpus.GpuError:
        return False


def get_gpus(num_gpu: int = 1, worker_index: int = -1, format: str = AS_STRING) -> str | list[str]:
    """Free GPUs, as ``CUDA_VISIBLE_DEVICES`` takes them: numbers, or UUIDs of MIG instances.

    Args:
        num_gpu: how many.
        worker_index: this process among those of this machine: each takes others; -1: any.
        format: `AS_STRING` (joined by commas) or `AS_LIST`.

    Raises:
        ValueError: an unknown format.
        RuntimeError: there are not so many free ones, also after `MAX_RETRIES` further looks.
    """
    if format not in (AS_STRING, AS_LIST):
        raise ValueError(f"format is {format!r}; it can be {AS_STRING!r} or {AS_LIST!r}")
    devices = _devices()
    for _ in range(MAX_RETRIES):
        if sum(not device.busy for device in devices) >= num_gpu:
            break
        time.sleep(RETRY_S)
        devices = _devices()
    free = [_name(device) for device in devices if not device.busy]
    if len(free) < num_gpu:
        busy = [_name(device) for device in devices if device.busy]
        raise RuntimeError(
            f"Unable to find {num_gpu} free GPU(s): of {len(devices)} on this machine "
            f"{', '.join(busy) or 'none'} are in use. Ask for fewer, or end what uses them"
        )
    chosen = share(free, num_gpu, worker_index)
    return ",".join(chosen) if format == AS_STRING else chosen


def share(free: Sequence[str], count: int, worker_index: int) -> list[str]:
    """``count`` different ones for that worker; beyond the last it begins with the first again."""
    if worker_index < 0:
        return random.sample(list(free), count)
    start = worker_index * count
    return [free[(start + offset) % len(free)] for offset in range(count)]


def given(env: Mapping[str, str] = os.environ) -> list[str]:
    """GPUs that the cluster has given to this process: Spark to a task, Howdah to a container."""
    addresses = _spark_addresses()
    if addresses:
        return addresses
    if "HOWDAH_JOB_ID" in env:
        return [word for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    return []


def choose(
    requested: int | None,
    *,
    given: Sequence[str],
    kubernetes: bool,
    available: Callable[[], bool],
    free: Callable[[int], Sequence[str]],
) -> list[str]:
    """Which GPUs a training process uses.

    Spark's own come first: all, or the first ``requested``. Without any, free ones of the machine:
    ``requested``, or one. On Kubernetes only Spark's: a pod may see devices that are not its own.

    Raises:
        RuntimeError: ``requested`` are not to be had.
    """
    if given:
        chosen = list(given) if requested is None else list(given[:requested])
    elif not kubernetes and available():
        count = 1 if requested is None else requested
        chosen = list(free(count)) if count > 0 else []
    else:
        chosen = []
    if requested is not None and len(chosen) < requested:
        raise RuntimeError(
            f"Unable to allocate {requested} GPU(s) from available GPUs: {chosen}. Lower num_gpus, "
            "or give Spark's tasks more: spark.task.resource.gpu.amount"
        )
    return chosen


def _devices() -> list[gpus.Device]:
    return gpus.allowed(gpus.nvml_devices(), None)


def _name(device: gpus.Device) -> str:
    return device.uuid if device.uuid.startswith("MIG-") else device.index


def _spark_addresses() -> list[str]:
    # Who is in a task of Spark's has imported it; for the others it takes a second.
    module = sys.modules.get("pyspark.taskcontext")
    context: Any = module.TaskContext.get() if module is not None else None
    if context is None:
        return []
    resources = context.resources() or {}
    return [str(address) for address in resources["gpu"].addresses] if "gpu" in resources else []

"""Which GPUs of the node an agent's programs use.

YARN counts GPUs; which of them a container has, it says only to what it runs in cgroups or Docker:
there nothing else is visible. Elsewhere the agent takes free ones under the host's locks
(`howdah.backends.gpus`), which keep jobs of Howdah apart.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from howdah.backends.gpus import (
    Device,
    DeviceLocks,
    GpuError,
    Lister,
    allowed,
    nvml_devices,
    unusable,
)

WAIT_S = 60.0
"""For devices of a container that is just ending: YARN gives its place away before its processes
have let go."""
RETRY_S = 0.1


def take(
    wanted: int,
    env: Mapping[str, str],
    lister: Lister = nvml_devices,
    locks: DeviceLocks | None = None,
    wait_s: float = WAIT_S,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """UUIDs of the container's devices, and the descriptors that hold their locks.

    Nothing where no driver can be asked (YARN may count devices of another maker): the programs
    see what the node shows them.

    Raises:
        ValueError: the node has fewer devices than YARN gave.
    """
    try:
        every = lister()
    except GpuError as error:
        print(f"GPUs are not chosen: {error}", file=sys.stderr)  # noqa: T201
        return (), ()
    devices = allowed(every, env.get("CUDA_VISIBLE_DEVICES"))
    problem = unusable(every)
    if not devices:
        if problem:
            print(f"GPUs are not chosen: {problem}", file=sys.stderr)  # noqa: T201
        return (), ()
    if len(devices) < wanted:
        raise ValueError(
            f"YARN gave {wanted} GPUs, but this container sees only {len(devices)}:"
            f" {', '.join(device.uuid for device in devices)}{problem and f' ({problem})'}"
        )
    return _lock(wanted, devices, locks or DeviceLocks(), wait_s)


def _lock(
    wanted: int, devices: list[Device], locks: DeviceLocks, wait_s: float
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    deadline = time.monotonic() + wait_s
    while True:
        taken = locks.take(devices, lambda free: wanted if free >= wanted else 0)
        if taken:
            for _, descriptor in taken:
                os.set_inheritable(descriptor, False)
            return tuple(d.uuid for d, _ in taken), tuple(lock for _, lock in taken)
        if time.monotonic() > deadline:
            raise ValueError(
                f"{wanted} GPUs were given, but other jobs on this node hold so many of its"
                f" {len(devices)} that they are not free; see `ls /tmp/howdah-gpus` there"
            )
        time.sleep(RETRY_S)

"""GPU use through nvidia-ml-py, in a helper process of its own: the library is large.

``python -m howdah.agent.gpu <seconds> <uuid>…`` prints a line ``utilisation memory_mb`` (means
and sums over the devices) every so many seconds until its standard input closes.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence
from typing import Any

_MB = 1024 * 1024


def parse(line: bytes) -> tuple[float, float] | None:
    """Utilisation (0 to 1) and memory in MB from one of the helper's lines."""
    try:
        utilisation, memory = line.split()
        return float(utilisation), float(memory)
    except ValueError:
        return None


def measure(nvml: Any, devices: Sequence[Any]) -> tuple[float, float]:
    """Mean utilisation (0 to 1) and total memory in use (MB) of the devices."""
    utilisation = memory = 0.0
    for device in devices:
        utilisation += nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
        memory += nvml.nvmlDeviceGetMemoryInfo(device).used / _MB
    return utilisation / len(devices), memory


def main(argv: Sequence[str]) -> int:
    """Measure until standard input closes. Without the library or a device it ends at once."""
    try:
        import pynvml as nvml  # the module of the package nvidia-ml-py
    except ImportError:
        return 3
    interval_s, uuids = float(argv[0]), argv[1:]
    try:
        nvml.nvmlInit()
        devices = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        while devices:
            utilisation, memory = measure(nvml, devices)
            sys.stdout.write(f"{utilisation:.3f} {memory:.1f}\n")
            sys.stdout.flush()
            if select.select([sys.stdin], [], [], interval_s)[0]:
                break
    except nvml.NVMLError as error:
        sys.stderr.write(f"GPUs {', '.join(uuids)} can't be measured: {error}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

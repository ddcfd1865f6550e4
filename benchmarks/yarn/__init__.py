"""From a submission to the first program's line and to the end, on a real YARN."""

from __future__ import annotations

from benchmarks.yarn import distributed_shell, skein
from benchmarks.yarn.timing import Submit

PEERS: dict[str, Submit] = {
    "DistributedShell": distributed_shell.submit,
    "skein": skein.submit,
}
"""Who else can run programs on YARN. Each raises ClusterError where it cannot be had."""

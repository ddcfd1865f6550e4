"""Applications through the ResourceManager's REST interface: no client of ours is involved."""

from __future__ import annotations

from typing import Any

from tests.hadoop.cluster import Cluster
from tests.hadoop.polling import wait

FINAL = ("FINISHED", "FAILED", "KILLED")


def wait_final(cluster: Cluster, application: str) -> dict[str, Any]:
    """Wait for its end; what the ResourceManager says about it."""

    def ended() -> dict[str, Any] | None:
        told = cluster.rm(f"apps/{application}")["app"]
        return told if told["state"] in FINAL else None

    return wait(f"the end of {application}", ended)

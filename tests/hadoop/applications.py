"""Applications through the ResourceManager's REST interface: no client of ours is involved."""

from __future__ import annotations

import time
from typing import Any

from tests.hadoop.cluster import Cluster
from tests.hadoop.polling import wait

FINAL = ("FINISHED", "FAILED", "KILLED")
_POLL_S = 0.05


def submit(
    cluster: Cluster,
    command: str,
    *,
    queue: str = "default",
    name: str = "test",
    memory_mib: int = 128,
    attempts: int = 1,
    label: str | None = None,
    keep_containers: bool = False,
) -> str:
    """Run a shell command as an application's master; its id.

    It will not register itself as a master does, so that its application fails when it ends, and
    expires when it takes longer than `Options.master_expiry_ms`.
    """
    application = cluster.rm("apps/new-application", "POST", {})["application-id"]
    document: dict[str, Any] = {
        "application-id": application,
        "application-name": name,
        "application-type": "TEST",
        "queue": queue,
        "max-app-attempts": attempts,
        "keep-containers-across-application-attempts": keep_containers,
        "am-container-spec": {"commands": {"command": f"{command} 1>><LOG_DIR>/stdout 2>&1"}},
        # Of other resource types this interface takes no notice.
        "resource": {"memory": memory_mib, "vCores": 1},
    }
    if label is not None:
        document["am-container-node-label-expression"] = label
    cluster.rm("apps", "POST", document)
    return application


def state(cluster: Cluster, application: str) -> str:
    """Its state: NEW, ACCEPTED, RUNNING, FINISHED, FAILED, KILLED."""
    return cluster.rm(f"apps/{application}")["app"]["state"]


def wait_running(cluster: Cluster, application: str, timeout_s: float = 120.0) -> dict[str, Any]:
    """Wait until its newest master's process runs; the container in the node's words."""
    deadline = time.monotonic() + timeout_s
    while True:
        told = cluster.rm(f"apps/{application}/appattempts")["appAttempts"] or {}
        attempts = told.get("appAttempt", [])
        for container in cluster.containers() if attempts else ():
            if container["id"] == attempts[-1]["containerId"] and container["state"] == "RUNNING":
                return container
        assert time.monotonic() < deadline, f"{application} does not run: {told}"
        time.sleep(_POLL_S)


def wait_final(cluster: Cluster, application: str, timeout_s: float = 120.0) -> dict[str, Any]:
    """Wait for its end; what the ResourceManager says about it."""
    deadline = time.monotonic() + timeout_s
    while True:
        told = cluster.rm(f"apps/{application}")["app"]
        if told["state"] in FINAL:
            return told
        assert time.monotonic() < deadline, f"{application} has not ended: {told}"
        time.sleep(_POLL_S)


def wait_logs(cluster: Cluster, application: str) -> None:
    """Wait until its logs are on HDFS."""

    def aggregated() -> bool:
        return cluster.rm(f"apps/{application}")["app"]["logAggregationStatus"] == "SUCCEEDED"

    wait(f"the logs of {application}", aggregated)


def kill(cluster: Cluster, application: str) -> None:
    """End it."""
    cluster.rm(f"apps/{application}/state", "PUT", {"state": "KILLED"})

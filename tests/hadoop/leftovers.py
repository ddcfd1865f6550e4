"""What applications may leave behind on a cluster, in words, to be compared before and after."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

from tests.hadoop import daemons
from tests.hadoop.applications import FINAL
from tests.hadoop.cluster import Cluster

_POLL_S = 0.1


def leftovers(cluster: Cluster, application: str | None = None) -> frozenset[str]:
    """Everything there now that an application can leave; of one application, or of all.

    Living applications, containers the ResourceManager and the nodes know, processes of containers,
    containers' folders on the nodes, and files on HDFS (but aggregated logs; those only where no
    application is named).
    """
    found = {
        *_applications(cluster),
        *_containers(cluster),
        *_processes(cluster),
        *_node_folders(cluster),
    }
    if application is None:
        return frozenset({*found, *_files(cluster, "/")})
    wanted = application.removeprefix("application_")
    return frozenset(each for each in found if wanted in each)


def wait_same(
    cluster: Cluster,
    before: frozenset[str],
    application: str | None = None,
    timeout_s: float = 20.0,
) -> frozenset[str]:
    """What is still there more than ``before`` after at most that time; best nothing."""
    deadline = time.monotonic() + timeout_s
    while (added := leftovers(cluster, application) - before) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return added


def processes(cluster: Cluster) -> list[psutil.Process]:
    """Living processes of containers: all of the cluster's that are not its daemons."""
    own = {daemons.pid(cluster.site, each) for each in cluster.site.daemons}
    return [each for each in daemons.marked(cluster.folder) if each.pid not in own]


def _applications(cluster: Cluster) -> set[str]:
    return {
        f"{told['id']} is {told['state']}"
        for told in cluster.applications()
        if told["state"] not in FINAL
    }


def _containers(cluster: Cluster) -> set[str]:
    return {f"{each['id']} is {each['state']} on {each['nodeId']}" for each in cluster.containers()}


def _processes(cluster: Cluster) -> set[str]:
    found: set[str] = set()
    for process in processes(cluster):
        with contextlib.suppress(psutil.Error):
            container = process.environ().get("CONTAINER_ID", "no container")
            command = " ".join(process.cmdline())[:150]
            found.add(f"process {process.pid} of {container}: {command}")
    return found


def _node_folders(cluster: Cluster) -> set[str]:
    data = cluster.folder / "data"
    return {
        f"folder {path.relative_to(data)}"
        for pattern in ("*/local/usercache/*/appcache/*", "*/local/nmPrivate/app*")
        for path in data.glob(pattern)
    }


def _files(cluster: Cluster, path: str) -> set[str]:
    found: set[str] = set()
    for each in cluster.hdfs(path, "LISTSTATUS", "GET")["FileStatuses"]["FileStatus"]:
        below = str(Path(path) / each["pathSuffix"])
        if below == "/app-logs":
            continue
        found.add(f"hdfs {below}")
        if each["type"] == "DIRECTORY":
            found |= _files(cluster, below)
    return found

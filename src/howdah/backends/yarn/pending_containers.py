"""Why containers that a master has asked for do not come: asks the cluster, says it in words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from howdah.backends.base import RoleResources
from howdah.backends.yarn import cluster_report, pending_reason
from howdah.backends.yarn.amounts import Amount, of_role
from howdah.backends.yarn.cluster import Cluster, Queue
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import HadoopError
from howdah.hadoop.login import Login
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy

ANSWER_S = 3.0
"""It is only for people to read: a ResourceManager that is slower is not waited for."""


async def words(
    configuration: Configuration,
    login: Login,
    queue: str,
    missing: Mapping[str, int],
    roles: Mapping[str, RoleResources],
    headroom: Amount | None,
) -> str:
    """Why ``missing`` containers, by role, are not there yet; empty if that cannot be told.

    Where the ResourceManager does not take the login as a client's, only the master's headroom tells.
    """
    cluster, found = await _look(configuration, login, queue)
    labels = {
        role: resources.label or (found.default_label if found else "")
        for role, resources in roles.items()
    }
    each = {role: of_role(resources) for role, resources in roles.items()}
    return pending_reason.for_containers(
        missing, each, labels, queue=found, cluster=cluster, headroom=headroom
    )


async def _look(
    configuration: Configuration, login: Login, queue: str
) -> tuple[Cluster | None, Queue | None]:
    policy = RetryPolicy(max_wait_s=ANSWER_S, try_timeout_s=ANSWER_S)
    try:
        async with asyncio.timeout(ANSWER_S):
            async with ResourceManager(configuration, login, retry=policy) as manager:
                nodes = await manager.nodes(cluster_report.NODE_STATES)
                found = await cluster_report.queue(manager, queue) if queue else None
    except (HadoopError, TimeoutError):
        return None, None
    cluster = Cluster(
        user=login.user, largest=Amount(), nodes=tuple(cluster_report.node(each) for each in nodes)
    )
    return cluster, found

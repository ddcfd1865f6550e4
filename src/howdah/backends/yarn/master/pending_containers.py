"""What a master is told of its cluster: what room there is, and why containers do not come, in words."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence, Set

from howdah.backends.base import RoleResources
from howdah.backends.yarn import pending_reason
from howdah.backends.yarn.amounts import Amount, of_role
from howdah.backends.yarn.client import cluster_report
from howdah.backends.yarn.client.cluster import Queue, YarnCluster
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import HadoopError
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.login import Login

log: logging.Logger = logging.getLogger(__name__)

ANSWER_S = 3.0
"""For people to read, a ResourceManager that is slower is not waited for."""


class PendingContainers:
    """One master's, with the figures it was told last."""

    def __init__(
        self, configuration: Configuration, queue: str, roles: Mapping[str, RoleResources]
    ) -> None:
        self._configuration = configuration
        self._queue = queue
        self._roles = roles
        self._figures: tuple[YarnCluster | None, Queue | None] = (None, None)
        self._asked: float | None = None
        self._asking = asyncio.Lock()

    async def words(
        self,
        login: Login,
        missing: Mapping[str, int],
        headroom: Amount | None,
        only_on: Mapping[str, tuple[Sequence[str], Set[str]]],
    ) -> str:
        """Why ``missing`` containers, by role, are not there yet; empty if that cannot be told. ``only_on``
        is what `OutstandingRequests.only_on` gives.

        Where the ResourceManager does not take the login as a client's, only the master's headroom
        tells.
        """
        if not missing:
            return ""
        cluster, found = await self.figures(login, pending_reason.FIGURES_S)
        labels = {
            role: resources.label or (found.default_label if found else "")
            for role, resources in self._roles.items()
        }
        each = {role: of_role(resources) for role, resources in self._roles.items()}
        return pending_reason.for_containers(
            missing,
            each,
            labels,
            queue=found,
            cluster=cluster,
            headroom=headroom,
            only_on=only_on,
        )

    async def figures(
        self, login: Login, max_age_s: float, answer_s: float = ANSWER_S
    ) -> tuple[YarnCluster | None, Queue | None]:
        """The cluster's nodes and the job's queue, as they were at most so long ago; None for what
        is not told within ``answer_s``."""
        async with self._asking:
            if self._asked is None or time.monotonic() - self._asked > max_age_s:
                self._figures = await self._look(login, answer_s)
                self._asked = time.monotonic()
        return self._figures

    async def _look(self, login: Login, answer_s: float) -> tuple[YarnCluster | None, Queue | None]:
        policy = RetryPolicy(max_wait_s=answer_s, try_timeout_s=answer_s)
        try:
            async with (
                asyncio.timeout(answer_s),
                ResourceManager(self._configuration, login, retry=policy) as manager,
            ):
                return await cluster_report.nodes_and_queue(manager, login.user, self._queue)
        except (HadoopError, TimeoutError) as error:
            log.info("the nodes are not told within %g s: %s", answer_s, error)
            return None, None

"""The NodeManagers: launching and stopping containers, many at a time, batched for each node.

A connection is kept a while (`howdah.hadoop.connection.ConnectionLimits.idle_s`): the next restart uses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import CallTimeout, ConnectionLost, HadoopError
from howdah.hadoop.ids import ContainerId, NodeId
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import Token

log: logging.Logger = logging.getLogger(__name__)

START_S = 30.0
"""For a node to take a container; a restarted NodeManager is waited for so long."""
STOP_S = 5.0
PROBE_S = 2.0
"""A NodeManager that lives takes a connection within this."""
CONFIRM_S = 15.0
"""For a node to end a container and say so. It takes some hundred milliseconds, longer with docker."""
_LOOK_S = 0.2
_COMPLETE = 3  # ContainerStateProto
_STOPPED = "was recently stopped"  # ContainerManagerImpl.getContainerStatusInternal
_BATCH = 100
"""Containers in one call."""
_NODES_AT_ONCE = 64
"""Nodes spoken with at the same time."""


class LaunchFailed(Exception):
    """The node did not take the container, or did not answer; the text says why."""

    uncertain = False
    """The answer was lost: the container may run."""


class _Node:
    """One NodeManager: its connection, and what is to be said to it."""

    def __init__(self, manager: NodeManager) -> None:
        self.manager = manager
        self.starts: list[tuple[ContainerId, yarn.StartContainerRequestProto]] = []
        self.answers: dict[ContainerId, asyncio.Future[None]] = {}
        self.working: asyncio.Task[None] | None = None


class Nodes:
    """All NodeManagers of one master."""

    def __init__(self, configuration: Configuration, user: str) -> None:
        self._configuration = configuration
        self._user = user
        self._nodes: dict[NodeId, _Node] = {}
        self._tokens: dict[NodeId, Token] = {}
        self._turns = asyncio.Semaphore(_NODES_AT_ONCE)

    def use_token(self, proto: yarn.NMTokenProto) -> None:
        """The ResourceManager gave a (newer) token for a node."""
        node = NodeId.from_proto(proto.nodeId)
        self._tokens[node] = Token.from_proto(proto.token)
        if (known := self._nodes.get(node)) is not None:
            known.manager.rpc.use_token(self._tokens[node])

    async def start(
        self, node: NodeId, container: ContainerId, request: yarn.StartContainerRequestProto
    ) -> None:
        """Launch a container, together with others that are to be launched there now.

        Raises:
            LaunchFailed: it does not run.
        """
        known = self._node(node)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        known.starts.append((container, request))
        known.answers[container] = answer
        if known.working is None or known.working.done():
            known.working = asyncio.create_task(self._work(known), name=f"launch on {node}")
        await answer

    async def stop(self, node: NodeId, containers: Sequence[ContainerId]) -> list[ContainerId]:
        """Have containers ended; returns those the node would not or could not end."""
        try:
            known = self._node(node)
            async with self._turns:
                outcome = await known.manager.stop_containers(containers, timeout_s=STOP_S)
        except (LaunchFailed, HadoopError) as error:
            log.warning("%d containers on %s can't be stopped: %s", len(containers), node, error)
            return list(containers)
        for container, problem in outcome.failed.items():
            log.info("%s can't be stopped: %s", container, problem)
        return list(outcome.failed)

    async def end(self, node: NodeId, container: ContainerId, *, forgotten: bool) -> bool:
        """Have a container ended, and wait for the node to say that it has.

        False if that is not known after `CONFIRM_S`. ``forgotten`` is the answer where the node
        does not know the container: one that has restarted without its state (the default:
        ``yarn.nodemanager.recovery.enabled`` is false) knows nothing of the processes that it once
        started, and they may live.
        """
        try:
            async with asyncio.timeout(CONFIRM_S):
                manager = self._node(node).manager
                await manager.stop_containers([container], timeout_s=STOP_S)
                while True:
                    told = await manager.statuses([container], timeout_s=STOP_S)
                    status = told.found.get(container)
                    if status is None:
                        return forgotten or _STOPPED in str(told.failed.get(container))
                    if status.state == _COMPLETE:
                        return True
                    await asyncio.sleep(_LOOK_S)
        except (LaunchFailed, HadoopError, TimeoutError) as error:
            log.warning("%s does not say that %s has ended: %s", node, container, error)
            return False

    async def is_there(self, node: NodeId) -> bool:
        """Whether somebody listens at the node's address: one connection, and no patience."""
        try:
            async with self._turns, asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_connection(node.host, node.port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def close(self) -> None:
        """End all connections."""
        working = [node.working for node in self._nodes.values() if node.working is not None]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await asyncio.gather(*(node.manager.close() for node in self._nodes.values()))
        self._nodes.clear()

    def _node(self, node: NodeId) -> _Node:
        known = self._nodes.get(node)
        if known is None:
            token = self._tokens.get(node)
            if token is None:
                raise LaunchFailed(f"the ResourceManager has given no token for the node {node}")
            manager = NodeManager(
                self._configuration,
                node,
                self._user,
                token,
                retry=RetryPolicy(max_wait_s=START_S, max_delay_s=1.0),
            )
            known = self._nodes[node] = _Node(manager)
        return known

    async def _work(self, node: _Node) -> None:
        # What is asked for in this turn of the loop goes in one call.
        await asyncio.sleep(0)
        while node.starts:
            batch = dict(node.starts[:_BATCH])
            del node.starts[:_BATCH]
            try:
                async with self._turns:
                    outcome = await node.manager.start_containers(batch, timeout_s=START_S)
                failed = {each: str(error) for each, error in outcome.failed.items()}
                uncertain = False
            except HadoopError as error:
                failed = dict.fromkeys(batch, f"the node {node.manager.node}: {error}")
                uncertain = isinstance(error, (ConnectionLost, CallTimeout))
            except asyncio.CancelledError:
                for container in batch:
                    node.answers.pop(container).cancel()
                raise
            except Exception as error:
                # A fault of ours, or an answer that can't be read; who launches waits all the same.
                log.exception("The launch on %s failed", node.manager.node)
                text = f"the node {node.manager.node}: {type(error).__name__}: {error}"
                failed, uncertain = dict.fromkeys(batch, text), True
            for container in batch:
                answer = node.answers.pop(container)
                if answer.done():
                    continue
                if container in failed:
                    problem = LaunchFailed(failed[container])
                    problem.uncertain = uncertain
                    answer.set_exception(problem)
                else:
                    answer.set_result(None)

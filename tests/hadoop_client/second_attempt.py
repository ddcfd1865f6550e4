"""A master that dies in its first attempt and goes on in its second; runs in a real container.

Argument: the file to which it reports. It needs nothing of the tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ContainerId, NodeId, Resource
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.scheduler import SUCCEEDED, Scheduler
from howdah.hadoop.security.credentials import AMRM_TOKEN, Credentials, Token


async def first(scheduler: Scheduler, configuration: Configuration) -> None:
    """Start a container, and die once the ResourceManager knows that it runs.

    Of a dead attempt it keeps the containers that it knows to run and ends the others (Hadoop's
    ``CapacityScheduler.doneApplicationAttempt``). It knows by the node's heartbeat, and does not
    say so; but the end of a container that ran later on the same node comes in no earlier one.
    """
    answer = await scheduler.allocate(ask=[ask(1, "*")])
    while not answer.allocated_containers:
        await asyncio.sleep(0.05)
        answer = await scheduler.allocate()
    (container,) = answer.allocated_containers
    (token,) = answer.nm_tokens
    id = ContainerId.from_proto(container.id)
    node = NodeId.from_proto(container.nodeId)
    async with ResourceManager(configuration, "x") as rm:
        rack = next(n.rackName for n in await rm.nodes() if NodeId.from_proto(n.nodeId) == node)
    async with NodeManager(configuration, node, "x", Token.from_proto(token.token)) as nm:
        assert (await nm.start_containers({id: start(container, "sleep 600")})).done == (id,)
        running = yarn.ContainerStateProto.C_RUNNING
        while (await nm.statuses([id])).found[id].state != running:
            await asyncio.sleep(0.05)
        # On that node only, so its rack and "anywhere" are not relaxed to.
        answer = await scheduler.allocate(
            ask=[ask(1, node.host, 2), ask(1, rack, 2, relax=False), ask(1, "*", 2, relax=False)]
        )
        while not answer.allocated_containers:
            await asyncio.sleep(0.05)
            answer = await scheduler.allocate()
        (later,) = answer.allocated_containers
        assert NodeId.from_proto(later.nodeId) == node
        later_id = ContainerId.from_proto(later.id)
        assert (await nm.start_containers({later_id: start(later, "true")})).done == (later_id,)
        while not answer.completed_container_statuses:
            await asyncio.sleep(0.05)
            answer = await scheduler.allocate()
    os.kill(os.getpid(), signal.SIGKILL)


def ask(
    count: int, place: str, priority: int = 1, *, relax: bool = True
) -> yarn.ResourceRequestProto:
    return yarn.ResourceRequestProto(
        priority=yarn.PriorityProto(priority=priority),
        resource_name=place,
        capability=Resource(64, 1).to_proto(),
        num_containers=count,
        relax_locality=relax,
    )


def start(container: yarn.ContainerProto, command: str) -> yarn.StartContainerRequestProto:
    request = yarn.StartContainerRequestProto(container_token=container.container_token)
    request.container_launch_context.command.append(command)
    return request


async def second(
    answer: yarn.RegisterApplicationMasterResponseProto, configuration: Configuration
) -> dict[str, object]:
    """What came over, and whether it runs."""
    (container,) = answer.containers_from_previous_attempts
    (token,) = answer.nm_tokens_from_previous_attempts
    id = ContainerId.from_proto(container.id)
    node = NodeId.from_proto(token.nodeId)
    async with NodeManager(configuration, node, "x", Token.from_proto(token.token)) as nm:
        status = (await nm.statuses([id])).found[id]
        stopped = (await nm.stop_containers([id])).done == (id,)
    state = yarn.ContainerStateProto.Name(status.state)
    return {"container": str(id), "state": state, "stopped": stopped}


async def main() -> None:
    configuration = Configuration.load()
    (token,) = Credentials.from_environment().of_kind(AMRM_TOKEN)
    mine = ContainerId.parse(os.environ["CONTAINER_ID"])
    async with Scheduler(configuration, "x", token) as scheduler:
        answer = await scheduler.register("127.0.0.1", -1, "")
        if mine.attempt.number == 1:
            await first(scheduler, configuration)
        report = await second(answer, configuration)
        Path(sys.argv[1]).write_text(json.dumps(report))
        await scheduler.finish(SUCCEEDED)


asyncio.run(main())

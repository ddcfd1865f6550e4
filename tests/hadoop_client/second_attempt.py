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
from howdah.hadoop.credentials import AMRM_TOKEN, Credentials, Token
from howdah.hadoop.ids import ContainerId, NodeId, Resource
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import yarn
from howdah.hadoop.scheduler import SUCCEEDED, Scheduler


async def first(scheduler: Scheduler, configuration: Configuration) -> None:
    """Start a container, and die."""
    wanted = yarn.ResourceRequestProto(
        priority=yarn.PriorityProto(priority=1),
        resource_name="*",
        capability=Resource(64, 1).to_proto(),
        num_containers=1,
    )
    answer = await scheduler.allocate(ask=[wanted])
    while not answer.allocated_containers:
        await asyncio.sleep(0.05)
        answer = await scheduler.allocate()
    (container,) = answer.allocated_containers
    (token,) = answer.nm_tokens
    id = ContainerId.from_proto(container.id)
    request = yarn.StartContainerRequestProto(container_token=container.container_token)
    request.container_launch_context.command.append("sleep 600")
    node = NodeId.from_proto(container.nodeId)
    async with NodeManager(configuration, node, "x", Token.from_proto(token.token)) as nm:
        assert (await nm.start_containers({id: request})).done == (id,)
        running = yarn.ContainerStateProto.C_RUNNING
        while (await nm.statuses([id])).found[id].state != running:
            await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


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

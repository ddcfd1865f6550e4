"""A master's heartbeat, on the real ResourceManager and NodeManagers."""

from __future__ import annotations

import asyncio

import pytest

from howdah.hadoop import errors
from howdah.hadoop import scheduler as schedulers
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ContainerId, Resource
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.scheduler import SUCCEEDED, AnswerLost, Scheduler
from howdah.hadoop.security.credentials import Token
from tests.hadoop.configuration import LICENCE
from tests.hadoop_client.masters import ask, master, state, submit_unmanaged, until
from tests.yarn.relay import Relay


async def test_containers_are_asked_for_started_stopped_and_reported(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:
        first, second = await mine.obtain(2)
        assert mine.containers[first].allocation_request_id == 1
        for container, command in ((first, "exit 7"), (second, "sleep 600")):
            await mine.run(container, command)
        await mine.beat_until("the end", lambda: first in mine.completed)
        assert mine.completed[first].exit_status == 7
        async with mine.node_manager(mine.node_of(second)) as nm:
            found = (await nm.statuses([second, first])).found
            assert found[second].state == yarn.ContainerStateProto.C_RUNNING
            outcome = await nm.stop_containers([second])
            assert outcome.done == (second,)
        await mine.beat_until("the stop", lambda: second in mine.completed)
        assert mine.completed[second].exit_status == -105  # killed by the application master


async def test_a_container_is_released_unused(configuration: Configuration, user: str) -> None:
    async with master(configuration, user) as mine:
        (container,) = await mine.obtain(1)
        await mine.beat(release=[container.to_proto()])
        await mine.beat_until("the release", lambda: container in mine.completed)
        assert mine.completed[container].exit_status == -100


async def test_resource_types_are_respected(configuration: Configuration, user: str) -> None:
    async with master(configuration, user) as mine:
        await mine.beat(ask=[ask(1, Resource(64, 1, {LICENCE: 2}))])
        await mine.beat_until("licences", lambda: bool(mine.containers))
        (container,) = mine.containers.values()
        assert Resource.from_proto(container.resource).get(LICENCE) == 2


async def test_what_can_never_be_given_is_refused_and_the_master_lives_on(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:
        with pytest.raises(errors.InvalidResourceRequest, match=LICENCE):
            await mine.beat(ask=[ask(1, Resource(64, 1, {LICENCE: 9}))])
        with pytest.raises(errors.InvalidResourceRequest, match="label"):
            await mine.beat(ask=[ask(1, label="nosuch")])
        stranger = ContainerId(mine.attempt, 999999)
        await mine.beat(release=[stranger.to_proto()])
        assert len(await mine.obtain(1)) == 1


async def test_a_placement_constraint_keeps_containers_apart(
    configuration: Configuration, user: str
) -> None:
    def request(number: int, already: int) -> yarn.SchedulingRequestProto:
        """A container on a node that has no more than so many with that tag."""
        made = yarn.SchedulingRequestProto(
            allocationRequestId=number,
            priority=yarn.PriorityProto(priority=number),
            allocationTags=["w"],
        )
        simple = made.placementConstraint.simpleConstraint
        simple.scope, simple.minCardinality, simple.maxCardinality = "node", 0, already
        kind = yarn.PlacementConstraintTargetProto.TargetType.ALLOCATION_TAG
        simple.targetExpressions.add(targetType=kind, targetValues=["w"])
        made.executionType.execution_type = yarn.ExecutionTypeProto.GUARANTEED
        made.resourceSizing.numAllocations = 2
        made.resourceSizing.resources.CopyFrom(Resource(64, 1).to_proto())
        return made

    async with master(configuration, user) as mine:
        # There is one node: one of the first two comes, and one of the next, which may be beside one.
        await mine.beat(scheduling_requests=[request(5, 0)])
        await mine.beat_until("a container", lambda: len(mine.containers) == 1)
        await mine.beat(scheduling_requests=[request(6, 1)])
        await mine.beat_until("one more", lambda: len(mine.containers) == 2)
        granted = [each.allocation_request_id for each in mine.containers.values()]
        assert granted == [5, 6]


async def test_registering_twice_is_an_error_and_registering_again_is_not_needed(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user, register=False) as mine:
        with pytest.raises(RuntimeError, match="register"):
            await mine.scheduler.register_again()
        with pytest.raises(errors.ApplicationMasterNotRegistered):
            await mine.beat()
        answer = await mine.scheduler.register("127.0.0.1", -1, "http://127.0.0.1:1/")
        assert Resource.from_proto(answer.maximumCapability).get(LICENCE) == 4
        assert answer.queue.endswith("default")
        await mine.beat()
        with pytest.raises(errors.InvalidApplicationMasterRequest, match="already registered"):
            await mine.scheduler.register_again()


async def test_a_registration_that_has_failed_may_have_been_made(
    configuration: Configuration, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "_AGAIN_S", 3600.0)  # a try that fails uses up all the time
    address = configuration.rm_addresses("scheduler")[0]
    async with master(configuration, user, register=False) as mine:
        token = mine.scheduler.rpc.identity.token
        assert token is not None
        method = "registerApplicationMaster"
        relay = Relay((address.host, address.port), method, loses_answers=True)
        relay.cut_at = 1
        async with relay as port:
            there = {"yarn.resourcemanager.scheduler.address": f"127.0.0.1:{port}"}
            through = Configuration({**configuration.as_dict(), **there})
            async with Scheduler(through, user, token) as scheduler:
                with pytest.raises(errors.ConnectionLost):
                    await scheduler.register("127.0.0.1", -1, "")
                relay.cut_at = None
                with pytest.raises(AnswerLost):
                    await scheduler.register_again()
                await scheduler.allocate()


async def test_a_second_scheduler_with_the_same_token_finds_its_place_taken(
    configuration: Configuration, user: str
) -> None:
    """A stale response id is the sign that somebody else beats for the same attempt."""
    async with master(configuration, user) as mine:
        for _ in range(3):
            await mine.beat()
        token = mine.scheduler.rpc.identity.token
        assert token is not None
        async with Scheduler(configuration, user, token) as other:
            with pytest.raises(errors.InvalidApplicationMasterRequest, match="responseId"):
                await other.allocate()


async def test_a_lost_answer_loses_neither_asks_nor_containers(
    configuration: Configuration, user: str
) -> None:
    """The heartbeat is cancelled when the RM has it but we have not got its answer."""
    async with master(configuration, user) as mine:
        await mine.beat()
        for number in range(5):
            lost = asyncio.create_task(
                mine.scheduler.allocate(ask=[ask(number + 1, request_id=number, priority=number)])
            )
            for _ in range(number):  # cut off at different points of its way
                await asyncio.sleep(0)
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
        await mine.beat(ask=[ask(1, request_id=77, priority=77)])

        def came() -> bool:
            ids = {each.allocation_request_id for each in mine.containers.values()}
            return {4, 77} <= ids

        await mine.beat_until("the containers asked for", came)


async def test_the_tracking_url_can_be_changed_and_the_end_is_stored(
    configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user) as rm:
        async with master(configuration, user) as mine:
            await mine.beat(tracking_url="http://127.0.0.1:2/new", progress=0.5)

            # A heartbeat is answered before what it tells is known elsewhere.
            async def told() -> bool:
                report = await rm.application_report(mine.app)
                new = report.originalTrackingUrl.endswith("127.0.0.1:2/new")
                return new and report.progress == pytest.approx(0.5)

            await until("the new page", told)
            done = await mine.scheduler.finish(
                SUCCEEDED, diagnostics="all well", tracking_url="http://127.0.0.1:3/end"
            )
            assert done

            async def finished() -> bool:
                return state(await rm.application_report(mine.app)) == "FINISHED"

            await until("the end", finished)
            report = await rm.application_report(mine.app)
            assert "all well" in report.diagnostics
            with pytest.raises(errors.HadoopError):
                await mine.beat()


async def test_a_wrong_token_is_refused_and_not_tried_again(
    configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user) as rm:
        app, token = await submit_unmanaged(rm)
        try:
            wrong = Token(token.identifier, b"x" * len(token.password), token.kind)
            async with Scheduler(configuration, user, wrong) as scheduler:
                with pytest.raises((errors.AuthenticationError, errors.InvalidToken)):
                    await scheduler.register("127.0.0.1", -1, "")
        finally:
            await rm.kill_application(app)


async def test_without_a_token_the_scheduler_says_what_it_takes(
    configuration: Configuration, user: str
) -> None:
    from howdah.hadoop.rpc import RpcClient

    addresses = configuration.rm_addresses("scheduler")
    async with RpcClient(addresses, Scheduler.PROTOCOL, user) as rpc:
        with pytest.raises(errors.AccessControl, match="TOKEN"):
            await rpc.call(
                "allocate", yarn.AllocateRequestProto(response_id=0), yarn.AllocateResponseProto
            )

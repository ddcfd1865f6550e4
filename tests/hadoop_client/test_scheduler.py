"""A master's heartbeat, on the real ResourceManager and NodeManagers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import pytest

import howdah
from howdah.hadoop import errors
from howdah.hadoop import scheduler as schedulers
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import AttemptId, ContainerId, Resource
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.scheduler import SUCCEEDED, AnswerLost, Scheduler
from howdah.hadoop.security.credentials import Token
from tests.hadoop.cluster import Cluster
from tests.hadoop.configuration import GPU, LICENCE
from tests.hadoop_client.masters import ask, master, state, submit_unmanaged, until


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


async def test_labels_nodes_and_resource_types_are_respected(
    hadoop: Cluster, configuration: Configuration, user: str
) -> None:
    async with master(configuration, user, queue="gpu") as mine:
        resource = Resource(64, 1, {GPU: 1, LICENCE: 2})
        await mine.beat(ask=[ask(1, resource, label="gpu")])
        await mine.beat_until("a GPU", lambda: bool(mine.containers))
        (container,) = mine.containers.values()
        given = Resource.from_proto(container.resource)
        assert (given.get(GPU), given.get(LICENCE)) == (1, 2)
        labels = {node["id"]: node.get("nodeLabels") for node in hadoop.nodes()}
        assert labels[f"{container.nodeId.host}:{container.nodeId.port}"] == ["gpu"]


async def test_what_can_never_be_given_is_refused_and_the_master_lives_on(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:
        with pytest.raises(errors.InvalidResourceRequest, match=GPU):
            await mine.beat(ask=[ask(1, Resource(64, 1, {GPU: 9}))])
        with pytest.raises(errors.InvalidResourceRequest, match="nosuch"):
            await mine.beat(ask=[ask(1, label="nosuch")])
        stranger = ContainerId(mine.attempt, 999999)
        await mine.beat(release=[stranger.to_proto()])
        assert len(await mine.obtain(1)) == 1


def at_most(already: int, tag: str) -> yarn.PlacementConstraintProto:
    """Only on a node that has no more than so many containers with that tag."""
    constraint = yarn.PlacementConstraintProto()
    simple = constraint.simpleConstraint
    simple.scope, simple.minCardinality, simple.maxCardinality = "node", 0, already
    simple.targetExpressions.add(
        targetType=yarn.PlacementConstraintTargetProto.TargetType.ALLOCATION_TAG, targetValues=[tag]
    )
    return constraint


async def test_a_placement_constraint_keeps_containers_apart(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:

        def request(
            number: int, limit: yarn.PlacementConstraintProto
        ) -> yarn.SchedulingRequestProto:
            made = yarn.SchedulingRequestProto(
                allocationRequestId=number,
                priority=yarn.PriorityProto(priority=number),
                allocationTags=["w"],
                placementConstraint=limit,
            )
            made.executionType.execution_type = yarn.ExecutionTypeProto.GUARANTEED
            made.resourceSizing.numAllocations = 2
            made.resourceSizing.resources.CopyFrom(Resource(64, 1).to_proto())
            return made

        await mine.beat(scheduling_requests=[request(5, at_most(0, "w"))])
        await mine.beat_until("two containers", lambda: len(mine.containers) == 2)
        assert len({mine.node_of(container) for container in mine.containers}) == 2
        assert {each.allocation_request_id for each in mine.containers.values()} == {5}
        # Two nodes without label: with one more each, there are two on both.
        await mine.beat(scheduling_requests=[request(6, at_most(1, "w"))])
        await mine.beat_until("two more", lambda: len(mine.containers) == 4)
        nodes = [mine.node_of(container) for container in mine.containers]
        assert {nodes.count(node) for node in nodes} == {2}


async def test_registering_twice_is_an_error_and_registering_again_is_not_needed(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user, register=False) as mine:
        with pytest.raises(RuntimeError, match="register"):
            await mine.scheduler.register_again()
        with pytest.raises(errors.ApplicationMasterNotRegistered):
            await mine.beat()
        answer = await mine.scheduler.register("127.0.0.1", -1, "http://127.0.0.1:1/")
        assert Resource.from_proto(answer.maximumCapability).get(GPU) == 2
        assert answer.queue.endswith("default")
        await mine.beat()
        with pytest.raises(errors.InvalidApplicationMasterRequest, match="already registered"):
            await mine.scheduler.register_again()


class Relay:
    """Between a master and the ResourceManager: does what it is told with the answer to the first
    registration."""

    def __init__(self, target: tuple[str, int], *, cut: bool) -> None:
        """``cut``: the connection ends instead of the answer; else that is held back until the
        master registers again, or a second has passed."""
        self._target = target
        self._cut = cut
        self._ways: set[asyncio.Task[None]] = set()
        self.registrations = 0
        self._answered = False
        self._again = asyncio.Event()

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._ways:
            task.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(*self._target)
        ways = {
            asyncio.create_task(self._up(reader, requests)),
            asyncio.create_task(self._down(answers, writer)),
        }
        self._ways |= ways
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        writer.close()
        requests.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if b"registerApplicationMaster" in data:
                self.registrations += 1
                if self.registrations > 1:
                    self._again.set()
            writer.write(data)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.registrations and not self._answered:
                self._answered = True
                if self._cut:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._again.wait()
            writer.write(data)


def through(configuration: Configuration, port: int) -> Configuration:
    """The same cluster, whose scheduler is at that port."""
    name = "yarn.resourcemanager.scheduler.address"
    return Configuration({**configuration.as_dict(), name: f"127.0.0.1:{port}"})


async def test_the_answer_to_a_registration_is_waited_for_longer_than_others(
    configuration: Configuration, user: str
) -> None:
    """It is given only once; whoever asked again would be told that it is registered."""
    address = configuration.rm_addresses("scheduler")[0]
    async with master(configuration, user, register=False) as mine:
        token = mine.scheduler.rpc.identity.token
        assert token is not None
        relay = Relay((address.host, address.port), cut=False)
        async with relay as port:
            impatient = RetryPolicy(max_wait_s=30.0, try_timeout_s=0.2)
            async with Scheduler(
                through(configuration, port), user, token, retry=impatient
            ) as scheduler:
                answer = await scheduler.register("127.0.0.1", -1, "")
                assert Resource.from_proto(answer.maximumCapability).memory_mb > 0
                await scheduler.allocate()
        assert relay.registrations == 1


async def test_a_registration_whose_answer_is_lost_has_been_made(
    configuration: Configuration, user: str
) -> None:
    address = configuration.rm_addresses("scheduler")[0]
    async with master(configuration, user, register=False) as mine:
        token = mine.scheduler.rpc.identity.token
        assert token is not None
        async with Relay((address.host, address.port), cut=True) as port:
            async with Scheduler(through(configuration, port), user, token) as scheduler:
                with pytest.raises(AnswerLost):
                    await scheduler.register("127.0.0.1", -1, "")
                await scheduler.allocate()


async def test_a_registration_that_has_failed_may_have_been_made(
    configuration: Configuration, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "_AGAIN_S", 3600.0)  # a try that fails uses up all the time
    address = configuration.rm_addresses("scheduler")[0]
    async with master(configuration, user, register=False) as mine:
        token = mine.scheduler.rpc.identity.token
        assert token is not None
        async with Relay((address.host, address.port), cut=True) as port:
            async with Scheduler(through(configuration, port), user, token) as scheduler:
                with pytest.raises(errors.ConnectionLost):
                    await scheduler.register("127.0.0.1", -1, "")
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


@pytest.mark.timeout(400)
async def test_a_second_attempt_gets_the_containers_and_tokens_of_the_first(
    configuration: Configuration, user: str, tmp_path: Path
) -> None:
    script, report = Path(__file__).with_name("second_attempt.py"), tmp_path / "report.json"
    async with ResourceManager(configuration, user) as rm:
        new = await rm.new_application()
        context = yarn.ApplicationSubmissionContextProto(
            application_id=new.id.to_proto(),
            applicationType="TEST",
            maxAppAttempts=2,
            keep_containers_across_application_attempts=True,
            resource=Resource(256, 1).to_proto(),
        )
        source = str(Path(howdah.__file__).parents[1])
        for key, value in (
            ("PYTHONPATH", source),
            ("HADOOP_CONF_DIR", str(configuration.folder)),
        ):
            context.am_container_spec.environment.add(key=key, value=value)
        context.am_container_spec.command.append(
            f"{sys.executable} {script} {report} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"
        )
        await rm.submit_and_wait(context)
        try:

            async def ended() -> bool:
                return state(await rm.application_report(new.id)) in ("FINISHED", "FAILED")

            await until("the second attempt's end", ended, 200.0)
            last = await rm.application_report(new.id)
            assert state(last) == "FINISHED", last.diagnostics
        finally:
            await rm.kill_application(new.id)
    told = json.loads(report.read_text())
    assert told["state"] == "C_RUNNING"
    assert told["stopped"]
    assert ContainerId.parse(told["container"]).attempt == AttemptId(new.id, 1)


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

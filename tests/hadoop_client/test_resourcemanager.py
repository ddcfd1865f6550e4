"""The ResourceManager's clients' calls, on the real one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from howdah.hadoop import errors
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, Resource
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager, SubmissionFailed
from howdah.hadoop.security.credentials import RM_TOKEN, Credentials
from tests.hadoop.cluster import Cluster
from tests.hadoop.configuration import LICENCE
from tests.hadoop_client.masters import state, until


async def submit(
    rm: ResourceManager, command: str = "sleep 600", **fields: object
) -> ApplicationId:
    """An application whose master is a shell command."""
    new = await rm.new_application()
    context = yarn.ApplicationSubmissionContextProto(
        application_id=new.id.to_proto(),
        application_name="client test",
        applicationType="TEST",
        resource=Resource(64, 1).to_proto(),
        maxAppAttempts=2,
        **fields,  # pyright: ignore[reportArgumentType]
    )
    context.am_container_spec.command.append(command)
    await rm.submit_and_wait(context)
    return new.id


async def test_nodes_queues_and_resource_types_are_told(
    hadoop: Cluster, configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user) as rm:
        metrics = await rm.cluster_metrics()
        assert metrics.num_active_nms == 1
        nodes = await rm.nodes()
        assert {f"{node.nodeId.host}:{node.nodeId.port}" for node in nodes} == {
            node["id"] for node in hadoop.nodes()
        }
        assert [Resource.from_proto(node.capability).get(LICENCE) for node in nodes] == [4]
        assert await rm.nodes(["LOST"]) == []
        root = await rm.queue(recursive=True)
        assert root is not None
        names = {child.queueName.rpartition(".")[2] for child in root.childQueues}
        assert names >= {"default", "gpu", "small", "pair"}
        assert "SUBMIT_APPLICATIONS" in (await rm.queue_user_acls())["root.default"]
        assert await rm.node_labels() == {}
        types = {each.name for each in await rm.resource_types()}
        assert types == {"memory-mb", "vcores", LICENCE}
        maximum = (await rm.new_application()).maximum
        assert maximum.get(LICENCE) == 4
        assert maximum.memory_mb == 12_288
        assert await rm.queue("nosuch") is None


async def test_an_application_is_submitted_watched_and_killed(
    configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user) as rm:
        app = await submit(rm, applicationTags=["tag-of-test"])
        try:
            report = await rm.application_report(app)
            assert (report.name, report.user, report.applicationType) == (
                "client test",
                user,
                "TEST",
            )
            wanted = yarn.GetApplicationsRequestProto(applicationTags=["tag-of-test"])
            (listed,) = await rm.applications(wanted)
            assert ApplicationId.from_proto(listed.applicationId) == app

            async def running() -> bool:
                return bool(await rm.containers(AttemptId(app, 1)))

            await until("the master's container", running)
            (container,) = await rm.containers(AttemptId(app, 1))
            id = ContainerId.from_proto(container.container_id)
            assert (await rm.container_report(id)).resource.memory == 64
            await rm.signal_container(id, "OUTPUT_THREAD_DUMP")
            assert len(await rm.attempts(app)) == 1
        finally:
            assert await rm.kill_application(app, "enough")
        report = await rm.application_report(app)
        assert state(report) == "KILLED"
        assert "enough" in report.diagnostics
        # Once more does no harm.
        assert await rm.kill_application(app)


async def test_what_the_cluster_refuses_comes_as_an_error_with_its_reason(
    configuration: Configuration, user: str
) -> None:
    nowhere = ApplicationId(5, 9999)
    async with ResourceManager(configuration, user) as rm:
        with pytest.raises(errors.ApplicationNotFound, match="application_5_9999"):
            await rm.application_report(nowhere)
        with pytest.raises(errors.ApplicationNotFound):
            await rm.kill_application(nowhere)
        with pytest.raises(errors.ApplicationNotFound):
            await rm.attempts(nowhere)
        with pytest.raises(SubmissionFailed, match="unknown queue: nosuch"):
            await submit(rm, queue="nosuch")
        new = await rm.new_application()
        huge = yarn.ApplicationSubmissionContextProto(
            application_id=new.id.to_proto(),
            am_container_spec=yarn.ContainerLaunchContextProto(),
            resource=Resource(1 << 20, 1).to_proto(),
        )
        with pytest.raises((errors.InvalidResourceRequest, SubmissionFailed), match="memory"):
            await rm.submit_and_wait(huge)


async def test_strangers_may_neither_touch_an_application_nor_use_a_closed_queue(
    configuration: Configuration, user: str
) -> None:
    async with (
        ResourceManager(configuration, user) as rm,
        ResourceManager(configuration, "mallory") as stranger,
    ):
        app = await submit(rm)
        try:
            with pytest.raises(errors.AccessControl, match="mallory"):
                await stranger.kill_application(app)
        finally:
            await rm.kill_application(app)
        assert "SUBMIT_APPLICATIONS" not in (await stranger.queue_user_acls())["root.closed"]
        with pytest.raises((errors.AccessControl, SubmissionFailed), match="closed"):
            await submit(stranger, queue="closed")


async def test_a_delegation_token_speaks_for_its_user_until_it_is_cancelled(
    configuration: Configuration,
) -> None:
    address = configuration.rm_addresses()[0]
    async with ResourceManager(configuration, "alice") as rm:
        token = await rm.delegation_token("alice")
        assert (token.kind, token.service) == (RM_TOKEN, str(address))
        assert await rm.renew_token(token) > datetime.now(UTC)
        async with ResourceManager(configuration, "somebody", token=token) as other:
            app = await submit(other)
            assert (await rm.application_report(app)).user == "alice"
            assert await other.kill_application(app)
        await rm.cancel_token(token)
        async with ResourceManager(configuration, "alice", token=token) as other:
            with pytest.raises(errors.InvalidToken):
                await other.cluster_metrics()


async def test_a_call_to_a_server_of_another_protocol_is_told(
    configuration: Configuration, user: str
) -> None:
    """A client port of the ResourceManager, where the NameNode's was meant."""
    rm_address = configuration.rm_addresses()[0]
    wrong = configuration.with_values({"fs.defaultFS": f"hdfs://{rm_address}"})
    from howdah.hadoop.namenode import NameNode

    async with NameNode(wrong, user) as nn:
        with pytest.raises(errors.UnknownMethod, match="ClientProtocol"):
            await nn.fs_stats()


def test_credentials_for_a_container_are_what_yarn_reads() -> None:
    """The bytes of a launch context's tokens are a credential file's."""
    given = Credentials(secrets={"k": b"v"})
    assert Credentials.read(given.to_bytes()) == given

"""Batches of containers on a real NodeManager, and what it refuses."""

from __future__ import annotations

import pytest

from howdah.hadoop import errors
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ContainerId
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import Credentials, Token
from tests.hadoop_client.masters import master


async def test_a_batch_tells_of_each_container_what_became_of_it(
    configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:
        containers = await mine.obtain(4)
        by_node = {mine.node_of(c): [] for c in containers}
        for container in containers:
            by_node[mine.node_of(container)].append(container)
        for node, batch in by_node.items():
            async with mine.node_manager(node) as nm:
                requests = {c: mine.start_request(c, "sleep 600") for c in batch}
                good = await nm.start_containers(requests)
                assert set(good.done) == set(batch)
                assert not good.failed
                # Each token starts one container, once.
                again = await nm.start_containers(requests)
                assert again.done == ()
                assert "relaunch" in again.failed[batch[0]].message
                unknown = ContainerId(mine.attempt, 424242)
                found = await nm.statuses([*batch, unknown])
                assert set(found.found) == set(batch)
                assert set(found.failed) == {unknown}
                await nm.signal_container(batch[0], "FORCEFUL_SHUTDOWN")
                assert set((await nm.stop_containers([*batch, unknown])).done) >= set(batch)


async def test_a_container_finds_the_credentials_that_came_with_it(
    configuration: Configuration, user: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Secret keys reach it in the file that HADOOP_TOKEN_FILE_LOCATION names."""
    target = tmp_path_factory.mktemp("tokens") / "copy"
    given = Credentials({"t": Token(b"i", b"p", "KIND", "service")}, {"agent.key": bytes(300)})
    async with master(configuration, user) as mine:
        (container,) = await mine.obtain(1)
        command = f"cp '$HADOOP_TOKEN_FILE_LOCATION' {target}".replace("'", "")
        request = mine.start_request(container, command)
        request.container_launch_context.tokens = given.to_bytes()
        async with mine.node_manager(mine.node_of(container)) as nm:
            assert (await nm.start_containers({container: request})).done == (container,)
        await mine.beat_until("its end", lambda: container in mine.completed)
        assert mine.completed[container].exit_status == 0
        found = Credentials.read(target)
        assert found.secrets["agent.key"] == bytes(300)
        assert found.tokens["t"] == given.tokens["t"]


async def test_a_token_for_another_node_is_refused(configuration: Configuration, user: str) -> None:
    async with master(configuration, user) as mine:
        (container,) = await mine.obtain(1)
        node = mine.node_of(container)
        token = mine.tokens[node]
        forged = Token(token.identifier, b"x" * len(token.password), token.kind)
        quick = RetryPolicy(max_wait_s=5.0)
        async with NodeManager(configuration, node, user, forged, retry=quick) as nm:
            with pytest.raises((errors.AuthenticationError, errors.InvalidToken)):
                await nm.statuses([container])


async def test_a_start_whose_answer_is_lost_is_counted_once(
    configuration: Configuration, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends after the node has started the containers."""
    async with master(configuration, user) as mine:
        containers = await mine.obtain(2)
        async with mine.node_manager(mine.node_of(containers[0])) as nm:
            here = [c for c in containers if mine.node_of(c) == mine.node_of(containers[0])]
            call = nm.rpc.call
            lost: list[object] = []

            async def loses_the_answer(method: str, *args: object, **options: object) -> object:
                answer = await call(method, *args, **options)  # pyright: ignore
                if method == "startContainers" and not lost:
                    lost.append(answer)
                    raise errors.ConnectionLost("cut by the test")
                return answer

            monkeypatch.setattr(nm.rpc, "call", loses_the_answer)
            outcome = await nm.start_containers(
                {c: mine.start_request(c, "sleep 600") for c in here}
            )
            assert len(lost) == 1
            assert set(outcome.done) == set(here)
            assert not outcome.failed
            statuses = (await nm.statuses(here)).found
            assert {s.state for s in statuses.values()} == {yarn.ContainerStateProto.C_RUNNING}

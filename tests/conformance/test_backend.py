"""The contract of `howdah.backends.base.Backend`, kept by every backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from howdah.backends.base import BackendError
from howdah.core.messages import ContainerEnded, ContainerEndKind, ContainerGranted
from tests.conformance.harness import Coordinator, Harness, Make, job, of_a_job, run


async def none_left(harness: Harness, pids: Sequence[int]) -> None:
    """Nothing of a container is left when its end is told, or very soon."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + harness.settling_s
    while left := await harness.alive(pids):
        assert loop.time() < deadline, f"{left} are left"
        await asyncio.sleep(0.01)


@of_a_job
async def test_a_new_job_holds_nothing(_: Harness, coordinator: Coordinator) -> None:
    assert list(coordinator.held) == []


@of_a_job
async def test_each_request_is_granted_once_even_when_asked_for_again(
    _: Harness, coordinator: Coordinator
) -> None:
    first = await coordinator.grant(1, 2)
    await coordinator.ask(1, 2)
    third = await coordinator.grant(3)  # whatever came of the second asking is here by now
    assert len({*first, *third}) == 3
    assert [e.request_id for e in coordinator.all(ContainerGranted)] == [1, 2, 3]
    assert all(e.node for e in coordinator.all(ContainerGranted))


@of_a_job
async def test_what_can_never_be_granted_is_refused_in_words(
    harness: Harness, coordinator: Coordinator
) -> None:
    other = Coordinator(coordinator.backend)
    try:
        await other.start(harness.roles)
    except BackendError as error:
        assert "big" in str(error)
        return
    await other.ask(1, role="big")
    assert (await other.refused(1)).reason


@of_a_job
async def test_an_unknown_role_is_refused(_: Harness, coordinator: Coordinator) -> None:
    await coordinator.ask(1, role="nobody")
    assert "nobody" in (await coordinator.refused(1)).reason


@of_a_job
async def test_taking_back_a_request_that_is_granted_or_unknown_is_harmless(
    _: Harness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    await coordinator.backend.cancel([1, 77])
    await coordinator.backend.release(container)
    assert (await coordinator.ended(container)).kind is ContainerEndKind.RELEASED


@of_a_job
async def test_a_container_released_before_its_launch_ends_as_released(
    harness: Harness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    await coordinator.backend.release(container)
    ended = await coordinator.ended(container)
    assert ended.kind is ContainerEndKind.RELEASED
    await harness.launch(coordinator, container, "wait")  # too late, and harmless
    await coordinator.grant(2)
    assert coordinator.all(ContainerEnded) == [ended]


@of_a_job
async def test_a_container_released_during_its_launch_ends_and_leaves_nothing(
    harness: Harness, coordinator: Coordinator
) -> None:
    containers = await coordinator.grant(1, 2, 3, 4)
    for container in containers:
        await harness.launch(coordinator, container, "wait")
        await coordinator.backend.release(container)
    for container in containers:
        await coordinator.ended(container)
    assert len(coordinator.all(ContainerEnded)) == 4


@of_a_job
async def test_an_agent_runs_once_however_often_it_is_launched(
    harness: Harness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "wait")
    await harness.launch(coordinator, container, "wait")
    pids = await harness.pids(container)
    await harness.launch(coordinator, container, "wait")
    await coordinator.backend.release(container)
    await coordinator.ended(container)
    assert len(pids) == 1
    assert await harness.pids(container) == pids


@pytest.mark.parametrize("code", [0, 3])
@of_a_job
async def test_an_agent_that_ends_by_itself_ends_its_container(
    harness: Harness, coordinator: Coordinator, code: int
) -> None:
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, f"exit:{code}")
    ended = await coordinator.ended(container)
    assert ended.kind is ContainerEndKind.EXITED
    assert code == 0 or str(code) in ended.detail


@of_a_job
async def test_a_launch_that_fails_is_reported(harness: Harness, coordinator: Coordinator) -> None:
    await harness.break_launches()
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "wait")
    ended = await coordinator.ended(container)
    assert ended.kind is ContainerEndKind.LAUNCH_FAILED
    assert ended.detail


@pytest.mark.parametrize("word", ["wait", "stubborn", "children", "hidden"])
@of_a_job
async def test_release_ends_every_process_before_it_says_so(
    harness: Harness, coordinator: Coordinator, word: str
) -> None:
    if word == "hidden" and not harness.sees_hidden:
        pytest.skip("this backend does not find such a process")
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, word)
    pids = await harness.pids(container)
    assert await harness.alive(pids) == pids
    await coordinator.backend.release(container)
    ended = await coordinator.ended(container)
    await none_left(harness, pids)
    assert ended.kind is ContainerEndKind.RELEASED


@pytest.mark.parametrize("word", ["wait", "children", "hidden"])
@of_a_job
async def test_a_killed_agent_leaves_nothing_when_its_end_is_told(
    harness: Harness, coordinator: Coordinator, word: str
) -> None:
    if word == "hidden" and not harness.sees_hidden:
        pytest.skip("this backend does not find such a process")
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, word)
    pids = await harness.pids(container)
    await harness.kill_agent(container)
    ended = await coordinator.ended(container)
    await none_left(harness, pids)
    assert ended.kind is ContainerEndKind.EXITED


@of_a_job
async def test_releasing_a_container_twice_or_after_its_end_tells_its_end_once(
    harness: Harness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "wait")
    await coordinator.backend.release(container)
    await coordinator.backend.release(container)
    await coordinator.ended(container)
    await coordinator.backend.release(container)
    await coordinator.backend.release("never-heard-of")
    await coordinator.grant(2)
    assert len(coordinator.all(ContainerEnded)) == 1


@of_a_job
async def test_the_end_of_one_container_leaves_its_neighbours_alone(
    harness: Harness, coordinator: Coordinator
) -> None:
    containers = await coordinator.grant(1, 2, 3)
    for container in containers:
        await harness.launch(coordinator, container, "children")
    pids = [await harness.pids(container) for container in containers]
    await harness.kill_agent(containers[1])
    await coordinator.ended(containers[1])
    await none_left(harness, pids[1])
    assert await harness.alive(pids[0] + pids[2]) == pids[0] + pids[2]


@of_a_job
async def test_a_new_coordinator_finds_the_containers_of_a_dead_one(
    harness: Harness, first: Coordinator
) -> None:
    containers = await first.grant(1, 2)
    for container in containers:
        await harness.launch(first, container, "wait")
    pids = [await harness.pids(container) for container in containers]
    await harness.crash(first)
    second = await harness.coordinator()
    assert sorted(second.held) == sorted(containers)
    if harness.asks_again:
        await second.ask(1, 2)  # as it would if it could not know that they were granted
    await second.backend.release(containers[0])
    await second.ended(containers[0])
    await none_left(harness, pids[0])
    assert await harness.alive(pids[1]) == pids[1]
    assert second.all(ContainerGranted) == []


@of_a_job
async def test_an_end_nobody_heard_of_is_told_to_the_next_coordinator(
    harness: Harness, first: Coordinator
) -> None:
    (container,) = await first.grant(1)
    await harness.launch(first, container, "children")
    pids = await harness.pids(container)
    await harness.crash(first)
    await harness.kill_agent(container)
    second = await harness.coordinator()
    told = list(second.held)
    assert told in ([container], [])
    for held in told:  # one that is not held any more is known to have ended
        await second.ended(held)
    await none_left(harness, pids)
    assert len(second.all(ContainerEnded)) == len(told)


@of_a_job
async def test_a_new_coordinator_can_launch_more(harness: Harness, first: Coordinator) -> None:
    (old,) = await first.grant(1)
    await harness.launch(first, old, "wait")
    await harness.pids(old)
    await harness.crash(first)
    second = await harness.coordinator()
    (new,) = await second.grant(2)
    assert new != old
    await harness.launch(second, new, "wait")
    assert await harness.alive(await harness.pids(new))


def test_closing_ends_what_was_not_released(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "children")
            pids = await harness.pids(container)
        await none_left(harness, pids)

    run(test)
